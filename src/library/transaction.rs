//! Queueing in a transaction of the program's own.

use super::error::Error;
use super::new_task::NewTask;
use taskqueue_domain::task::unique::QueuedTask;
use taskqueue_engine::own_user_name;
use taskqueue_engine::queueing::queue_in::{self, CallersConnection};

/// Queues a task over a Diesel connection of the program's own (`PgConnection`, `MysqlConnection` or `SqliteConnection`) to
/// the database that has the tables. Inside a transaction it is there if and only if that transaction is committed, together
/// with whatever else was written in it.
///
/// The task is checked as by [`TaskQueue::queue`](super::TaskQueue::queue). It sets nothing in the session, and after an error
/// other than the database's the transaction can go on. [`OnConflict::Replace`](crate::OnConflict::Replace) is not possible here.
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
/// [`Error::Input`], [`Error::KeyTaken`], or the database's.
pub fn queue_in<C: CallersConnection>(conn: &mut C, task: NewTask) -> Result<QueuedTask, Error> {
    let now = if task.needs_now() { Some(queue_in::now_of(conn)?) } else { None };
    let request = task.into_request(&own_user_name(), now)?;
    Ok(queue_in::queue_in(conn, request)?)
}
