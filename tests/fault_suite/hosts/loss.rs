//! Hosts that died or were cut off, and how long their runs waited for their rescue.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::LEASE_SECS;
use crate::campaign::Job;
use crate::database::EngineUnderTest;
use crate::stage::Stage;

/// The interval of cron.
const TICK_SECS: u32 = 60;

/// How a host was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Died,
    /// With a worker that had claimed ahead.
    CutOff,
}

pub struct Loss {
    pub kind: Kind,
    host: String,
    at: DateTime<Utc>,
}

impl Loss {
    /// Records a loss now.
    pub fn new(host: String, kind: Kind) -> Self {
        Self { kind, host, at: Utc::now() }
    }

    /// Returns the PIDs of the runners that were lost with the host.
    pub fn runners(&self, stage: &Stage) -> Vec<i64> {
        self.of_runs(stage, "\"ProcessId\"")
    }

    /// Returns the milliseconds from the loss until each run of the host was rescued.
    fn rescued_after_millis(&self, stage: &Stage) -> Vec<i64> {
        let at = self.literal(stage);
        self.of_runs(
            stage,
            &match stage.engine {
                EngineUnderTest::Postgres => {
                    format!("CAST(EXTRACT(EPOCH FROM \"FinishedOn\" - {at}::timestamptz) * 1000 AS BIGINT)")
                }
                _ => format!("TIMESTAMPDIFF(MICROSECOND, {at}, \"FinishedOn\") DIV 1000"),
            },
        )
    }

    /// The server uses the same clock.
    fn literal(&self, stage: &Stage) -> String {
        let zone = if stage.engine == EngineUnderTest::Postgres { "+00" } else { "" };
        format!("'{}{zone}'", self.at.format("%Y-%m-%d %H:%M:%S%.6f"))
    }

    fn of_runs(&self, stage: &Stage, expression: &str) -> Vec<i64> {
        let at = self.literal(stage);
        let cast = if stage.engine == EngineUnderTest::Postgres { "TEXT" } else { "CHAR" };
        // A host that is cut off may still report how some of its runs ended.
        let taken = if self.kind == Kind::CutOff { "AND \"ErrorCode\" = 'lease-expired'" } else { "" };
        let sql = format!(
            "SELECT CAST({expression} AS {cast}) AS value FROM \"TaskQueueRuns\" WHERE \"Host\" = '{}' \
             AND \"Claimant\" IS NULL AND \"StartedOn\" <= {at} AND (\"FinishedOn\" IS NULL OR \"FinishedOn\" > {at}) {taken}",
            self.host
        );
        stage.texts(&sql).iter().filter_map(|value| value.parse().ok()).collect()
    }
}

/// Reports how long the runs of lost hosts waited for their rescue, which is never longer than their leases plus a tick.
pub fn report_recovery(job: &Job<'_>, stage: &Stage, losses: &[Loss]) {
    for (kind, name) in [(Kind::Died, "lost"), (Kind::CutOff, "cut off")] {
        let losses: Vec<&Loss> = losses.iter().filter(|loss| loss.kind == kind).collect();
        let mut millis: Vec<i64> = losses.iter().flat_map(|loss| loss.rescued_after_millis(stage)).collect();
        millis.sort_unstable();
        let Some(most) = millis.last() else { continue };
        let secs = |millis: i64| Duration::from_millis(millis.unsigned_abs()).as_secs_f64();
        let (median, most) = (secs(millis[millis.len() / 2]), secs(*most));
        job.note(format!(
            "{} runs of {} hosts that were {name}, lease {LEASE_SECS} s: rescued after {median:.1} s, at most {most:.1} s",
            millis.len(),
            losses.len()
        ));
        assert!(most <= f64::from(LEASE_SECS + TICK_SECS), "a run of a host that was {name} waited for {most:.1} s");
    }
}
