//! Text that was written into the tables by SQL, in every verb that prints it.

use super::settings::forge_setting;
use super::status_terminal::on_terminal;
use super::work_metrics::{Worker, get};
use taskqueue::{ActiveRun, HandlerError, NewTask, TaskHandler, TaskQueue, Worker as LibraryWorker};

use super::coprocess::kept;
use super::{ECHO, shell_class, task, write};
use crate::each_engine;
use crate::support::TestDb;
use crate::support::db::Raw;

/// Control sequences and changes of direction: CSI, OSC with BEL, CR, C1, bidi, a line break beyond ASCII.
pub(crate) const NASTY: &str = "n\u{1b}[31m\u{1b}]0;t\u{7}\rC\u{9b}2J\u{202e}\u{2066}\u{2028}z";
/// The same for JSON, which allows no C0 characters.
pub(crate) const NASTY_JSON: &str = "{\"n\":\"C\u{9b}2J\u{202e}\u{2066}\u{2028}\u{7f}z\"}";

/// The columns with text, and a condition for the rows to change.
const COLUMNS: &[(&str, &str, &str)] = &[
    ("TaskQueue", "TaskClass", "\"Id\" IN (3, 4)"),
    ("TaskQueue", "QueuedById", ""),
    ("TaskQueue", "Backoff", ""),
    ("TaskQueue", "UniqueKey", "\"Id\" = 3"),
    ("TaskQueue", "LimitKey", ""),
    ("TaskQueue", "Tag", ""),
    ("TaskQueue", "Name", ""),
    ("TaskQueue", "TimeZone", ""),
    ("TaskQueue", "Recurrence", "\"Id\" = 4"),
    ("TaskQueueRuns", "TaskClass", "\"TaskQueueId\" IN (3, 4)"),
    ("TaskQueueRuns", "ProgressMessage", ""),
    ("TaskQueueRuns", "ErrorCode", "\"FinishedOn\" IS NOT NULL"),
    ("TaskQueueRuns", "ErrorMessage", "\"FinishedOn\" IS NOT NULL"),
    ("TaskQueueRuns", "Decision", ""),
    ("TaskQueueRuns", "Claimant", ""),
    ("TaskQueueRuns", "Host", ""),
    ("TaskQueueRuns", "CancelReason", ""),
    ("TaskQueueRuns", "LimitKey", ""),
    ("TaskQueueRuns", "Tag", ""),
    ("TaskQueueRunners", "Host", ""),
    ("TaskQueueRunners", "Version", ""),
    ("TaskQueueRunners", "Name", ""),
    ("TaskQueueRunners", "Classes", ""),
    ("TaskQueueRunOutputs", "Content", ""),
    ("TaskQueueEvents", "Kind", ""),
    ("TaskQueueEvents", "Actor", ""),
    ("TaskQueueEvents", "Host", ""),
    ("TaskQueueClassHolds", "TaskClass", ""),
    ("TaskQueueClassHolds", "Host", ""),
    ("TaskQueueClassHolds", "Reason", ""),
    ("TaskQueuePauses", "Name", "\"Scope\" = 'runner'"),
    ("TaskQueuePauses", "Reason", ""),
    ("TaskQueuePauses", "Author", ""),
    ("TaskQueuePauses", "Host", ""),
    ("TaskQueueClassLimits", "TaskClass", ""),
    ("TaskQueueKeyLimits", "LimitKey", ""),
    ("TaskQueueRejections", "Claimant", ""),
    ("TaskQueueNotices", "TaskClass", ""),
    ("TaskQueueNotices", "Host", ""),
    ("TaskQueueNotices", "ErrorCode", ""),
    ("TaskQueueNotices", "ErrorMessage", ""),
];

