//! Statements written out that the connection keeps prepared.
//!
//! Diesel prepares every statement of `sql_query`, and every UPDATE, anew. Parsing and planning cost more than the statement
//! itself where it changes one row by its key.

use diesel::backend::Backend;
use diesel::connection::Connection;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::query_dsl::RunQueryDsl;
use diesel::result::QueryResult;
use diesel::sql_types::Untyped;

/// A statement whose text is the same each time, but for its bound values.
#[derive(Clone, Debug)]
pub(super) struct Prepared<Q>(Q);

/// Lets the connection keep this statement. Its text must be one of a few: each is kept as long as the connection lives.
pub(super) fn prepared<Q>(statement: Q) -> Prepared<Q> {
    Prepared(statement)
}

impl<Q> Query for Prepared<Q> {
    type SqlType = Untyped;
}

impl<Q> QueryId for Prepared<Q> {
    type QueryId = ();

    /// Kept by its text.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Q, C: Connection> RunQueryDsl<C> for Prepared<Q> {}

impl<Q, DB> QueryFragment<DB> for Prepared<Q>
where
    DB: Backend,
    Q: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(pass)
    }

    fn is_safe_to_cache_prepared(&self, _backend: &DB) -> QueryResult<bool> {
        Ok(true)
    }
}
