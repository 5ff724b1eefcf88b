//! `queue --batch`: queues the tasks of newline-delimited JSON, all or none. It reads the input once, line by line, and reports
//! the first bad line at once. It then reads the copy on the local disk again, and inserts it in parts.

use std::io::BufRead;

use chrono::{DateTime, TimeZone, Utc};

use super::queue::{Admission, BatchLine, ClassCheck, QueuedLine, at_line, parse_line, refused, wake_workers};
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use taskqueue_domain::limits::limit::Spread;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::choosing::class_patterns::ClassPatterns;
use taskqueue_domain::task::dependencies::{LineNames, Prerequisite, resolve_names};
use taskqueue_domain::task::new_task::{NewTask, TaskRequest};
use taskqueue_domain::task::trace::Trace;
use taskqueue_domain::task::unique::OnConflict;
use taskqueue_host::files::spooled_lines::{BadLine, BoundedLines, SpooledLines};
use taskqueue_store::{BatchNeeds, Store, StoreError};

/// The longest line: twice the largest data that the settings allow.
const LONGEST_LINE_BYTES: usize = 16 << 20;
/// The largest part: how many tasks are in memory at once, and how many bytes of text. A larger batch is inserted in parts.
const PART: usize = 10_000;
const PART_BYTES: usize = 16 << 20;
/// Limits for lines with names. They must be in memory together, because any line may wait for any other one.
const MOST_WITH_NAMES: usize = 500_000;
const MOST_BYTES_WITH_NAMES: usize = 256 << 20;

/// What holds for all lines of a batch.
#[derive(Clone, Debug)]
pub struct BatchDefaults {
    /// Who queues the tasks whose line names no user.
    pub queued_by: String,
    /// Whether a line may name another user with "by".
    pub may_name_users: bool,
    /// Whether a line may replace a waiting task, which another user may have queued.
    pub may_replace: bool,
    /// Which classes are accepted.
    pub check: ClassCheck,
    /// The only classes that the login may queue; `None`: all that are accepted.
    pub classes: Option<ClassPatterns>,
    /// The times of the tasks, instead of those of their lines.
    pub spread: Option<Spread>,
    /// The trace context and the correlation id of the tasks whose line has none.
    pub trace: Trace,
}

/// Queues the tasks of newline-delimited JSON, all or none. Blank lines are skipped. Local times are in `zone`; a spread sets the
/// times of the tasks instead. `inserted` is called with the number of tasks inserted so far and the total.
///
/// # Errors
/// Returns [`EngineError::Input`] with the number of the first bad line, or an error if the database fails.
pub fn queue_batch<Zone: TimeZone>(
    ctx: &mut Context,
    input: &mut dyn BufRead,
    zone: &Zone,
    defaults: &BatchDefaults,
    inserted: &mut dyn FnMut(usize, usize),
) -> EngineResult<Vec<QueuedLine>> {
    let settings = ctx.store.recent_settings()?;
    let admission = Admission { handlers: &ctx.handlers, check: defaults.check, parent: ctx.parent.as_ref() };
    let now = DateTime::UNIX_EPOCH.with_timezone(zone);
    let mut reader = BatchReader { admission, settings: &settings, now, is_now_read: false, defaults };
    let batch = reader.read(input, &mut ctx.store)?;
    fault_point!("queue.batch_checked");
    let (total, lines) = (batch.lines.len(), batch.lines);
    let queued = match batch.tasks {
        Some(mut tasks) => {
            name_prerequisites(&mut tasks, &lines)?;
            ctx.store.insert_tasks(&tasks, &mut |count| inserted(count, total))
        }
        None => {
            let mut spooled = batch.spooled;
            let mut each_part =
                |insert: &mut dyn FnMut(Vec<NewTask>) -> Result<(), StoreError>| reader.each_part(&mut spooled, insert);
            ctx.store.insert_in_parts(batch.needs, &mut each_part, &mut |count| inserted(count, total))
        }
    };
    let queued = queued.map_err(|error| match refused(error) {
        (Some(place), error) => at_line(lines.number_of(place), error),
        (None, error) => error,
    })?;
    wake_workers(ctx);
    let mut names = lines.names.into_iter().map(|names| names.name);
    Ok(queued.into_iter().map(|task| QueuedLine { task, name: names.next().flatten() }).collect())
}

