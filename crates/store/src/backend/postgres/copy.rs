//! Inserts many tasks into PostgreSQL with COPY, its fastest way. COPY returns nothing, so the ids are taken from the sequence
//! beforehand.

use std::io::Write;

use diesel::ExecuteCopyFromDsl as _;
use diesel::pg::{CopyTarget, Pg, PgConnection};
use diesel::prelude::*;
use diesel::query_builder::AstPass;
use diesel::result::{Error as DieselError, QueryResult};
use diesel::sql_types::BigInt;

use crate::base::new_task::{ColumnValue, NewTaskRow};
use crate::base::schema::task_queue;

/// How many bytes are passed to the client library at once.
const WRITE_BYTES: usize = 64 << 10;

#[derive(QueryableByName)]
struct CopiedId {
    #[diesel(sql_type = BigInt, column_name = "Id")]
    id: i64,
}

pub(crate) fn copy_tasks(conn: &mut PgConnection, rows: &[NewTaskRow]) -> QueryResult<Vec<i64>> {
    let ids: Vec<CopiedId> = diesel::sql_query(
        r#"SELECT nextval(pg_get_serial_sequence('"TaskQueue"', 'Id')) AS "Id" FROM generate_series(1, $1)"#,
    )
    .bind::<BigInt, _>(i64::try_from(rows.len()).unwrap_or(i64::MAX))
    .load(conn)?;
    let ids: Vec<i64> = ids.into_iter().map(|row| row.id).collect();
    // COPY cannot use the default of a listed column: tasks that are due now are copied without that column, so that its default
    // applies.
    for is_scheduled in [false, true] {
        let part = ids.iter().zip(rows).filter(|(_, row)| row.scheduled_on.is_some() == is_scheduled);
        let text = lines(part);
        if text.is_empty() {
            continue;
        }
        let write = |out: &mut dyn Write| {
            let mut pieces = text.chunks(WRITE_BYTES);
            pieces
                .try_for_each(|piece| out.write_all(piece))
                .map_err(|error| DieselError::SerializationError(error.into()))
        };
        let table = diesel::copy_from(task_queue::table);
        if is_scheduled {
            table.from_raw_data(Columns::<true>, write).execute(conn)?;
        } else {
            table.from_raw_data(Columns::<false>, write).execute(conn)?;
        }
    }
    Ok(ids)
}

/// The id and the columns of a row, with or without its time.
struct Columns<const IS_SCHEDULED: bool>;

impl<const IS_SCHEDULED: bool> CopyTarget for Columns<IS_SCHEDULED> {
    type Table = task_queue::table;
    type SqlType = BigInt;

    fn walk_target(mut pass: AstPass<'_, '_, Pg>) -> QueryResult<()> {
        let left_out = usize::from(!IS_SCHEDULED);
        let names = &NewTaskRow::COLUMNS[..NewTaskRow::COLUMNS.len() - left_out];
        pass.push_sql(&format!(r#""TaskQueue" ("Id", "{}")"#, names.join(r#"", ""#)));
        Ok(())
    }
}

/// Formats the rows in COPY's text format.
fn lines<'a>(rows: impl Iterator<Item = (&'a i64, &'a NewTaskRow)>) -> Vec<u8> {
    let mut out = CopyLine(Vec::new());
    for (id, row) in rows {
        out.number(*id);
        for value in row.values() {
            match value {
                ColumnValue::Text(text) => out.text(text),
                ColumnValue::Number(number) => out.number(number.into()),
                ColumnValue::MaybeText(text) => out.maybe(text, CopyLine::text),
                ColumnValue::MaybeNumber(number) => out.maybe(number.map(i64::from), CopyLine::number),
                ColumnValue::MaybeId(id) => out.maybe(id, CopyLine::number),
                ColumnValue::MaybeTime(time) => out.maybe(time.as_deref(), CopyLine::time),
                ColumnValue::TextOr(text, or) => out.text(text.unwrap_or(or)),
                ColumnValue::TimeOrNow(Some(time)) => out.time(&time),
                ColumnValue::TimeOrNow(None) => {}
            }
        }
        out.end();
    }
    out.0
}

/// Values, each followed by a tab.
struct CopyLine(Vec<u8>);

impl CopyLine {
    fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.0.extend_from_slice(b"\\N\t"),
        }
    }

    fn number(&mut self, number: i64) {
        // Writing to memory cannot fail.
        let _ = write!(self.0, "{number}\t");
    }

    /// Adds a time with its zone: the session may use any.
    fn time(&mut self, time: &str) {
        self.0.extend_from_slice(time.as_bytes());
        self.0.extend_from_slice(b"+00\t");
    }

    /// Adds a text with escapes: of these characters, JSON in one line contains only the backslash.
    fn text(&mut self, text: &str) {
        let mut rest = text.as_bytes();
        while let Some(place) = rest.iter().position(|byte| matches!(byte, b'\\' | b'\t' | b'\n' | b'\r')) {
            self.0.extend_from_slice(&rest[..place]);
            self.0.extend_from_slice(match rest[place] {
                b'\t' => b"\\t",
                b'\n' => b"\\n",
                b'\r' => b"\\r",
                _ => b"\\\\",
            });
            rest = &rest[place + 1..];
        }
        self.0.extend_from_slice(rest);
        self.0.push(b'\t');
    }

    fn end(&mut self) {
        if let Some(last) = self.0.last_mut() {
            *last = b'\n';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_value_or_a_line_is_escaped() {
        let mut line = CopyLine(Vec::new());
        line.text("{\"a\":\"b\\n\\\\\",\n\t\"c\":\r1}");
        line.text("");
        line.maybe(None, CopyLine::number);
        line.number(-7);
        line.end();
        let written = String::from_utf8(line.0).unwrap_or_default();
        assert_eq!(written, "{\"a\":\"b\\\\n\\\\\\\\\",\\n\\t\"c\":\\r1}\t\t\\N\t-7\n");
    }
}
