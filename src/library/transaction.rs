//! Queueing in a transaction of the program.

use super::error::Error;
use super::new_task::NewTask;
use taskqueue_domain::task::unique::QueuedTask;
use taskqueue_engine::own_user_name;
use taskqueue_engine::queueing::queue_in::{self, CallersConnection};

/// Queues a task over a Diesel connection of the program (`PgConnection`, `MysqlConnection` or `SqliteConnection`) to the
/// database with the tables. In a transaction, the task is committed or rolled back together with everything else in it.
///
/// The task is checked as by [`TaskQueue::queue`](super::TaskQueue::queue). The session is not changed, and after an error that
/// is not the database's the transaction can continue. [`OnConflict::Replace`](crate::OnConflict::Replace) is not possible
/// here.
///
/// ```
/// # use taskqueue::diesel;
/// use diesel::prelude::*;
/// use taskqueue::{NewTask, TaskQueue, queue_in};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("shop.db").display().to_string();
/// # TaskQueue::connect(&path)?;
/// let mut conn = SqliteConnection::establish(&path)?;
/// # diesel::sql_query("CREATE TABLE orders (id integer PRIMARY KEY, customer text)").execute(&mut conn)?;
/// conn.transaction(|conn| {
///     diesel::sql_query("INSERT INTO orders (customer) VALUES ('ann')").execute(conn)?;
///     queue_in(conn, NewTask::new("order.confirm").data(&"ann")?)
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns [`Error::Input`], [`Error::KeyTaken`], or an error of the database.
pub fn queue_in<C: CallersConnection>(conn: &mut C, task: NewTask) -> Result<QueuedTask, Error> {
    let now = if task.needs_now() { Some(queue_in::now_of(conn)?) } else { None };
    let request = task.into_request(&own_user_name(), now)?;
    Ok(queue_in::queue_in(conn, request)?)
}
