//! Values and expressions as MySQL and MariaDB write and read them.

use diesel::mysql::{Mysql, MysqlConnection};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{BigInt, Text, Timestamp};

use crate::backend::insert_one::{InsertOne, Spelling, walk};
use crate::base::cells::TypedCell;
use crate::base::sql::{AnyYear, DbClock, SqlMoment};

impl ToSql<Timestamp, Mysql> for SqlMoment {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Mysql>) -> serialize::Result {
        ToSql::<Timestamp, Mysql>::to_sql(&self.0, out)
    }
}

impl QueryFragment<Mysql> for AnyYear {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        out.push_sql("CAST(");
        out.push_bind_param::<Text, _>(&self.text)?;
        out.push_sql(" AS DATETIME(6))");
        Ok(())
    }
}

impl QueryFragment<Mysql> for DbClock {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        out.push_sql("(UTC_TIMESTAMP(6) + INTERVAL ");
        out.push_bind_param::<BigInt, _>(&self.plus_secs)?;
        out.push_sql(" SECOND)");
        Ok(())
    }
}

impl TypedCell for Mysql {}

const SPELLING: Spelling =
    Spelling { quote: '`', now: "UTC_TIMESTAMP(6)", before_time: "CAST(", after_time: " AS DATETIME(6))" };

impl QueryFragment<Mysql> for InsertOne<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        walk(self, &mut out, &SPELLING)
    }
}

impl RunQueryDsl<MysqlConnection> for InsertOne<'_> {}
