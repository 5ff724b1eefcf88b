//! `taskqueue top`

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use crate::commands::inspecting::explain::words;
use crate::commands::options::task_options::duration_option;
use crate::error::{CliError, DONE, INTERRUPTED};
use crate::output::clean::clean_line;
use crate::output::screen::{Screen, ScreenInput, missing_terminal};
use crate::output::{ColorChoice, Out};
use crate::session::Session;
use crate::top::draw::{draw, plain_text};
use crate::top::keys::{is_cut, keys_of};
use crate::top::state::{TopCommand, TopState};
use crate::views::task_view::run_block;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::inspect::top::{Change, Details, Glance, TopCounts, TopWatch};
use taskqueue_engine::{EngineResult, StopSignals, Suspension};
use taskqueue_views::cut::Length;
use taskqueue_views::human::distance;

/// Watch the queue in full screen; cancel, retry and pause
///
/// Shows counters, runners, running runs, classes and failures, and refreshes them. `?` shows the keys. It asks before it changes
/// something.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue top\n  taskqueue top --interval 5s\n  taskqueue top --once --size 80x24"
)]
pub(crate) struct TopArgs {
    /// How often to query the database
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    interval: String,
    /// Print one frame as plain text, or with --json its facts, and exit
    #[arg(long)]
    once: bool,
    /// Size of the frame [default: the size of the terminal, or 100x30]
    #[arg(long, value_name = "COLUMNSxROWS", requires = "once", value_parser = parse_size)]
    size: Option<(u16, u16)>,
}

/// Protects the database from frequent polls.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// The next poll waits at least this many times as long as the last answer took.
const EASE: u32 = 4;
/// How often the screen checks for updates and a new size, with and without a pending answer.
const SOON: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_millis(200);
/// How long the rest of a key may take on a slow line.
const REST_OF_KEY: Duration = Duration::from_millis(50);
/// After this time without an answer, the screen shows that.
const SILENCE: Duration = Duration::from_secs(3);
/// How long to wait at the end for the result of a change.
const LAST_ANSWER: Duration = Duration::from_secs(20);
const DEFAULT_SIZE: (u16, u16) = (100, 30);

fn parse_size(text: &str) -> Result<(u16, u16), String> {
    let size = text.split_once('x').and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
    size.filter(|(columns, rows)| (20..=1_000).contains(columns) && (5..=1_000).contains(rows))
        .ok_or_else(|| "write COLUMNSxROWS, such as 80x24: 20 to 1000 columns, 5 to 1000 rows".to_owned())
}

pub(crate) fn run(session: Session, args: &TopArgs, out: &mut Out) -> anyhow::Result<u8> {
    let interval = duration_option("--interval", Some(&args.interval))?.unwrap_or_default();
    if interval < SHORTEST_INTERVAL {
        return Err(CliError::usage("--interval: 100ms is the shortest interval").into());
    }
    if let Some(missing) = missing_terminal().filter(|_| !args.once && !out.is_json()) {
        return Err(CliError::usage(format!("top needs a terminal: {missing}"))
            .with_hint("`taskqueue top --once` prints one frame, `taskqueue status` the counters and tasks")
            .into());
    }
    let mut state = TopState::new(&session.url.to_string());
    let is_single = args.once || out.is_json();
    let mut watch = TopWatch::new(if is_single { session.open_to_read(out)? } else { session.open_to_follow(out)? });
    let glance = watch.look()?;
    state.take_glance(&glance);
    if !is_single {
        let (code, last_word) = Live::open(state, watch, interval, out)?.watch()?;
        if let Some(said) = last_word {
            out.say(&clean_line(&said));
        }
        return Ok(code);
    }
    let tally = watch.count(&glance)?;
    if out.is_json() {
        out.json(&json!({ "schema": "taskqueue.top/1", "glance": glance, "tally": tally }))?;
        return Ok(DONE);
    }
    state.take_tally(&tally);
    let (columns, rows) = args.size.or_else(|| out.size()).unwrap_or(DEFAULT_SIZE);
    state.resize(rows);
    out.data(plain_text(&state, columns, rows))?;
    Ok(DONE)
}

