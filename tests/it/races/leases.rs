//! Silent runners: stopped, cut off from the database, or on another host.

use rustix::process::Signal;
use taskqueue_process::identities::identity::Liveness;

use super::outage::{Outage, runner_behind, signal};
use super::stage::{Stage, column, shorten_leases, start_runner, statuses, task, wait_dead};
use super::tools::freeze;
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{EngineUnderTest, TestDb, wait_until};

/// Returns the time of the database's clock minus this many seconds, as SQL.
fn ago(db: &TestDb, secs: u32) -> String {
    match db.engine {
        EngineUnderTest::Sqlite => format!("strftime('%Y-%m-%d %H:%M:%f000', 'now', '-{secs} seconds')"),
        EngineUnderTest::Postgres => format!("clock_timestamp() - INTERVAL '{secs} seconds'"),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => format!("UTC_TIMESTAMP(6) - INTERVAL {secs} SECOND"),
    }
}

fn is_lease_over(db: &TestDb) -> bool {
    let over = format!("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"LeaseExpiresOn\" < {}", ago(db, 0));
    db.number(&over) == 1
}

/// Checks the only runner that has not finished, with the lease of `shorten_leases`.
fn is_heartbeat_older_than_a_lease(db: &TestDb) -> bool {
    let unfinished = "SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL";
    let older = format!("{unfinished} AND \"HeartbeatOn\" < {}", ago(db, 5));
    db.number(&older) == 1
}

fn error_of_first_run(db: &TestDb) -> String {
    db.text("SELECT \"ErrorCode\" AS value FROM \"TaskQueueRuns\" ORDER BY \"Id\"").unwrap()
}

