//! Draws the state in any size. It sets no background colour, and uses only colours that are readable on light and dark.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::rows::{Column, Pane, ScreenCell, TopRow};
use super::state::{TopPage, TopState};
use crate::output::clean::clean_line;
use crate::output::table::Tone;
use taskqueue_engine::inspect::top::Change;
use taskqueue_views::human::{counters, instant};

/// The height of the smallest pane: its title, the column names, a row.
const SMALLEST: u16 = 3;
/// From this width on, the panes are drawn side by side.
const SIDE_BY_SIDE: u16 = 160;
/// Columns between two table columns, and the smallest width of the last one.
const BETWEEN: usize = 2;
const LEAST_OF_LAST: usize = 12;
/// How many rates are drawn.
const BARS: usize = 20;

const KEYS: &[&str] =
    &["q quit", "? help", "Enter open", "/ filter", "c cancel", "r retry", "p pause", "P pause all", "Tab next pane"];

const HELP: &[&str] = &[
    "Tab, arrows, h j k l   choose a pane and a row; PageUp, PageDown, g, G, mouse wheel too",
    "Enter                  open the task: why, attempts, output; refreshed",
    "f                      open the task at the end of its output; there: stop or continue",
    "/                      show only rows that contain a text; Escape shows all",
    "Escape                 back",
    "c                      cancel the task",
    "r                      retry the failed task, with all its retries",
    "p                      pause or resume the class; without a chosen class, everything",
    "P                      pause or resume everything",
    "Ctrl-L, Ctrl-Z         redraw, suspend",
    "q, Ctrl-C              quit",
    "",
    "A key that changes something asks first; y confirms.",
    "green: running   yellow: dead, due or paused   red: failed",
];

/// Where to draw.
struct Canvas<'a> {
    buffer: &'a mut Buffer,
    use_color: bool,
}

impl Canvas<'_> {
    /// Writes words in an area, cut if they do not fit; returns how many columns they took.
    fn put(&mut self, area: Rect, x: u16, y: u16, words: &ScreenCell, width: u16, modifier: Modifier) -> u16 {
        let width = width.min(area.width.saturating_sub(x));
        if y >= area.height || width == 0 {
            return 0;
        }
        let (x, y) = (area.x + x, area.y + y);
        let style = self.style(words.1).add_modifier(modifier);
        let (end, _) = self.buffer.set_stringn(x, y, cut(&words.0, width.into()), width.into(), style);
        end - x
    }

    fn style(&self, tone: Tone) -> Style {
        let style = match tone {
            Tone::Plain | Tone::Good | Tone::Waiting => Style::new(),
            Tone::Bad => Style::new().add_modifier(Modifier::BOLD),
            Tone::Quiet => Style::new().add_modifier(Modifier::DIM),
        };
        match tone {
            Tone::Good if self.use_color => style.fg(Color::Green),
            Tone::Waiting if self.use_color => style.fg(Color::Yellow),
            Tone::Bad if self.use_color => style.fg(Color::Red),
            _ => style,
        }
    }

    /// Inverts a part of a line.
    fn mark(&mut self, area: Rect, y: u16) {
        let line = Rect::new(area.x, area.y.saturating_add(y), area.width, 1).intersection(area);
        self.buffer.set_style(line, Style::new().add_modifier(Modifier::REVERSED));
    }
}

/// Draws the whole screen.
pub(crate) fn draw(state: &TopState, use_color: bool, area: Rect, buffer: &mut Buffer) {
    let canvas = &mut Canvas { buffer, use_color };
    let Some(above) = area.height.checked_sub(1) else { return };
    let body = Rect { height: above, ..area };
    match &state.page {
        _ if state.shows_help => draw_lines(canvas, body, "Keys", HELP.iter().copied()),
        Some(page) => draw_page(canvas, body, page, state.trouble.as_deref()),
        None => {
            let used = draw_header(canvas, body, state);
            let rest = Rect { y: body.y + used, height: above - used, ..body };
            draw_panes(canvas, rest, state);
        }
    }
    draw_last_line(canvas, Rect { y: area.y + above, height: 1, ..area }, state);
}

