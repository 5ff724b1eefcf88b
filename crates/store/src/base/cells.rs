//! Column values that another program may have written. SQLite accepts any bytes as text and any text as a time, and servers
//! accept times that are invalid here. Reading an invalid value never fails, so that one row cannot fail a query.

use chrono::{DateTime, Utc};
use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::sql_types::is_nullable::NotNull;
use diesel::sql_types::{Integer, Nullable, SqlType, Text, Timestamp};

use crate::base::connection::MultiBackend;
use crate::base::sql::SqlMoment;
use taskqueue_domain::text::unreadable::{StoredText, Unreadable};

/// A value, or the content of the column if it cannot be read.
#[derive(Clone, Debug, FromSqlRow)]
pub(crate) struct Cell<T>(Result<T, UnreadableCell>);

#[derive(Clone, Debug)]
enum UnreadableCell {
    Text(StoredText),
    /// In a printable form.
    Other(String),
}

impl<T> Cell<T> {
    /// Returns the value.
    ///
    /// # Errors
    /// The column cannot be read.
    pub(crate) fn read(self, column: &'static str) -> Result<T, Unreadable> {
        self.0.map_err(|found| match found {
            UnreadableCell::Text(text) => Unreadable::of_text(column, text),
            UnreadableCell::Other(found) => Unreadable { column, found, text: None },
        })
    }
}

impl<T, ST, DB> FromSql<ST, DB> for Cell<T>
where
    DB: Backend,
    T: FromSql<ST, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        Ok(Self(T::from_sql(value).map_err(|error| match error.downcast::<StoredText>() {
            Ok(text) => UnreadableCell::Text(*text),
            Err(error) => UnreadableCell::Other(error.to_string()),
        })))
    }
}

/// An engine that stores only values of the column's type.
pub(crate) trait TypedCell: Backend {}

/// Text exactly as stored. Reading fails if it is not UTF-8; the error shows the bytes.
#[derive(Clone, Debug, PartialEq, Eq, FromSqlRow)]
pub(crate) struct ExactText(pub(crate) String);

impl<DB> FromSql<Text, DB> for ExactText
where
    DB: TypedCell,
    String: FromSql<Text, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        String::from_sql(value).map(Self)
    }
}

impl FromSql<Text, MultiBackend> for ExactText {
    fn from_sql(value: <MultiBackend as Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        value.from_sql::<Self, Text>()
    }
}

/// Text of a column with JSON, exactly as stored. Older versions of SQLite accept any text after a NUL, which no parser reads.
#[derive(Clone, Debug, PartialEq, Eq, FromSqlRow)]
pub(crate) struct JsonText(pub(crate) String);

impl<DB> FromSql<Text, DB> for JsonText
where
    DB: Backend,
    ExactText: FromSql<Text, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        let text = ExactText::from_sql(value)?.0;
        if text.contains('\0') { Err(Box::new(StoredText::from(text.as_bytes()))) } else { Ok(Self(text)) }
    }
}

/// Text for people: bytes that are not UTF-8 are replaced by a printable form.
#[derive(Clone, Debug, PartialEq, Eq, FromSqlRow)]
pub(crate) struct ShownText(pub(crate) String);

impl<DB> FromSql<Text, DB> for ShownText
where
    DB: Backend,
    ExactText: FromSql<Text, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        Ok(Self(ExactText::from_sql(value).map_or_else(|error| error.to_string(), |text| text.0)))
    }
}

impl From<ExactText> for String {
    fn from(text: ExactText) -> Self {
        text.0
    }
}

impl From<JsonText> for String {
    fn from(text: JsonText) -> Self {
        text.0
    }
}

impl From<ShownText> for String {
    fn from(text: ShownText) -> Self {
        text.0
    }
}

/// A time. One that cannot be read counts as long past: a lease has then expired, a hold has ended, and a cancellation is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, FromSqlRow)]
pub(crate) struct TimeOrPast(pub(crate) SqlMoment);

impl<DB> FromSql<Timestamp, DB> for TimeOrPast
where
    DB: Backend,
    SqlMoment: FromSql<Timestamp, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        Ok(Self(SqlMoment::from_sql(value).unwrap_or_else(|_| SqlMoment::beginning())))
    }
}

impl From<TimeOrPast> for SqlMoment {
    fn from(time: TimeOrPast) -> Self {
        time.0
    }
}

impl From<TimeOrPast> for DateTime<Utc> {
    fn from(time: TimeOrPast) -> Self {
        time.0.into()
    }
}

/// A value of a column that may be NULL, for `deserialize_as`: it converts with `Into`, which Rust allows no crate to implement
/// for an `Option`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromSqlRow)]
pub(crate) struct Maybe<T>(Option<T>);

impl<ST, DB, T> FromSql<Nullable<ST>, DB> for Maybe<T>
where
    DB: Backend,
    ST: SqlType<IsNull = NotNull>,
    T: FromSql<ST, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        T::from_sql(value).map(|value| Self(Some(value)))
    }

    fn from_nullable_sql(value: Option<DB::RawValue<'_>>) -> deserialize::Result<Self> {
        value.map_or(Ok(Self(None)), Self::from_sql)
    }
}

impl From<Maybe<ShownText>> for Option<String> {
    fn from(text: Maybe<ShownText>) -> Self {
        text.0.map(String::from)
    }
}

impl From<Maybe<TimeOrPast>> for Option<SqlMoment> {
    fn from(time: Maybe<TimeOrPast>) -> Self {
        time.0.map(SqlMoment::from)
    }
}

/// A 32-bit number. SQLite stores larger ones in the same column, and Diesel drops their upper half without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromSqlRow)]
pub(crate) struct ExactInt(pub(crate) i32);

impl<DB> FromSql<Integer, DB> for ExactInt
where
    DB: TypedCell,
    i32: FromSql<Integer, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        i32::from_sql(value).map(Self)
    }
}

impl FromSql<Integer, MultiBackend> for ExactInt {
    fn from_sql(value: <MultiBackend as Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        value.from_sql::<Self, Integer>()
    }
}
