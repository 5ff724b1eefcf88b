//! The time line of a task: one line per segment, with its position in the whole.

use chrono::{DateTime, Utc};

use crate::human::{distance, hanging, relative};
use taskqueue_domain::monitoring::time_line::{Segment, Stretch};
use taskqueue_domain::run::status::RunStatus;
use taskqueue_engine::inspect::status::TaskDetail;

/// How many segments are drawn; the last ones.
const DRAWN: usize = 20;
/// The largest and the smallest width of the drawing, in columns.
const WIDEST: usize = 60;
const NARROWEST: usize = 8;
/// The width if it is unknown.
const COLUMNS: u16 = 100;
/// Below this width, the beginnings of segments are left out.
const NARROW: u16 = 60;

/// Returns the segments that are drawn, and how many earlier ones are not.
pub fn shown(detail: &TaskDetail) -> (&[Segment], usize) {
    let segments = detail.time_line.as_slice();
    let left_out = segments.len().saturating_sub(DRAWN);
    (&segments[left_out..], left_out)
}

/// Returns the drawing without colours; `None` if no segment has a duration.
pub fn drawn(detail: &TaskDetail, now: DateTime<Utc>, width: Option<u16>) -> Option<String> {
    let (shown, left_out) = shown(detail);
    let columns = width.unwrap_or(COLUMNS);
    let numbers = aligned(shown, now, columns >= NARROW);
    let said: Vec<String> = shown.iter().map(|segment| words(segment, detail, now)).collect();
    let taken = 2 + longest(&numbers) + longest(&said);
    let room = usize::from(columns).saturating_sub(taken).clamp(NARROWEST, WIDEST);
    let scale = Scale::of(shown, room)?;
    let mut lines = vec!["time line".to_owned()];
    if left_out > 0 {
        lines.push(format!("  … {left_out} earlier"));
    }
    for ((segment, numbers), words) in shown.iter().zip(numbers).zip(said) {
        lines.push(hanging(&format!("  {}{numbers}", scale.bar(segment)), &words, width));
    }
    Some(lines.join("\n"))
}

/// Returns how long each segment took, and when it began, aligned.
fn aligned(shown: &[Segment], now: DateTime<Utc>, with_begin: bool) -> Vec<String> {
    let took: Vec<String> = shown.iter().map(|segment| distance(segment.to - segment.from)).collect();
    let begun: Vec<String> = shown.iter().map(|segment| relative(segment.from, now)).collect();
    let (took_room, begun_room) = (longest(&took), longest(&begun));
    let line = |(took, begun): (&String, &String)| {
        if with_begin {
            format!("  {took:>took_room$}  {begun:<begun_room$}  ")
        } else {
            format!("  {took:>took_room$}  ")
        }
    };
    took.iter().zip(&begun).map(line).collect()
}

fn longest(texts: &[String]) -> usize {
    texts.iter().map(|text| text.chars().count()).max().unwrap_or(0)
}

/// The columns of a drawing, from the begin of its first segment to the end of its last one.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    begin: DateTime<Utc>,
    total_millis: i64,
    room: usize,
}

impl Scale {
    /// Returns the scale for this many columns; `None` without a segment.
    pub fn of(shown: &[Segment], room: usize) -> Option<Self> {
        let (first, last) = (shown.first()?, shown.last()?);
        Some(Self { begin: first.from, total_millis: (last.to - first.from).num_milliseconds().max(1), room })
    }

    /// Returns the column of a time.
    fn column(&self, at: DateTime<Utc>) -> usize {
        let room = i64::try_from(self.room).unwrap_or(1);
        let column = (at - self.begin).num_milliseconds().saturating_mul(room) / self.total_millis;
        usize::try_from(column).unwrap_or(0).min(self.room)
    }

    /// Returns the first column of a segment, and the one after its last; at least one column, however short it was.
    pub fn columns(&self, segment: &Segment) -> (usize, usize) {
        let from = self.column(segment.from).min(self.room - 1);
        (from, self.column(segment.to).max(from + 1))
    }

    fn bar(&self, segment: &Segment) -> String {
        let (from, to) = self.columns(segment);
        let mark = match segment.what {
            Stretch::WithoutRun => ".",
            Stretch::Waited => "-",
            Stretch::Attempt { .. } => "#",
        };
        format!("{}{}{}", " ".repeat(from), mark.repeat(to - from), " ".repeat(self.room - to))
    }
}

/// Returns what happened during a segment.
pub fn words(segment: &Segment, detail: &TaskDetail, now: DateTime<Utc>) -> String {
    match segment.what {
        Stretch::WithoutRun if segment.to > now => "not due yet".to_owned(),
        Stretch::WithoutRun => "had no run".to_owned(),
        Stretch::Waited => "waited for its turn".to_owned(),
        Stretch::Attempt { attempt } => {
            // A released run has the same number as the next one.
            let mut runs = detail.runs.iter().map(|(run, _)| run).filter(|run| run.attempt == attempt);
            let run = runs.clone().find(|run| run.started_on == Some(segment.from)).or_else(|| runs.next());
            let status = run.map(|run| run.status.to_string()).unwrap_or_default();
            let error = run.map(|run| run.error_code.as_str()).filter(|code| !code.is_empty());
            let is_open = run.is_some_and(|run| run.status.is(RunStatus::Processing));
            match error {
                Some(code) => format!("attempt {attempt}: {status}, {code}"),
                None if is_open => format!("attempt {attempt} is running"),
                None => format!("attempt {attempt}: {status}"),
            }
        }
    }
}
