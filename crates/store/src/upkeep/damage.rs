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

/// Ids that one statement reads, so that on MySQL no claim waits long for the lock of a table.
const IDS_PER_STATEMENT: i64 = 10_000;

#[derive(QueryableByName)]
struct Counted {
    #[diesel(sql_type = BigInt)]
    count: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    first: Option<i64>,
}

/// A look at each row of a table. The statement has the alias t for the table, and counts what is wrong.
struct Look {
    table: &'static str,
    key: &'static str,
    wrong: &'static str,
    first: &'static str,
    damage: Option<fn(i64, TaskId) -> Damage>,
}

const LOOKS: [Look; 5] = [
    Look {
        table: "TaskQueueRuns",
        key: "Id",
        wrong: r#"t."OpenTaskId" IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "TaskQueue" o WHERE o."Id" = t."OpenTaskId")"#,
        first: "OpenTaskId",
        damage: Some(|count, first| Damage::RunsWithoutTask { count, first }),
    },
    Look {
        table: "TaskQueue",
        key: "Id",
        wrong: r#"t."CurrentRunId" IS NOT NULL AND NOT EXISTS
            (SELECT 1 FROM "TaskQueueRuns" r WHERE r."Id" = t."CurrentRunId" AND r."OpenTaskId" = t."Id")"#,
        first: "Id",
        damage: Some(|count, first| Damage::TasksWithoutRun { count, first }),
    },
    Look {
        table: "TaskQueue",
        key: "Id",
        wrong: r#"t."WaitingFor" <> (SELECT COUNT(*) FROM "TaskQueueDependencies" d WHERE d."TaskId" = t."Id" AND NOT d."IsSatisfied")"#,
        first: "Id",
        damage: Some(|count, first| Damage::WrongWaitingFor { count, first }),
    },
    // Nothing contradicts them; reading shows whether they can be read.
    Look { table: "TaskQueueRunOutputs", key: "RunId", wrong: r#"t."Content" IS NULL"#, first: "RunId", damage: None },
    Look { table: "TaskQueueEvents", key: "Id", wrong: r#"t."Kind" IS NULL"#, first: "Id", damage: None },
];

/// The number of steps of [`Store::find_damage`].
pub const DAMAGE_STEPS: usize = 1 + LOOKS.len();

impl Store {
    /// Reads the whole database and returns what is damaged. `begun` is called with the number and the name of each step.
    ///
    /// # Errors
    /// The database could not be queried before any damage was found.
    pub fn find_damage(&mut self, begun: &mut dyn FnMut(usize, &str)) -> StoreResult<Vec<Damage>> {
        let patience = self.url().patience().clone();
        // Every row is read.
        let allowed = patience.set_limit(Duration::MAX);
        begun(0, "pages and indexes");
        let messages = self.read(|conn| Ok(backend::health::unreadable(conn)?));
        let mut found: StoreResult<Vec<Damage>> =
            messages.map(|all| all.into_iter().map(|message| Damage::Unreadable { message }).collect());
        for (step, look) in LOOKS.iter().enumerate() {
            begun(step + 1, look.table);
            let Ok(known) = &mut found else { break };
            match self.look(look) {
                Ok(damage) => known.extend(damage),
                // What was found before says why.
                Err(error) if !known.is_empty() => known.push(Damage::Unreadable { message: error.to_string() }),
                Err(error) => found = Err(error),
            }
        }
        patience.set_limit(allowed);
        found
    }

    fn look(&mut self, look: &Look) -> StoreResult<Option<Damage>> {
        let Look { table, key, wrong, first, .. } = look;
        let (mut count, mut smallest, mut last) = (0, None, i64::MIN);
        loop {
            let next = format!(
                r#"SELECT COUNT(*) AS count, MIN(t."{key}") AS first FROM
                (SELECT "{key}" FROM "{table}" WHERE "{key}" > {last} ORDER BY "{key}" LIMIT 1) t"#
            );
            let Some(from) = self.count(&next)?.first else { break };
            last = from.saturating_add(IDS_PER_STATEMENT - 1);
            let part = format!(
                r#"SELECT COUNT(*) AS count, MIN(t."{first}") AS first FROM "{table}" t
                WHERE t."{key}" BETWEEN {from} AND {last} AND {wrong}"#
            );
            let part = self.count(&part)?;
            count += part.count;
            smallest = smallest.into_iter().chain(part.first).min();
        }
        Ok(look.damage.zip(smallest).map(|(damage, first)| damage(count, TaskId(first))))
    }

    fn count(&mut self, statement: &str) -> StoreResult<Counted> {
        let rows = self.read(|conn| Ok(backend::load_named(conn, statement)?))?;
        Ok(rows.into_iter().next().ok_or(diesel::NotFound)?)
    }
}
