//! Inserts one task with one statement, prepared once per connection: queueing a single task costs one round trip, and a batch on
//! SQLite one execution per row.

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, Query, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType, Integer, Nullable, Text};

use crate::base::new_task::{ColumnValue, NewTaskRow};

/// The statement. It returns the id, except on MySQL and MariaDB.
#[derive(Debug)]
pub(in super::super) struct InsertOne<'a> {
    values: [ColumnValue<'a>; NewTaskRow::COLUMNS.len()],
    receipt: Option<&'a str>,
}

impl<'a> InsertOne<'a> {
    /// Inserts a row, identified by its receipt if it has one.
    pub(in super::super) fn new(row: &'a NewTaskRow, receipt: Option<&'a str>) -> Self {
        Self { values: row.values(), receipt }
    }
}

/// The syntax that differs between engines. Times are sent as UTC text and converted by the engine: independent of the session's
/// zone, and with years that some client libraries do not support.
pub(super) struct Spelling {
    pub(super) quote: char,
    pub(super) now: &'static str,
    pub(super) before_time: &'static str,
    pub(super) after_time: &'static str,
}

/// Writes the statement, without what returns the id.
pub(super) fn walk<'b, DB>(
    insert: &'b InsertOne<'_>,
    out: &mut AstPass<'_, 'b, DB>,
    spelling: &Spelling,
) -> QueryResult<()>
where
    DB: Backend + HasSqlType<Text> + HasSqlType<Integer> + HasSqlType<BigInt>,
    Option<String>: ToSql<Nullable<Text>, DB>,
    &'b str: ToSql<Text, DB>,
    Option<&'b str>: ToSql<Nullable<Text>, DB>,
    Option<i32>: ToSql<Nullable<Integer>, DB>,
    Option<i64>: ToSql<Nullable<BigInt>, DB>,
    i32: ToSql<Integer, DB>,
{
    let Spelling { quote, now, before_time, after_time } = spelling;
    let mut start = format!("INSERT INTO {quote}TaskQueue{quote} (");
    for column in NewTaskRow::COLUMNS {
        start.extend([*quote]);
        start.push_str(column);
        start.extend([*quote]);
        start.push_str(", ");
    }
    out.push_sql(&format!("{start}{quote}Receipt{quote}) VALUES ("));
    for value in &insert.values {
        match value {
            ColumnValue::Text(text) => out.push_bind_param::<Text, _>(text)?,
            ColumnValue::Number(number) => out.push_bind_param::<Integer, _>(number)?,
            ColumnValue::MaybeText(text) => out.push_bind_param::<Nullable<Text>, _>(text)?,
            ColumnValue::MaybeNumber(number) => out.push_bind_param::<Nullable<Integer>, _>(number)?,
            ColumnValue::MaybeId(id) => out.push_bind_param::<Nullable<BigInt>, _>(id)?,
            ColumnValue::MaybeTime(time) => {
                out.push_sql(before_time);
                out.push_bind_param::<Nullable<Text>, _>(time)?;
                out.push_sql(after_time);
            }
            ColumnValue::TimeOrNow(time) => {
                out.push_sql("COALESCE(");
                out.push_sql(before_time);
                out.push_bind_param::<Nullable<Text>, _>(time)?;
                out.push_sql(after_time);
                out.push_sql(", ");
                out.push_sql(now);
                out.push_sql(")");
            }
            ColumnValue::TextOr(text, or) => {
                out.push_sql("COALESCE(");
                out.push_bind_param::<Nullable<Text>, _>(text)?;
                out.push_sql(", '");
                out.push_sql(or);
                out.push_sql("')");
            }
        }
        out.push_sql(", ");
    }
    out.push_bind_param::<Nullable<Text>, _>(&insert.receipt)?;
    out.push_sql(")");
    Ok(())
}

// The text of the statement does not depend on the row: it is built once per connection.
impl QueryId for InsertOne<'_> {
    type QueryId = InsertOne<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for InsertOne<'_> {
    type SqlType = BigInt;
}
