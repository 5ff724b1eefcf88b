//! Values and expressions as SQLite writes and reads them.

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{BigInt, Integer, Text, Timestamp};
use diesel::sqlite::{Sqlite, SqliteConnection};

use crate::backend::insert_one::{InsertOne, Spelling, walk};
use crate::base::cells::{ExactInt, ExactText};
use crate::base::sql::{AnyYear, DbClock, SqlMoment};
use taskqueue_domain::text::unreadable::StoredText;

// Differs by necessity: Diesel writes as many decimals as an instant has. SQLite compares the columns as text, so they always get
// six.
impl ToSql<Timestamp, Sqlite> for SqlMoment {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        out.set_value(self.0.format("%F %T%.6f").to_string());
        Ok(IsNull::No)
    }
}

impl QueryFragment<Sqlite> for AnyYear {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_bind_param::<Text, _>(&self.text)
    }
}

impl QueryFragment<Sqlite> for DbClock {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("strftime('%Y-%m-%d %H:%M:%f000', 'now', ");
        out.push_bind_param::<BigInt, _>(&self.plus_secs)?;
        out.push_sql(" || ' seconds')");
        Ok(())
    }
}

// Differs by necessity: SQLite stores any bytes, and Diesel's error does not contain them.
impl FromSql<Text, Sqlite> for ExactText {
    fn from_sql(mut value: <Sqlite as Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        let text = value.read_text();
        // Invalid UTF-8 is read as these characters; valid text may contain them too.
        if !text.contains(char::REPLACEMENT_CHARACTER) {
            return Ok(Self(text.to_owned()));
        }
        match str::from_utf8(value.read_blob()) {
            Ok(text) => Ok(Self(text.to_owned())),
            Err(_) => Err(StoredText::from(value.read_blob()).into()),
        }
    }
}

impl FromSql<Integer, Sqlite> for ExactInt {
    fn from_sql(mut value: <Sqlite as Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        let stored = value.read_long();
        Ok(Self(i32::try_from(stored).map_err(|_| stored.to_string())?))
    }
}

const SPELLING: Spelling =
    Spelling { quote: '"', now: "strftime('%Y-%m-%d %H:%M:%f000', 'now')", before_time: "", after_time: "" };

impl QueryFragment<Sqlite> for InsertOne<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        walk(self, &mut out, &SPELLING)?;
        out.push_sql(" RETURNING \"Id\"");
        Ok(())
    }
}

impl RunQueryDsl<SqliteConnection> for InsertOne<'_> {}