/// Returns one frame of this size as plain text.
pub(crate) fn plain_text(state: &TopState, columns: u16, rows: u16) -> String {
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    draw(state, false, area, &mut buffer);
    let lines = buffer.content().chunks(usize::from(columns.max(1))).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// Draws the counters in as many lines as they need; returns their number.
fn draw_header(canvas: &mut Canvas<'_>, area: Rect, state: &TopState) -> u16 {
    let now = state.now.map(instant).unwrap_or_default();
    let mut parts: Vec<ScreenCell> = vec![("taskqueue".to_owned(), Tone::Plain), (now, Tone::Plain)];
    parts.push((state.database.clone(), Tone::Plain));
    let mut used = flow(canvas, area, 0, &parts);
    let counted: Vec<ScreenCell> = match &state.counts {
        Some(counts) => counters(counts, state.slots).into_iter().map(toned).collect(),
        None => vec![(format!("slots {}/{}", state.slots.0, state.slots.1), Tone::Plain)],
    };
    used = flow(canvas, area, used, &counted);
    if state.counts.is_some() {
        used = flow(canvas, area, used, &throughput(state));
    }
    if !state.filter.is_empty() && !state.is_filtering {
        used = flow(canvas, area, used, &[(format!("filter: {} (Escape shows all)", state.filter), Tone::Waiting)]);
    }
    if !state.pauses.is_empty() {
        let scopes: Vec<String> = state.pauses.iter().map(|pause| pause.scope.to_string()).collect();
        let words = clean_line(&format!("paused: {}", scopes.join(", ")));
        used = flow(canvas, area, used, &[(words, Tone::Waiting)]);
    }
    if let Some(trouble) = &state.trouble {
        let words: Vec<ScreenCell> = trouble.split(' ').map(|word| (word.to_owned(), Tone::Bad)).collect();
        used = flow_with(canvas, area, used, &words, 1);
    }
    used
}

/// Adds the colour that fits the counter.
fn toned(counter: String) -> ScreenCell {
    let is_none = counter.ends_with(" 0");
    let tone = match counter.split(' ').next() {
        _ if is_none => Tone::Plain,
        Some("failed" | "timeout" | "quarantined") => Tone::Bad,
        Some("running") => Tone::Good,
        Some("due" | "oldest") => Tone::Waiting,
        _ => Tone::Plain,
    };
    (counter, tone)
}

fn throughput(state: &TopState) -> Vec<ScreenCell> {
    let rates = state.throughput;
    let mut parts = vec![
        (format!("done {:.1}/s", rates.lately), Tone::Plain),
        (format!("{:.1}/s in the last minute", rates.last_minute), Tone::Plain),
    ];
    let shown: Vec<f64> = state.history.iter().skip(state.history.len().saturating_sub(BARS)).copied().collect();
    if shown.len() > 1 {
        parts.push((bars(&shown), Tone::Good));
    }
    parts
}

/// Formats `▁▃█`, scaled to the highest rate.
fn bars(rates: &[f64]) -> String {
    const LEVELS: [(f64, char); 8] =
        [(0.125, '▁'), (0.25, '▂'), (0.375, '▃'), (0.5, '▄'), (0.625, '▅'), (0.75, '▆'), (0.875, '▇'), (1.0, '█')];
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let bar = |rate: &f64| {
        let share = if highest > 0.0 { rate / highest } else { 0.0 };
        LEVELS.iter().find(|(most, _)| share <= *most).map_or('█', |(_, bar)| *bar)
    };
    rates.iter().map(bar).collect()
}

fn flow(canvas: &mut Canvas<'_>, area: Rect, from: u16, parts: &[ScreenCell]) -> u16 {
    flow_with(canvas, area, from, parts, 3)
}

/// Draws parts one after the other in as many lines as needed; returns the next line.
fn flow_with(canvas: &mut Canvas<'_>, area: Rect, from: u16, parts: &[ScreenCell], between: u16) -> u16 {
    let (mut x, mut y) = (0_u16, from);
    for part in parts.iter().filter(|part| !part.0.is_empty()) {
        let length = u16::try_from(part.0.chars().count()).unwrap_or(u16::MAX);
        if x > 0 && x.saturating_add(between).saturating_add(length) > area.width {
            (x, y) = (0, y + 1);
        } else if x > 0 {
            x += between;
        }
        x += canvas.put(area, x, y, part, area.width, Modifier::empty());
    }
    (y + 1).min(area.height)
}

fn draw_panes(canvas: &mut Canvas<'_>, area: Rect, state: &TopState) {
    let groups: &[&[Pane]] = if area.width >= SIDE_BY_SIDE {
        &[&[Pane::Runners, Pane::Queues, Pane::Schedules], &[Pane::Running, Pane::Failures]]
    } else {
        &[&Pane::ALL]
    };
    let number = u16::try_from(groups.len()).unwrap_or(1);
    let width = (area.width - (number - 1)) / number;
    for (place, panes) in (0..number).zip(groups) {
        let needs: Vec<u16> = panes.iter().map(|pane| need_of(state.rows(*pane))).collect();
        let focus = panes.iter().position(|pane| *pane == state.pane());
        let mut y = area.y;
        for (pane, height) in panes.iter().zip(shares(area.height, &needs, focus)) {
            draw_pane(canvas, Rect::new(area.x + place * (width + 1), y, width, height), *pane, state);
            y += height;
        }
    }
}

fn need_of(rows: &[TopRow]) -> u16 {
    u16::try_from(rows.len() + 2).unwrap_or(u16::MAX).max(SMALLEST)
}

/// Returns how many lines each pane gets: what it needs, the focused one first. If there is no room for all, only that one.
fn shares(total: u16, needs: &[u16], focus: Option<usize>) -> Vec<u16> {
    let least = u16::try_from(needs.len()).unwrap_or(u16::MAX).saturating_mul(SMALLEST);
    let Some(mut left) = total.checked_sub(least) else {
        let alone = focus.unwrap_or(0);
        return (0..needs.len()).map(|place| if place == alone { total } else { 0 }).collect();
    };
    let mut shares = vec![SMALLEST; needs.len()];
    for place in focus.into_iter().chain(0..needs.len()) {
        let more = needs[place].saturating_sub(shares[place]).min(left);
        shares[place] += more;
        left -= more;
    }
    shares
}

fn draw_pane(canvas: &mut Canvas<'_>, area: Rect, pane: Pane, state: &TopState) {
    let (rows, has_focus) = (state.rows(pane), state.pane() == pane);
    let mark = if has_focus { "▸" } else { "─" };
    let title = format!("{mark} {} {} {}", pane.title(), rows.len(), "─".repeat(area.width.into()));
    let weight = if has_focus { Modifier::BOLD } else { Modifier::empty() };
    canvas.buffer.set_stringn(
        area.x,
        area.y,
        if area.height > 0 { title.as_str() } else { "" },
        area.width.into(),
        Style::new().add_modifier(weight),
    );
    if rows.is_empty() {
        canvas.put(area, 0, 1, &(state.if_none(pane), Tone::Quiet), area.width, Modifier::empty());
        return;
    }
    let columns = fitted(pane.columns(), rows, area.width.into());
    let names = pane.columns().iter().map(|column| (column.0.to_owned(), Tone::Quiet)).collect::<Vec<_>>();
    draw_row(canvas, area, 1, &names, &columns);
    let room = usize::from(area.height.saturating_sub(2));
    let selected = state.selected(pane);
    let first = (selected + 1).saturating_sub(room);
    for (y, (place, row)) in (2..area.height).zip(rows.iter().enumerate().skip(first)) {
        draw_row(canvas, area, y, &row.cells, &columns);
        if has_focus && place == selected {
            canvas.mark(area, y);
        }
    }
}

/// A shown table column: its index, its position, its width.
type ShownPart = (usize, u16, u16);

fn draw_row(canvas: &mut Canvas<'_>, area: Rect, y: u16, cells: &[ScreenCell], columns: &[ShownPart]) {
    for (place, x, width) in columns {
        if let Some(cell) = cells.get(*place) {
            canvas.put(area, *x, y, cell, *width, Modifier::empty());
        }
    }
}

/// Returns the columns that fit.
fn fitted(columns: &[Column], rows: &[TopRow], width: usize) -> Vec<ShownPart> {
    let length = |place: usize| {
        let cells = rows.iter().filter_map(|row| row.cells.get(place)).map(|cell| cell.0.chars().count());
        cells.max().unwrap_or(0).max(columns[place].0.len()).min(width)
    };
    let lengths: Vec<usize> = (0..columns.len()).map(length).collect();
    let last = columns.len().saturating_sub(1);
    let need = |kept: &[usize]| -> usize {
        let lengths =
            kept.iter().map(|place| if *place == last { lengths[last].min(LEAST_OF_LAST) } else { lengths[*place] });
        lengths.sum::<usize>() + BETWEEN * kept.len().saturating_sub(1)
    };
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    while need(&kept) > width {
        let Some(least) =
            kept.iter().copied().filter(|place| columns[*place].1 > 0).max_by_key(|place| columns[*place].1)
        else {
            break;
        };
        kept.retain(|place| *place != least);
    }
    let mut widths: Vec<usize> = kept.iter().map(|place| lengths[*place]).collect();
    let room = width.saturating_sub(BETWEEN * kept.len().saturating_sub(1));
    narrow(&mut widths, room);
    let (mut x, mut shown) = (0, Vec::new());
    for (place, width) in kept.into_iter().zip(widths) {
        shown.push((place, u16::try_from(x).unwrap_or(u16::MAX), u16::try_from(width).unwrap_or(u16::MAX)));
        x += width + BETWEEN;
    }
    shown
}

/// Narrows the widest columns until all of them fit.
fn narrow(widths: &mut [usize], room: usize) {
    let mut excess = widths.iter().sum::<usize>().saturating_sub(room);
    while excess > 0 {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > 1) else { return };
        *widest -= 1;
        excess -= 1;
    }
}

