//! The transcripts of docs/incidents.md: each is typed during a real incident, and leads to a queue that runs again.
//!
//! A worker is running all the time. The test causes the incident, and types the commands. Every command that mends something
//! was printed by an earlier one.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;

use rustix::process::Signal;

use super::commands::{HOME, commands, matches, with_status};
use super::{Block, blocks};
use crate::cli::{signal, write};
use crate::support::cli::finish;
use crate::support::{Cli, EngineUnderTest, TestDb, wait_until};
use crate::{each_engine, each_server, test_on};

/// Stands for this host.
const HOST: &str = "web1";

/// Commands of a transcript that are not printed by an earlier one: they examine, or show that the queue runs.
const NEED_NO_HINT: [&str; 4] = ["taskqueue doctor", "taskqueue explain", "taskqueue queue ", "taskqueue status"];

struct Incident<'a> {
    db: &'a TestDb,
    transcripts: VecDeque<Block>,
    /// All that was printed so far.
    printed: String,
    /// Programs before those of the system.
    programs: PathBuf,
    /// The process whose file systems the commands see.
    namespace: Option<u32>,
    address: String,
}

impl<'a> Incident<'a> {
    fn new(db: &'a TestDb, name: &str) -> Self {
        let word = format!("incident:{name}");
        let transcripts: VecDeque<Block> =
            blocks("docs/incidents.md").into_iter().filter(|block| block.words.contains(&word)).collect();
        assert!(!transcripts.is_empty(), "docs/incidents.md has no transcript {name}");
        let programs = db.home().join("programs");
        fs::create_dir(&programs).unwrap();
        let address = db.url_text().to_owned();
        Self { db, transcripts, printed: String::new(), programs, namespace: None, address }
    }

    /// Returns the shell of the operator: it knows the address of the database.
    fn shell(&self) -> Cli {
        let own = Path::new(env!("CARGO_BIN_EXE_taskqueue")).parent().unwrap();
        let path = format!("{}:{}:{}", self.programs.display(), own.display(), std::env::var("PATH").unwrap());
        let cli =
            self.db.cli().env("PATH", &path).env("TASKQUEUE_DATABASE_URL", &self.address).env("LC_ALL", "C.UTF-8");
        cli.program(Path::new(if self.namespace.is_some() { "/usr/bin/nsenter" } else { "/bin/sh" }))
    }

    fn spawn(&self, line: &str) -> Child {
        let Some(process) = self.namespace else { return self.shell().spawn(&["-c", line]) };
        let options: &[&str] =
            if crate::races::stage::is_root() { &["-m"] } else { &["-Um", "--preserve-credentials"] };
        let place = format!("--wdns={}", self.db.home().display());
        self.shell().spawn(&[options, &["-t", &process.to_string(), &place, "/bin/sh", "-c", line]].concat())
    }

    /// Starts a worker with two slots, and waits until it is registered: before that, commands warn that no runner is alive.
    fn work(&self) -> Worker {
        let worker = Worker(Some(self.spawn("exec taskqueue work --slots 2 2>>work.log")));
        wait_until("the worker is registered", || count(self.db, "TaskQueueRunners", "\"FinishedOn\" IS NULL") > 0);
        worker
    }

    /// Types the next transcript of the page.
    fn type_next(&mut self) {
        let block = self.transcripts.pop_front().expect("another transcript");
        let home = self.db.home().to_str().unwrap().to_owned();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        for (command, expected) in commands(&block) {
            let needs_hint = command.starts_with("taskqueue ") || command.starts_with("df ");
            let is_free = NEED_NO_HINT.iter().any(|free| command.starts_with(free));
            let is_hinted = !needs_hint || is_free || self.printed.contains(&command);
            assert!(is_hinted, "{}: no earlier command prints `{command}`:\n{}", block.place(), self.printed);
            let ended = finish(self.spawn(&format!("exec 2>&1\n{}", command.replace(HOME, &home))));
            let mut printed = ended.stdout.replace(&home, HOME).replace(&format!(" on {host}"), &format!(" on {HOST}"));
            let mut status = ended.code;
            if command == "taskqueue doctor" {
                (printed, status) = without_test_servers(&printed);
            }
            let (expected, expected_status) = with_status(&expected);
            let at = format!("{}: $ {command}\n{printed}", block.place());
            assert_eq!(status, Some(expected_status), "{at}");
            assert!(expected.is_empty() || matches(expected, &printed), "{at}instead of\n{expected}");
            self.printed.push_str(&printed);
        }
    }

    fn is_over(&self) -> bool {
        self.transcripts.is_empty()
    }
}