/// A request to the thread that reads the database.
enum Ask {
    /// Everything, and this task.
    Facts(Option<TaskId>),
    Details(TaskId),
    Change(Change),
}

/// An answer of that thread.
enum TopUpdate {
    Glance(Box<Glance>),
    TopCounts(Box<TopCounts>),
    Details(Box<Details>),
    /// Why this task cannot be shown.
    NoDetails(TaskId, String),
    Changed(String),
    /// The end of a request, with its error.
    Answered(Result<(), String>),
}

/// Answers requests until the sender is dropped.
fn answer(mut watch: TopWatch, asks: &Receiver<Ask>, updates: &Sender<TopUpdate>) {
    for ask in asks {
        let tell = |told| {
            // After quitting, no answers are needed.
            let _ = updates.send(told);
        };
        let answered = match ask {
            Ask::Facts(followed) => tell_facts(&mut watch, followed, &tell),
            Ask::Details(task) => {
                tell_details(&mut watch, task, &tell);
                Ok(())
            }
            Ask::Change(change) => {
                let said = watch.change(&change).unwrap_or_else(|error| format!("not done: {error}"));
                tell(TopUpdate::Changed(said));
                tell_facts(&mut watch, None, &tell)
            }
        };
        tell(TopUpdate::Answered(answered.map_err(|error| CliError::from(error).message)));
    }
}

fn tell_facts(watch: &mut TopWatch, followed: Option<TaskId>, tell: &dyn Fn(TopUpdate)) -> EngineResult<()> {
    let glance = watch.look()?;
    tell(TopUpdate::Glance(Box::new(glance.clone())));
    if let Some(task) = followed {
        tell_details(watch, task, tell);
    }
    tell(TopUpdate::TopCounts(Box::new(watch.count(&glance)?)));
    Ok(())
}

fn tell_details(watch: &mut TopWatch, task: TaskId, tell: &dyn Fn(TopUpdate)) {
    tell(match watch.details(task) {
        Ok(details) => TopUpdate::Details(Box::new(details)),
        Err(error) => TopUpdate::NoDetails(task, error.to_string()),
    });
}

/// The running screen.
struct Live {
    state: TopState,
    /// Restored before the hold on suspension signals ends, so that the terminal is in order when this process stops.
    screen: Screen,
    suspension: Suspension,
    stop: StopSignals,
    asks: Sender<Ask>,
    updates: Receiver<TopUpdate>,
    use_color: bool,
    interval: Duration,
    /// Requests without an answer, and since when there are any.
    unanswered: usize,
    asked_at: Instant,
    next_at: Instant,
    /// Since when the database does not answer.
    away_since: Option<Instant>,
    /// Changes without a result yet.
    changing: usize,
    /// The details of the opened task.
    details: Option<Box<Details>>,
}

impl Live {
    fn open(mut state: TopState, watch: TopWatch, interval: Duration, out: &Out) -> anyhow::Result<Self> {
        let (stop, suspension) = (StopSignals::install()?, Suspension::hold()?);
        let mut screen = Screen::open(out.use_color()).context("cannot draw on the terminal")?;
        state.resize(screen.size().1);
        screen.draw(|area, buffer| draw(&state, out.use_color(), area, buffer))?;
        let ((asks, asked), (teller, updates)) = (channel(), channel());
        thread::Builder::new().name("watch".to_owned()).spawn(move || answer(watch, &asked, &teller))?;
        let now = Instant::now();
        Ok(Self {
            state,
            screen,
            suspension,
            stop,
            asks,
            updates,
            use_color: out.use_color(),
            interval,
            unanswered: 0,
            asked_at: now,
            next_at: now,
            away_since: None,
            changing: 0,
            details: None,
        })
    }

