//! The messages of `work`, `tick` and `process-run` for machines: as JSON, and in the journal.

use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use super::{ECHO, shell_class};
use crate::each_engine;
use crate::support::db::on;
use crate::support::{Ended, EngineUnderTest, TestDb};

/// Makes the program log to the journal, as for a systemd service.
const AS_A_SERVICE: &str = "JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2); export JOURNAL_STREAM; exec \"$@\"";

fn as_a_service(db: &TestDb, socket: &str, arguments: &[&str]) -> Ended {
    let sh = db.cli().program("/bin/sh".as_ref()).env("TASKQUEUE_JOURNAL_SOCKET", socket);
    sh.run(&[&["-c", AS_A_SERVICE, "sh", env!("CARGO_BIN_EXE_taskqueue")], arguments].concat())
}

const END: &[u8] = b"end of the test";

/// Creates the socket for TASKQUEUE_JOURNAL_SOCKET, and reads it in a thread.
fn listen(db: &TestDb) -> (String, Receiver<String>) {
    let path = db.home().join("journal").to_str().unwrap().to_owned();
    let socket = UnixDatagram::bind(&path).unwrap();
    let (sender, heard) = channel();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 200_000];
        while let Ok(count) = socket.recv(&mut buffer) {
            if &buffer[..count] == END || sender.send(String::from_utf8(buffer[..count].to_vec()).unwrap()).is_err() {
                return;
            }
        }
    });
    (path, heard)
}

fn all(path: &str, heard: &Receiver<String>) -> Vec<String> {
    UnixDatagram::unbound().unwrap().send_to(END, path).unwrap();
    std::iter::from_fn(|| heard.recv_timeout(Duration::from_secs(60)).ok()).collect()
}

each_engine! {
    fn each_line_is_an_object_with_what_it_is_about(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "broken", "exit 78")));
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["queue", "broken"]).ok();
        let ended = db.cli().run(&["work", "-v", "--idle-exit", "0s", "--log-format", "json"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
        let lines: Vec<Value> = ended.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let find = |words: &str| {
            let is_it = |line: &&Value| line["message"].as_str().unwrap().contains(words);
            lines.iter().find(is_it).unwrap_or_else(|| panic!("{words}: {lines:#?}"))
        };
        let started = find("class echo, attempt 1) started");
        assert_eq!((&started["level"], &started["task_id"], &started["class"], &started["attempt"]), (&"info".into(), &1.into(), &"echo".into(), &1.into()));
        assert!(started["run_id"].is_i64() && started["runner_id"].is_i64());
        assert!(chrono::DateTime::parse_from_rfc3339(started["time"].as_str().unwrap()).is_ok());
        let held = find("the class is held on this host");
        assert_eq!((&held["level"], &held["task_id"], &held["class"]), (&"warning".into(), &2.into(), &"broken".into()));
        let last = find("processed");
        assert!(last.get("task_id").is_none() && last["level"] == "info");
    }

    fn tick_and_process_run_write_their_errors_and_warnings_so_too(db) {
        db.configure(&shell_class(db, "broken", "exit 78"));
        db.cli().run(&["queue", "broken"]).ok();
        let ended = db.cli().run(&["tick", "--log-format", "json"]);
        let line: Value = serde_json::from_str(ended.stderr.trim_end()).unwrap();
        assert_eq!((ended.code, &line["level"], &line["class"]), (Some(0), &"warning".into(), &"broken".into()));
        let ended = db.cli().run(&["process-run", "4711", "--log-format", "json"]);
        let first: Value = serde_json::from_str(ended.stderr.lines().next().unwrap()).unwrap();
        assert_eq!((ended.code, &first["level"]), (Some(3), &"error".into()), "{ended:?}");
    }
}

#[test]
fn the_journal_gets_each_line_with_its_fields_and_standard_error_nothing() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(&format!("{ECHO}{}", shell_class(db, "broken", "exit 78")));
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["queue", "broken"]).ok();
        let (socket, heard) = listen(db);
        let ended = as_a_service(db, &socket, &["work", "-v", "--idle-exit", "0s"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""), "{ended:?}");
        let heard = all(&socket, &heard);
        let find = |words: &str| {
            heard.iter().find(|entry| entry.contains(words)).unwrap_or_else(|| panic!("{words}: {heard:#?}"))
        };
        let started = find("class echo, attempt 1) started\n");
        for field in [
            "PRIORITY=6",
            "SYSLOG_IDENTIFIER=taskqueue",
            "TASKQUEUE_TASK_ID=1",
            "TASKQUEUE_CLASS=echo",
            "TASKQUEUE_ATTEMPT=1",
        ] {
            assert!(started.lines().any(|line| line == field), "{field}: {started}");
        }
        assert!(started.starts_with("MESSAGE=run ") && started.contains("\nTASKQUEUE_RUNNER_ID="), "{started}");
        let held = find("MESSAGE=the class is held on this host");
        assert!(held.contains("\nPRIORITY=4\n") && held.contains("\nTASKQUEUE_TASK_ID=2\n"), "{held}");
    });
}

#[test]
fn log_lines_have_a_priority_only_in_a_journal_without_its_socket() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(&shell_class(db, "broken", "exit 78"));
        let queue = || db.cli().run(&["queue", "broken"]).ok();
        queue();
        let ended = as_a_service(db, "/nonexistent", &["tick"]);
        assert!(ended.stderr.starts_with("<4>warning: the class is held on this host: "), "{ended:?}");
        for stream in ["", "1:1", "nonsense"] {
            db.cli().run(&["class", "release", "broken"]).ok();
            db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00'");
            let ended = db.cli().env("JOURNAL_STREAM", stream).run(&["tick"]);
            assert!(ended.stderr.starts_with("warning: the class is held on this host: "), "{stream}: {ended:?}");
        }
    });
}
