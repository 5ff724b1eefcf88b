//! Statements written out that the connection keeps prepared.
//!
//! Diesel prepares every statement of `sql_query`, and every UPDATE, anew. Parsing and planning cost more than the statement
//! itself where it changes one row by its key.

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
    /// What follows the last value.
    rest: &'a str,
    is_kept: bool,
}

/// A value in its place.
#[derive(Clone, Debug)]
pub(crate) struct Bound<'a, B, T, V> {
    before: B,
    text: &'a str,
    value: V,
    sql_type: PhantomData<T>,
}

/// The statement with this text, in which `?` stands for a value on every engine and for nothing else. It is kept as long as
/// its connection lives: there may be few such texts.
pub(crate) const fn prepared(text: &str) -> Prepared<'_, ()> {
    Prepared { bound: (), rest: text, is_kept: true }
}

/// The same with a text that comes but once.
pub(crate) const fn prepared_once(text: &str) -> Prepared<'_, ()> {
    Prepared { bound: (), rest: text, is_kept: false }
}

impl<'a, B> Prepared<'a, B> {
    /// Puts the value in the next place.
    pub(crate) fn bind<T, V>(self, value: V) -> Prepared<'a, Bound<'a, B, T, V>> {
        // Where there is no place left, the engine says so.
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

    /// Kept by its text.
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
