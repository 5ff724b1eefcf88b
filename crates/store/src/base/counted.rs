//! Numbers of rows that are counted up to a limit.

use serde::Serialize;

/// The highest exact count of `status`; beyond it, a count is shown as "or more".
pub(crate) const COUNT_LIMIT: i64 = 100_000;

/// A number of rows, exact up to a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// The counted number.
    pub count: i64,
    /// Whether there are more.
    pub or_more: bool,
}

impl Counted {
    /// Returns the result of counting up to `limit` rows.
    pub(crate) const fn up_to(limit: i64, count: i64) -> Self {
        Self { count: if count > limit { limit } else { count }, or_more: count > limit }
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