each_engine! {
    fn a_handler_that_works_for_longer_than_a_lease_keeps_its_run(db) {
        shorten_leases(db);
        let stage = Stage::with_run(db);
        let (runner, _) = start_runner(db, &stage);
        let heartbeat = "SELECT CAST(\"HeartbeatOn\" AS CHAR(40)) AS value FROM \"TaskQueueRunners\"";
        let mut seen = vec![(column(db, "LeaseExpiresOn"), db.text(heartbeat))];
        // Six renewals of one second each: the lease of the claim would have expired.
        wait_until("six renewals", || {
            let now = (column(db, "LeaseExpiresOn"), db.text(heartbeat));
            if now != *seen.last().unwrap() {
                seen.push(now);
            }
            seen.len() > 6
        });
        let _ = db.cli().run(&["create-runs"]).ok();
        assert_eq!(statuses(db), ["processing"]);
        let _go = stage.go();
        let _ = finish(runner).ok();
        assert_eq!(statuses(db), ["success"]);
    }

    fn a_runner_stopped_past_its_lease_loses_its_run_and_writes_nothing(db) {
        shorten_leases(db);
        let stage = Stage::new(db, true);
        let _ = db.cli().run(&["queue", "stage"]).ok();
        let _ = db.cli().run(&["create-runs"]).ok();
        let (runner, handler) = start_runner(db, &stage);
        let (session, daemon) = (stage.actor("session"), stage.actor("daemon"));
        freeze(db, &runner);
        wait_until("its lease has expired", || is_lease_over(db));
        let _ = db.cli().run(&["create-runs"]).ok();
        // Rule R7: they have ended before the run is given up.
        for process in [handler, session, daemon] {
            wait_dead("the handler", &process);
        }
        assert_eq!(error_of_first_run(db), "lease-expired");
        signal(&runner, Signal::CONT);
        let ended = finish(runner);
        assert!(matches!(ended.code, Some(0 | 69)), "{ended:?}");
        // It reports the content of the row: the rescue has counted an attempt.
        let said = |words: &str| ended.stderr.contains(words);
        let is_true = said("counts as a failed attempt") || said("unless another process has rescued it, which counts one");
        assert!(is_true || ended.code == Some(0) && !said("counts no attempt"), "{}", ended.stderr);
        // The next attempt is already waiting.
        assert_eq!((statuses(db), task(db)), (vec!["timeout".to_owned(), "scheduled".to_owned()], ("timeout".to_owned(), 1, 1)));
        assert_eq!(stage.done(), "");
    }

    fn a_runner_without_renewal_ends_its_handler_in_time_and_releases_the_run(db) {
        shorten_leases(db);
        let stage = Stage::new(db, true);
        let mut outage = Outage::of(db);
        let (runner, handler) = runner_behind(db, &stage, &outage);
        let (session, daemon) = (stage.actor("session"), stage.actor("daemon"));
        outage.begin(db);
        wait_dead("the handler", &handler);
        assert!(!is_lease_over(db), "another runner may have the task already");
        for process in [session, daemon] {
            wait_dead("what had left its group", &process);
        }
        outage.end();
        let ended = finish(runner);
        assert_eq!(ended.code, Some(69), "{ended:?}");
        assert!(ended.stderr.contains("its lease could not be renewed in time"), "{}", ended.stderr);
        assert!(ended.stderr.contains("releases the run, which counts no attempt"), "{}", ended.stderr);
        assert_eq!(statuses(db), ["processing"]);
        let _ = db.cli().env("TASKQUEUE_DATABASE_URL", outage.url()).run(&["create-runs"]).ok();
        assert_eq!(error_of_first_run(db), "lease-over");
        // The database was the cause, so no attempt is counted.
        assert_eq!((statuses(db), task(db)), (vec!["released".to_owned(), "scheduled".to_owned()], ("scheduled".to_owned(), 0, 0)));
        assert_eq!(stage.done(), "");
    }

    fn a_handler_whose_lease_is_lost_reads_the_reason_before_it_is_killed(db) {
        shorten_leases(db);
        db.configure(&format!(
            "[class.stage]\nargv = [\"/bin/sh\", \"-c\", \"cd {}; trap 'cat <&4 >reason; exit 0' TERM; echo $$ > handler.new; \
             mv handler.new handler; sleep 1000 & wait\"]\n",
            db.home().display()
        ));
        let stage = Stage { directory: db.home().to_owned() };
        let mut outage = Outage::of(db);
        let (runner, handler) = runner_behind(db, &stage, &outage);
        outage.begin(db);
        wait_dead("the handler", &handler);
        assert!(!is_lease_over(db), "another runner may have the task already");
        assert_eq!(std::fs::read_to_string(db.home().join("reason")).unwrap(), "lease-lost\n");
        outage.end();
        assert_eq!(finish(runner).code, Some(69));
        let _ = db.cli().env("TASKQUEUE_DATABASE_URL", outage.url()).run(&["create-runs"]).ok();
        assert_eq!(error_of_first_run(db), "lease-over");
    }

    fn a_release_after_a_rescue_leaves_the_run_rescued_and_is_kept_as_late(db) {
        shorten_leases(db);
        let stage = Stage::new(db, false);
        let mut outage = Outage::of(db);
        let (runner, handler) = runner_behind(db, &stage, &outage);
        outage.begin(db);
        wait_dead("the handler", &handler);
        outage.end();
        assert_eq!(finish(runner).code, Some(69));
        // As on another host, whose rescue does not know this spool.
        let elsewhere = format!("spool = \"{}/elsewhere\"\n", db.home().display());
        let config = db.home().join(".config/taskqueue/config.toml");
        let here = std::fs::read_to_string(&config).unwrap();
        db.configure_exactly(&format!("{elsewhere}{here}"));
        let _ = db.cli().run(&["create-runs"]).ok();
        assert_eq!(statuses(db)[0], "timeout");
        db.configure_exactly(&here);
        let _ = db.cli().env("TASKQUEUE_DATABASE_URL", outage.url()).run(&["create-runs"]).ok();
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'late-result'"), 1);
    }

    fn a_database_that_is_away_keeps_no_runner_from_hearing_that_it_must_stop(db) {
        let mut outage = Outage::of(db);
        db.configure(&format!(
            "stop_wait_secs = 0\n[class.stage]\nargv = [\"/bin/sh\", \"-c\", \"cd {}; echo $$ > handler.new; mv handler.new handler; \
             while :; do echo {{}} >&3; echo '{{\\\"progress\\\":7}}' >&3; sleep 0.05; done\"]\n",
            db.home().display()
        ));
        let stage = Stage { directory: db.home().to_owned() };
        let (runner, handler) = runner_behind(db, &stage, &outage);
        outage.begin(db);
        // It has reported meanwhile, and could not save the report.
        wait_until("a report cannot be saved", || outage.was_felt());
        signal(&runner, Signal::TERM);
        let asked = std::time::Instant::now();
        wait_dead("the handler", &handler);
        assert!(asked.elapsed().as_secs() < 20, "it waited for the time limit of the database");
        outage.end();
        let ended = finish(runner);
        assert_eq!(ended.code, Some(130), "{ended:?}");
        assert_eq!((statuses(db), task(db)), (vec!["released".to_owned()], ("scheduled".to_owned(), 0, 0)));
    }

    fn a_worker_that_lost_its_registration_finishes_it_and_works_again(db) {
        shorten_leases(db);
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "2"]).ok();
        db.configure("[class.work]\nargv = [\"/bin/true\"]\n");
        let mut outage = Outage::of(db);
        let _ = db.cli().run(&["queue", "work"]).ok();
        let worker = db.cli().env("TASKQUEUE_DATABASE_URL", outage.url()).spawn(&["work", "--slots", "2"]);
        wait_until("it has processed the task", || statuses(db) == ["success"]);
        outage.begin(db);
        wait_until("its lease has expired", || is_heartbeat_older_than_a_lease(db));
        outage.end();
        let _ = db.cli().run(&["queue", "work"]).ok();
        // It may have claimed the task before it noticed the expired lease, and released the run.
        let ended = "SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success' AND \"FailedRetries\" = 0";
        wait_until("it has processed both tasks", || db.number(ended) == 2);
        assert_eq!(db.number("SELECT SUM(\"Slots\") AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 2);
        signal(&worker, Signal::TERM);
        assert_eq!(finish(worker).code, Some(0));
    }

    fn a_worker_frozen_past_its_lease_registers_again_and_keeps_its_slots(db) {
        shorten_leases(db);
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "2"]).ok();
        db.configure("[class.work]\nargv = [\"/bin/true\"]\n");
        let successes = || db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success'");
        let _ = db.cli().run(&["queue", "work"]).ok();
        let worker = db.cli().spawn(&["work", "--slots", "2"]);
        wait_until("it has processed the task", || successes() == 1);
        for rescued in [false, true] {
            freeze(db, &worker);
            wait_until("its lease has expired", || is_heartbeat_older_than_a_lease(db));
            if rescued {
                let _ = db.cli().run(&["create-runs"]).ok();
            }
            let before = successes();
            let _ = db.cli().run(&["queue", "work"]).ok();
            signal(&worker, Signal::CONT);
            wait_until("it has processed the next task", || successes() == before + 1);
            assert_eq!(db.number("SELECT SUM(\"Slots\") AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 2);
        }
        signal(&worker, Signal::TERM);
        let ended = finish(worker);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    fn a_clock_that_was_set_forward_takes_no_run_from_a_living_runner(db) {
        db.cli().run(&["setting", "set", "TaskQueueLeaseRenewal", "4"]).ok();
        let stage = Stage::with_run(db);
        let (runner, handler) = start_runner(db, &stage);
        // The others use a lease that counts soon after the start of a server; the runner keeps its own.
        shorten_leases(db);
        freeze(db, &runner);
        db.execute("UPDATE \"TaskQueueRunners\" SET \"HeartbeatOn\" = '2020-01-01 00:00:00.000000'");
        db.execute("UPDATE \"TaskQueueRuns\" SET \"LeaseExpiresOn\" = '2020-01-01 01:00:00.000000'");
        for _ in 0..2 {
            let _ = db.cli().run(&["create-runs"]).ok();
        }
        assert_eq!((statuses(db), handler.liveness()), (vec!["processing".to_owned()], Liveness::Alive));
        let events = |whose: &str| db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'clock-set' AND \"RunId\" IS {whose}"));
        assert!(matches!(events("NOT NULL"), 1 | 2), "a step is rounded to ten seconds");
        let found = db.cli().run(&["doctor"]).stdout;
        assert!(found.contains("the database's clock was set forward by ") && found.contains("taskqueue events --kind clock-set"), "{found}");
        signal(&runner, Signal::CONT);
        wait_until("the runner notes it with its next renewal", || events("NULL") == 1);
        let _go = stage.go();
        let _ = finish(runner).ok();
        assert_eq!(statuses(db), ["success"]);
    }

    fn a_lease_from_a_clock_that_was_ahead_does_not_protect_a_stopped_runner(db) {
        let stage = Stage::with_run(db);
        let (runner, handler) = start_runner(db, &stage);
        shorten_leases(db);
        freeze(db, &runner);
        db.execute("UPDATE \"TaskQueueRuns\" SET \"LeaseExpiresOn\" = '2100-01-01 00:00:00.000000'");
        let _ = db.cli().run(&["create-runs"]).ok();
        assert_eq!((statuses(db), handler.liveness()), (vec!["processing".to_owned()], Liveness::Alive));
        db.execute("UPDATE \"TaskQueueRunners\" SET \"HeartbeatBootMs\" = \"HeartbeatBootMs\" - 8000000");
        let _ = db.cli().run(&["create-runs"]).ok();
        wait_dead("the handler", &handler);
        assert_eq!(error_of_first_run(db), "lease-expired");
        signal(&runner, Signal::KILL);
        assert_eq!(finish(runner).code, None);
    }

    fn the_slot_of_an_unseen_runner_is_free_once_it_is_silent_for_a_lease(db) {
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "1"]).ok();
        db.configure("[class.work]\nargv = [\"/bin/true\"]\n");
        let _ = db.cli().run(&["queue", "work"]).ok();
        let _ = db.cli().run(&["create-runs"]).ok();
        db.execute("INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"Host\") VALUES (7, 'elsewhere')");
        let _ = db.cli().run(&["process-run"]).ok();
        assert_eq!(statuses(db), ["scheduled"]);
        shorten_leases(db);
        db.execute("UPDATE \"TaskQueueRunners\" SET \"HeartbeatOn\" = '2020-01-01 00:00:00.000000'");
        let _ = db.cli().run(&["process-run"]).ok();
        assert_eq!(statuses(db), ["success"]);
    }
}
