//! `taskqueue db`: backups that are complete, and a check that finds what is wrong.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::thread;

use serde_json::{Value, json};

use super::ECHO;
use crate::each_engine;
use crate::support::EngineUnderTest;

each_engine! {
    fn a_backup_is_complete_while_others_write_and_servers_name_their_tool(db) {
        db.configure(ECHO);
        let cli = db.cli();
        let file = db.home().join("copy.db");
        let name = file.to_str().unwrap();
        for _ in 0..3 {
            cli.run(&["queue", "echo"]).ok();
        }
        if db.engine != EngineUnderTest::Sqlite {
            let tool = if db.engine == EngineUnderTest::Postgres { "pg_dump --format=custom" } else { "mysqldump --single-transaction" };
            let ended = cli.run(&["db", "backup", name]);
            assert_eq!(ended.code, Some(2), "{ended:?}");
            let hint = ended.stderr.lines().last().unwrap();
            assert!(hint.starts_with(&format!("hint: {tool}")) && hint.contains(name), "{hint}");
            assert!(!file.exists());
            return;
        }
        // What a backup left that was killed.
        fs::write(db.home().join("copy.db.unfinished"), "half").unwrap();
        thread::scope(|scope| {
            let queue_five = || (0..5).map(|_| db.cli().run(&["queue", "echo"]).ok()).collect::<Vec<_>>();
            let others = scope.spawn(queue_five);
            let line = cli.run(&["db", "backup", name, "--json"]).ok();
            let made: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(made["size_bytes"], json!(fs::metadata(&file).unwrap().len()));
            assert_eq!(others.join().unwrap().len(), 5);
        });
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!db.home().join("copy.db.unfinished").exists());
        let ended = cli.run(&["db", "backup", name]);
        assert!(ended.code == Some(1) && ended.stderr.contains("--replace"), "{ended:?}");
        cli.run(&["db", "backup", name, "--replace"]).ok();
        let copy = db.cli().without_env("TASKQUEUE_DATABASE_URL").env("TASKQUEUE_DATABASE_URL", name);
        copy.run(&["db", "check"]).ok();
        copy.run(&["tick", "--max-runs", "20"]).ok();
        let of_copy = copy.run(&["status", "status=success", "--output", "id"]).ok();
        assert_eq!(of_copy.lines().count(), 8, "{of_copy}");
        cli.run(&["status", "status=success", "--output", "id"]).fails(3);
        assert_eq!(cli.run(&["db", "backup", "/no/such/place/copy.db"]).code, Some(1));
        // Without a store, there is nothing to back up.
        let none = db.cli().without_env("TASKQUEUE_DATABASE_URL");
        for verb in [&["db", "backup", "empty.db"][..], &["db", "check"]] {
            assert_eq!(none.run(verb).code, Some(69), "{verb:?}");
        }
        // A log of another store of this name would be applied to the copy.
        copy.run(&["queue", "echo"]).ok();
        let ended = cli.run(&["db", "backup", name, "--replace"]);
        assert!(ended.code == Some(2) && ended.stderr.contains("copy.db-wal exists"), "{ended:?}");
        // Neither the store nor what is no file is replaced.
        let store = db.url_text().trim_start_matches("sqlite://").to_owned();
        let directory = db.home().to_str().unwrap().to_owned();
        for precious in [store.clone(), format!("{store}-wal"), directory] {
            let ended = cli.run(&["db", "backup", "--replace", &precious]);
            assert!(ended.code == Some(2) && ended.stderr.contains(&precious), "{ended:?}");
        }
        assert_eq!(cli.run(&["status", "--output", "id"]).ok().lines().count(), 8);
    }

    fn a_check_finds_rows_that_contradict_each_other(db) {
        db.configure(ECHO);
        for _ in 0..3 {
            db.cli().run(&["queue", "echo"]).ok();
        }
        db.cli().run(&["create-runs"]).ok();
        assert!(db.cli().run(&["db", "check"]).stderr.contains("no damage found"));
        assert_eq!(db.cli().run(&["db", "check", "--json"]).ok(), "{\"problems\":[]}");
        db.execute("UPDATE \"TaskQueue\" SET \"WaitingFor\" = 2 WHERE \"Id\" = 1");
        db.execute("UPDATE \"TaskQueue\" SET \"CurrentRunId\" = 99 WHERE \"Id\" = 2");
        db.execute("DELETE FROM \"TaskQueue\" WHERE \"Id\" = 3");
        let ended = db.cli().run(&["db", "check", "--json"]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let found: Value = serde_json::from_str(&ended.stdout).unwrap();
        let kinds: Vec<&Value> = found["problems"].as_array().unwrap().iter().map(|it| &it["kind"]).collect();
        assert_eq!(kinds, ["runs_without_task", "tasks_without_run", "wrong_waiting_for"]);
        let text = db.cli().run(&["db", "check"]);
        assert!(text.stdout.contains("the first of task 3") && text.stderr.contains("3 problems found"), "{text:?}");
    }

    fn a_check_of_a_damaged_file_reports_what_the_engine_cannot_read(db) {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        if db.engine != EngineUnderTest::Sqlite {
            // Damage to the files of a server is not possible without stopping it: there, a healthy one has none.
            db.cli().run(&["db", "check"]).ok();
            return;
        }
        let name = db.home().join("copy.db");
        db.cli().run(&["db", "backup", name.to_str().unwrap()]).ok();
        let file = fs::OpenOptions::new().read(true).write(true).open(&name).unwrap();
        let pages = file.metadata().unwrap().len() / 4096;
        // Each page of the second half, whether of a table or of an index: its first byte says which, and the rest is its content.
        for (page, damage) in (pages / 2..pages).flat_map(|page| [(page, &[0xff; 1][..]), (page, &[0xff; 4096])]) {
            let mut whole = vec![0; damage.len()];
            file.read_exact_at(&mut whole, page * 4096).unwrap();
            file.write_all_at(damage, page * 4096).unwrap();
            let ended = db.cli().run(&["--database", name.to_str().unwrap(), "db", "check"]);
            // Without the table of migrations, the store cannot even be opened.
            let is_reported = ended.code == Some(1) && ended.stdout.contains("the engine reports: ");
            let is_refused = ended.code == Some(69) && ended.stderr.contains("the file is damaged");
            assert!(is_reported || is_refused, "{page}: {ended:?}");
            file.write_all_at(&whole, page * 4096).unwrap();
        }
        db.cli().run(&["--database", name.to_str().unwrap(), "db", "check"]).ok();
    }
}
