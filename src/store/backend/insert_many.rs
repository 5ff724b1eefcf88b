//! Many tasks into MySQL or MariaDB by one statement. Texts are sent as values, numbers stand in it: each value costs more than
//! what it says.

use std::fmt::{Display, Write as _};

use diesel::mysql::{Mysql, MysqlConnection};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::sql_types::Text;

use super::insert_one::InsertOne;

/// The rows, of which each may have another shape.
#[derive(Debug)]
pub(super) struct InsertMany<'a>(pub(super) &'a [InsertOne<'a>]);

impl QueryFragment<Mysql> for InsertMany<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        out.push_sql(
            "INSERT INTO `TaskQueue` (`TaskClass`, `TaskData`, `QueuedById`, `MaxRetries`, `Timeout`, `Priority`, `WaitingFor`, \
             `ParentId`, `Keep`, `KeepResults`, `Backoff`, `Meta`, `UniqueKey`, `LimitKey`, `Tag`, `Recurrence`, `TimeZone`, `CatchUp`, `ScheduledOn`, `UniqueUntil`, \
             `PlannedOn`) VALUES ",
        );
        let mut numbers = String::new();
        for (place, insert) in self.0.iter().enumerate() {
            let row = insert.row;
            out.push_sql(if place == 0 { "(" } else { ", (" });
            out.push_bind_param::<Text, _>(&row.task_class)?;
            out.push_sql(", ");
            out.push_bind_param::<Text, _>(&row.task_data)?;
            out.push_sql(", ");
            out.push_bind_param::<Text, _>(&row.queued_by_id)?;
            numbers.clear();
            // Nothing keeps a text in memory from growing.
            for value in [row.max_retries, row.timeout_secs] {
                numbers.push_str(", ");
                number(&mut numbers, value);
            }
            let _ = write!(numbers, ", {}, {}, ", row.priority, row.waiting_for);
            number(&mut numbers, row.parent_id);
            for secs in [row.keep_secs, row.keep_results_secs] {
                numbers.push_str(", ");
                number(&mut numbers, secs);
            }
            out.push_sql(&numbers);
            for text in [&row.backoff, &row.meta, &row.unique_key, &row.limit_key, &row.tag, &row.recurrence] {
                value(&mut out, text.as_ref(), [", ", "", ", NULL"])?;
            }
            for text in [&row.time_zone, &row.catch_up] {
                value(&mut out, text.as_ref(), [", ", "", ", DEFAULT"])?;
            }
            value(&mut out, insert.scheduled_on.as_ref(), [", CAST(", " AS DATETIME(6))", ", DEFAULT"])?;
            for time in [&insert.unique_until, &insert.planned_on] {
                value(&mut out, time.as_ref(), [", CAST(", " AS DATETIME(6))", ", NULL"])?;
            }
            out.push_sql(")");
        }
        Ok(())
    }
}

fn number(numbers: &mut String, value: Option<impl Display>) {
    // Nothing keeps a text in memory from growing.
    let _ = match value {
        Some(value) => write!(numbers, "{value}"),
        None => write!(numbers, "NULL"),
    };
}

/// A text between what comes before and after it, or what stands for none.
fn value<'b>(
    out: &mut AstPass<'_, 'b, Mysql>,
    text: Option<&'b String>,
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
