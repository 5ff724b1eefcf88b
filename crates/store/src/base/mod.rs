//! Code shared by all statements: tables, rows, values, times, the connection.

pub(crate) mod cells;
pub(crate) mod connection;
pub(crate) mod content;
pub(crate) mod counted;
pub(crate) mod low_water;
pub(crate) mod new_task;
pub(crate) mod prepared;
pub(crate) mod rows;
pub(crate) mod schema;
pub(crate) mod sql;
pub(crate) mod unmarked;
