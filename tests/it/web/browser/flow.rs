//! What a person does in a browser, once for each way to do it.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use super::driver::{ENTER, NARROW, TAB, USUAL, Way, browser};
use crate::cli::write;
use crate::support::TestDb;
use crate::support::cli::finish;
use crate::test_on;
use crate::web::WebServer;
use crate::web::pages::fill;

fn gate_path(db: &TestDb) -> PathBuf {
    db.home().join("gate")
}

/// A pipe that a handler reads before it goes on. If it is dropped, the handler reads its end.
struct Gate(File);

impl Gate {
    fn new(db: &TestDb) -> Self {
        let path = gate_path(db);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        Self(File::options().read(true).write(true).open(path).unwrap())
    }

    fn open(mut self) {
        self.0.write_all(b"go on\n").unwrap();
    }
}

/// A person finds a failed task, retries it and reads its log live; pauses and resumes; edits a task that another one has edited.
fn operate_the_queue(db: &TestDb, way: Way) {
    fill(db);
    let gate = Gate::new(db);
    let server = WebServer::start(db, &[]);
    let browser = browser(way);
    browser.log_in(&server, "operate", "/failures");
    browser.sees("exit:65");
    assert!(browser.find("css selector", "noscript").is_none(), "what is being typed would be lost");
    browser.follow("2");
    browser.sees("will not run again");
    browser.follow("log");
    browser.sees("no such box");
    browser.follow("2");
    browser.sees("will not run again");

    write(db, "bad.sh", format!("echo it begins; read -r word < '{}'; echo it goes on", gate_path(db).display()));
    browser.push("Retry");
    browser.sees("is due");
    let running = db.cli().spawn(&["tick"]);
    browser.sees_change(true, "Task 2 · bad · processing");
    browser.follow("log");
    browser.sees("Attempt 2 ");
    browser.sees_change(true, "it begins");
    // What this element contains is only a part of the page if no script can run: this one reloads itself.
    assert_eq!(browser.find("css selector", "noscript > meta").is_none(), way.has_scripts);
    assert!(!browser.text().contains("it goes on"));
    gate.open();
    browser.sees_change(true, "it goes on");
    finish(running).ok();
    browser.follow("2");
    browser.sees_change(true, "Task 2 · bad · success");

    browser.menu("Now", "n");
    browser.sees("No runner is alive.");
    browser.follow("Pause, drain or stop");
    browser.sees("Pause everything");
    browser.write("#reason", "we deploy");
    browser.push("Pause");
    browser.sees_change(true, "we deploy");
    browser.push("Resume all");
    browser.sees_change(false, "we deploy");
    browser.menu("Schedules", "s");
    browser.sees("nightly");
    browser.push("Pause");
    browser.sees_change(true, "paused");
    browser.push("Resume");
    browser.sees_change(false, "paused");

    browser.menu("Tasks", "t");
    browser.sees("These are all.");
    browser.follow("3");
    browser.sees("Task 3 · echo · scheduled");
    browser.follow("Edit");
    browser.sees("Edit task 3");
    db.cli().run(&["edit", "3", "--priority", "5", "--reason", "month end"]).ok();
    browser.overwrite("#priority", "high");
    browser.push("Save");
    browser.sees("nothing was saved");
    browser.sees("month end");
    browser.push("Save");
    browser.sees("is not a whole number");
    browser.overwrite("#priority", "7");
    browser.push("Save");
    browser.sees("Task 3 · echo · scheduled");
    let task = db.cli().run(&["status", "--json", "3"]).json()["task"].clone();
    assert_eq!((&task["priority"], &task["data"]), (&json!(7), &json!({})));
}

test_on! { [sqlite Sqlite, postgres Postgres] a_person_retries_reads_pauses_and_edits db {
    operate_the_queue(db, USUAL);
} }

test_on! { [sqlite Sqlite, postgres Postgres] all_of_it_works_without_scripts db {
    operate_the_queue(db, Way { has_scripts: false, ..USUAL });
} }

test_on! { [sqlite Sqlite, postgres Postgres] all_of_it_works_by_keyboard_alone db {
    operate_the_queue(db, Way { has_pointer: false, ..USUAL });
} }

test_on! { [sqlite Sqlite, postgres Postgres] all_of_it_works_at_a_width_of_360_pixels db {
    operate_the_queue(db, NARROW);
} }

// The pages are the same on every engine.
test_on! { [sqlite Sqlite] keys_lead_to_the_content_and_to_the_search db {
    fill(db);
    let server = WebServer::start(db, &[]);
    let browser = browser(Way { has_pointer: false, ..USUAL });
    browser.log_in(&server, "operate", "/tasks");
    browser.keys("/");
    browser.keys(&format!("class=bad{ENTER}"));
    browser.sees("no such box");
    // The first stop is the way past the menu.
    browser.open(&server, "/tasks");
    browser.keys(TAB);
    browser.sees("Skip to the content");
} }
