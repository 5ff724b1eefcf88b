//! Task classes in the database: the classes that have tasks, and TaskQueueClassHolds.

use chrono::{DateTime, Utc};
use diesel::dsl::auto_type;
use diesel::prelude::*;
use serde::Serialize;

use crate::base::cells::{Cell, ExactText, ShownText, TimeOrPast};
use crate::base::schema::task_queue;
use crate::base::schema::task_queue_class_holds::dsl::{
    held_on, held_until, host, reason, task_class, task_queue_class_holds,
};
use crate::base::sql::db_now;
use crate::journal::events::{NewEvent, insert_event};
use crate::{Store, StoreResult};

diesel::alias!(task_queue as named: Named);

#[auto_type]
fn class_of(id: i64) -> _ {
    let row = named.filter(named.field(task_queue::id).eq(id));
    row.select(named.field(task_queue::task_class)).single_value()
}

/// A class that is not claimed on a host because its handler could not be started there.
#[derive(Clone, Debug, Serialize)]
pub struct ClassHold {
    /// Task class
    pub class: String,
    /// Host
    pub host: String,
    /// The reason.
    pub reason: String,
    /// When the hold began.
    pub held_on: DateTime<Utc>,
    /// When the next attempt may be made.
    pub held_until: DateTime<Utc>,
}

impl Store {
    /// Returns the holds that have not expired.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_class_holds(&mut self) -> StoreResult<Vec<ClassHold>> {
        type Row = (ShownText, ShownText, ShownText, TimeOrPast, TimeOrPast);
        let hold = |(class, on_host, why, since, until): Row| ClassHold {
            class: class.0,
            host: on_host.0,
            reason: why.0,
            held_on: since.into(),
            held_until: until.into(),
        };
        self.read_each(hold, |conn| {
            task_queue_class_holds
                .filter(held_until.gt(db_now()))
                .order((task_class, host))
                .select((task_class, host, reason, held_on, held_until))
                .load(conn)
        })
    }

    /// Ends the holds of a class on every host, and records the event, with their number as `holds`. Returns how many there were.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn release_class(&mut self, class: &str, event: &NewEvent) -> StoreResult<usize> {
        self.write_once(|conn| {
            let released = diesel::delete(task_queue_class_holds.filter(task_class.eq(class))).execute(conn)?;
            if released > 0 {
                insert_event(conn, &event.with_details(serde_json::json!({ "holds": released })))?;
            }
            fault_point!("classes.before_release_commit");
            Ok(released)
        })
    }

    /// Returns the first `limit` classes that have tasks, by name, from this name on, which need not exist. Reads an index, so the
    /// number of tasks does not matter.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_task_classes(&mut self, beginning: &str, limit: usize) -> StoreResult<Vec<String>> {
        self.read(|conn| {
            let mut classes: Vec<String> = Vec::new();
            let mut unreadable: Option<i64> = None;
            while classes.len() < limit {
                let by_name = task_queue::table.order(task_queue::task_class);
                let first = by_name.select((task_queue::id, task_queue::task_class)).limit(1).into_boxed();
                let first = match (unreadable, classes.last()) {
                    // Only the database can compare a name that cannot be read.
                    (Some(id), _) => first.filter(task_queue::task_class.nullable().gt(class_of(id))),
                    (None, Some(last)) => first.filter(task_queue::task_class.gt(last)),
                    (None, None) => first.filter(task_queue::task_class.ge(beginning)),
                };
                let Some((id, class)) = first.get_result::<(i64, Cell<ExactText>)>(conn).optional()? else { break };
                unreadable = match class.read("TaskClass") {
                    Ok(class) => {
                        classes.push(class.0);
                        None
                    }
                    Err(_) => Some(id),
                };
            }
            Ok(classes)
        })
    }
}
