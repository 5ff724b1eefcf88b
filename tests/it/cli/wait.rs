//! `taskqueue wait`

use rustix::process::Signal;

use super::{ECHO, error_and_hint, queue, shell_class, signal};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};

fn configure(db: &TestDb) {
    db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "exit 65")));
}

each_engine! {
    fn wait_ends_well_once_all_that_it_waited_for_have_succeeded(db) {
        configure(db);
        let (first, second) = (queue(db, "echo", &[]), queue(db, "echo", &[]));
        let waiting = db.cli().spawn(&["wait", &first, &second, "--json"]);
        db.cli().run(&["tick"]).ok();
        let ended = finish(waiting);
        assert_eq!(ended.clone().ok(), format!("{{\"id\":{first},\"status\":\"success\",\"class\":\"echo\"}}\n{{\"id\":{second},\"status\":\"success\",\"class\":\"echo\"}}"));
        // A finished task is not waited for.
        assert_eq!(db.cli().run(&["wait", "class=echo"]).ok(), "");
    }

    fn wait_fails_where_one_did_not_succeed_and_names_it(db) {
        configure(db);
        let (good, bad) = (queue(db, "echo", &[]), queue(db, "bad", &[]));
        db.cli().run(&["tick"]).ok();
        let said = db.cli().run(&["wait", &good, &bad]).fails(1);
        assert_eq!(said, format!("task {bad}: failed; `taskqueue explain {bad}` shows why\n"));
        let cancelled = queue(db, "echo", &[]);
        db.cli().run(&["cancel", &cancelled]).ok();
        assert!(db.cli().run(&["wait", &cancelled]).fails(1).contains("cancelled"));
    }

    fn wait_for_any_ends_with_the_first(db) {
        configure(db);
        let later = queue(db, "echo", &["--in", "1h"]);
        let first = queue(db, "echo", &[]);
        let waiting = db.cli().spawn(&["wait", &later, &first, "--any"]);
        db.cli().run(&["tick"]).ok();
        finish(waiting).ok();
        db.cli().run(&["tick"]).ok();
    }

    fn wait_gives_up_after_its_time_and_at_a_signal(db) {
        configure(db);
        let later = queue(db, "echo", &["--in", "1h"]);
        let said = db.cli().run(&["wait", &later, "--timeout", "200ms"]).fails(124);
        assert_eq!(said, format!("task {later} is not finished; `taskqueue explain {later}` shows why\n"));
        let (over, last) = (queue(db, "echo", &[]), queue(db, "echo", &["--in", "1h"]));
        db.cli().run(&["tick"]).ok();
        let said = db.cli().run(&["wait", &later, &over, &last, "--timeout", "200ms"]).fails(124);
        assert_eq!(said, format!("task {later} and others are not finished; `taskqueue explain {later}` shows why\n"));
        let waiting = db.cli().spawn(&["wait", &later]);
        let status = format!("/proc/{}/status", waiting.id());
        // The mask of caught signals contains INT.
        wait_until("the signal handlers are installed", || {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap());
            mask.is_some_and(|mask| mask & 2 != 0)
        });
        signal(&waiting, Signal::INT);
        let ended = finish(waiting);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(130), "stopped by a signal: 0 of 1 task finished\n"));
    }

    fn wait_refuses_what_is_not_there(db) {
        configure(db);
        assert!(error_and_hint(&db.cli().run(&["wait", "7"]).fails(3)).0.contains("task 7"));
        assert_eq!(db.cli().run(&["wait", "class=nope"]).code, Some(3));
        assert_eq!(db.cli().run(&["wait"]).code, Some(2));
        assert_eq!(db.cli().run(&["wait", "7", "--timeout", "soon"]).code, Some(2));
    }
}
