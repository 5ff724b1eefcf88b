//! `taskqueue top` in a real terminal, which `script` creates; vt100 interprets its output.

use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};

use super::{ECHO, error_and_hint, shell_class, task, wait_for_file, write};
use crate::support::db::on;
use crate::support::proxy::Proxy;
use crate::support::{EngineUnderTest, TestDb, wait_until};
use crate::{each_engine, each_server};

/// The initial columns and rows.
const SIZE: (u16, u16) = (100, 40);

/// A terminal, and everything that was written to it.
struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
}

/// `top` in its own terminal. Its shell saves the state of the terminal before and after in the home.
struct Screen<'a> {
    db: &'a TestDb,
    script: Child,
    keys: ChildStdin,
    seen: Arc<Mutex<Seen>>,
}

fn size(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

impl<'a> Screen<'a> {
    fn open(db: &'a TestDb, url: &str, environment: &str) -> Self {
        Self::open_below(db, url, "", environment, "")
    }

    /// Starts it as a job of a shell, which executes `meanwhile` when the job has stopped, records that, and resumes the job on
    /// request.
    fn open_as_job(db: &'a TestDb, meanwhile: &str) -> Self {
        let after = format!(
            "code=$?
             {meanwhile}
             stty -g > during; echo $code > stopped
             until [ -e go ]; do sleep 0.01; done
             fg > /dev/null"
        );
        Self::open_below(db, db.url_text(), "set -m", "", &after)
    }

    fn open_below(db: &'a TestDb, url: &str, first: &str, environment: &str, after: &str) -> Self {
        let (program, home) = (env!("CARGO_BIN_EXE_taskqueue"), db.home().display());
        let line = format!(
            "{first}
             cd {home}; stty cols {} rows {}; stty -g > before; tty > tty
             sh -c 'echo $$ > pid; exec env --default-signal {environment} {program} top --interval 100ms' 2> stderr
             {after}
             echo $? > code; stty -g > after",
            SIZE.0, SIZE.1
        );
        let mut script = Command::new("script")
            .args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", db.home())
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env("TASKQUEUE_DATABASE_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let parser = vt100::Parser::new(size(SIZE.1), size(SIZE.0), 0);
        let seen = Arc::new(Mutex::new(Seen { parser, bytes: Vec::new() }));
        let (mut output, shared) = (script.stdout.take().unwrap(), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                let mut seen = shared.lock().unwrap();
                seen.parser.process(&bytes[..length]);
                seen.bytes.extend(&bytes[..length]);
            }
        });
        let keys = script.stdin.take().unwrap();
        Self { db, script, keys, seen }
    }

    fn text(&self) -> String {
        self.seen.lock().unwrap().parser.screen().contents()
    }

    #[track_caller]
    fn shows(&self, words: &str) {
        self.becomes(words, |text| text.contains(words));
    }

    #[track_caller]
    fn becomes(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let mut text = String::new();
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(what, || {
                text = self.text();
                is_so(&text)
            });
        }));
        assert!(waited.is_ok(), "{what}:\n{text}\n{}", self.left("stderr"));
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Returns the content of a file in the home.
    fn left(&self, name: &str) -> String {
        std::fs::read_to_string(self.db.home().join(name)).unwrap_or_default().trim().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.left("pid").parse().unwrap()).unwrap(), signal).unwrap();
    }

    #[track_caller]
    fn is_given_back(&self) {
        self.becomes("the terminal is given back", |_| {
            let seen = self.seen.lock().unwrap();
            !seen.parser.screen().alternate_screen() && !seen.parser.screen().hide_cursor()
        });
    }

    /// Checks that the whole screen is drawn, and nothing else is visible.
    #[track_caller]
    fn is_drawn_anew(&self) {
        self.becomes("it is drawn anew", |text| {
            let has_taken = self.seen.lock().unwrap().parser.screen().alternate_screen();
            has_taken && text.contains("nothing failed") && text.contains("P pause all") && !text.contains("scribble")
        });
    }

    /// Returns its exit status, after the terminal is restored.
    fn ended(mut self) -> i32 {
        let script = &mut self.script;
        wait_until("top has ended", || script.try_wait().unwrap().is_some());
        self.is_given_back();
        assert_eq!(self.left("before"), self.left("after"));
        assert!(!self.left("before").is_empty());
        self.left("code").parse().unwrap()
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

each_engine! {
    fn top_shows_what_happens_and_its_keys_change_it(db) {
        let slow = shell_class(db, "slow", &format!("cd {}; echo on > began; sleep 600", db.home().display()));
        db.configure(&format!("{slow}{}", shell_class(db, "bad", "echo no such box >&2; exit 65")));
        db.cli().run(&["queue", "bad"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "slow"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let mut runner = db.cli().spawn(&["process-run"]);
        wait_for_file(db, "began");
        let mut screen = Screen::open(db, db.url_text(), "");
        for words in ["running 1", "Runners 1", "alive", "Running 1", "Queues 2", "Failures 1", "exit:65", "no such box"] {
            screen.shows(words);
        }
        screen.press("c");
        screen.shows("cancel task 2? y/n");
        screen.press("n");
        screen.shows("nothing was changed");
        assert_eq!(task(db, "2")["status"], "processing");
        screen.press("c");
        screen.shows("cancel task 2? y/n");
        screen.press("y");
        screen.shows("task 2 is being ended by its runner");
        wait_until("the task is cancelled", || task(db, "2")["status"] == "cancelled");
        runner.wait().unwrap();
        screen.shows("nothing is running");
        screen.press("\t\t\tr");
        screen.shows("retry task 1? y/n");
        screen.press("y");
        screen.shows("task 1 is retried");
        assert_eq!(task(db, "1")["failed_retries"], 0);
        screen.press("p");
        screen.shows("pause class bad? y/n");
        screen.press("y");
        screen.shows("paused: class bad");
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueuePauses\""), 1);
        screen.press("p");
        screen.shows("resume class bad? y/n");
        screen.press("y");
        screen.becomes("nothing is paused", |text| !text.contains("paused:"));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueuePauses\""), 0);
        // The failed run and its output.
        screen.press("f");
        screen.shows("task 1, followed");
        screen.shows("no such box");
        screen.press("q");
        assert_eq!(screen.ended(), 0);
    }

    fn one_frame_is_printed_without_a_terminal(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "exit 65")));
        db.cli().run(&["queue", "bad"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        for size in ["40x30", "80x24", "200x50"] {
            let text = db.cli().run(&["top", "--once", "--size", size]).ok();
            let (columns, rows) = size.split_once('x').unwrap();
            assert!(text.lines().count() <= rows.parse().unwrap(), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= columns.parse().unwrap()), "{text}");
            for words in ["due 1", "failed 1", "Queues 2", "Failures 1", "exit:65"] {
                assert!(text.contains(words), "{words}: {text}");
            }
        }
        let facts = db.cli().run(&["top", "--json"]).json();
        assert_eq!((&facts["schema"], &facts["glance"]["failures"][0]["error_code"]), (&"taskqueue.top/1".into(), &"exit:65".into()));
        let echo = facts["tally"]["classes"].as_array().unwrap().iter().find(|class| class["class"] == "echo").unwrap();
        assert_eq!((&echo["due"]["count"], &echo["waiting"]["count"], &echo["running"]), (&1.into(), &0.into(), &0.into()));
        assert_eq!(facts["tally"]["counts"]["failed"]["count"], 1);
        // A task that finished within the last minute.
        assert!(facts["tally"]["throughput"]["last_minute"].as_f64().unwrap() > 0.0, "{facts}");
    }
}

