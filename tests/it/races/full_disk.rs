//! A handler that fills the disk for its outcome: a small file system with the spool, and on SQLite also the store, which only
//! the commands of a test see. And a database that has no space for some of its rows.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use super::outage::signal;
use super::outcomes::spooled;
use super::stage::{column, is_root, shorten_leases, statuses};
use crate::support::cli::{Ended, finish};
use crate::support::db::{Raw, on};
use crate::support::{EngineUnderTest, TestDb, wait_until};
use crate::{each_engine, test_on};

/// `$disk` is the small file system. Afterwards the task has its run. Another program has removed the log of a SQLite store,
/// because the log could contain space that the disk does not have.
const BEGIN: &str = r#"
    program=$1 disk=$2 TASKQUEUE_DATABASE_URL=$3
    export TASKQUEUE_DATABASE_URL
    mount -t tmpfs -o size=8m,mode=700 tmpfs "$disk" || exit 90
    task=$("$program" queue fill) && "$program" create-runs || exit 91
    read='import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute("SELECT * FROM TaskQueue").fetchall()'
    [ ! -e "$disk/tasks.db" ] || python3 -c "$read" "$disk/tasks.db" || exit 91
"#;
/// Waits until the runner has written the outcome.
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

/// A large output, which is left out if there is no space, and a result, which is kept.
const WRITES: &str = "head -c 200000 /dev/zero | tr '\\0' x";
const HAS_A_RESULT: &str = r#"printf '{"result":"%s"}\n' "$(head -c 40000 /dev/zero | tr '\0' x)" >&3"#;

/// Runs `script` after the beginning, with a class `fill` whose handler fills the disk, runs `does` and succeeds.
fn on_a_small_disk(db: &TestDb, does: &str, script: &str) -> Ended {
    let disk = db.home().join("disk");
    fs::create_dir(&disk).unwrap();
    let (home, disk) = (db.home().to_str().unwrap(), disk.to_str().unwrap());
    let handler = format!("echo ran >> {home}/ran\ncat /dev/zero > {disk}/ballast 2>/dev/null\n{does}\nexit 0\n");
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

/// Checks that the handler ran once, and that the task shows that.
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
        // A server has its own disk; for a SQLite store, the runner waits until there is space.
        let process = match db.engine {
            EngineUnderTest::Sqlite => {
                let free = "rm \"$disk/ballast\"; wait $runner || exit 93\n";
                format!("\"$program\" process-run & runner=$!\n{UNTIL_IT_IS_KEPT}{free}")
            }
            _ => "\"$program\" process-run || exit 93\n".to_owned(),
        };
        let ended = on_a_small_disk(db, WRITES, &format!("{BEGIN}{process}{SHOW}"));
        has_succeeded_once(db, &ended);
        assert!(!ended.stderr.contains("cannot be saved"), "{ended:?}");
    }
}

test_on! {
    [sqlite Sqlite] a_disk_that_stays_full_is_told_with_what_waits_for_it db {
        // After a second signal, the runner does not wait for space either.
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
        let ended = on_a_small_disk(db, HAS_A_RESULT, &format!("{BEGIN}{give_up}{UNTIL_IT_IS_KEPT}{afterwards}{SHOW}"));
        has_succeeded_once(db, &ended);
        assert_eq!(ended.stdout.matches("ended with 69\n").count(), 2, "{ended:?}");
        assert!(ended.stderr.contains("run 1 of task 1 has ended (success), but that could not be recorded: "), "{ended:?}");
        assert!(ended.stderr.contains(&format!("the outcome is saved in {}/disk/spool", db.home().display())), "{ended:?}");
        assert!(ended.stderr.contains("is the disk full"), "{ended:?}");
    }
}

/// Prunes a copy on another disk, as in docs/operators.md; the test itself runs VACUUM.
const PRUNE_A_COPY: &str = r#"
    program=$1 disk=$2 TASKQUEUE_DATABASE_URL=$3 other=$(dirname "$2")/other
    export TASKQUEUE_DATABASE_URL
    mount -t tmpfs -o size=8m,mode=700 tmpfs "$disk" || exit 90
    yes '{"class":"fill"}' | head -n 2000 | "$program" queue --batch - >/dev/null && "$program" cancel class=fill --yes || exit 91
    cat /dev/zero > "$disk/ballast" 2>/dev/null
    "$program" prune --older-than 0s --yes; echo "ended with $?"
    cp -p "$disk/tasks.db" "$disk/tasks.db-wal" "$other/" || exit 92
    "$program" --database "$other/tasks.db" prune --older-than 0s --yes || exit 93
    : > "$other/pruned"
    until [ -e "$other/vacuumed" ]; do :; done
    rm -f "$disk/tasks.db-wal" "$disk/tasks.db-shm"
    cp "$other/tasks.db" "$disk/tasks.db" || exit 94
    "$program" queue fill || exit 95
"#;

