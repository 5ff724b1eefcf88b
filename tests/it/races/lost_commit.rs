//! A lost COMMIT, or a lost answer to it: a repeated operation has one effect. SQLite has none to lose.

use std::process::Child;

use rustix::process::Signal;

use super::outage::signal;
use super::stage::{statuses, task};
use crate::conformance::fixture::{claim_as, dead_process, queue_with_run, willing};
use crate::support::cli::finish;
use crate::support::proxy::{Cut, Proxy};
use crate::support::{Cli, EngineUnderTest, TestDb, wait_until};
use crate::{each_engine, each_server};

/// Runs `work` with its first COMMIT lost, then its second, and so on until it has no more, in both ways; `check` gets the
/// number of repetitions.
pub(super) fn with_every_commit_lost(db: &TestDb, work: impl Fn(&Cli), check: impl Fn(i64)) {
    if db.engine == EngineUnderTest::Sqlite {
        return;
    }
    let server = Proxy::start("127.0.0.1", db.url_text());
    let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &server.url);
    let mut rounds = 0;
    for lost in [Cut::BeforeCommit, Cut::AfterCommit] {
        for number in 1.. {
            server.plan(lost, number);
            work(&cli);
            rounds += 1;
            let has_lost = server.clear();
            check(rounds);
            if !has_lost {
                assert!(number > 1, "no COMMIT was seen");
                break;
            }
        }
    }
}

/// Claims the only run, and asks the claimant to end while it checks the result of its COMMIT at an unreachable server.
fn claim_without_answer(db: &TestDb, server: &Proxy, cli: &Cli) {
    let _ = cli.run(&["queue", "--any-class", "work"]).ok();
    let _ = cli.run(&["create-runs"]).ok();
    server.stop_after_commit(1);
    let claimant: Child = cli.spawn(&["worker", "claim", "--claimant", "bot"]);
    wait_until("the claim is retried", || server.refused() > 0);
    assert_eq!(statuses(db), ["processing"]);
    signal(&claimant, Signal::TERM);
    let ended = finish(claimant);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(130), ""), "{ended:?}");
    assert_eq!(statuses(db), ["processing"], "no process has its token");
    server.start_again();
}

each_engine! {
    fn a_task_is_there_once_and_executed_once_whichever_commit_is_lost(db) {
        let effects = db.home().join("effects");
        let script = format!("echo $TASKQUEUE_TASK_ID >> '{}'", effects.display());
        db.configure(&format!("[class.note]\nargv = [\"/bin/sh\", \"-c\", \"{script}\"]\n"));
        // The limit would refuse a second row of the same runner.
        let _ = db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "1"]).ok();
        let work = |cli: &Cli| {
            let _ = cli.run(&["queue", "note"]).ok();
            let _ = cli.run(&["tick"]).ok();
        };
        with_every_commit_lost(db, work, |rounds| {
            let count = |what: &str| db.number(&format!("SELECT COUNT(*) AS value FROM {what}"));
            assert_eq!(count("\"TaskQueue\""), rounds, "tasks");
            assert_eq!(count("\"TaskQueue\" WHERE \"LastStatus\" = 'success' AND \"Attempts\" = 1"), rounds);
            assert_eq!(count("\"TaskQueueRuns\""), rounds, "runs");
            assert_eq!(count("\"TaskQueueRunners\""), rounds, "runners");
            assert_eq!(count("\"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 0);
            assert_eq!(count("\"TaskQueueEvents\" WHERE \"Kind\" <> 'setting-changed'"), 0);
            assert_eq!(std::fs::read_to_string(&effects).unwrap().lines().count(), usize::try_from(rounds).unwrap());
        });
    }

    fn a_batch_whose_commit_is_lost_is_there_once_with_the_right_ids(db) {
        const LINES: usize = 7;
        let lines = "{\"class\":\"any\"}\n".repeat(LINES);
        let work = |cli: &Cli| {
            let ids = cli.clone().stdin(lines.as_str()).run(&["queue", "--any-class", "--batch", "-"]).ok();
            for id in ids.lines() {
                assert_eq!(db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" = {id}")), 1);
            }
            assert_eq!(ids.lines().count(), LINES);
        };
        with_every_commit_lost(db, work, |rounds| {
            assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), rounds * LINES as i64);
        });
    }

    fn a_rescue_whose_commit_is_lost_is_reported_once_and_leaves_one_event(db) {
        let work = |cli: &Cli| {
            let mut ctx = willing(db);
            queue_with_run(&mut ctx, "work");
            claim_as(&mut ctx.store, &dead_process()).unwrap();
            assert_eq!(cli.run(&["create-runs", "--json"]).json()["rescued"].as_array().unwrap().len(), 1);
        };
        with_every_commit_lost(db, work, |rounds| {
            assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'rescued'"), rounds);
        });
    }

    fn a_class_release_with_a_lost_commit_succeeds_and_leaves_one_event(db) {
        let work = |cli: &Cli| {
            db.execute(
                "INSERT INTO \"TaskQueueClassHolds\" (\"TaskClass\", \"Host\", \"Reason\", \"HeldOn\", \"HeldUntil\") \
                 VALUES ('held', 'here', '', '2020-01-01 00:00:00.000000', '2199-01-01 00:00:00.000000')",
            );
            let _ = cli.run(&["class", "release", "held"]).ok();
        };
        with_every_commit_lost(db, work, |rounds| {
            assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueClassHolds\""), 0);
            assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\""), rounds);
        });
    }

    fn create_runs_removes_old_receipts_and_keeps_young_ones(db) {
        db.execute("INSERT INTO \"TaskQueueReceipts\" (\"Token\", \"WrittenOn\") VALUES ('old', '2020-01-01 00:00:00')");
        db.execute("INSERT INTO \"TaskQueueReceipts\" (\"Token\") VALUES ('young')");
        let _ = db.cli().run(&["create-runs"]).ok();
        assert_eq!(db.raw().texts("SELECT \"Token\" AS value FROM \"TaskQueueReceipts\""), [Some("young".to_owned())]);
    }
}

each_server! {
    fn a_run_claimed_without_an_answer_is_given_back_by_create_runs_for_free(db) {
        let server = Proxy::start("127.0.0.1", db.url_text());
        let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &server.url);
        claim_without_answer(db, &server, &cli);
        let _ = cli.run(&["create-runs"]).ok();
        assert_eq!((statuses(db), task(db)), (vec!["released".to_owned(), "scheduled".to_owned()], ("scheduled".to_owned(), 0, 0)));
        assert_eq!(db.text("SELECT \"ErrorCode\" AS value FROM \"TaskQueueRuns\" ORDER BY \"Id\"").unwrap(), "not-started");
        // The record was removed from the spool: later claims are kept.
        let _ = cli.run(&["worker", "claim", "--claimant", "bot"]).ok();
        let _ = cli.run(&["create-runs"]).ok();
        assert_eq!(statuses(db), ["released", "processing"]);
    }

    fn a_run_claimed_without_an_answer_goes_to_the_next_claimant_of_its_host(db) {
        let server = Proxy::start("127.0.0.1", db.url_text());
        let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &server.url);
        claim_without_answer(db, &server, &cli);
        let line = cli.run(&["worker", "claim", "--claimant", "other"]).json();
        assert_eq!((&line["task_id"], &line["attempt"]), (&1.into(), &1.into()));
        assert_eq!(statuses(db), ["released", "processing"]);
    }
}
