//! What is shown and selected; only data and keys change it.

use std::collections::VecDeque;

use chrono::{DateTime, Utc};

use super::keys::TopKey;
use super::rows::{self, Pane, RowId, TopRow};
use crate::output::clean::clean_line;
use taskqueue_domain::limits::pause::{Pause, PauseScope};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::inspect::status::TaskCounts;
use taskqueue_engine::inspect::top::{Change, Glance, Throughput, TopCounts};

/// How many rates are kept.
const HISTORY: usize = 60;
const PANES: usize = Pane::ALL.len();
/// The longest filter.
const FILTER_CHARS: usize = 60;
/// Lines for the title and the last line of a page.
const AROUND_PAGE: usize = 2;

/// A command of a key that the screen itself cannot execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopCommand {
    Quit,
    Suspend,
    Redraw,
    Details(TaskId),
    Change(Change),
}

/// The selected position in a pane.
#[derive(Clone, Debug, Default)]
struct CursorPlace {
    index: usize,
    id: Option<RowId>,
}

/// A task that is shown in detail.
#[derive(Clone, Debug)]
pub(super) struct TopPage {
    pub(super) task: TaskId,
    class: Option<String>,
    pub(super) lines: Vec<String>,
    /// The first visible line.
    pub(super) top: usize,
    pub(super) is_followed: bool,
    /// Whether the next details are shown from their first line.
    starts_at_top: bool,
}

/// The whole screen.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopState {
    pub(super) database: String,
    pub(super) now: Option<DateTime<Utc>>,
    pub(super) slots: (i64, i64),
    pub(super) pauses: Vec<Pause>,
    pub(super) counts: Option<TaskCounts>,
    pub(super) throughput: Throughput,
    /// Recent rates, oldest first.
    pub(super) history: VecDeque<f64>,
    /// All rows of each pane, and those that match the filter.
    all: [Vec<TopRow>; PANES],
    panes: [Vec<TopRow>; PANES],
    places: [CursorPlace; PANES],
    pane: usize,
    height: usize,
    /// The change that is made after a yes.
    pub(super) question: Option<Change>,
    /// The result of the last change.
    pub(super) message: Option<String>,
    /// Why the data is not up to date.
    pub(super) trouble: Option<String>,
    pub(super) page: Option<TopPage>,
    pub(super) shows_help: bool,
    /// Only rows that contain this text are shown.
    pub(super) filter: String,
    /// Whether keys edit the filter.
    pub(super) is_filtering: bool,
}

impl TopState {
    /// Creates the screen of this database, without data.
    pub(crate) fn new(database: &str) -> Self {
        Self { database: clean_line(database), pane: index_of(Pane::Running), ..Self::default() }
    }

    pub(crate) fn take_glance(&mut self, glance: &Glance) {
        self.now = Some(glance.now);
        self.slots = glance.slots;
        self.pauses.clone_from(&glance.pauses);
        self.trouble = None;
        self.set_rows(Pane::Runners, &glance.runners, |line| rows::runner(line, glance.now));
        self.set_rows(Pane::Running, &glance.running, |line| rows::run(line, glance.now));
        self.set_rows(Pane::Failures, &glance.failures, |task| rows::failure(task, glance.now));
    }

    pub(crate) fn take_tally(&mut self, tally: &TopCounts) {
        self.counts = Some(tally.counts.clone());
        self.throughput = tally.throughput;
        self.history.push_back(tally.throughput.lately);
        while self.history.len() > HISTORY {
            self.history.pop_front();
        }
        let (now, pauses) = (self.now.unwrap_or_default(), self.pauses.clone());
        self.set_rows(Pane::Queues, &tally.classes, |class| rows::queue(class, &pauses));
        self.set_rows(Pane::Schedules, &tally.schedules, |schedule| rows::schedule(schedule, now));
    }

    /// Sets the details of a task, in lines that fit the screen.
    pub(crate) fn take_details(&mut self, task: TaskId, lines: Vec<String>) {
        let room = self.room_of_page();
        let Some(page) = self.page.as_mut().filter(|page| page.task == task) else { return };
        let was_at_end = !std::mem::take(&mut page.starts_at_top) && page.top + room >= page.lines.len();
        page.lines = lines;
        let last = page.lines.len().saturating_sub(room);
        page.top = if page.is_followed && was_at_end { last } else { page.top.min(last) };
    }

