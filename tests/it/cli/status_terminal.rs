//! `taskqueue status` on a real terminal, which `script` creates and `stty` resizes.

use std::process::{Command, Stdio};

use super::settings::forge_setting;
use super::{ECHO, shell_class};
use crate::support::db::on;
use crate::support::{EngineUnderTest, TestDb};

/// Returns a command that runs the program on a terminal of this width.
pub(super) fn of_terminal(db: &TestDb, columns: u16, environment: &str, args: &str) -> Command {
    let program = env!("CARGO_BIN_EXE_taskqueue");
    let line = format!("stty cols {columns} rows 50; env {environment} {program} {args}");
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", db.home())
        .env("TERM", "xterm-256color")
        .env("LANG", "C.UTF-8")
        .env("TASKQUEUE_DATABASE_URL", db.url_text());
    command
}

/// Returns what the program prints on a terminal of this width.
pub(super) fn on_terminal(db: &TestDb, columns: u16, environment: &str, args: &str) -> String {
    let output = of_terminal(db, columns, environment, args).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
}

fn with_tasks(check: impl Fn(&TestDb)) {
    on(EngineUnderTest::Sqlite, |db| {
        let bad = shell_class(
            db,
            "thumbnails.make",
            "echo the file was neither a picture nor anything that could be made into one >&2; exit 65",
        );
        db.configure(&format!("{ECHO}{bad}"));
        db.cli().run(&["queue", "thumbnails.make"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        check(db);
    });
}

#[test]
fn tables_fit_terminals_of_40_80_and_200_columns() {
    with_tasks(|db| {
        for columns in [40, 80, 200] {
            for args in ["status", "status --runs", "status --runners", "explain 1", "explain", "setting", "class"] {
                let text = on_terminal(db, columns, "", &format!("--color never {args}"));
                for line in text.lines() {
                    assert!(line.chars().count() <= columns.into(), "{columns} {args}: {line:?}");
                }
            }
            let text = on_terminal(db, columns, "", "status --color never");
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains("failed 1") && flat.contains("success 1") && flat.contains("TASK"), "{text}");
        }
        let wide = on_terminal(db, 200, "", "status --color never");
        assert!(
            wide.contains(
                "not retried: exit:65: the file was neither a picture nor anything that could be made into one"
            ),
            "{wide}"
        );
    });
}

#[test]
fn what_is_said_of_a_task_fits_the_terminal_too() {
    with_tasks(|db| {
        for columns in [40, 80, 200] {
            let text = on_terminal(db, columns, "", "--color never status 1");
            // The output of the handler is unchanged.
            for line in text.lines().filter(|line| !line.starts_with("    the file was neither")) {
                assert!(line.chars().count() <= columns.into(), "{columns}: {line:?}");
            }
        }
        let text = on_terminal(db, 40, "", "--color never status 1");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            flat.contains("nor anything that could be made into one") && flat.contains("waited for its turn"),
            "{text}"
        );
        assert!(flat.contains("attempt 1: error, exit:65"), "{text}");
        // It is not retried, whatever its time is.
        assert!(!flat.contains("Z (in "), "{text}");
    });
}

#[test]
fn lines_are_broken_between_words_where_there_are_40_columns() {
    with_tasks(|db| {
        let reason = "the disk of the pictures is full and nobody can be reached before tomorrow";
        db.cli().run(&["retry", "1", "--reason", reason]).ok();
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "4"]).ok();
        db.cli().run(&["queue", "echo", "--every", "@yearly", "--tz", "Europe/Berlin"]).ok();
        for (args, said) in [
            ("events", reason),
            ("status 1", reason),
            ("runner", "`taskqueue work`"),
            ("schedule show 3", "@yearly in Europe/Berlin"),
            ("explain 1", "is due and has no run yet: a worker, tick or create-runs creates the run."),
            ("explain 2 --verbose", "finished; it will not run again unless you retry it"),
            ("check", "oldest_due="),
        ] {
            let text = on_terminal(db, 40, "", &format!("--color never {args}"));
            for line in text.lines().filter(|line| !line.starts_with("    the file was neither")) {
                assert!(line.chars().count() <= 40, "{args}: {line:?}");
            }
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(said), "{args}: {text}");
        }
        let explained = on_terminal(db, 40, "", "--color never explain 2 -v");
        assert!(
            explained.contains("\nnext   finished; it will not run again\n       unless you retry it\n"),
            "{explained}"
        );
        let help = on_terminal(db, 40, "NO_COLOR=1", "--help");
        assert_eq!(help.lines().find(|line| line.chars().count() > 40), None, "{help}");
        assert!(help.contains("\nRun      tick work process-run\n         create-runs\n"), "{help}");
        let all = on_terminal(db, 40, "NO_COLOR=1", "help all");
        let (verbs, _) = all.split_once("\nOptions:\n").unwrap();
        assert_eq!(verbs.lines().find(|line| line.chars().count() > 40), None);
        assert!(verbs.contains("\n  create-runs  Rescue runs, end"), "{verbs}");
    });
}