#[test]
fn a_copy_on_another_disk_is_pruned_where_the_first_one_is_full() {
    on(EngineUnderTest::Sqlite, |db| {
        let other = db.home().join("other");
        fs::create_dir(&other).unwrap();
        let ended = std::thread::scope(|scope| {
            let script = scope.spawn(|| on_a_small_disk(db, "", PRUNE_A_COPY));
            wait_until("the copy is pruned", || other.join("pruned").exists() || script.is_finished());
            let copy = other.join("tasks.db");
            Raw::connect(EngineUnderTest::Sqlite, copy.to_str().unwrap()).execute("VACUUM");
            fs::write(other.join("vacuumed"), "").unwrap();
            script.join().unwrap()
        });
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ended with 69\n2001\n"), "{ended:?}");
        let hint = format!("`df -h {}/disk/tasks.db`", db.home().display());
        assert!(ended.stderr.contains(&hint) && ended.stderr.contains("taskqueue help operators"), "{ended:?}");
    });
}

/// Queues a task with a run, whose handler writes output and succeeds.
fn talk(db: &TestDb) {
    db.configure("[class.talk]\nargv = [\"/bin/echo\", \"said\"]\n");
    let _ = db.cli().run(&["queue", "talk"]).ok();
    let _ = db.cli().run(&["create-runs"]).ok();
}

/// From now on, an output or the success of a run finds no space, with the error of the engine.
fn fill(db: &TestDb, table: &str) {
    match table {
        "TaskQueueRunOutputs" => fill_against_inserts(db, table),
        _ => fill_against(db, table, "UPDATE", "NEW.\"Status\" = 'success'"),
    }
}

/// From now on, no row can be inserted into the table.
pub(crate) fn fill_against_inserts(db: &TestDb, table: &str) {
    fill_against(db, table, "INSERT", "1 = 1");
}

/// From now on, such a statement finds no space for rows like these.
pub(crate) fn fill_against(db: &TestDb, table: &str, when: &str, which: &str) {
    let trigger = format!("CREATE TRIGGER \"full{table}\" BEFORE {when} ON \"{table}\"");
    db.execute(&match db.engine {
        EngineUnderTest::Sqlite => {
            format!("{trigger} WHEN {which} BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END")
        }
        EngineUnderTest::Postgres => format!(
            "CREATE FUNCTION \"full{table}\"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'No space left on device'; END $$;
             {trigger} FOR EACH ROW WHEN ({which}) EXECUTE FUNCTION \"full{table}\"()"
        ),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => format!(
            "{trigger} FOR EACH ROW IF {which} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'No space left on device'; END IF"
        ),
    });
}

pub(crate) fn make_room(db: &TestDb, table: &str) {
    let of_table = if db.engine == EngineUnderTest::Postgres { format!(" ON \"{table}\"") } else { String::new() };
    db.execute(&format!("DROP TRIGGER \"full{table}\"{of_table}"));
}

/// A runner that waits for space gets two signals: then it no longer waits.
fn process_in_a_hurry(db: &TestDb) -> Ended {
    let runner = db.cli().spawn(&["process-run"]);
    wait_until("the outcome is on the disk", || !spooled(db).is_empty());
    signal(&runner, Signal::INT);
    signal(&runner, Signal::TERM);
    finish(runner)
}

fn outputs(db: &TestDb) -> i64 {
    db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunOutputs\"")
}

each_engine! {
    fn a_run_that_has_ended_and_waits_for_room_keeps_its_lease(db) {
        shorten_leases(db);
        talk(db);
        fill(db, "TaskQueueRunOutputs");
        let runner = db.cli().spawn(&["process-run"]);
        wait_until("the outcome is on the disk", || !spooled(db).is_empty());
        let mut leases = vec![column(db, "LeaseExpiresOn")];
        // Renewals of one second each: the lease of the claim would have expired.
        wait_until("six renewals", || {
            let lease = column(db, "LeaseExpiresOn");
            if lease != *leases.last().unwrap() {
                leases.push(lease);
            }
            leases.len() > 6
        });
        let _ = db.cli().run(&["create-runs"]).ok();
        assert_eq!(statuses(db), ["processing"]);
        make_room(db, "TaskQueueRunOutputs");
        let _ = finish(runner).ok();
        assert_eq!((statuses(db), outputs(db)), (vec!["success".to_owned()], 1));
    }

    fn a_run_is_recorded_without_its_output_when_there_is_no_room_for_it(db) {
        talk(db);
        fill(db, "TaskQueueRunOutputs");
        let ended = process_in_a_hurry(db);
        assert!(!ended.stderr.contains("could not be recorded"), "{ended:?}");
        assert_eq!((statuses(db), outputs(db), spooled(db).len()), (vec!["success".to_owned()], 0, 0));
    }

    fn an_outcome_without_room_blocks_nothing_else_and_loses_only_its_output(db) {
        talk(db);
        fill(db, "TaskQueueRunOutputs");
        fill(db, "TaskQueueRuns");
        let ended = process_in_a_hurry(db);
        assert_eq!(ended.code, Some(69), "{ended:?}");
        let _ = db.cli().run(&["queue", "talk"]).ok();
        let created = db.cli().run(&["create-runs"]);
        assert_eq!(created.code, Some(69), "{created:?}");
        assert!(created.stderr.contains("completed work is kept"), "{created:?}");
        assert_eq!((statuses(db), spooled(db).len()), (vec!["processing".to_owned(), "scheduled".to_owned()], 1));
        make_room(db, "TaskQueueRuns");
        let _ = db.cli().run(&["create-runs"]).ok();
        assert_eq!((statuses(db), spooled(db).len()), (vec!["success".to_owned(), "scheduled".to_owned()], 0));
        assert_eq!(outputs(db), 0);
    }
}
