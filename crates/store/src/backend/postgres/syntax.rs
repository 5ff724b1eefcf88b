//! Values and expressions as PostgreSQL writes and reads them.

use diesel::pg::{Pg, PgConnection};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{BigInt, Timestamp};

use crate::backend::insert_one::{InsertOne, Spelling, walk};
use crate::base::cells::TypedCell;
use crate::base::sql::{AnyYear, DbClock, SqlMoment};

impl ToSql<Timestamp, Pg> for SqlMoment {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        ToSql::<Timestamp, Pg>::to_sql(&self.0, out)
    }
}

impl QueryFragment<Pg> for AnyYear {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_bind_param::<Timestamp, _>(&self.moment)
    }
}

impl QueryFragment<Pg> for DbClock {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("(clock_timestamp() + ");
        out.push_bind_param::<BigInt, _>(&self.plus_secs)?;
        out.push_sql(" * interval '1 second')");
        Ok(())
    }
}

impl TypedCell for Pg {}

const SPELLING: Spelling = Spelling {
    quote: '"',
    now: "clock_timestamp()",
    before_time: "CAST(CAST(",
    after_time: " AS text) || '+00' AS timestamptz)",
};

impl QueryFragment<Pg> for InsertOne<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        walk(self, &mut out, &SPELLING)?;
        out.push_sql(" RETURNING \"Id\"");
        Ok(())
    }
}

impl RunQueryDsl<PgConnection> for InsertOne<'_> {}
