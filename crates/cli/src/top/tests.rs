//! Tests keys and data as input, and the drawing as output.

use chrono::{DateTime, TimeDelta, Utc};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;

use super::draw::{draw, plain_text};
use super::keys::TopKey;
use super::rows::Pane;
use super::state::{TopCommand, TopState};
use taskqueue_domain::limits::pause::{Pause, PauseMode, PauseScope};
use taskqueue_domain::run::status::{ScheduleStatus, Stored};
use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
use taskqueue_domain::task::records::Runner;
use taskqueue_engine::inspect::status::{Counted, RunnerLine, TaskCounts, WorkLine};
use taskqueue_engine::inspect::top::{
    Change, ClassCounts, FailedTask, FinalCause, Glance, RunningLine, Schedule, Throughput, TopCounts,
};

fn now() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000)
}

fn counted(count: i64) -> Counted {
    Counted { count, or_more: false }
}

fn runner(id: i64, state: &'static str, task: Option<i64>) -> RunnerLine {
    let works_on = task.map(|task| WorkLine {
        run_id: RunId(task + 100),
        task_id: TaskId(task),
        class: "mail.send".to_owned(),
        started_on: Some(now()),
        percents_completed: 40,
    });
    RunnerLine {
        runner: Runner {
            id: RunnerId(id),
            name: format!("web1:{id}"),
            process_id: id,
            host: "web1".to_owned(),
            process_identity: String::new(),
            slots: 2,
            version: "0.1.0".to_owned(),
            started_on: now() - TimeDelta::seconds(90),
            heartbeat_on: now(),
            heartbeat_boot_ms: None,
            finished_on: None,
            classes: None,
        },
        state,
        silent_secs: None,
        memory_bytes: None,
        works_on: works_on.into_iter().collect(),
        pause: None,
    }
}

fn running(task: i64, lost: Option<&str>) -> RunningLine {
    RunningLine {
        run_id: RunId(task + 100),
        task_id: TaskId(task),
        class: "mail.send".to_owned(),
        attempt: 1,
        started_on: Some(now() - TimeDelta::seconds(75)),
        percents_completed: 40,
        message: "half of it\u{1b}[31m".to_owned(),
        process_id: Some(1),
        claimant: None,
        host: "web1".to_owned(),
        is_to_end: false,
        lost: lost.map(str::to_owned),
    }
}

fn failed(task: i64) -> FailedTask {
    FailedTask {
        task_id: TaskId(task),
        class: "import".to_owned(),
        is_final: true,
        why_final: Some(FinalCause::NotRetryable),
        attempts: 1,
        error_code: "exit:65".to_owned(),
        error_message: "bad header\nline 2".to_owned(),
        failed_on: Some(now() - TimeDelta::seconds(5)),
    }
}

fn glance() -> Glance {
    Glance {
        now: now(),
        slots: (4, 8),
        pauses: Vec::new(),
        runners: vec![runner(11, "alive", Some(17)), runner(12, "dead", Some(18))],
        running: vec![running(17, None), running(18, Some("the runner is dead"))],
        failures: vec![failed(31)],
    }
}

fn schedule() -> Schedule {
    Schedule {
        id: TaskId(41),
        class: "report".to_owned(),
        every: "0 3 * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        catch_up: "one".to_owned(),
        overlap: "wait".to_owned(),
        status: Stored::Known(ScheduleStatus::Active),
        task_id: TaskId(43),
        task_status: "scheduled".to_owned(),
        planned_on: Some(now() + TimeDelta::hours(2)),
        problem: None,
        key_holder: None,
        name: None,
        file: None,
        data: "{}".to_owned(),
    }
}

fn tally() -> TopCounts {
    let counts = TaskCounts {
        processing: counted(2),
        waiting_runs: counted(5),
        due: counted(3),
        failed: counted(1),
        oldest_due_secs: Some(61),
        ..TaskCounts::default()
    };
    let class = ClassCounts {
        class: "mail.send".to_owned(),
        due: counted(3),
        waiting: counted(5),
        running: 2,
        failed: counted(0),
    };
    TopCounts {
        counts,
        throughput: Throughput { lately: 12.3, last_minute: 8.0 },
        classes: vec![class],
        schedules: vec![schedule()],
    }
}

fn state() -> TopState {
    let mut state = TopState::new("sqlite:///tmp/tasks.db");
    state.resize(24);
    state.take_glance(&glance());
    state.take_tally(&tally());
    state
}

/// Returns what a terminal of this size shows, and its cells.
fn shown(state: &TopState, use_color: bool, columns: u16, rows: u16) -> (Vec<String>, Buffer) {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(state, use_color, frame.area(), frame.buffer_mut())).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let lines =
        buffer.content().chunks(columns.into()).map(|cells| cells.iter().map(ratatui::buffer::Cell::symbol).collect());
    (lines.collect(), buffer)
}

fn press(state: &mut TopState, keys: &str) -> Option<TopCommand> {
    keys.chars().filter_map(|key| state.press(TopKey::Char(key))).last()
}

