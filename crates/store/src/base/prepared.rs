//! Hand-written statements that the connection keeps prepared.
//!
//! Diesel prepares every `sql_query` and every UPDATE again. For a statement that changes one row by its key, parsing and
//! planning cost more than the execution.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::connection::Connection;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::query_dsl::RunQueryDsl;
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{HasSqlType, Untyped};

/// A statement with its values.
#[derive(Clone, Debug)]
pub(crate) struct Prepared<'a, B> {
    bound: B,
    /// The text after the last value.
    rest: &'a str,
    is_kept: bool,
}

/// A value at its position.
#[derive(Clone, Debug)]
pub(crate) struct Bound<'a, B, T, V> {
    before: B,
    text: &'a str,
    value: V,
    sql_type: PhantomData<T>,
}

/// Returns a statement with this text, in which `?` is a placeholder on every engine and must not occur otherwise. It is kept as
/// long as its connection: there must be few different texts.
pub(crate) const fn prepared(text: &str) -> Prepared<'_, ()> {
    Prepared { bound: (), rest: text, is_kept: true }
}

/// Returns a statement with a text that is used only once.
pub(crate) const fn prepared_once(text: &str) -> Prepared<'_, ()> {
    Prepared { bound: (), rest: text, is_kept: false }
}

impl<'a, B> Prepared<'a, B> {
    /// Binds the value to the next placeholder.
    pub(crate) fn bind<T, V>(self, value: V) -> Prepared<'a, Bound<'a, B, T, V>> {
        // If no placeholder is left, the engine reports an error.
        let (text, rest) = self.rest.split_once('?').unwrap_or((self.rest, ""));
        Prepared {
            bound: Bound { before: self.bound, text, value, sql_type: PhantomData },
            rest,
            is_kept: self.is_kept,
        }
    }
}

impl<B> Query for Prepared<'_, B> {
    type SqlType = Untyped;
}

impl<B> QueryId for Prepared<'_, B> {
    type QueryId = ();

    /// Cached by its text.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<B, C: Connection> RunQueryDsl<C> for Prepared<'_, B> {}

impl<B, DB> QueryFragment<DB> for Prepared<'_, B>
where
    DB: Backend,
    B: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if !self.is_kept {
            pass.unsafe_to_cache_prepared();
        }
        self.bound.walk_ast(pass.reborrow())?;
        pass.push_sql(self.rest);
        Ok(())
    }
}

impl<B, T, V, DB> QueryFragment<DB> for Bound<'_, B, T, V>
where
    DB: Backend + HasSqlType<T>,
    B: QueryFragment<DB>,
    V: ToSql<T, DB>,
{
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.before.walk_ast(pass.reborrow())?;
        pass.push_sql(self.text);
        pass.push_bind_param::<T, V>(&self.value)
    }
}