fn name_prerequisites(tasks: &mut [NewTask], lines: &Lines) -> EngineResult<()> {
    let after = resolve_names(&lines.names)
        .map_err(|(place, problem)| at_line(lines.number_of(place), EngineError::Input(problem)))?;
    for (task, places) in tasks.iter_mut().zip(after) {
        task.after.extend(places.after.into_iter().map(Prerequisite::InBatch));
        task.after_any.extend(places.after_any.into_iter().map(Prerequisite::InBatch));
    }
    Ok(())
}

/// The lines that were read.
struct Batch {
    spooled: SpooledLines,
    lines: Lines,
    needs: BatchNeeds,
    /// All tasks, if they can be inserted at once.
    tasks: Option<Vec<NewTask>>,
}

/// The lines that are not blank.
#[derive(Default)]
struct Lines {
    count: usize,
    /// For each group of blank lines: the number of tasks before it, and the number of blank lines up to its last one.
    blank: Vec<(usize, usize)>,
    bytes: usize,
    /// The name of each line; empty if none has one.
    names: Vec<LineNames>,
}

impl Lines {
    const fn len(&self) -> usize {
        self.count
    }

    /// Returns the line number, from 1, of the task at this index.
    fn number_of(&self, place: usize) -> usize {
        let groups = self.blank.partition_point(|(before, _)| *before <= place);
        place + 1 + self.blank[..groups].last().map_or(0, |(_, blank)| *blank)
    }

    fn add_blank(&mut self) {
        match self.blank.last_mut() {
            Some((before, blank)) if *before == self.count => *blank += 1,
            last => {
                let blank = last.map_or(0, |(_, blank)| *blank) + 1;
                self.blank.push((self.count, blank));
            }
        }
    }

    fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    fn add(&mut self, line: &str, names: LineNames) {
        if self.has_names() || names != LineNames::default() {
            self.names.resize_with(self.count, LineNames::default);
            self.names.push(names);
        }
        self.count += 1;
        self.bytes += line.len();
    }

    /// Returns true if there are too many lines for names.
    fn are_too_many_for_names(&self) -> bool {
        self.has_names() && (self.count > MOST_WITH_NAMES || self.bytes > MOST_BYTES_WITH_NAMES)
    }
}

/// Reads the lines.
struct BatchReader<'a, Zone: TimeZone> {
    admission: Admission<'a>,
    settings: &'a Settings,
    /// The time of the database's clock. It is read at the first line with a time, because it costs a round trip; other lines do
    /// not need it.
    now: DateTime<Zone>,
    is_now_read: bool,
    defaults: &'a BatchDefaults,
}

