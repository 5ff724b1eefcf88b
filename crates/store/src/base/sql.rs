//! Time in SQL: instants as stored by the engines, and the database's clock as an expression (rule R8).

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::{AppearsOnTable, AsExpression, Expression, SelectableExpression, ValidGrouping, is_aggregate};
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{Integer, Nullable, Timestamp};
use serde::{Deserialize, Serialize};

use super::schema::task_queue;
use crate::base::connection::MultiBackend;

/// More failed attempts than a task can have: the limit of a row that states none.
pub(crate) const ANY_RETRIES: i32 = 1_000_001;

diesel::define_sql_function! {
    #[sql_name = "COALESCE"]
    fn first_of(limit: Nullable<Integer>, asked: Nullable<Integer>, otherwise: Integer) -> Integer;
}

/// The failed attempts that the row of a task allows, as in the generated columns: a task with this many is exhausted.
pub(crate) type AllowedRetries = first_of<task_queue::retry_limit, task_queue::max_retries, i32>;

/// Returns [`AllowedRetries`] as an expression.
pub(crate) fn allowed_retries() -> AllowedRetries {
    first_of(task_queue::retry_limit, task_queue::max_retries, ANY_RETRIES)
}

/// An instant as stored in a column: UTC, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, AsExpression, FromSqlRow, Serialize, Deserialize)]
#[diesel(sql_type = Timestamp)]
#[serde(from = "DateTime<Utc>", into = "DateTime<Utc>")]
pub(crate) struct SqlMoment(pub(crate) NaiveDateTime);

impl SqlMoment {
    /// Before all instants that the schema allows: no ScheduledOn is before the year 1000.
    pub(crate) fn beginning() -> Self {
        const DAYS_FROM_1000_TO_1970: i64 = 354_285;
        Self::from(DateTime::UNIX_EPOCH - TimeDelta::days(DAYS_FROM_1000_TO_1970))
    }
}

impl From<DateTime<Utc>> for SqlMoment {
    /// An instant after the year 9999 becomes the last one of that year: MySQL stores no later one.
    fn from(instant: DateTime<Utc>) -> Self {
        const LAST_SECS: i64 = 253_402_300_799;
        let last = DateTime::from_timestamp(LAST_SECS, 999_999_000).unwrap_or(DateTime::<Utc>::MAX_UTC);
        Self(instant.min(last).naive_utc())
    }
}

impl From<SqlMoment> for DateTime<Utc> {
    fn from(moment: SqlMoment) -> Self {
        moment.0.and_utc()
    }
}

impl ToSql<Timestamp, MultiBackend> for SqlMoment {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, MultiBackend>) -> serialize::Result {
        out.set_value((Timestamp, self));
        Ok(IsNull::No)
    }
}

impl<DB> FromSql<Timestamp, DB> for SqlMoment
where
    DB: Backend,
    NaiveDateTime: FromSql<Timestamp, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
        NaiveDateTime::from_sql(bytes).map(Self)
    }
}

/// The database's clock when the statement is executed, plus a number of seconds. Not at the start of the transaction: a
/// transaction that waited for a lock must not write a time from before the wait.
#[derive(Clone, Copy, Debug, QueryId)]
pub(crate) struct DbClock {
    pub(crate) plus_secs: i64,
}

/// Returns the current time by the database's clock.
pub(crate) fn db_now() -> DbClock {
    DbClock { plus_secs: 0 }
}

/// Returns the time `secs` seconds from now by the database's clock.
pub(crate) fn db_now_plus(secs: i64) -> DbClock {
    DbClock { plus_secs: secs }
}

/// An instant of any year as a column value. Diesel sends times to MySQL as TIMESTAMP, and MariaDB converts those from 2038 on to
/// NULL; text has no such limit.
#[derive(Clone, Debug, QueryId)]
pub(crate) struct AnyYear {
    pub(crate) moment: SqlMoment,
    pub(crate) text: String,
}

/// Returns the instant, whatever its year.
pub(crate) fn any_year(moment: SqlMoment) -> AnyYear {
    AnyYear { moment, text: moment.0.format("%F %T%.6f").to_string() }
}

/// Returns the instant as the least text that SQLite may hold for it: an application may leave out zeros at the end of a fraction.
/// With [`any_year`] as the greatest one, it encloses every text of the instant.
pub(crate) fn shortest(moment: SqlMoment) -> AnyYear {
    let AnyYear { moment, text } = any_year(moment);
    AnyYear { moment, text: text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

macro_rules! impl_expression {
    ($time:ident) => {
        impl Expression for $time {
            type SqlType = Timestamp;
        }

        impl<GroupBy> ValidGrouping<GroupBy> for $time {
            type IsAggregate = is_aggregate::Never;
        }

        impl<Table> SelectableExpression<Table> for $time {}
        impl<Table> AppearsOnTable<Table> for $time {}

        impl QueryFragment<MultiBackend> for $time {
            fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, MultiBackend>) -> QueryResult<()> {
                MultiBackend::walk_variant_ast(self, out)
            }
        }
    };
}

impl_expression!(DbClock);
impl_expression!(AnyYear);
