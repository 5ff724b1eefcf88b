//! What tests stand on: a database of their own on each engine, the program as a user runs it, waiting with a limit.

pub mod cli;
pub mod database;
pub mod db;
pub mod own_server;
pub mod standby;
pub mod wait;

pub use self::cli::{Cli, Ended};
pub use self::db::{EngineUnderTest, TestDb};
pub use self::wait::wait_until;

/// Makes a module with one test for each engine out of a function that takes `&TestDb`.
#[macro_export]
macro_rules! each_engine {
    ($(fn $name:ident($db:ident) $body:block)+) => { $(
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            #[allow(unused_variables)]
            fn check($db: &$crate::support::TestDb) $body
            #[test]
            fn sqlite() { $crate::support::db::on($crate::support::EngineUnderTest::Sqlite, check); }
            #[test]
            fn postgres() { $crate::support::db::on($crate::support::EngineUnderTest::Postgres, check); }
            #[test]
            fn mariadb() { $crate::support::db::on($crate::support::EngineUnderTest::Mariadb, check); }
            #[test]
            fn mysql() { $crate::support::db::on($crate::support::EngineUnderTest::Mysql, check); }
        }
    )+ };
}
