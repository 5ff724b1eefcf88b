//! `sql` and `toml` blocks: executed on the engine that they are for, loaded as configuration.

use diesel::connection::SimpleConnection as _;

use super::tables::load_text;
use super::{Block, all_blocks};
use crate::each_engine;
use crate::support::db::Raw;
use crate::support::{EngineUnderTest, TestDb};

/// As it is written: the double quotes of `TestDb::execute` would be turned into backquotes, those of JSON too.
fn execute_as_written(db: &TestDb, block: &Block) {
    let result = match db.raw() {
        Raw::Sqlite(mut conn) => conn.batch_execute(&block.text),
        Raw::Postgres(mut conn) => conn.batch_execute(&block.text),
        Raw::Mysql(mut conn) => conn.batch_execute(&block.text),
    };
    result.unwrap_or_else(|error| panic!("{}: {error}", block.place()));
}

each_engine! {
    fn the_sql_of_the_documents_works(db) {
        let engine = match db.engine {
            EngineUnderTest::Sqlite => "sqlite",
            EngineUnderTest::Postgres => "postgres",
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "mysql",
        };
        // What an application has besides.
        db.execute("CREATE TABLE orders (id integer, status varchar(20)); INSERT INTO orders VALUES (17, 'new')");
        let mut inserts = 0;
        for block in all_blocks() {
            let is_for_us = block.words.len() == 1 || block.words.iter().any(|word| word == engine);
            if block.is("sql") && is_for_us {
                execute_as_written(db, &block);
                let queueing = ["INSERT INTO TaskQueue (", "INSERT INTO \"TaskQueue\" ("];
                inserts += queueing.iter().map(|words| block.text.matches(words).count()).sum::<usize>();
            }
        }
        assert!(inserts > 1, "{inserts}");
        let queued = db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\"");
        assert_eq!(usize::try_from(queued).unwrap(), inserts);
    }
}

#[test]
fn every_configuration_of_the_documents_loads() {
    let mut count = 0;
    for block in all_blocks().into_iter().filter(|block| block.is("toml")) {
        load_text(&block.text).unwrap_or_else(|error| panic!("{}: {error}", block.place()));
        count += 1;
    }
    assert!(count > 2, "{count}");
}