    /// Runs the screen. Returns the exit status, and the result of a change that was still pending.
    fn watch(mut self) -> anyhow::Result<(u8, Option<String>)> {
        loop {
            if self.unanswered == 0 && Instant::now() >= self.next_at {
                self.ask(Ask::Facts(self.state.followed()))?;
            }
            let mut is_changed = match self.screen.listen(&self.stop, self.patience()) {
                ScreenInput::Stop | ScreenInput::End => return Ok((INTERRUPTED, None)),
                ScreenInput::Nothing => false,
                ScreenInput::Bytes(bytes) => {
                    for key in keys_of(&self.whole_keys(bytes)) {
                        if let Some(wish) = self.state.press(key)
                            && self.fulfil(wish)?
                        {
                            return Ok((DONE, self.wait_for_changes()));
                        }
                    }
                    true
                }
            };
            is_changed |= self.was_stopped()?;
            is_changed |= self.take_updates()? | self.has_resized();
            is_changed |= self.notice_silence();
            if is_changed {
                self.draw()?;
            }
        }
    }

    /// Reads the rest of a key of which only a part has arrived. After a single Escape there is none.
    fn whole_keys(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        while is_cut(&bytes) {
            match self.screen.listen(&self.stop, REST_OF_KEY) {
                ScreenInput::Bytes(rest) => bytes.extend(rest),
                ScreenInput::Nothing | ScreenInput::End | ScreenInput::Stop => break,
            }
        }
        bytes
    }

    fn patience(&self) -> Duration {
        if self.unanswered > 0 {
            return SOON;
        }
        self.next_at.saturating_duration_since(Instant::now()).min(LATER)
    }

    fn ask(&mut self, ask: Ask) -> anyhow::Result<()> {
        if self.unanswered == 0 {
            self.asked_at = Instant::now();
        }
        self.unanswered += 1;
        self.asks.send(ask).context("the thread that reads the database has ended")
    }

    /// Executes a command. Returns true if it was to quit.
    fn fulfil(&mut self, wish: TopCommand) -> anyhow::Result<bool> {
        match wish {
            TopCommand::Quit => return Ok(true),
            TopCommand::Redraw => self.screen.clear()?,
            TopCommand::Details(task) => {
                self.details = None;
                self.ask(Ask::Details(task))?;
            }
            TopCommand::Change(change) => {
                self.changing += 1;
                self.state.say("waiting for the database …");
                self.ask(Ask::Change(change))?;
            }
            TopCommand::Suspend => self.give_way(Suspension::stop_group)?,
        }
        Ok(false)
    }

    /// Returns true if this process has continued after a stop that its keys did not cause, by TSTP or STOP.
    fn was_stopped(&mut self) -> anyhow::Result<bool> {
        if self.suspension.is_asked() {
            self.give_way(Suspension::stop)?;
            return Ok(true);
        }
        let has_continued = self.suspension.take_continued();
        if has_continued {
            self.give_way(|_| Ok(()))?;
        }
        Ok(has_continued)
    }

    /// Restores the terminal, stops, and takes the terminal over again in its new state.
    fn give_way(&mut self, stop: impl FnOnce(&Suspension) -> io::Result<()>) -> anyhow::Result<()> {
        self.screen.leave();
        let stopped = stop(&self.suspension);
        self.screen.take()?;
        Ok(stopped?)
    }

    /// Returns true if there was an update.
    fn take_updates(&mut self) -> anyhow::Result<bool> {
        let mut has_come = false;
        loop {
            match self.updates.try_recv() {
                Ok(updates) => self.take(updates),
                Err(TryRecvError::Empty) => return Ok(has_come),
                Err(TryRecvError::Disconnected) => {
                    return Err(CliError::failed("the thread that reads the database has ended").into());
                }
            }
            has_come = true;
        }
    }

