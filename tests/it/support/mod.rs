//! The basis of all tests: a new database on each engine, the program as a user runs it, waiting with a limit.

pub mod cli;
pub mod database;
pub mod db;
pub mod exposition;
pub mod own_server;
pub mod proxy;
mod spare;
pub mod standby;
pub mod wait;

use std::path::{Path, PathBuf};

pub use self::cli::{Cli, Ended};
pub use self::db::{EngineUnderTest, TestDb};
pub use self::wait::wait_until;

/// Returns the path of a file of contrib.
pub fn contrib(name: &str) -> PathBuf {
    Path::new(env!("REPOSITORY_DIR")).join("contrib").join(name)
}

/// Creates a module with one test for each engine from a function that takes `&TestDb`.
#[macro_export]
macro_rules! each_engine {
    ($(fn $name:ident($db:ident) $body:block)+) => { $(
        $crate::test_on! { [sqlite Sqlite, postgres Postgres, mariadb Mariadb, mysql Mysql] $name $db $body }
    )+ };
}

/// Does the same for server engines only, so that SQLite is not counted without a check.
#[macro_export]
macro_rules! each_server {
    ($(fn $name:ident($db:ident) $body:block)+) => { $(
        $crate::test_on! { [postgres Postgres, mariadb Mariadb, mysql Mysql] $name $db $body }
    )+ };
}

/// Creates the module of one such function.
#[macro_export]
macro_rules! test_on {
    ([$($engine:ident $variant:ident),+] $name:ident $db:ident $body:block) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            #[allow(unused_variables)]
            fn check($db: &$crate::support::TestDb) $body
            $(
                #[test]
                fn $engine() { $crate::support::db::on($crate::support::EngineUnderTest::$variant, check); }
            )+
        }
    };
}
