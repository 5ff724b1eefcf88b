//! A handler that fills the disk on which its outcome is to stand: a small file system with the spool on it, and on SQLite
//! the store too, which only the commands of a test see.

use std::fs;
use std::path::Path;

use super::stage::is_root;
use crate::support::cli::Ended;
use crate::support::{EngineUnderTest, TestDb};
use crate::{each_engine, test_on};

/// $disk is the small file system. Its task has its run when this is done.
const BEGIN: &str = r#"
    program=$1 disk=$2 TASKQUEUE_DATABASE_URL=$3
    export TASKQUEUE_DATABASE_URL
    mount -t tmpfs -o size=8m,mode=700 tmpfs "$disk" || exit 90
    task=$("$program" queue fill) && "$program" create-runs || exit 91
"#;
/// Whoever holds it has written how the run ended.
const UNTIL_IT_IS_KEPT: &str = r#"
    looks=0
    until [ -s "$disk"/spool/*-0 ]; do
        looks=$((looks + 1))
        [ $looks -lt 1200 ] || exit 92
        sleep 0.05
    done
"#;
const SHOW: &str = r#"
    "$program" status --json "$task"
"#;

/// Runs this after the beginning, with a class `fill` whose handler writes much, fills the disk and succeeds.
fn on_a_small_disk(db: &TestDb, script: &str) -> Ended {
    let disk = db.home().join("disk");
    fs::create_dir(&disk).unwrap();
    let (home, disk) = (db.home().to_str().unwrap(), disk.to_str().unwrap());
    let handler = format!(
        "echo ran >> {home}/ran\nhead -c 200000 /dev/zero | tr '\\0' x\ncat /dev/zero > {disk}/ballast 2>/dev/null\nexit 0\n"
    );
    fs::write(db.home().join("fill.sh"), handler).unwrap();
    db.configure(&format!("spool = \"{disk}/spool\"\n[class.fill]\nargv = [\"/bin/sh\", \"{home}/fill.sh\"]\n"));
    let url = match db.engine {
        EngineUnderTest::Sqlite => format!("sqlite://{disk}/tasks.db"),
        _ => db.url_text().to_owned(),
    };
    let namespaces = if is_root() { "-m" } else { "-Urm" };
    let cli = db.cli().program(Path::new("/usr/bin/unshare"));
    cli.run(&[namespaces, "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_taskqueue"), disk, &url])
}

/// The handler ran once, and that is what the task says.
#[track_caller]
fn has_succeeded_once(db: &TestDb, ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let after: serde_json::Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    let task = &after["task"];
    assert_eq!((&task["status"], &task["attempts"]), (&"success".into(), &1.into()), "{ended:?}");
    assert_eq!((&task["failed_retries"], &task["crashes"]), (&0.into(), &0.into()), "{ended:?}");
    assert_eq!(fs::read_to_string(db.home().join("ran")).unwrap(), "ran\n");
}

each_engine! {
    fn a_success_is_kept_on_the_disk_that_its_handler_has_filled(db) {
        // A server has its own disk; a SQLite store is waited for until it has room.
        let process = match db.engine {
            EngineUnderTest::Sqlite => {
                let free = "rm \"$disk/ballast\"; wait $runner || exit 93\n";
                format!("\"$program\" process-run & runner=$!\n{UNTIL_IT_IS_KEPT}{free}")
            }
            _ => "\"$program\" process-run || exit 93\n".to_owned(),
        };
        let ended = on_a_small_disk(db, &format!("{BEGIN}{process}{SHOW}"));
        has_succeeded_once(db, &ended);
        assert!(!ended.stderr.contains("cannot be kept"), "{ended:?}");
    }
}

test_on! {
    [sqlite Sqlite] a_disk_that_stays_full_is_told_with_what_waits_for_it db {
        // Who says "stop" twice does not want to wait for room either.
        let give_up = r#"
            env --default-signal "$program" process-run & runner=$!
        "#;
        let afterwards = r#"
            kill -INT $runner; kill -TERM $runner; wait $runner; echo "ended with $?"
            cat /dev/zero >> "$disk/ballast" 2>/dev/null
            "$program" queue fill; echo "ended with $?"
            rm "$disk/ballast"
            "$program" create-runs || exit 94
        "#;
        let ended = on_a_small_disk(db, &format!("{BEGIN}{give_up}{UNTIL_IT_IS_KEPT}{afterwards}{SHOW}"));
        has_succeeded_once(db, &ended);
        assert_eq!(ended.stdout.matches("ended with 69\n").count(), 2, "{ended:?}");
        assert!(ended.stderr.contains("run 1 of task 1 has ended (success), but that could not be recorded: "), "{ended:?}");
        assert!(ended.stderr.contains(&format!("it is kept in {}/disk/spool", db.home().display())), "{ended:?}");
        assert!(ended.stderr.contains("is the disk full?"), "{ended:?}");
    }
}
