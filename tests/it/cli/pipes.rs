//! Output for programs: every table in a pipe is plain, as wide as needed, and reproducible.

use super::status_terminal::on_terminal;
use super::{ECHO, shell_class};
use crate::support::db::on;
use crate::support::{EngineUnderTest, TestDb, wait_until};

/// Every verb that prints a table, or lines that are fitted to a terminal.
const TABLES: &[&str] = &[
    "status",
    "status --runs",
    "status --runners",
    "status class=thumbnails.make",
    "status 1",
    "explain 1",
    "explain",
    "failures --samples",
    "doctor",
    "runner",
    "pause",
    "limit",
    "events",
    "schedule",
    "schedule show 3",
    "setting",
    "class",
    "check",
    "db migrate --dry-run",
];

const MESSAGE: &str = "the file was neither a picture nor anything that could be made into one, whoever tried";

fn with_tasks(check: impl Fn(&TestDb)) {
    on(EngineUnderTest::Sqlite, |db| {
        let bad = shell_class(db, "thumbnails.make", &format!("echo {MESSAGE} >&2; exit 65"));
        db.configure(&format!("{ECHO}{bad}"));
        db.cli().run(&["queue", "thumbnails.make"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "echo", "--every", "0 3 * * *"]).ok();
        db.cli().run(&["limit", "set", "echo", "--running", "2"]).ok();
        db.cli().run(&["pause", "--class", "thumbnails.make", "--reason", MESSAGE]).ok();
        db.execute(
            "INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"Name\", \"Host\") VALUES (1, 'import-1', 'web1')",
        );
        check(db);
    });
}

#[test]
fn through_a_pipe_no_table_has_control_characters_or_depends_on_a_width() {
    with_tasks(|db| {
        for args in TABLES {
            let words: Vec<&str> = args.split(' ').collect();
            let printed = |columns: &str| db.cli().env("COLUMNS", columns).env("TERM", "xterm").run(&words).stdout;
            // Relative times change every second; other differences would never disappear.
            wait_until(&format!("{args} prints the same again"), || {
                let texts = ["20", "300", "20"].map(printed);
                texts[0] == texts[1] && texts[1] == texts[2]
            });
            let text = printed("20");
            // Without problems there is nothing to print.
            assert!(!text.is_empty() || *args == "doctor", "{args}");
            assert!(!text.contains(['\u{1b}', '\r', '\u{7}']), "{args}: {text:?}");
        }
    });
}

#[test]
fn a_file_gets_whole_lines_also_from_a_narrow_terminal() {
    with_tasks(|db| {
        let file = db.home().join("printed");
        for args in ["status", "failures --samples", "pause"] {
            let shown = on_terminal(db, 30, "", &format!("{args} >{}", file.display()));
            assert_eq!(shown, "", "{args}");
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.lines().any(|line| line.contains(MESSAGE)), "{args}: {text}");
            assert!(!text.contains('\u{1b}'), "{args}: {text:?}");
        }
    });
}