impl<Zone: TimeZone> BatchReader<'_, Zone> {
    /// Returns the task of a line, the one at this index of the batch.
    fn task(&self, place: usize, line: BatchLine<'_>) -> EngineResult<(NewTask, LineNames)> {
        let mut line = parse_line(line, &self.defaults.queued_by, &self.now).map_err(EngineError::Input)?;
        if !self.defaults.may_name_users && line.request.queued_by != self.defaults.queued_by {
            let own = &self.defaults.queued_by;
            return Err(EngineError::Input(format!("\"by\" may only be \"{own}\" here, which is the default")));
        }
        if !self.defaults.may_replace && line.request.on_conflict == Some(OnConflict::Replace) {
            return Err(EngineError::Forbidden("\"on_conflict\":\"replace\" needs the scope operate".to_owned()));
        }
        if let Some(spread) = &self.defaults.spread {
            spread_out(&mut line.request, spread, place).map_err(EngineError::Input)?;
        }
        if let Some(classes) = self.defaults.classes.as_ref().filter(|classes| !classes.contain(&line.request.class)) {
            return Err(EngineError::Forbidden(format!("this login may queue only {classes}")));
        }
        // The tasks of a schedule are no part of the work that started it.
        if line.request.every.is_none() {
            self.defaults.trace.add_to(&mut line.request.meta);
        }
        let task = self.admission.check(line.request, self.settings)?;
        let task = task.planned(self.now.with_timezone(&Utc)).map_err(EngineError::Input)?;
        Ok((task, line.names))
    }

    /// Checks all lines, and stores them to be read again.
    fn read(&mut self, input: &mut dyn BufRead, store: &mut Store) -> EngineResult<Batch> {
        let mut read = BoundedLines::new(input, LONGEST_LINE_BYTES);
        let (mut spooled, mut lines, mut needs) = (SpooledLines::default(), Lines::default(), BatchNeeds::default());
        let mut tasks = Some(Vec::new());
        while let Some((number, line)) = read.next_line().map_err(bad_line)? {
            if line.trim().is_empty() {
                lines.add_blank();
                continue;
            }
            let values = BatchLine::read(line).map_err(|problem| at_line(number, EngineError::Input(problem)))?;
            if values.has_time() && !self.is_now_read {
                self.now = store.now()?.with_timezone(&self.now.timezone());
                self.is_now_read = true;
            }
            let (task, names) = self.task(lines.count, values).map_err(|error| at_line(number, error))?;
            spooled.push(line).map_err(|error| not_spooled(&error))?;
            lines.add(line, names);
            needs.add(&task);
            if lines.are_too_many_for_names() {
                let problem = format!(
                    "a batch with \"name\" or names in \"after\" has at most {MOST_WITH_NAMES} lines and {MOST_BYTES_WITH_NAMES} bytes"
                );
                return Err(at_line(number, EngineError::Input(problem)));
            }
            let is_large = !lines.has_names() && (lines.count > PART || lines.bytes > PART_BYTES);
            tasks = tasks.filter(|_| !is_large);
            if let Some(tasks) = &mut tasks {
                tasks.push(task);
            }
        }
        // The first name came after earlier tasks were dropped from memory.
        if lines.has_names() && tasks.as_ref().is_none_or(|tasks| tasks.len() < lines.count) {
            let mut all = Vec::with_capacity(lines.count);
            self.each_part(&mut spooled, &mut |part| {
                all.extend(part);
                Ok(())
            })?;
            tasks = Some(all);
        }
        Ok(Batch { spooled, lines, needs, tasks })
    }

    fn each_part(
        &self,
        spooled: &mut SpooledLines,
        insert: &mut dyn FnMut(Vec<NewTask>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let not_again = |problem: String| StoreError::NotReadAgain(problem);
        let mut lines = spooled.lines().map_err(|error| not_again(error.to_string()))?;
        let (mut part, mut bytes, mut place) = (Vec::new(), 0, 0);
        while let Some((_, line)) = lines.next_line().map_err(|bad| not_again(bad.problem))? {
            bytes += line.len();
            let values = BatchLine::read(line).map_err(not_again)?;
            part.push(self.task(place, values).map_err(|error| not_again(error.to_string()))?.0);
            place += 1;
            if part.len() >= PART || bytes > PART_BYTES {
                insert(std::mem::take(&mut part))?;
                bytes = 0;
            }
        }
        if part.is_empty() { Ok(()) } else { insert(part) }
    }
}

/// Sets the time of a task of a batch that is spread over time.
fn spread_out(request: &mut TaskRequest, spread: &Spread, place: usize) -> Result<(), String> {
    if request.scheduled_on.is_some() || request.every.is_some() {
        return Err("--rate sets the times of all tasks, so no line may have \"at\", \"in\" or \"every\"".to_owned());
    }
    let time = spread.time_of(place).ok_or("at this rate, the task would be processed too far in the future")?;
    request.scheduled_on = Some(time);
    Ok(())
}

pub(crate) fn bad_line(bad: BadLine) -> EngineError {
    at_line(bad.number, EngineError::Input(bad.problem))
}

pub(crate) fn not_spooled(error: &std::io::Error) -> EngineError {
    EngineError::Refused(format!("the batch cannot be saved on the local disk before it is inserted: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_need_no_memory_and_keep_the_numbers_of_lines() {
        let mut lines = Lines::default();
        (0..1_000_000).for_each(|_| lines.add_blank());
        lines.add("{}", LineNames::default());
        lines.add("{}", LineNames::default());
        (0..1_000_000).for_each(|_| lines.add_blank());
        lines.add("{}", LineNames::default());
        assert_eq!(lines.blank.len(), 2);
        assert_eq!([0, 1, 2].map(|place| lines.number_of(place)), [1_000_001, 1_000_002, 2_000_003]);
    }
}
