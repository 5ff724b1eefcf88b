//! Migrations: pending ones, applying them, and refused ones.

use std::path::PathBuf;

use taskqueue_engine::StoreError;
use taskqueue_store::Store;

use super::fixture::*;
use super::schema::SCHEMA;
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{EngineUnderTest, TestDb};

/// Returns the migrations of an engine, oldest first.
fn folders(db: &TestDb) -> Vec<PathBuf> {
    let engine = match db.engine {
        EngineUnderTest::Sqlite => "sqlite",
        EngineUnderTest::Postgres => "postgres",
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "mysql",
    };
    let all = PathBuf::from(env!("REPOSITORY_DIR")).join("migrations").join(engine);
    let mut folders: Vec<_> = std::fs::read_dir(all).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders
}

/// Reverts every migration with its down.sql.
fn revert(db: &TestDb) {
    for folder in folders(db).into_iter().rev() {
        db.execute(&std::fs::read_to_string(folder.join("down.sql")).unwrap());
    }
    db.execute("DELETE FROM __diesel_schema_migrations");
}

fn our_tables(db: &TestDb) -> i64 {
    db.number(match db.engine {
        EngineUnderTest::Sqlite => "SELECT COUNT(*) AS value FROM sqlite_schema WHERE type = 'table' AND name LIKE 'TaskQueue%'",
        EngineUnderTest::Postgres =>
            "SELECT COUNT(*) AS value FROM information_schema.tables WHERE table_schema = 'public' AND table_name LIKE 'TaskQueue%'",
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql =>
            "SELECT COUNT(*) AS value FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'TaskQueue%'",
    })
}

fn newest(db: &TestDb) -> String {
    folders(db).last().unwrap().file_name().unwrap().to_str().unwrap().to_owned()
}

each_engine! {
    fn down_takes_everything_away_and_up_makes_a_store_that_works(db) {
        let tables = our_tables(db);
        assert_eq!(tables, i64::try_from(SCHEMA.len()).unwrap());
        revert(db);
        assert_eq!(our_tables(db), 0);
        assert_eq!(Store::connect(&db.url()).unwrap().migrate().unwrap().newly_applied.len(), folders(db).len());
        assert_eq!(our_tables(db), tables);
        work_once(db, &mut willing(db));
    }

    fn every_engine_has_migrations_of_the_same_names(db) {
        let names = |mut path: PathBuf, engine: &str| {
            path.push(engine);
            let mut names: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let all = PathBuf::from(env!("REPOSITORY_DIR")).join("migrations");
        let own: Vec<_> = folders(db).into_iter().map(|folder| folder.file_name().unwrap().to_owned()).collect();
        assert_eq!(own, names(all, "sqlite"));
    }

    fn migrate_dry_run_shows_what_is_pending_and_changes_nothing(db) {
        revert(db);
        let shown = db.cli().run(&["db", "migrate", "--dry-run"]).ok();
        assert!(shown.contains("pending") && shown.contains(&newest(db)) && !shown.contains("applied"), "{shown}");
        assert_eq!(our_tables(db), 0);
        let line = db.cli().run(&["db", "migrate", "--dry-run", "--json"]).ok();
        let line: serde_json::Value = serde_json::from_str(line.lines().last().unwrap()).unwrap();
        assert_eq!((&line["name"], &line["applied"]), (&newest(db).into(), &false.into()));
    }

    fn migrate_applies_what_is_pending_once(db) {
        revert(db);
        let first = db.cli().run(&["db", "migrate"]);
        assert!(first.code == Some(0) && first.stderr.contains("applied"), "{first:?}");
        let second = db.cli().run(&["db", "migrate"]);
        assert!(second.code == Some(0) && second.stderr.contains("nothing to migrate"), "{second:?}");
        let shown = db.cli().run(&["db", "migrate", "--dry-run"]).ok();
        assert!(shown.contains("applied") && !shown.contains("pending"), "{shown}");
    }

    fn sqlite_migrates_by_itself_and_servers_ask_for_migrate(db) {
        revert(db);
        let ended = db.cli().run(&["status"]);
        if db.engine == EngineUnderTest::Sqlite {
            assert_eq!(ended.code, Some(0), "{ended:?}");
            assert_eq!(our_tables(db), i64::try_from(SCHEMA.len()).unwrap());
        } else {
            let said = ended.fails(78);
            assert!(said.contains("pending") && said.contains("hint: taskqueue db migrate\n"), "{said}");
            assert_eq!(our_tables(db), 0);
        }
    }

    fn a_newer_schema_is_refused_by_every_verb(db) {
        db.execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('99991231000000')");
        db.configure("[class.work]\nargv = [\"/bin/true\"]\n");
        for args in [
            &["status"][..],
            &["queue", "work"],
            &["tick"],
            &["create-runs"],
            &["process-run"],
            &["db", "migrate"],
            &["db", "migrate", "--dry-run"],
        ] {
            let said = db.cli().run(args).fails(78);
            assert!(
                said.contains("newer") && said.contains("99991231000000") && said.contains("hint: "),
                "{args:?}: {said}"
            );
        }
        assert!(matches!(Store::open(&db.url()), Err(StoreError::NewerSchema { .. })));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 0);
    }

    fn a_store_of_an_unreleased_version_is_refused_by_every_verb(db) {
        db.execute("UPDATE __diesel_schema_migrations SET version = '20261121000000'");
        for args in [&["status"][..], &["queue", "--any-class", "work"], &["tick"], &["db", "migrate"], &["db", "migrate", "--dry-run"]] {
            let said = db.cli().run(args).fails(78);
            assert!(said.contains("older, unreleased") && said.contains("20261121000000"), "{args:?}: {said}");
            assert!(said.contains("taskqueue import"), "{args:?}: {said}");
        }
        assert!(matches!(Store::open(&db.url()), Err(StoreError::OlderSchema { .. })));
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 0);
    }

    fn eight_processes_that_migrate_at_once_make_one_schema(db) {
        revert(db);
        let children: Vec<_> = (0..8).map(|_| db.cli().spawn(&["db", "migrate"])).collect();
        let ended: Vec<_> = children.into_iter().map(finish).collect();
        assert!(ended.iter().all(|ended| ended.code == Some(0)), "{ended:?}");
        assert_eq!(ended.iter().filter(|ended| ended.stderr.contains("applied")).count(), 1, "{ended:?}");
        assert_eq!(our_tables(db), i64::try_from(SCHEMA.len()).unwrap());
        let applied = i64::try_from(folders(db).len()).unwrap();
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM __diesel_schema_migrations"), applied);
        work_once(db, &mut willing(db));
    }
}

/// The date of the tables and a checksum of each engine's statements. Before the first release they are changed in place.
const TABLES: (&str, u64) = ("2026-11-29-040000_create_task_queue", 0x6c98_1846_f7ea_85eb);

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[test]
fn tables_that_change_have_a_new_date_so_that_older_ones_are_refused() {
    let all = PathBuf::from(env!("REPOSITORY_DIR")).join("migrations");
    let statements = ["sqlite", "postgres", "mysql"].map(|engine| {
        std::fs::read(all.join(engine).join(TABLES.0).join("up.sql")).expect("the date of the tables in TABLES")
    });
    assert_eq!(
        checksum(&statements.concat()),
        TABLES.1,
        "give the folders a new date, and TABLES the date and this checksum"
    );
}