each_server! {
    fn top_says_that_the_database_is_away_and_goes_on_by_itself(db) {
        db.configure(ECHO);
        let server = Proxy::start("127.0.0.1", db.url_text());
        let screen = Screen::open(db, &server.url, "");
        screen.shows("due 0");
        server.stop();
        screen.shows("no answer from the database for");
        db.cli().run(&["queue", "echo"]).ok();
        server.start_again();
        screen.shows("due 1");
        screen.becomes("the trouble is over", |text| !text.contains("no answer"));
        screen.signal(Signal::TERM);
        assert_eq!(screen.ended(), 130);
    }
}

#[test]
fn the_terminal_is_given_back_after_keys_and_signals_that_end_it() {
    on(EngineUnderTest::Sqlite, |db| {
        for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
            let screen = Screen::open(db, db.url_text(), "");
            screen.shows("nothing failed");
            screen.signal(signal);
            assert_eq!(screen.ended(), 130);
        }
        for keys in ["q", "\u{3}"] {
            let mut screen = Screen::open(db, db.url_text(), "");
            screen.shows("nothing failed");
            screen.press(keys);
            assert_eq!(screen.ended(), 0);
        }
    });
}

fn gives_the_terminal_back_while_stopped(stop: impl Fn(&mut Screen<'_>)) {
    on(EngineUnderTest::Sqlite, |db| {
        let mut screen = Screen::open_as_job(db, "");
        screen.is_drawn_anew();
        stop(&mut screen);
        // 128 and TSTP.
        assert_eq!(wait_for_file(db, "stopped"), "148");
        screen.is_given_back();
        assert_eq!(screen.left("during"), screen.left("before"));
        write(db, "go", "");
        screen.is_drawn_anew();
        screen.press("q");
        assert_eq!(screen.ended(), 0);
    });
}

#[test]
fn the_terminal_is_given_back_while_top_is_stopped_by_key_or_signal() {
    gives_the_terminal_back_while_stopped(|screen| screen.press("\u{1a}"));
    gives_the_terminal_back_while_stopped(|screen| screen.signal(Signal::TSTP));
}

#[test]
fn after_a_stop_that_nobody_is_asked_about_all_is_drawn_anew() {
    on(EngineUnderTest::Sqlite, |db| {
        let mut screen = Screen::open_as_job(db, "stty $(cat before); printf '\\033[2J\\033[Hscribble\\n'");
        screen.is_drawn_anew();
        screen.signal(Signal::STOP);
        // 128 and STOP.
        assert_eq!(wait_for_file(db, "stopped"), "147");
        screen.shows("scribble");
        write(db, "go", "");
        screen.is_drawn_anew();
        screen.press("q");
        assert_eq!(screen.ended(), 0);
    });
}

#[test]
fn another_size_is_drawn_anew() {
    on(EngineUnderTest::Sqlite, |db| {
        let mut screen = Screen::open(db, db.url_text(), "");
        screen.shows("P pause all");
        // In a terminal without a shell that could resume it, Ctrl-Z does nothing.
        screen.press("\u{1a}?");
        screen.shows("retry the failed task");
        screen.press(" ");
        screen.shows("P pause all");
        screen.seen.lock().unwrap().parser.screen_mut().set_size(size(30), size(40));
        let terminal = screen.left("tty");
        let resized = Command::new("stty").args(["-F", &terminal, "cols", "40", "rows", "30"]).status().unwrap();
        assert!(resized.success());
        let last_line = || screen.seen.lock().unwrap().parser.screen().rows(0, 40).last().unwrap_or_default();
        screen.becomes("the keys stand in the last line", |_| {
            last_line().starts_with("q quit") && !last_line().contains("pause all")
        });
        screen.shows("nothing failed");
        screen.press("q");
        assert_eq!(screen.ended(), 0);
    });
}

#[test]
fn colours_are_left_out_where_nobody_wants_them() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(&shell_class(db, "bad", "exit 65"));
        db.cli().run(&["queue", "bad"]).ok();
        db.cli().run(&["tick"]).ok();
        for (environment, has_color) in [("", true), ("NO_COLOR=1", false)] {
            let mut screen = Screen::open(db, db.url_text(), environment);
            screen.shows("exit:65");
            let text = String::from_utf8_lossy(&screen.seen.lock().unwrap().bytes).into_owned();
            assert_eq!(text.contains("\u{1b}[38;5;"), has_color, "{text:?}");
            screen.press("q");
            assert_eq!(screen.ended(), 0);
        }
    });
}

#[test]
fn without_a_terminal_it_says_what_to_do_instead() {
    on(EngineUnderTest::Sqlite, |db| {
        let (error, hint) = error_and_hint(&db.cli().run(&["top"]).fails(2));
        assert!(error.contains("standard input is not a terminal"), "{error}");
        assert!(hint.contains("taskqueue top --once") && hint.contains("taskqueue status"), "{hint}");
        for bad in [&["top", "--interval", "1ms"][..], &["top", "--once", "--size", "big"], &["top", "--size", "80x24"]]
        {
            assert_eq!(db.cli().run(bad).code, Some(2), "{bad:?}");
        }
    });
}
