//! Inserts many tasks into MySQL or MariaDB with one statement. Texts are bound values, numbers are part of the statement:
//! binding a value costs more than a literal.

use std::fmt::{Display, Write as _};

use diesel::mysql::{Mysql, MysqlConnection};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::Text;

use crate::base::new_task::{ColumnValue, NewTaskRow};

/// The text before and after a time.
const TIME: [&str; 2] = ["CAST(", " AS DATETIME(6))"];

/// The values of the rows. A missing value is NULL or DEFAULT in the text, so the number of bound values differs.
#[derive(Debug)]
pub(crate) struct InsertMany<'a>(Vec<[ColumnValue<'a>; NewTaskRow::COLUMNS.len()]>);

impl<'a> InsertMany<'a> {
    pub(crate) fn new(rows: &'a [NewTaskRow]) -> Self {
        Self(rows.iter().map(NewTaskRow::values).collect())
    }
}

impl QueryFragment<Mysql> for InsertMany<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        out.push_sql(&format!("INSERT INTO `TaskQueue` (`{}`) VALUES ", NewTaskRow::COLUMNS.join("`, `")));
        let mut number = String::new();
        for (place, row) in self.0.iter().enumerate() {
            out.push_sql(if place == 0 { "(" } else { ", (" });
            for (place, value) in row.iter().enumerate() {
                out.push_sql(if place == 0 { "" } else { ", " });
                number.clear();
                match value {
                    ColumnValue::Text(text) => out.push_bind_param::<Text, _>(text)?,
                    ColumnValue::Number(of) => out.push_sql(write_number(&mut number, Some(of))),
                    ColumnValue::MaybeNumber(of) => out.push_sql(write_number(&mut number, of.as_ref())),
                    ColumnValue::MaybeId(of) => out.push_sql(write_number(&mut number, of.as_ref())),
                    ColumnValue::MaybeText(text) => push_text(&mut out, text.as_ref(), ["", "", "NULL"])?,
                    ColumnValue::TextOr(text, _) => push_text(&mut out, text.as_ref(), ["", "", "DEFAULT"])?,
                    ColumnValue::MaybeTime(time) => push_text(&mut out, time.as_ref(), [TIME[0], TIME[1], "NULL"])?,
                    ColumnValue::TimeOrNow(time) => push_text(&mut out, time.as_ref(), [TIME[0], TIME[1], "DEFAULT"])?,
                }
            }
            out.push_sql(")");
        }
        Ok(())
    }
}

fn write_number(buffer: &mut String, number: Option<impl Display>) -> &str {
    // Writing to memory cannot fail.
    let _ = match number {
        Some(number) => write!(buffer, "{number}"),
        None => write!(buffer, "NULL"),
    };
    buffer
}

/// Adds a text as a bound value, with the SQL before and after it. A missing text becomes the keyword `none`.
fn push_text<'b>(
    out: &mut AstPass<'_, 'b, Mysql>,
    text: Option<&'b (impl ToSql<Text, Mysql> + 'b)>,
    [before, after, none]: [&str; 3],
) -> QueryResult<()> {
    let Some(text) = text else {
        out.push_sql(none);
        return Ok(());
    };
    out.push_sql(before);
    out.push_bind_param::<Text, _>(text)?;
    out.push_sql(after);
    Ok(())
}

impl QueryId for InsertMany<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl RunQueryDsl<MysqlConnection> for InsertMany<'_> {}