/// Creates a task that failed (1), one that succeeded, one that waits (3), a schedule (4), a due one of a paused class, and rows
/// in other tables.
pub(crate) fn fill(db: &TestDb) {
    db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "echo oh >&2; exit 65")));
    for class in ["bad", "echo"] {
        db.cli().run(&["queue", class]).ok();
    }
    db.cli().run(&["tick"]).ok();
    for args in [
        &["queue", "--any-class", "other", "--in", "1h"][..],
        &["queue", "--any-class", "again", "--every", "0 3 * * *"],
        &["queue", "--any-class", "other"],
        &["pause", "--class", "other", "--reason", "r"],
        &["pause", "--runner", "r", "--reason", "r"],
        &["limit", "set", "other", "--running", "1"],
        &["limit", "set", "--key", "k", "--running", "1"],
    ] {
        db.cli().run(args).ok();
    }
    db.execute("INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"Name\", \"Host\") VALUES (1, 'r', 'h')");
    db.execute("INSERT INTO \"TaskQueueRejections\" (\"TaskId\", \"Claimant\") VALUES (3, 'c')");
    for class in ["other", "echo"] {
        db.execute(&format!(
            "INSERT INTO \"TaskQueueClassHolds\" (\"TaskClass\", \"Host\", \"Reason\", \"HeldUntil\") \
             VALUES ('{class}', 'h', 'r', '2099-01-01 00:00:00')"
        ));
    }
}

/// Writes such text into each column, and returns the columns that the tables accept it in.
pub(crate) fn forge(raw: &mut Raw) -> Vec<String> {
    let mut taken = Vec::new();
    let json = [("TaskQueue", "TaskData"), ("TaskQueueRuns", "Results"), ("TaskQueueEvents", "Details")];
    let json = json.map(|(table, column)| (table, column, "", NASTY_JSON));
    for (table, column, only, text) in COLUMNS.iter().map(|(a, b, c)| (*a, *b, *c, NASTY)).chain(json) {
        let only = if only.is_empty() { String::new() } else { format!(" WHERE {only}") };
        let update = format!("UPDATE \"{table}\" SET \"{column}\" = '{text}'{only}");
        if raw.try_execute(&update).is_ok() {
            taken.push(format!("{table}.{column}"));
        }
    }
    taken
}

/// Returns the first harmful character of a text; the colours of a table do not count.
pub(crate) fn harmful(text: &str) -> Option<char> {
    let is_bidi =
        |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().find(|c| c.is_control() && *c != '\n' || is_bidi(*c))
}

pub(crate) const PRINTING: &[&str] = &[
    "status",
    "status 1",
    "status 2 3 4 --full",
    "status --runs",
    "status --runners",
    "status --class other",
    "status 3 4",
    "explain",
    "explain 1",
    "explain 3",
    "explain 4",
    "failures",
    "failures --samples",
    "events -n 100",
    "runner",
    "limit",
    "pause",
    "logs 1 --clean",
    "logs 2 --clean",
    "metrics",
    "top --once",
    "doctor",
    "check",
    "schedule",
    "schedule show 4",
    "wait 1 --timeout 1ms",
    "wait 3 --timeout 1ms",
    "setting",
    "setting get TaskQueueKeepResults",
    "class",
    "prune --dry-run",
    "create-runs -v",
    "retry 1 --dry-run",
    "cancel 3 --dry-run",
    "process-run -v",
    "work --idle-exit 0s -v",
    "tick -v",
];

/// Verbs that print no such text after [`fill`] and [`forge`]: counts, names and ids.
const WITHOUT_ROWS: &[&str] = &[
    "limit",
    "check",
    "wait 1 --timeout 1ms",
    "wait 3 --timeout 1ms",
    "setting",
    "setting get TaskQueueKeepResults",
    "prune --dry-run",
    "create-runs -v",
    "retry 1 --dry-run",
    "cancel 3 --dry-run",
    "process-run -v",
    "work --idle-exit 0s -v",
];
/// Verbs that print such text only with `--json`, and only without it.
const ONLY_JSON: &[&str] = &["explain 3", "explain 4"];
const ONLY_TEXT: &[&str] = &["schedule"];

