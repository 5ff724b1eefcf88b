//! The messages of the handlers of a worker whose database goes away.

use std::time::Duration;

use taskqueue_domain::task::ids::{RunId, RunnerId};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_engine::EngineError;
use taskqueue_engine::running::run_listener::{RunListener, RunOutcome};
use taskqueue_engine::work::{WorkListener, WorkOptions, work};
use taskqueue_process::signals::stop_signals::StopSignals;

use super::fixture::{context, queue_with_run};
use crate::each_server;
use crate::support::{EngineUnderTest, TestDb};

/// From now on, the connection is lost when a run ends as a success.
fn lose_each_success(db: &TestDb) {
    let trigger = "CREATE TRIGGER lost BEFORE UPDATE ON \"TaskQueueRuns\" FOR EACH ROW";
    db.execute(&match db.engine {
        EngineUnderTest::Postgres => format!(
            "CREATE FUNCTION lost() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
             {trigger} WHEN (NEW.\"Status\" = 'success') EXECUTE FUNCTION lost()"
        ),
        _ => format!(
            "{trigger} IF NEW.\"Status\" = 'success' THEN \
             SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'Lost connection to MySQL server during query'; END IF"
        ),
    });
}

/// Lets the database return once the worker has noticed that it is away.
struct Repairer<'a> {
    db: &'a TestDb,
    losses: usize,
}

impl RunListener for Repairer<'_> {
    fn stopping(&mut self, _runs: &[RunId], _wait: Duration) {}
    fn ended(&mut self, _run: &ClaimedRun, _outcome: &RunOutcome) {}
}

impl WorkListener for Repairer<'_> {
    fn waits_for_slots(&mut self, _in_use: i64, _limit: i64) {}
    fn lost_database(&mut self, problem: &EngineError) {
        assert!(self.losses == 0, "{problem}");
        self.losses += 1;
        let of_table = if self.db.engine == EngineUnderTest::Postgres { " ON \"TaskQueueRuns\"" } else { "" };
        self.db.execute(&format!("DROP TRIGGER lost{of_table}"));
    }
    fn not_recorded(&mut self, _run: &ClaimedRun, problem: &EngineError) {
        panic!("{problem}");
    }
    fn registered(&mut self, _runner_id: RunnerId) {}
}

each_server! {
    fn messages_are_stored_once_if_the_database_goes_away_before_the_end(db) {
        let mut ctx = context(db, "work", |run| {
            run.emit("first", &1)?;
            run.emit("second", &2)
        });
        queue_with_run(&mut ctx, "work");
        lose_each_success(db);
        let options = WorkOptions { slots: 1, idle_exit: Some(Duration::ZERO), ..WorkOptions::default() };
        let (stop, _handle) = StopSignals::by_hand().unwrap();
        let mut repairer = Repairer { db, losses: 0 };
        let report = work(&mut ctx, &options, &stop, &mut repairer).unwrap();
        assert_eq!((report.processed, repairer.losses), (1, 1));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'message'"), 2);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success'"), 1);
    }
}