#[test]
fn colour_is_for_terminals_and_no_color_and_dumb_terminals_turn_it_off() {
    with_tasks(|db| {
        assert!(on_terminal(db, 120, "", "status").contains("\u{1b}["));
        for off in ["NO_COLOR=1", "TERM=dumb"] {
            let text = on_terminal(db, 120, off, "status");
            assert!(!text.contains('\u{1b}') && text.contains("failed"), "{text:?}");
        }
        assert!(!on_terminal(db, 120, "", "status --color never").contains('\u{1b}'));
        assert!(on_terminal(db, 120, "NO_COLOR=1", "status --color always").contains("\u{1b}["));
        assert!(db.cli().run(&["status", "--color", "always"]).ok().contains("\u{1b}["));
        assert!(!db.cli().env("CLICOLOR_FORCE", "0").run(&["status"]).ok().contains('\u{1b}'));
    });
}

#[test]
fn on_a_terminal_queue_says_what_it_queued_besides_the_id() {
    with_tasks(|db| {
        let text = on_terminal(db, 80, "", "queue echo");
        assert!(text.starts_with("3\n") && text.contains("queued task 3 of class echo, due now"), "{text:?}");
    });
}

#[test]
fn stored_handler_output_does_not_drive_the_terminal_that_waits_for_it() {
    on(EngineUnderTest::Sqlite, |db| {
        let nasty = "printf 'a\\033[31mb\\007\\n'; printf 'c\\033]0;d\\n' >&2";
        db.configure(&shell_class(db, "nasty", nasty));
        let queue = ["queue", "nasty", "--unique", "k", "--unique-for", "1h", "--wait"];
        db.cli().run(&queue[..6]).ok();
        db.cli().run(&["tick"]).ok();
        // A program gets the stored text, a terminal gets it without control sequences.
        let piped = db.cli().run(&queue);
        assert_eq!((piped.code, piped.stdout.as_str()), (Some(0), "a\u{1b}[31mb\u{7}\n"), "{piped:?}");
        assert!(piped.stderr.contains("c\u{1b}]0;d\n"), "{piped:?}");
        let text = on_terminal(db, 80, "", &queue.join(" "));
        assert!(text.contains("a\u{fffd}[31mb\u{fffd}\n") && text.contains("c\u{fffd}]0;d\n"), "{text:?}");
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
    });
}

#[test]
fn live_handler_output_is_clean_on_a_terminal_and_unchanged_in_a_pipe() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(&shell_class(db, "nasty", "printf 'a\\033[31mb\\007\\n'; printf 'c\\033]0;d\\n' >&2"));
        let exec = format!("exec --run /bin/sh {}/nasty.sh", db.home().display());
        // The second time, the key belongs to a task that has run.
        let again = "queue nasty --unique k --unique-for 1h --run";
        for args in ["class test nasty", "queue nasty --run", &exec, again, again] {
            let piped = db.cli().run(&args.split(' ').collect::<Vec<_>>());
            assert_eq!((piped.code, piped.stdout.as_str()), (Some(0), "a\u{1b}[31mb\u{7}\n"), "{args}: {piped:?}");
            assert!(piped.stderr.contains("c\u{1b}]0;d\n"), "{args}: {piped:?}");
            let text = on_terminal(db, 80, "", args);
            assert!(text.contains("a\u{fffd}[31mb\u{fffd}\n") && text.contains("c\u{fffd}]0;d\n"), "{args}: {text:?}");
            assert!(!text.contains(['\u{1b}', '\u{7}']), "{args}: {text:?}");
        }
    });
}

#[test]
fn a_setting_with_escapes_in_the_table_does_not_drive_the_terminal() {
    on(EngineUnderTest::Sqlite, |db| {
        forge_setting(db, "TaskQueueRunnerLimit", "a\u{1b}[31mb");
        for args in ["setting get TaskQueueRunnerLimit", "setting"] {
            let text = on_terminal(db, 120, "", &format!("--color never {args}"));
            assert!(text.contains("a\u{fffd}[31mb") && !text.contains('\u{1b}'), "{text:?}");
        }
    });
}