/// Returns the exit status of a verb after [`fill`]: a task has failed, another one waits, and a class is paused.
fn documented_code(args: &str) -> i32 {
    match args {
        "doctor" | "check" | "wait 1 --timeout 1ms" => 1,
        "wait 3 --timeout 1ms" => 124,
        _ => 0,
    }
}

/// Returns true if text that was cleaned is printed.
fn shows_cleaned(text: &str) -> bool {
    text.contains('\u{fffd}') || text.contains("\\u202e")
}

/// Returns a JSON string with [`NASTY`], fully escaped, so that every shell and parser accepts it.
fn nasty_json() -> String {
    let escaped = |c: char| if c.is_ascii_graphic() { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) };
    format!("\"{}\"", NASTY.chars().map(escaped).collect::<String>())
}

/// A handler that sends such text on descriptor 3, with the program and in its output, and fails.
fn nasty_handler(db: &TestDb, class: &str, exit: &str) -> String {
    let raw = write(db, "nasty", NASTY);
    let (raw, program, text) = (raw.display(), env!("CARGO_BIN_EXE_taskqueue"), nasty_json());
    let lines = [
        format!("{{\"progress\":40,\"message\":{text}}}"),
        format!("{{\"event\":\"e\\u202e\\u2028\",\"data\":{text}}}"),
        format!("{{{text}:1,\"error\":{{{text}:1}}}}"),
        format!("{{\"result\":{text}}}"),
        format!("{{\"error\":{{\"code\":{text},\"message\":{text}}}}}"),
    ];
    let sent: String = lines.iter().map(|line| format!("printf '%s\\n' '{line}' >&3\n")).collect();
    let script = format!(
        "{sent}cat {raw} >&3; {program} report progress 50 \"$(cat {raw})\"; {program} report result '{text}'\ncat {raw}; cat {raw} >&2\nexit {exit}\n"
    );
    shell_class(db, class, &script)
}

/// Coprocesses that send such text: one about its run, one instead of a message, one in its hello.
fn nasty_coprocesses(db: &TestDb) -> String {
    let text = nasty_json();
    let hello = "say(type='hello', version=1)\n";
    let about = format!(
        "{hello}for run in runs():\n sys.stderr.write({text}); say(type='progress', id=run['id'], progress=4, message={text})\n \
         say(type='fail', id=run['id'], exit=65, error={{'code': {text}, 'message': {text}}}, result={text})\n"
    );
    let instead = format!("{hello}for run in runs(): sys.stdout.write({text} + '\\n'); sys.stdout.flush()\n");
    let in_hello = format!("say(type='hello', version=1, capabilities={text})\n");
    let scripts = [("about", about), ("instead", instead), ("in-hello", in_hello)];
    scripts.map(|(name, script)| kept(db, name, &script)).concat()
}

/// Sends such text and fails with it.
struct Nasty;

impl TaskHandler for Nasty {
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
        run.emit("e\u{202e}\u{2028}", NASTY)?;
        run.set_results(NASTY)?;
        Err(HandlerError::no_retry(NASTY, NASTY))
    }
}

