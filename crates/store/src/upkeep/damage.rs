//! Damage that a look at all rows finds: pages and indexes that the engine cannot read, and rows that contradict each other.

use std::time::Duration;

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Nullable};

use crate::backend;
use crate::{Store, StoreResult};
use taskqueue_domain::task::ids::TaskId;

/// Something in the database that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The engine reports a damaged page, table or index.
    Unreadable {
        /// In the words of the engine.
        message: String,
    },
    /// Open runs whose task does not exist.
    RunsWithoutTask {
        /// How many.
        count: i64,
        /// The smallest id of such a task.
        first: TaskId,
    },
    /// Tasks whose CurrentRunId is not an open run of theirs.
    TasksWithoutRun {
        /// How many.
        count: i64,
        /// The first of them.
        first: TaskId,
    },
    /// Tasks whose WaitingFor differs from the number of tasks for which they wait.
    WrongWaitingFor {
        /// How many.
        count: i64,
        /// The first of them.
        first: TaskId,
    },
}

#[derive(QueryableByName)]
struct Counted {
    #[diesel(sql_type = BigInt)]
    count: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    first: Option<i64>,
}

const RUNS_WITHOUT_TASK: &str = r#"SELECT COUNT(*) AS count, MIN(r."OpenTaskId") AS first FROM "TaskQueueRuns" r
    WHERE r."OpenTaskId" IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "TaskQueue" t WHERE t."Id" = r."OpenTaskId")"#;

const TASKS_WITHOUT_RUN: &str = r#"SELECT COUNT(*) AS count, MIN(t."Id") AS first FROM "TaskQueue" t
    WHERE t."CurrentRunId" IS NOT NULL AND NOT EXISTS
        (SELECT 1 FROM "TaskQueueRuns" r WHERE r."Id" = t."CurrentRunId" AND r."OpenTaskId" = t."Id")"#;

const WRONG_WAITING_FOR: &str = r#"SELECT COUNT(*) AS count, MIN(t."Id") AS first FROM "TaskQueue" t
    WHERE t."WaitingFor" <> (SELECT COUNT(*) FROM "TaskQueueDependencies" d WHERE d."TaskId" = t."Id" AND NOT d."IsSatisfied")"#;

type NewDamage = fn(i64, TaskId) -> Damage;

const CONTRADICTIONS: [(&str, NewDamage); 3] = [
    (RUNS_WITHOUT_TASK, |count, first| Damage::RunsWithoutTask { count, first }),
    (TASKS_WITHOUT_RUN, |count, first| Damage::TasksWithoutRun { count, first }),
    (WRONG_WAITING_FOR, |count, first| Damage::WrongWaitingFor { count, first }),
];

/// The number of steps of [`Store::find_damage`].
pub const DAMAGE_STEPS: usize = 1 + CONTRADICTIONS.len();

impl Store {
    /// Reads the whole database and returns what is damaged. `begun` is called with the number of each step.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn find_damage(&mut self, begun: &mut dyn FnMut(usize)) -> StoreResult<Vec<Damage>> {
        let patience = self.url().patience().clone();
        // Every row is read.
        let allowed = patience.set_limit(Duration::MAX);
        let found = self.read_for_damage(begun);
        patience.set_limit(allowed);
        found
    }

    fn read_for_damage(&mut self, begun: &mut dyn FnMut(usize)) -> StoreResult<Vec<Damage>> {
        begun(0);
        let messages = self.read(|conn| Ok(backend::health::unreadable(conn)?))?;
        let mut found: Vec<Damage> = messages.into_iter().map(|message| Damage::Unreadable { message }).collect();
        for (step, (statement, new_damage)) in CONTRADICTIONS.iter().enumerate() {
            begun(step + 1);
            let Counted { count, first } = self.read(|conn| Ok(backend::health::load_one(conn, statement)?))?;
            found.extend(first.map(|first| new_damage(count, TaskId(first))));
        }
        Ok(found)
    }
}
