//! One connection type for the three clients. Diesel derives the backend `MultiBackend` from it.

/// A connection to any of the engines for which this build has a client.
#[derive(diesel::MultiConnection)]
pub(crate) enum AnyConnection {
    /// SQLite
    #[cfg(feature = "sqlite")]
    Sqlite(diesel::sqlite::SqliteConnection),
    /// PostgreSQL
    #[cfg(feature = "postgres")]
    Postgres(diesel::pg::PgConnection),
    /// MySQL or MariaDB
    #[cfg(feature = "mysql")]
    Mysql(diesel::mysql::MysqlConnection),
}

/// A `match` on a connection or an engine, without the arms of the engines for which this build has no client.
macro_rules! by_engine {
    (match $by:ident $(. $method:ident ())? { $($arms:tt)* }) => { by_engine!(@ [$by $(. $method())?] [] $($arms)*) };
    (@ [$($by:tt)*] [$($done:tt)*]) => { match $($by)* { $($done)* } };
    // Engines with the same code get an arm each.
    (@ $by:tt $done:tt $of:ident::$engine:ident $(($own:tt))? | $($rest:tt)*) => {
        by_engine!(@@ $by $done [$of::$engine $(($own))?] $($rest)*)
    };
    (@@ $by:tt $done:tt [$($first:tt)*] $of:ident::$engine:ident $(($own:tt))? => $body:expr $(, $($rest:tt)*)?) => {
        by_engine!(@ $by $done $($first)* => $body, $of::$engine $(($own))? => $body, $($($rest)*)?)
    };
    (@ $by:tt [$($done:tt)*] $of:ident::Sqlite $(($own:tt))? => $body:expr $(, $($rest:tt)*)?) => {
        by_engine!(@ $by [$($done)* #[cfg(feature = "sqlite")] $of::Sqlite $(($own))? => $body,] $($($rest)*)?)
    };
    (@ $by:tt [$($done:tt)*] $of:ident::Postgres $(($own:tt))? => $body:expr $(, $($rest:tt)*)?) => {
        by_engine!(@ $by [$($done)* #[cfg(feature = "postgres")] $of::Postgres $(($own))? => $body,] $($($rest)*)?)
    };
    (@ $by:tt [$($done:tt)*] $of:ident::Mysql $(($own:tt))? => $body:expr $(, $($rest:tt)*)?) => {
        by_engine!(@ $by [$($done)* #[cfg(feature = "mysql")] $of::Mysql $(($own))? => $body,] $($($rest)*)?)
    };
    // All others, if there are any.
    (@ $by:tt [$($done:tt)*] _ => $body:expr $(,)?) => {
        by_engine!(@ $by [$($done)* #[allow(unreachable_patterns)] _ => $body,])
    };
}
pub(crate) use by_engine;