/// Returns the findings without those about the settings of the test servers and about this host, and the exit status for them.
fn without_test_servers(printed: &str) -> (String, Option<i32>) {
    let mut rest = String::new();
    let mut is_theirs = false;
    for line in printed.lines() {
        if !line.starts_with(' ') {
            let theirs = ["the database has ", "a transaction has been open", "note   "];
            is_theirs = theirs.iter().any(|words| line.contains(words));
        }
        if !is_theirs {
            rest.extend([line, "\n"]);
        }
    }
    if rest.is_empty() {
        rest.push_str("No problems found.\n");
    }
    let status = if rest.contains("ERROR  ") { 2 } else { i32::from(rest.contains("WARN   ")) };
    (rest, Some(status))
}

/// A worker, which is stopped at the end.
struct Worker(Option<Child>);

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(child) = self.0.take() {
            signal(&child, Signal::TERM);
            if std::thread::panicking() {
                // Its runs may hang.
                signal(&child, Signal::INT);
            }
            let _ = finish(child);
        }
    }
}

/// Writes a program for the handlers.
fn program(db: &TestDb, name: &str, script: &str) -> PathBuf {
    let path = write(db, name, format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Configures a class `mail` with a program in the home.
fn configure_mail(db: &TestDb) {
    db.configure(&format!("[class.mail]\nargv = [\"{}/send-mail\"]\n", db.home().display()));
}

fn queue(db: &TestDb, count: usize) {
    for _ in 0..count {
        db.cli().run(&["queue", "--any-class", "mail"]).ok();
    }
}

fn count(db: &TestDb, table: &str, condition: &str) -> i64 {
    db.number(&format!("SELECT COUNT(*) AS value FROM \"{table}\" WHERE {condition}"))
}

/// Waits until this many tasks have this status.
fn wait_for(db: &TestDb, status: &str, tasks: i64) {
    wait_until(&format!("{tasks} tasks are {status}"), || {
        count(db, "TaskQueue", &format!("\"LastStatus\" = '{status}'")) >= tasks
    });
}

/// Moves these columns into the past.
fn age(db: &TestDb, table: &str, columns: &[&str], secs: u32, condition: &str) {
    let ago = match db.engine {
        EngineUnderTest::Sqlite => format!("strftime('%Y-%m-%d %H:%M:%f000', 'now', '-{secs} seconds')"),
        EngineUnderTest::Postgres => format!("statement_timestamp() - INTERVAL '{secs} seconds'"),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => format!("UTC_TIMESTAMP(6) - INTERVAL {secs} SECOND"),
    };
    let set: Vec<String> = columns.iter().map(|column| format!("\"{column}\" = {ago}")).collect();
    db.execute(&format!("UPDATE \"{table}\" SET {} WHERE {condition}", set.join(", ")));
}

each_engine! {
    fn a_forgotten_pause_is_found_and_ended(db) {
        configure_mail(db);
        program(db, "send-mail", "exit 0");
        db.cli().run(&["pause", "--all", "--reason", "the mail server is moved"]).ok();
        queue(db, 3);
        db.cli().run(&["create-runs"]).ok();
        age(db, "TaskQueuePauses", &["CreatedOn"], 3 * 86_400, "1 = 1");
        age(db, "TaskQueueRuns", &["CreatedOn"], 2 * 86_400, "1 = 1");
        let mut incident = Incident::new(db, "paused");
        let _worker = incident.work();
        incident.type_next();
        wait_for(db, "success", 3);
        incident.type_next();
        assert!(incident.is_over());
    }

    fn a_missing_handler_is_found_and_its_tasks_run_when_it_is_back(db) {
        configure_mail(db);
        program(db, "backup", "exit 0");
        queue(db, 1);
        let mut incident = Incident::new(db, "program");
        let _worker = incident.work();
        wait_until("the class is held", || count(db, "TaskQueueClassHolds", "1 = 1") == 1);
        incident.type_next();
        wait_for(db, "success", 1);
        incident.type_next();
        assert!(incident.is_over());
    }

    fn a_missing_script_is_found_and_its_tasks_run_when_it_is_back(db) {
        db.configure(&format!("[class.mail]\nargv = [\"/bin/sh\", \"{}/send-mail.sh\"]\n", db.home().display()));
        program(db, "backup.sh", "exit 0");
        queue(db, 1);
        let mut incident = Incident::new(db, "script");
        let _worker = incident.work();
        wait_for(db, "failed", 1);
        // Its retry must not come before the one that is typed.
        db.cli().run(&["edit", "1", "--in", "1h"]).ok();
        incident.type_next();
        wait_for(db, "success", 1);
        incident.type_next();
        assert!(incident.is_over());
    }

    fn handlers_that_hang_in_every_slot_are_found_and_ended(db) {
        configure_mail(db);
        let home = db.home().display();
        program(db, "send-mail", &format!("test -e {home}/mail-server || exec sleep 1000"));
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "2"]).ok();
        queue(db, 2);
        let mut incident = Incident::new(db, "hung");
        let _worker = incident.work();
        let started = "\"Status\" = 'processing' AND \"HandlerProcessId\" IS NOT NULL";
        wait_until("both handlers are recorded", || count(db, "TaskQueueRuns", started) == 2);
        queue(db, 3);
        db.cli().run(&["create-runs"]).ok();
        age(db, "TaskQueueRuns", &["CreatedOn"], 1_100, "1 = 1");
        age(db, "TaskQueueRuns", &["StartedOn", "UpdatedOn"], 1_200, "\"Status\" = 'processing'");
        write(db, "mail-server", "");
        incident.type_next();
        wait_for(db, "success", 3);
        incident.type_next();
        wait_for(db, "success", 4);
        incident.type_next();
        assert!(incident.is_over());
    }
}