fn draw_page(canvas: &mut Canvas<'_>, area: Rect, page: &TopPage, trouble: Option<&str>) {
    let title = match (trouble, page.is_followed) {
        (Some(trouble), _) => trouble.to_owned(),
        (None, true) => format!("task {}, followed", page.task),
        (None, false) => format!("task {}", page.task),
    };
    draw_lines(canvas, area, &title, page.lines.iter().map(String::as_str).skip(page.top));
}

fn draw_lines<'a>(canvas: &mut Canvas<'_>, area: Rect, title: &str, lines: impl Iterator<Item = &'a str>) {
    canvas.put(area, 0, 0, &(title.to_owned(), Tone::Plain), area.width, Modifier::BOLD);
    for (y, line) in (1..area.height).zip(lines) {
        canvas.put(area, 0, y, &(line.to_owned(), Tone::Plain), area.width, Modifier::empty());
    }
}

fn draw_last_line(canvas: &mut Canvas<'_>, area: Rect, state: &TopState) {
    if state.is_filtering {
        let words = (format!("/{}_   Enter keeps it, Escape shows all", state.filter), Tone::Waiting);
        canvas.put(area, 0, 0, &words, area.width, Modifier::BOLD);
        return;
    }
    let words = match (&state.question, &state.message) {
        (Some(change), _) => (format!("{} y/n", question(change)), Tone::Waiting),
        (None, Some(message)) => (message.clone(), Tone::Plain),
        (None, None) => {
            draw_keys(canvas, area);
            return;
        }
    };
    canvas.put(area, 0, 0, &words, area.width, Modifier::BOLD);
}

/// Draws as many key hints as fit.
fn draw_keys(canvas: &mut Canvas<'_>, area: Rect) {
    let mut x = 0;
    for key in KEYS {
        let length = u16::try_from(key.len()).unwrap_or(u16::MAX);
        if x + length > area.width {
            return;
        }
        x += canvas.put(area, x, 0, &((*key).to_owned(), Tone::Plain), length, Modifier::empty()) + 2;
    }
}

fn question(change: &Change) -> String {
    let words = match change {
        Change::Cancel(task) => format!("cancel task {task}?"),
        Change::Retry(task) => format!("retry task {task}?"),
        Change::Pause(scope) => format!("pause {scope}?"),
        Change::Resume(scope) => format!("resume {scope}?"),
    };
    clean_line(&words)
}

/// Cuts text that does not fit, with an ellipsis.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}