each_engine! {
    fn text_of_handlers_of_every_kind_is_clean_through_every_verb(db) {
        let log = db.home().join("notices.log");
        let classes = [nasty_handler(db, "bad", "65"), nasty_handler(db, "held", "78"), nasty_coprocesses(db)].concat();
        db.configure(&format!("{ECHO}{classes}[notify]\nlog = {log:?}\nevery_secs = 0\n"));
        for class in ["bad", "echo", "held"] {
            db.cli().run(&["queue", class]).ok();
        }
        db.cli().run(&["queue", "echo", "--every", "0 3 * * *"]).ok();
        for class in ["about", "instead", "in-hello"] {
            db.cli().run(&["queue", class]).ok();
        }
        let queue = TaskQueue::connect(db.url_text()).unwrap();
        let id = queue.queue(NewTask::new("rust")).unwrap().id;
        let worked = db.cli().run(&["work", "--idle-exit", "0s", "-v"]);
        assert_eq!((worked.code, harmful(&worked.stderr), harmful(&worked.stdout)), (Some(0), None, None), "{worked:?}");
        let library = LibraryWorker::new(&queue).unwrap().spool(db.home().join("spool")).class("rust", Nasty);
        assert_eq!(library.idle_exit(std::time::Duration::ZERO).run().unwrap().failed, 1);
        // It is stored as it was sent.
        for id in ["1", "5", &id.to_string()] {
            let run = &db.cli().run(&["status", "--json", id]).json()["runs"][0];
            assert_eq!((&run["error_code"], &run["error_message"]), (&NASTY.into(), &NASTY.into()), "{run}");
        }
        assert_eq!(task(db, "3")["status"], "scheduled", "its class is held");
        db.cli().run(&["create-runs"]).ok();
        let more = ["status 5 6 7 8 --full", "show 5 6 7 8", "explain 6", "explain 7", "events -n 1000", "logs 5 --clean", "class"];
        for args in PRINTING.iter().chain(&more) {
            let words: Vec<&str> = args.split(' ').collect();
            for first in [&[][..], &["--json"]] {
                let ended = db.cli().run(&[first, &words].concat());
                assert_eq!((harmful(&ended.stdout), harmful(&ended.stderr)), (None, None), "{args}: {ended:?}");
            }
        }
        for args in ["failures", "logs 1", "logs 5", "top --once", "status 1 5 6 7 8", "events", "class"] {
            let text = on_terminal(db, 100, "", &format!("--color never {args} || true"));
            assert_eq!(harmful(&text), None, "{args}: {text:?}");
        }
        let notices = std::fs::read_to_string(&log).unwrap();
        assert!(notices.contains("exhausted") && harmful(&notices).is_none(), "{notices:?}");
    }

    fn text_that_was_forged_by_sql_is_clean_through_every_verb(db) {
        fill(db);
        let taken = forge(&mut db.raw());
        for column in ["TaskQueueRuns.ErrorCode", "TaskQueueRuns.ErrorMessage", "TaskQueueRunners.Host", "TaskQueueEvents.Actor", "TaskQueuePauses.Reason", "TaskQueueClassHolds.Host"] {
            assert!(taken.iter().any(|name| name == column), "{column}: {taken:?}");
        }
        for args in PRINTING.iter().chain(&["explain 5", "status 5"]) {
            let words: Vec<&str> = args.split(' ').collect();
            for (first, others) in [(&[][..], ONLY_JSON), (&["--json"], ONLY_TEXT)] {
                let ended = db.cli().run(&[first, &words].concat());
                assert_eq!(ended.code, Some(documented_code(args)), "{args} {first:?}: {ended:?}");
                let text = ended.stdout + &ended.stderr;
                assert_eq!(harmful(&text), None, "{args} {first:?}: {text:?}");
                // MySQL and MariaDB accept no such text in what it shows.
                let is_ascii = db.is_mysql_like() && args.starts_with("schedule");
                let shows_rows = !is_ascii && !WITHOUT_ROWS.contains(args) && !others.contains(args);
                assert!(shows_cleaned(&text) || !shows_rows, "{args} {first:?} prints no forged row: {text:?}");
            }
        }
        for args in ["failures", "metrics", "logs 1", "top --once", "status 1", "events", "explain", "class"] {
            let text = on_terminal(db, 100, "", &format!("--color never {args}"));
            assert_eq!((harmful(&text), shows_cleaned(&text)), (None, true), "{args}: {text:?}");
        }
    }

    fn a_setting_that_was_forged_by_sql_is_clean_through_every_verb(db) {
        fill(db);
        forge_setting(db, "TaskQueueKeepResults", NASTY);
        for args in PRINTING {
            let words: Vec<&str> = args.split(' ').collect();
            for first in [&[][..], &["--json"]] {
                let ended = db.cli().run(&[first, &words].concat());
                let text = ended.stdout + &ended.stderr;
                assert_eq!(harmful(&text), None, "{args} {first:?}: {text:?}");
                assert_eq!(ended.code, Some(documented_code(args)), "{args} {first:?}: {text:?}");
                let must_show = args.starts_with("setting") || *args == "doctor";
                assert!(shows_cleaned(&text) || !must_show, "{args} {first:?}: {text:?}");
            }
        }
    }

    fn an_error_that_cannot_be_pasted_is_retried_by_the_ids_of_its_tasks(db) {
        fill(db);
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"ErrorCode\" = '{NASTY}' WHERE \"FinishedOn\" IS NOT NULL AND \"ErrorCode\" <> ''"));
        let text = db.cli().run(&["failures"]).ok();
        assert!(text.ends_with("Retry a few of the largest group: taskqueue retry 1"), "{text:?}");
        assert_eq!(db.cli().run(&["failures", "--json"]).json()["groups"][0]["error_code"], NASTY, "JSON is not as stored");
    }

    fn metrics_by_http_have_no_control_characters_of_a_host(db) {
        db.configure(ECHO);
        db.execute(&format!("INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"Name\", \"Host\") VALUES (1, 'r', '{NASTY}')"));
        let worker = Worker::start(db, &["--metrics", "127.0.0.1:0"]);
        let (_, text) = get(&worker.address, "/metrics").unwrap();
        worker.end();
        assert!(text.contains("taskqueue_runners{host=\"n\u{fffd}[31m") && harmful(&text).is_none(), "{text:?}");
    }

    fn notices_in_a_log_are_clean_and_keep_what_is_stored(db) {
        let log = db.home().join("notices.log");
        let bad = shell_class(db, "bad", "echo oh >&2; exit 65");
        db.configure(&format!("{bad}[notify]\nlog = {log:?}\nevery_secs = 0\n"));
        db.cli().run(&["queue", "bad"]).ok();
        db.cli().run(&["create-runs"]).ok();
        assert!(db.cli().run(&["process-run"]).code.is_some());
        db.execute(&format!("UPDATE \"TaskQueueNotices\" SET \"ErrorMessage\" = '{NASTY}', \"Host\" = '{NASTY}'"));
        db.cli().run(&["create-runs"]).ok();
        let text = std::fs::read_to_string(&log).unwrap();
        assert_eq!((harmful(&text), text.lines().count()), (None, 1), "{text:?}");
        let notice: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(notice["error_message"], NASTY);
    }

    fn logs_are_printed_into_a_pipe_as_written_unless_they_are_to_be_clean(db) {
        db.configure(&shell_class(db, "nasty", "printf 'a\\033[31mb\\007\\n'"));
        let id = db.cli().run(&["queue", "nasty"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(db.cli().run(&["logs", &id]).stdout, "a\u{1b}[31mb\u{7}\n");
        for args in [&["logs", &id, "--clean"][..], &["logs", &id, "--clean", "--follow"]] {
            assert_eq!(db.cli().run(args).stdout, "a\u{fffd}[31mb\u{fffd}\n", "{args:?}");
        }
    }

    fn long_data_and_results_are_cut_unless_all_is_asked_for(db) {
        db.configure(&shell_class(db, "long", "printf '{\"result\":\"%s\"}\\n' \"$(head -c 20000 /dev/zero | tr '\\0' r)\" >&3; head -c 20000 /dev/zero | tr '\\0' o"));
        let data = format!("\"{}\"", "d".repeat(20_000));
        let id = db.cli().run(&["queue", "long", &data]).ok();
        db.cli().run(&["tick"]).ok();
        let text = db.cli().run(&["status", &id]).ok();
        assert!(text.len() < 40_000, "{}", text.len());
        assert_eq!(text.matches("20002 bytes in all; status --full prints them").count(), 2, "{text}");
        let text = db.cli().run(&["status", &id, "--full"]).ok();
        for letter in ["d", "r", "o"] {
            assert!(text.contains(&letter.repeat(20_000)), "{letter}");
        }
        assert_eq!(db.cli().run(&["status", &id, "--json"]).json()["task"]["data"].as_str().unwrap().len(), 20_000);
    }
}
