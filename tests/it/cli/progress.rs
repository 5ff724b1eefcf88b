//! The progress of long work: only on a terminal, and removed before anything else is printed.

use super::status_terminal::on_terminal;
use super::write;
use crate::support::db::on;
use crate::support::{EngineUnderTest, TestDb};

/// Returns what a terminal shows after this output.
fn screen(text: &str) -> String {
    let size = |number: u16| std::num::NonZero::new(number).unwrap();
    let mut parser = vt100::Parser::new(size(50), size(80), 0);
    parser.process(text.replace('\n', "\r\n").as_bytes());
    parser.screen().contents()
}

fn is_shown_and_taken_away(db: &TestDb, args: &str, doing: &str, done: &str) {
    let text = on_terminal(db, 80, "", args);
    assert!(text.contains(doing), "{args}: {text:?}");
    let left = screen(&text);
    assert!(left.contains(done) && !left.contains(doing), "{args}: {left}");
}

fn is_silent_in_a_pipe(db: &TestDb, args: &[&str], done: &str) {
    let ended = db.cli().env("TERM", "xterm-256color").run(args);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{args:?}: {ended:?}");
    assert!(ended.stderr.contains(done) && !ended.stderr.contains('\u{1b}'), "{args:?}: {ended:?}");
}

fn forget_time(db: &TestDb) {
    db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success', \"UpdatedOn\" = '2020-01-01 00:00:00.000000'");
}

#[test]
fn a_terminal_shows_the_progress_of_every_verb_that_takes_long() {
    on(EngineUnderTest::Sqlite, |db| {
        let lines = "{\"class\":\"echo\"}\n".repeat(20);
        let batch = write(db, "batch.ndjson", &lines).display().to_string();
        is_shown_and_taken_away(db, &format!("queue --any-class --batch {batch}"), "queueing", "queued 20 tasks");
        let export = write(db, "tasks.ndjson", db.cli().run(&["export"]).ok() + "\n").display().to_string();
        for args in ["export > /dev/null", "export 1-20 > /dev/null"] {
            is_shown_and_taken_away(db, args, "exporting", "exported 20 tasks");
        }
        is_shown_and_taken_away(db, &format!("import {export}"), "importing", "imported 20 tasks");
        is_silent_in_a_pipe(db, &["import", "--again", &export], "imported 20 tasks");
        forget_time(db);
        is_shown_and_taken_away(db, "prune", "pruning", "60 finished tasks pruned");
        is_silent_in_a_pipe(db, &["import", "--again", &export], "imported 20 tasks");
        forget_time(db);
        is_silent_in_a_pipe(db, &["prune"], "20 finished tasks pruned");
        let store = |name: &str| db.home().join(name).display().to_string();
        is_shown_and_taken_away(db, &format!("--database {} db migrate", store("a.db")), "migrating", "applied ");
        is_silent_in_a_pipe(db, &["--database", &store("b.db"), "db", "migrate"], "applied ");
    });
}

#[test]
fn a_verb_for_many_tasks_shows_how_far_it_has_come() {
    on(EngineUnderTest::Sqlite, |db| {
        let batch = write(db, "batch.ndjson", "{\"class\":\"echo\"}\n".repeat(20)).display().to_string();
        db.cli().run(&["queue", "--any-class", "--batch", &batch]).ok();
        is_shown_and_taken_away(db, "cancel --yes 1-10", "cancel ", "10 tasks cancelled");
        is_silent_in_a_pipe(db, &["cancel", "--yes", "11-20"], "10 tasks cancelled");
    });
}

#[test]
fn json_is_alone_on_a_terminal_too() {
    on(EngineUnderTest::Sqlite, |db| {
        let batch = write(db, "batch.ndjson", "{\"class\":\"echo\"}\n".repeat(20)).display().to_string();
        let text = on_terminal(db, 80, "", &format!("--json queue --any-class --batch {batch}"));
        assert!(!text.contains('\u{1b}') && text.lines().all(|line| line.starts_with('{')), "{text:?}");
    });
}