#[test]
fn terminals_of_40_80_and_200_columns_show_what_they_have_room_for() {
    for (columns, rows) in [(40, 30), (80, 24), (200, 24)] {
        let (lines, _) = shown(&state(), true, columns, rows);
        let text = lines.join("\n");
        for part in
            ["running 2", "slots 4/8", "waiting runs 5", "due 3", "oldest due 1m01s", "done 12.3/s", "mail.send"]
        {
            assert!(text.contains(part), "{columns} {part}:\n{text}");
        }
        for part in
            ["Runners 2", "web1:11", "dead", "Running 2", "1m15s", "Queues 1", "Failures 1", "exit:65", "q quit"]
        {
            assert!(text.contains(part), "{columns} {part}:\n{text}");
        }
        assert_eq!(text.contains("HOST"), columns > 40, "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains("line 2"), "{text}");
        let is_side_by_side = lines.iter().any(|line| line.contains("Runners") && line.contains("Running"));
        assert_eq!(is_side_by_side, columns == 200, "{text}");
    }
}

#[test]
fn no_size_is_too_small() {
    let mut state = state();
    for columns in (1..60).step_by(3) {
        for rows in 1..30 {
            let _ = shown(&state, true, columns, rows);
            let _ = plain_text(&state, columns, rows);
        }
    }
    draw(&state, true, Rect::new(0, 0, 0, 0), &mut Buffer::empty(Rect::new(0, 0, 0, 0)));
    let _ = press(&mut state, "?");
    assert!(shown(&state, true, 80, 24).0.join("\n").contains("cancel the task"));
}

#[test]
fn a_low_screen_shows_the_pane_that_was_chosen() {
    let mut state = state();
    let text = plain_text(&state, 80, 12);
    assert!(text.contains("Running 2") && !text.contains("Failures"), "{text}");
    assert_eq!(state.press(TopKey::BackTab), None);
    let text = plain_text(&state, 80, 12);
    assert!(text.contains("Runners 2") && !text.contains("Running 2"), "{text}");
}

#[test]
fn colours_mean_something_and_nothing_stands_on_a_colour_of_its_own() {
    let place = |lines: &[String], words: &str| {
        let y = lines.iter().position(|line| line.contains(words)).unwrap();
        let x = lines[y].split(words).next().unwrap().chars().count();
        (u16::try_from(x).unwrap(), u16::try_from(y).unwrap())
    };
    let (lines, buffer) = shown(&state(), true, 80, 24);
    assert_eq!(buffer[place(&lines, "exit:65")].fg, Color::Red);
    assert_eq!(buffer[place(&lines, "dead")].fg, Color::Yellow);
    assert_eq!(buffer[place(&lines, "alive")].fg, Color::Green);
    for (use_color, allowed) in
        [(true, &[Color::Reset, Color::Red, Color::Yellow, Color::Green][..]), (false, &[Color::Reset][..])]
    {
        let (_, buffer) = shown(&state(), use_color, 80, 24);
        assert!(buffer.content().iter().all(|cell| cell.bg == Color::Reset && allowed.contains(&cell.fg)));
    }
}

#[test]
fn what_changes_something_is_done_after_a_yes_alone() {
    let mut state = state();
    assert_eq!(press(&mut state, "c"), None);
    assert!(plain_text(&state, 80, 24).ends_with("cancel task 17? y/n"));
    assert_eq!(press(&mut state, "n"), None);
    assert!(plain_text(&state, 80, 24).ends_with("nothing was changed"));
    assert_eq!(press(&mut state, "cq"), None, "the q answers the question");
    assert_eq!(press(&mut state, "jcy"), Some(TopCommand::Change(Change::Cancel(TaskId(18)))));
    assert_eq!(press(&mut state, "lllry"), Some(TopCommand::Change(Change::Retry(TaskId(31)))));
    assert_eq!(
        press(&mut state, "py"),
        Some(TopCommand::Change(Change::Pause(PauseScope::Class("import".to_owned()))))
    );
    assert_eq!(press(&mut state, "Py"), Some(TopCommand::Change(Change::Pause(PauseScope::All))));
    let pause = Pause {
        scope: PauseScope::All,
        mode: Stored::Known(PauseMode::Pause),
        reason: String::new(),
        author: "ann".to_owned(),
        host: String::new(),
        created_on: now(),
        until: None,
    };
    state.take_glance(&Glance { pauses: vec![pause], ..glance() });
    assert!(plain_text(&state, 80, 24).contains("paused: everything"));
    assert_eq!(press(&mut state, "Py"), Some(TopCommand::Change(Change::Resume(PauseScope::All))));
    // No task is selected in the pane of classes.
    assert_eq!(press(&mut state, "hhcy"), None);
    assert_eq!(press(&mut state, "q"), Some(TopCommand::Quit));
    assert_eq!(state.press(TopKey::Interrupt), Some(TopCommand::Quit));
}

#[test]
fn the_row_that_was_chosen_stays_so_when_others_come_and_go() {
    let mut state = state();
    let _ = press(&mut state, "j");
    let running_of =
        |tasks: &[i64]| Glance { running: tasks.iter().map(|task| running(*task, None)).collect(), ..glance() };
    state.take_glance(&running_of(&[15, 16, 17, 18, 19]));
    assert_eq!(state.selected(Pane::Running), 3);
    state.take_glance(&running_of(&[15, 19]));
    assert_eq!(press(&mut state, "cy"), Some(TopCommand::Change(Change::Cancel(TaskId(19)))));
    state.take_glance(&running_of(&[]));
    assert_eq!(press(&mut state, "cy"), None);
    state.take_glance(&running_of(&[20]));
    assert_eq!(press(&mut state, "cy"), Some(TopCommand::Change(Change::Cancel(TaskId(20)))));
}

#[test]
fn a_task_is_opened_scrolled_followed_and_closed() {
    let lines = |count: usize| (0..count).map(|number| format!("line {number}.")).collect::<Vec<_>>();
    let mut state = state();
    assert_eq!(state.press(TopKey::Enter), Some(TopCommand::Details(TaskId(17))));
    assert_eq!((state.opened(), state.followed()), (Some(TaskId(17)), Some(TaskId(17))));
    state.take_details(TaskId(18), lines(3));
    assert!(plain_text(&state, 80, 24).contains("waiting for the database"), "that was another task");
    state.take_details(TaskId(17), lines(60));
    assert!(plain_text(&state, 80, 24).contains("line 0."));
    assert_eq!(state.press(TopKey::End), None);
    let text = plain_text(&state, 80, 24);
    assert!(text.contains("line 59.") && text.contains("line 38.") && !text.contains("line 37."), "{text}");
    assert_eq!(press(&mut state, "f"), None);
    assert_eq!(state.followed(), None);
    assert_eq!(press(&mut state, "f"), None);
    assert_eq!(state.followed(), Some(TaskId(17)));
    state.take_details(TaskId(17), lines(70));
    assert!(plain_text(&state, 80, 24).contains("line 69."), "the end is followed");
    assert_eq!(press(&mut state, "k"), None);
    state.take_details(TaskId(17), lines(80));
    assert!(!plain_text(&state, 80, 24).contains("line 79."), "but for who reads what stands before");
    assert_eq!(press(&mut state, "cy"), Some(TopCommand::Change(Change::Cancel(TaskId(17)))));
    assert_eq!(state.press(TopKey::Escape), None);
    assert_eq!(state.opened(), None);
    assert_eq!(state.press(TopKey::Escape), None, "Escape goes back and does not quit");
    assert!(plain_text(&state, 80, 24).ends_with("q quits"));
}

#[test]
fn a_filter_leaves_the_rows_that_contain_it() {
    let mut state = state();
    let _ = press(&mut state, "/RepO");
    let text = plain_text(&state, 80, 24);
    assert!(text.contains("Schedules 1") && text.contains("report") && text.contains("in 2h00m"), "{text}");
    assert!(text.contains("no row contains \"RepO\"") && text.contains("/RepO_"), "{text}");
    assert_eq!(state.press(TopKey::Backspace), None);
    assert_eq!(state.press(TopKey::Enter), None);
    assert!(plain_text(&state, 80, 24).contains("filter: Rep (Escape shows all)"));
    assert_eq!(press(&mut state, "q"), Some(TopCommand::Quit), "keys work again");
    assert_eq!(state.press(TopKey::Escape), None);
    assert!(plain_text(&state, 80, 24).contains("Running 2"));
}

#[test]
fn an_empty_pane_says_why() {
    let none = Glance { running: Vec::new(), runners: Vec::new(), ..glance() };
    let mut state = state();
    state.take_glance(&none);
    assert!(plain_text(&state, 80, 40).contains("nothing is running: no runner is alive"));
    state.take_tally(&TopCounts { counts: TaskCounts::default(), classes: Vec::new(), ..tally() });
    let text = plain_text(&state, 80, 40);
    assert!(
        text.contains("nothing is running: no task is due") && text.contains("nothing is waiting: no task is due"),
        "{text}"
    );
}

#[test]
fn a_database_that_is_away_is_said_until_it_answers() {
    let mut state = state();
    assert!(state.complain("no answer from the database for 3s: connection refused"));
    assert!(!state.complain("no answer from the database for 3s: connection refused"));
    assert!(plain_text(&state, 80, 24).contains("no answer from the database for 3s: connection refused"));
    let _ = state.press(TopKey::Enter);
    assert!(plain_text(&state, 80, 24).starts_with("no answer from the database for 3s"));
    let _ = state.press(TopKey::Escape);
    state.take_glance(&glance());
    assert!(!plain_text(&state, 80, 24).contains("no answer"));
}

#[test]
fn rates_are_drawn_once_there_are_several() {
    let mut state = state();
    assert!(!plain_text(&state, 80, 24).contains('█'));
    state.take_tally(&TopCounts { throughput: Throughput { lately: 24.6, last_minute: 8.0 }, ..tally() });
    assert!(plain_text(&state, 80, 24).contains("▄█"));
}