    fn take(&mut self, updates: TopUpdate) {
        match updates {
            TopUpdate::Glance(glance) => {
                self.away_since = None;
                self.state.take_glance(&glance);
            }
            TopUpdate::TopCounts(tally) => self.state.take_tally(&tally),
            TopUpdate::Details(details) => {
                self.details = Some(details);
                self.show_details();
            }
            TopUpdate::NoDetails(task, why) => {
                self.details = None;
                self.state.take_details(task, wrapped(&clean_line(&why), self.screen.size().0));
            }
            TopUpdate::Changed(said) => {
                self.changing = self.changing.saturating_sub(1);
                self.state.say(&said);
            }
            TopUpdate::Answered(answered) => {
                self.unanswered = self.unanswered.saturating_sub(1);
                let (now, took) = (Instant::now(), self.asked_at.elapsed());
                self.next_at = (self.asked_at + self.interval).max(now + (took * EASE).min(self.interval * EASE));
                if let Err(problem) = answered {
                    // The failed request has already waited.
                    self.next_at = now + self.interval.min(LATER);
                    let since = *self.away_since.get_or_insert(self.asked_at);
                    let _ = self
                        .state
                        .complain(&format!("no answer from the database for {}: {problem}", seconds(since.elapsed())));
                }
            }
        }
    }

    /// Shows that the database does not answer, before the connection is given up.
    fn notice_silence(&mut self) -> bool {
        if self.unanswered == 0 || self.away_since.is_some() || self.asked_at.elapsed() < SILENCE {
            return false;
        }
        self.state.complain(&format!("no answer from the database for {}", seconds(self.asked_at.elapsed())))
    }

    fn has_resized(&mut self) -> bool {
        let has_resized = self.screen.has_resized();
        if has_resized {
            self.state.resize(self.screen.size().1);
            self.show_details();
        }
        has_resized
    }

    fn show_details(&mut self) {
        let Some(details) = &self.details else { return };
        let text = details_text(details);
        self.state.take_details(details.explanation.task.id, wrapped(&text, self.screen.size().0));
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        let (state, use_color) = (&self.state, self.use_color);
        self.screen.draw(|area, buffer| draw(state, use_color, area, buffer)).context("cannot draw on the terminal")
    }

    /// Waits for confirmed changes before the process ends; a signal ends it anyway.
    fn wait_for_changes(&mut self) -> Option<String> {
        let until = Instant::now() + LAST_ANSWER;
        let mut last_word = None;
        while self.changing > 0 && Instant::now() < until && !self.stop.is_stopping() {
            match self.updates.recv_timeout(LATER) {
                Ok(updates) => {
                    if let TopUpdate::Changed(said) = &updates {
                        last_word = Some(said.clone());
                    }
                    self.take(updates);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        last_word
    }
}

fn seconds(length: Duration) -> String {
    distance(chrono::TimeDelta::from_std(length).unwrap_or_default())
}

/// Returns the output of `explain`, and the newest run with its output.
fn details_text(details: &Details) -> String {
    // Fitted to the terminal, without colours.
    let out = Out::new(false, false, ColorChoice::Never);
    let explanation = &details.explanation;
    let mut page = words(explanation, None, true, &out);
    if let Some(run) = &explanation.last_run {
        page.add("");
        page.add(run_block(run, &details.outputs, explanation.now, Length::Cut, out.width()));
    }
    page.text().to_owned()
}

/// Wraps text to lines of at most this many characters.
fn wrapped(text: &str, width: u16) -> Vec<String> {
    let width = usize::from(width.max(1));
    let mut lines = Vec::new();
    for line in text.lines() {
        let letters: Vec<char> = line.chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
        if letters.is_empty() {
            lines.push(String::new());
        }
        lines.extend(letters.chunks(width).map(|part| part.iter().collect::<String>()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_columns_and_rows() {
        assert_eq!(parse_size("80x24"), Ok((80, 24)));
        for bad in ["80", "80x", "0x0", "80x24x2", "19x24", "80x4", "70000x24", "axb"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lines_are_broken_where_they_are_longer_than_the_screen() {
        assert_eq!(wrapped("abcde\n\nf\tg", 3), ["abc", "de", "", "f g"]);
    }
}
