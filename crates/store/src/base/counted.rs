//! Numbers of rows that are counted up to a limit.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::BigInt;
use serde::Serialize;

/// The highest exact count of `status`; beyond it, a count is shown as "or more".
pub(crate) const COUNT_LIMIT: i64 = 10_000;

/// A number of rows, exact up to a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// The counted number.
    pub count: i64,
    /// Whether there are more.
    pub or_more: bool,
}

/// The number of rows of a query. The database counts them; a client would first receive all of them.
#[derive(Clone, Copy, Debug, QueryId)]
pub(crate) struct NumberOf<Q>(Q);

impl<Q, DB: Backend> QueryFragment<DB> for NumberOf<Q>
where
    Q: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT COUNT(*) FROM (");
        self.0.walk_ast(out.reborrow())?;
        out.push_sql(") AS counted");
        Ok(())
    }
}

impl<Q> Query for NumberOf<Q> {
    type SqlType = BigInt;
}

impl<Q, Conn> RunQueryDsl<Conn> for NumberOf<Q> {}

/// Counts the rows of a query that selects a column, up to the limit. A macro, because its bounds would be longer.
macro_rules! count_up_to {
    ($limit:expr, $rows:expr, $conn:expr) => {
        $crate::base::counted::number_of($rows.limit($limit + 1))
            .get_result::<i64>($conn)
            .map(|count| $crate::base::counted::Counted::up_to($limit, count))
    };
}
pub(crate) use count_up_to;

pub(crate) const fn number_of<Q>(rows: Q) -> NumberOf<Q> {
    NumberOf(rows)
}

impl Counted {
    /// Returns the result of counting up to `limit` rows.
    pub(crate) const fn up_to(limit: i64, count: i64) -> Self {
        Self { count: if count > limit { limit } else { count }, or_more: count > limit }
    }

    /// Returns true if there are any, or if there may be.
    #[must_use]
    pub const fn has_any(self) -> bool {
        self.count > 0 || self.or_more
    }

    /// Subtracts rows that were counted too. If not all rows were counted, they may be among the uncounted ones.
    pub(crate) fn without(self, others: i64) -> Self {
        if self.or_more { self } else { Self { count: (self.count - others).max(0), ..self } }
    }

    /// Adds rows.
    pub(crate) fn and(self, others: i64) -> Self {
        Self { count: self.count + others, ..self }
    }
}