    pub(crate) fn say(&mut self, words: &str) {
        self.message = Some(clean_line(words));
    }

    /// Sets the problem to show. Returns true if it is new.
    pub(crate) fn complain(&mut self, words: &str) -> bool {
        let trouble = Some(clean_line(words));
        let is_new = self.trouble != trouble;
        self.trouble = trouble;
        is_new
    }

    pub(crate) fn resize(&mut self, rows: u16) {
        self.height = usize::from(rows);
    }

    /// Returns the task that is shown in detail.
    pub(crate) fn opened(&self) -> Option<TaskId> {
        self.page.as_ref().map(|page| page.task)
    }

    /// Returns that task if its details must be refreshed.
    pub(crate) fn followed(&self) -> Option<TaskId> {
        self.page.as_ref().filter(|page| page.is_followed).map(|page| page.task)
    }

    pub(super) fn rows(&self, pane: Pane) -> &[TopRow] {
        &self.panes[index_of(pane)]
    }

    pub(super) fn selected(&self, pane: Pane) -> usize {
        self.places[index_of(pane)].index
    }

    pub(super) fn pane(&self) -> Pane {
        Pane::ALL[self.pane]
    }

    fn room_of_page(&self) -> usize {
        self.height.saturating_sub(AROUND_PAGE)
    }

    fn set_rows<T>(&mut self, pane: Pane, found: &[T], row: impl Fn(&T) -> TopRow) {
        self.all[index_of(pane)] = found.iter().map(row).collect();
        self.show_matching(pane);
    }

    fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        for pane in Pane::ALL {
            self.show_matching(pane);
        }
    }

    /// Returns why a pane is empty.
    pub(super) fn if_none(&self, pane: Pane) -> String {
        let none = pane.if_none();
        if !self.filter.is_empty() && !self.all[index_of(pane)].is_empty() {
            return format!("no row contains \"{}\"", self.filter);
        }
        let waiting = self.counts.as_ref().map(|counts| counts.due.count + counts.waiting_runs.count);
        let why = match (pane, waiting) {
            (Pane::Running | Pane::Queues, Some(0)) => "no task is due",
            (Pane::Running, Some(_)) if self.pauses.iter().any(|pause| pause.scope == PauseScope::All) => {
                "everything is paused"
            }
            (Pane::Running, Some(_)) if self.all[index_of(Pane::Runners)].is_empty() => "no runner is alive",
            (Pane::Runners, Some(1..)) => "`taskqueue work` or `taskqueue tick` starts one",
            _ => return none.to_owned(),
        };
        format!("{none}: {why}")
    }

    /// Shows the rows that match the filter. The selected row stays selected when it moves; if it has disappeared, the next one is
    /// selected.
    fn show_matching(&mut self, pane: Pane) {
        let all = &self.all[index_of(pane)];
        let rows: Vec<TopRow> = all.iter().filter(|row| rows::matches(row, &self.filter)).cloned().collect();
        let place = &mut self.places[index_of(pane)];
        let moved_to = place.id.as_ref().and_then(|id| rows.iter().position(|row| row.id == *id));
        place.index = moved_to.unwrap_or(place.index).min(rows.len().saturating_sub(1));
        place.id = rows.get(place.index).map(|row| row.id.clone());
        self.panes[index_of(pane)] = rows;
    }

    fn row(&self) -> Option<&TopRow> {
        self.panes[self.pane].get(self.places[self.pane].index)
    }

    /// Returns the task that a key applies to.
    fn task(&self) -> Option<TaskId> {
        self.opened().or_else(|| self.row().and_then(|row| row.task))
    }

    fn class(&self) -> Option<String> {
        match &self.page {
            Some(page) => page.class.clone(),
            None => self.row().and_then(|row| row.class.clone()),
        }
    }

    /// Handles a key. Returns a command if the screen cannot execute it alone.
    pub(crate) fn press(&mut self, key: TopKey) -> Option<TopCommand> {
        match key {
            TopKey::Interrupt => return Some(TopCommand::Quit),
            TopKey::Suspend => return Some(TopCommand::Suspend),
            TopKey::Redraw => return Some(TopCommand::Redraw),
            _ => {}
        }
        if let Some(change) = self.question.take() {
            let is_yes = matches!(key, TopKey::Char('y' | 'Y'));
            self.message = (!is_yes).then(|| "nothing was changed".to_owned());
            return is_yes.then_some(TopCommand::Change(change));
        }
        self.message = None;
        if self.is_filtering {
            self.edit_filter(key);
            return None;
        }
        if std::mem::take(&mut self.shows_help) {
            return None;
        }
        match key {
            TopKey::Char('q') => return Some(TopCommand::Quit),
            TopKey::Char('?') => self.shows_help = true,
            TopKey::Char('c') => self.ask_about_task(Change::Cancel),
            TopKey::Char('r') => self.ask_about_task(Change::Retry),
            TopKey::Char('p') => self.ask_to_pause(self.class().map_or(PauseScope::All, PauseScope::Class)),
            TopKey::Char('P') => self.ask_to_pause(PauseScope::All),
            _ if self.page.is_some() => self.press_on_page(key),
            TopKey::Escape if self.filter.is_empty() => self.say("q quits"),
            TopKey::Escape => self.set_filter(String::new()),
            TopKey::Char('/') => self.is_filtering = true,
            TopKey::Enter => return self.open(true),
            TopKey::Char('f') => return self.open(false),
            TopKey::Tab | TopKey::Right | TopKey::Char('l') => self.pane = (self.pane + 1) % Pane::ALL.len(),
            TopKey::BackTab | TopKey::Left | TopKey::Char('h') => {
                self.pane = (self.pane + Pane::ALL.len() - 1) % Pane::ALL.len();
            }
            _ => self.choose_row(key),
        }
        None
    }

    fn edit_filter(&mut self, key: TopKey) {
        let mut filter = self.filter.clone();
        match key {
            TopKey::Char(letter) if filter.chars().count() < FILTER_CHARS => filter.push(letter),
            TopKey::Backspace => {
                filter.pop();
            }
            TopKey::Escape => {
                filter.clear();
                self.is_filtering = false;
            }
            TopKey::Enter => self.is_filtering = false,
            _ => {}
        }
        self.set_filter(filter);
    }

    fn press_on_page(&mut self, key: TopKey) {
        let room = self.room_of_page();
        let Some(page) = &mut self.page else { return };
        let last = page.lines.len().saturating_sub(room);
        match key {
            TopKey::Escape | TopKey::Enter | TopKey::Left => self.page = None,
            TopKey::Char('f') => page.is_followed = !page.is_followed,
            _ => page.top = moved(page.top, key, room).min(last),
        }
    }

    fn choose_row(&mut self, key: TopKey) {
        let (rows, place) = (&self.panes[self.pane], &mut self.places[self.pane]);
        place.index = moved(place.index, key, self.height / 2).min(rows.len().saturating_sub(1));
        place.id = rows.get(place.index).map(|row| row.id.clone());
    }

    /// Opens the task, which is refreshed from then on, at its first or its last line.
    fn open(&mut self, starts_at_top: bool) -> Option<TopCommand> {
        let Some(task) = self.task() else {
            self.say("choose a task: Tab moves to the running and the failed tasks");
            return None;
        };
        let (class, lines) = (self.class(), vec!["waiting for the database …".to_owned()]);
        self.page = Some(TopPage { task, class, lines, top: 0, is_followed: true, starts_at_top });
        Some(TopCommand::Details(task))
    }

    fn ask_about_task(&mut self, change: fn(TaskId) -> Change) {
        self.question = self.task().map(change);
        if self.question.is_none() {
            self.say("choose a task: Tab moves to the running and the failed tasks");
        }
    }

    fn ask_to_pause(&mut self, scope: PauseScope) {
        let is_paused = self.pauses.iter().any(|pause| pause.scope == scope);
        self.question = Some(if is_paused { Change::Resume(scope) } else { Change::Pause(scope) });
    }
}

const fn index_of(pane: Pane) -> usize {
    pane as usize
}

/// Returns the new position after a key.
fn moved(from: usize, key: TopKey, page: usize) -> usize {
    match key {
        TopKey::Up | TopKey::Char('k') => from.saturating_sub(1),
        TopKey::Down | TopKey::Char('j') => from.saturating_add(1),
        TopKey::PageUp => from.saturating_sub(page.max(1)),
        TopKey::PageDown => from.saturating_add(page.max(1)),
        TopKey::Home | TopKey::Char('g') => 0,
        TopKey::End | TopKey::Char('G') => usize::MAX,
        _ => from,
    }
}
