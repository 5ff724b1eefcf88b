//! `sql` and `toml` blocks: executed on the engine that they are for, loaded as configuration.

use diesel::connection::SimpleConnection as _;
use taskqueue_domain::task::ids::TaskId;

use super::tables::load_text;
use super::{Block, all_blocks};
use crate::conformance::fixture::{context, create, drain, queue, task};
use crate::each_engine;
use crate::support::db::Raw;
use crate::support::{EngineUnderTest, TestDb};

/// Executes the block unchanged: `TestDb::execute` would replace its double quotes by backquotes, also those of JSON.
pub(super) fn try_as_written(db: &TestDb, block: &Block) -> Result<(), diesel::result::Error> {
    match db.raw() {
        Raw::Sqlite(mut conn) => conn.batch_execute(&block.text),
        Raw::Postgres(mut conn) => conn.batch_execute(&block.text),
        Raw::Mysql(mut conn) => conn.batch_execute(&block.text),
    }
}

pub(super) fn execute_as_written(db: &TestDb, block: &Block) {
    try_as_written(db, block).unwrap_or_else(|error| panic!("{}: {error}", block.place()));
}

/// Returns true if it is SQL for this engine.
pub(super) fn is_for(db: &TestDb, block: &Block) -> bool {
    let engine = if db.is_mysql_like() { "mysql" } else { db.engine.name() };
    block.is("sql") && block.words.iter().any(|word| word == engine)
}

/// Returns the block of a page that writes this table on this engine.
fn recipe(db: &TestDb, page: &str, table: &str) -> Block {
    let is_it = |block: &Block| {
        block.page == page
            && is_for(db, block)
            && block.text.replace('"', "").contains(&format!("INSERT INTO {table} ("))
    };
    all_blocks().into_iter().find(is_it).unwrap_or_else(|| panic!("{page} has no recipe for {table}"))
}

each_engine! {
    fn the_recipe_for_a_unique_task_queues_once_and_again_after_its_window(db) {
        let mut ctx = context(db, "report", |_| Ok(()));
        let count = || db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\"");
        let block = all_blocks()
            .into_iter()
            .find(|block| block.page == "docs/tasks.md" && block.text.contains("UniqueKey") && is_for(db, block))
            .unwrap();
        for _ in 0..2 {
            execute_as_written(db, &block);
            assert_eq!(count(), 1);
        }
        create(&mut ctx);
        assert_eq!(drain(&mut ctx).succeeded, 1);
        for (until, expected) in [("2099-01-01", 1), ("2020-01-01", 2)] {
            db.execute(&format!("UPDATE \"TaskQueue\" SET \"UniqueUntil\" = '{until} 00:00:00.000000'"));
            execute_as_written(db, &block);
            assert_eq!(count(), expected);
        }
    }

    fn the_recipe_for_a_task_after_others_waits_for_those_without_success(db) {
        let mut ctx = context(db, "step", |_| Ok(()));
        let (first, second) = (queue(&mut ctx, "step"), queue(&mut ctx, "step"));
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success' WHERE \"Id\" = 1");
        execute_as_written(db, &recipe(db, "docs/tasks.md", "TaskQueueDependencies"));
        let (waiting, links) = (task(db, TaskId(3)), db.store().list_prerequisites(TaskId(3), false, 9).unwrap());
        assert_eq!(waiting.waiting_for, 1);
        let links: Vec<_> = links.into_iter().map(|link| (link.id, link.is_satisfied)).collect();
        assert_eq!(links, [(first, true), (second, false)]);
        for (succeeded, left) in [(1, 1), (1, 0)] {
            create(&mut ctx);
            assert_eq!(drain(&mut ctx).succeeded, succeeded);
            assert_eq!(create(&mut ctx).created, left);
        }
    }

    fn the_sql_of_the_documents_works(db) {
        let engine = match db.engine {
            EngineUnderTest::Sqlite => "sqlite",
            EngineUnderTest::Postgres => "postgres",
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "mysql",
        };
        // Another table of an application.
        db.execute("CREATE TABLE orders (id integer, status varchar(20)); INSERT INTO orders VALUES (17, 'new')");
        let mut inserts = 0;
        for block in all_blocks() {
            let is_for_us = block.words.len() == 1 || block.words.iter().any(|word| word == engine);
            if block.is("sql") && is_for_us {
                execute_as_written(db, &block);
                // Not the other tables, whose names begin in the same way.
                inserts += block.text.replace('"', "").matches("INSERT INTO TaskQueue (").count();
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