each_server! {
    fn a_clock_that_is_ahead_is_found_while_the_tasks_run(db) {
        configure_mail(db);
        program(db, "send-mail", "exit 0");
        let mut incident = Incident::new(db, "clock");
        clock_ahead(&incident);
        let _worker = incident.work();
        incident.type_next();
        assert!(incident.is_over());
    }

    fn a_server_without_space_is_found_and_works_again_with_space(db) {
        configure_mail(db);
        program(db, "send-mail", "exit 0");
        queue(db, 1);
        let tables = ["TaskQueue", "TaskQueueRuns", "TaskQueueEvents"];
        for table in tables {
            crate::races::full_disk::fill_against_inserts(db, table);
        }
        let mut incident = Incident::new(db, "full-server");
        incident.type_next();
        for table in tables {
            crate::races::full_disk::make_room(db, table);
        }
        incident.type_next();
        db.cli().run(&["tick"]).ok();
        incident.type_next();
        assert!(incident.is_over());
    }
}

/// Sets the clock of the operator's host ten minutes ahead, until `timedatectl` corrects it. The clock of this machine is not
/// changed, so both programs stand for those of the host.
fn clock_ahead(incident: &Incident<'_>) {
    let script = |name: &str, text: String| {
        let path = incident.programs.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let real = env!("CARGO_BIN_EXE_taskqueue");
    // `faketime` itself would not pass signals on.
    let library = "$(faketime -f +10m env | sed -n 's/^LD_PRELOAD=//p')";
    let faked = format!("LD_PRELOAD={library} FAKETIME=+10m FAKETIME_DONT_FAKE_MONOTONIC=1");
    script("taskqueue", format!("export {faked}\nexec {real} \"$@\""));
    script("timedatectl", format!("test \"$*\" = 'set-ntp true' && rm {}/taskqueue", incident.programs.display()));
}

test_on! {
    [sqlite Sqlite] a_store_on_a_full_disk_is_found_and_works_again_with_space db {
        configure_mail(db);
        program(db, "send-mail", "exit 0");
        fs::create_dir(db.home().join("disk")).unwrap();
        let namespaces = if crate::races::stage::is_root() { "-m" } else { "-Urm" };
        let script = "mount -t tmpfs -o size=8m,mode=700 tmpfs disk && echo > mounted && exec sleep 600";
        let unshare = db.cli().program(Path::new("/usr/bin/unshare"));
        let mut holder = unshare.spawn(&[namespaces, "sh", "-c", script]);
        wait_until("the disk is mounted", || db.home().join("mounted").exists());
        let mut incident = Incident::new(db, "full-sqlite");
        incident.namespace = Some(holder.id());
        incident.address = format!("sqlite://{}/disk/tasks.db", db.home().display());
        let filled = "taskqueue queue mail >/dev/null 2>&1; cat /dev/zero >disk/dump.sql 2>/dev/null; true";
        let _ = finish(incident.spawn(filled)).ok();
        incident.type_next();
        let counters = finish(incident.spawn("taskqueue tick && taskqueue status")).ok();
        assert!(counters.lines().next().is_some_and(|line| line.ends_with("success 2")), "{counters}");
        assert!(incident.is_over());
        holder.kill().unwrap();
        holder.wait().unwrap();
    }
}

test_on! {
    [sqlite Sqlite] a_clock_of_the_database_that_was_ahead_is_found_by_what_it_left db {
        configure_mail(db);
        program(db, "send-mail", "test -e mail-server");
        let mut incident = Incident::new(db, "clock-sqlite");
        clock_ahead(&incident);
        let _ = finish(incident.spawn("taskqueue queue mail && taskqueue tick && timedatectl set-ntp true")).ok();
        incident.type_next();
        assert!(incident.is_over());
    }
}
