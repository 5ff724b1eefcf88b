//! Many tasks into PostgreSQL by COPY, which is the fastest that it has. COPY returns nothing, so the ids are taken from the
//! sequence before.

use std::io::Write;

use chrono::{DateTime, Utc};
use diesel::ExecuteCopyFromDsl as _;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::result::{Error as DieselError, QueryResult};
use diesel::sql_types::BigInt;

use super::super::rows::NewTaskRow;
use super::super::schema::task_queue::dsl;
use super::super::sql::Moment;

/// What goes to the client library at once.
const WRITE_BYTES: usize = 64 << 10;

#[derive(QueryableByName)]
struct IdRow {
    #[diesel(sql_type = BigInt, column_name = "Id")]
    id: i64,
}

pub(super) fn copy_tasks(conn: &mut PgConnection, rows: &[NewTaskRow]) -> QueryResult<Vec<i64>> {
    let ids: Vec<IdRow> = diesel::sql_query(
        r#"SELECT nextval(pg_get_serial_sequence('"TaskQueue"', 'Id')) AS "Id" FROM generate_series(1, $1)"#,
    )
    .bind::<BigInt, _>(i64::try_from(rows.len()).unwrap_or(i64::MAX))
    .load(conn)?;
    let ids: Vec<i64> = ids.into_iter().map(|row| row.id).collect();
    // A column that is copied has no default: what is due now is copied without its time, which is then that of the row.
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
        let columns = (
            dsl::id,
            dsl::task_class,
            dsl::task_data,
            dsl::queued_by_id,
            dsl::max_retries,
            dsl::timeout_secs,
            dsl::priority,
            dsl::backoff,
            dsl::waiting_for,
            dsl::unique_key,
            dsl::unique_until,
            dsl::limit_key,
            dsl::tag,
            dsl::parent_id,
            dsl::keep_secs,
            dsl::keep_results_secs,
            dsl::meta,
            dsl::recurrence,
            dsl::time_zone,
            dsl::catch_up,
            dsl::planned_on,
        );
        let table = diesel::copy_from(dsl::task_queue);
        if is_scheduled {
            // The columns as one flat list, which is what COPY takes.
            let (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u) = columns;
            let columns = (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, dsl::scheduled_on);
            table.from_raw_data(columns, write).execute(conn)?;
        } else {
            table.from_raw_data(columns, write).execute(conn)?;
        }
    }
    Ok(ids)
}

/// In COPY's text format.
fn lines<'a>(rows: impl Iterator<Item = (&'a i64, &'a NewTaskRow)>) -> Vec<u8> {
    let mut out = Line(Vec::new());
    for (id, row) in rows {
        out.number(*id);
        out.text(&row.task_class);
        out.text(&row.task_data);
        out.text(&row.queued_by_id);
        out.maybe(row.max_retries, |out, count| out.number(count.into()));
        out.maybe(row.timeout_secs, |out, secs| out.number(secs.into()));
        out.number(row.priority.into());
        out.maybe(row.backoff.as_deref(), Line::text);
        out.number(row.waiting_for.into());
        out.maybe(row.unique_key.as_deref(), Line::text);
        out.maybe(row.unique_until, Line::time);
        out.maybe(row.limit_key.as_deref(), Line::text);
        out.maybe(row.tag.as_deref(), Line::text);
        out.maybe(row.parent_id, Line::number);
        out.maybe(row.keep_secs, |out, secs| out.number(secs.into()));
        out.maybe(row.keep_results_secs, |out, secs| out.number(secs.into()));
        out.maybe(row.meta.as_deref(), Line::text);
        out.maybe(row.recurrence.as_deref(), Line::text);
        out.text(row.time_zone.as_deref().unwrap_or("UTC"));
        out.text(row.catch_up.as_deref().unwrap_or("latest"));
        out.maybe(row.planned_on, Line::time);
        if let Some(scheduled_on) = row.scheduled_on {
            out.time(scheduled_on);
        }
        out.end();
    }
    out.0
}

/// Values, each with the tab that ends it.
struct Line(Vec<u8>);

impl Line {
    fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.0.extend_from_slice(b"\\N\t"),
        }
    }

    fn number(&mut self, number: i64) {
        // Nothing keeps a text in memory from growing.
        let _ = write!(self.0, "{number}\t");
    }

    /// With its zone: the session may have any.
    fn time(&mut self, moment: Moment) {
        let _ = write!(self.0, "{}+00\t", DateTime::<Utc>::from(moment).format("%F %T%.6f"));
    }

    /// JSON in one line has none of these but the backslash.
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
        let mut line = Line(Vec::new());
        line.text("{\"a\":\"b\\n\\\\\",\n\t\"c\":\r1}");
        line.text("");
        line.maybe(None, Line::number);
        line.number(-7);
        line.end();
        let written = String::from_utf8(line.0).unwrap_or_default();
        assert_eq!(written, "{\"a\":\"b\\\\n\\\\\\\\\",\\n\\t\"c\":\\r1}\t\t\\N\t-7\n");
    }
}
