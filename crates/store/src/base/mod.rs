//! Code shared by all statements: tables, rows, values, times.

pub(crate) mod cells;
pub(crate) mod content;
pub(crate) mod prepared;
pub(crate) mod receipts;
pub(crate) mod rows;
pub(crate) mod schema;
pub(crate) mod sql;
pub(crate) mod unmarked;
