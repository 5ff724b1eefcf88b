//! `taskqueue doctor`: real problems, and the finding about each.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::Value;
use taskqueue_process::identities::identity::ProcessIdentity;

use super::{ECHO, queue, shell_class, signal, wait_for_file};
use crate::conformance::fixture::sql_now;
use crate::each_engine;
use crate::races::stage::shorten_leases;
use crate::support::cli::finish;
use crate::support::db::{Raw, on};
use crate::support::{EngineUnderTest, TestDb, wait_until};

/// Returns the findings, without those about the settings of the test servers.
pub(super) fn findings(db: &TestDb) -> Vec<Value> {
    let ended = db.cli().run(&["doctor", "--json"]);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{ended:?}: {error}"));
    assert_eq!(found["schema"], "taskqueue.doctor/1");
    let is_theirs = |finding: &Value| {
        finding["symptom"] == "setting" && finding["name"] != "synchronous_commit"
            || finding["symptom"] == "long_transaction"
    };
    found["findings"].as_array().unwrap().iter().filter(|finding| !is_theirs(finding)).cloned().collect()
}

fn troubles(db: &TestDb) -> Vec<String> {
    findings(db).iter().map(|finding| finding["trouble"].as_str().unwrap().to_owned()).collect()
}

/// Checks that this problem is the only finding, with these words and this remedy.
#[track_caller]
fn expect(db: &TestDb, trouble: &str, message: &str, remedy: &str) {
    let found = findings(db);
    assert_eq!(found.len(), 1, "{found:?}");
    let finding = &found[0];
    assert_eq!(finding["trouble"], trouble, "{finding}");
    assert!(finding["message"].as_str().unwrap().contains(message), "{message}: {finding}");
    assert!(finding["remedy"].as_str().unwrap().contains(remedy), "{remedy}: {finding}");
    let text = db.cli().run(&["doctor"]).stdout;
    assert!(text.contains(message) && text.contains(remedy), "{text}");
}

#[test]
fn doctor_names_a_store_that_cannot_be_opened_and_examines_its_files() {
    on(EngineUnderTest::Sqlite, |db| {
        queue(db, "exec", &["{\"argv\":[\"/bin/true\"]}"]);
        let path = db.url().path().unwrap();
        fs::write(&path, "no database at all, and long enough to be read as the header of one").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let found = troubles(db);
        assert_eq!(found, ["store_closed", "open_file"]);
        let ended = db.cli().run(&["doctor"]);
        assert!(
            ended.stdout.starts_with("ERROR  the store ") && ended.stdout.contains("cannot be opened"),
            "{ended:?}"
        );
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), ""), "{ended:?}");
    });
}

#[test]
fn doctor_names_a_locked_store_with_the_process_that_holds_the_lock() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let program = fs::read_to_string("/proc/self/comm").unwrap();
        let holder = format!("process {} ({})", std::process::id(), program.trim_end());
        let mut other = db.raw();
        other.execute("BEGIN IMMEDIATE");
        expect(db, "store", &format!("{holder} has locked the store for a second"), "fuser -v ");
        other.execute("ROLLBACK");
        assert_eq!(troubles(db), [""; 0]);
    });
}

#[test]
fn doctor_names_the_process_that_keeps_a_store_from_being_opened() {
    on(EngineUnderTest::Sqlite, |db| {
        let path = db.home().join("other.db");
        let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &format!("sqlite://{}", path.display()));
        let _ = cli.run(&["db", "migrate"]).ok();
        let mut other = Raw::connect(EngineUnderTest::Sqlite, path.to_str().unwrap());
        other.execute("PRAGMA locking_mode = EXCLUSIVE");
        other.execute("BEGIN EXCLUSIVE");
        let ended = cli.run(&["doctor"]);
        let expected = format!("database is locked by process {} (", std::process::id());
        assert!(ended.stdout.contains("cannot be opened") && ended.stdout.contains(&expected), "{ended:?}");
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let _ = cli.run(&["create-runs"]).fails(75);
        drop(other);
        assert_eq!(cli.run(&["doctor"]).code, Some(0));
    });
}

each_engine! {
    fn doctor_finds_nothing_where_nothing_is_wrong(db) {
        db.configure(ECHO);
        queue(db, "echo", &[]);
        assert_eq!(troubles(db), [""; 0]);
        db.cli().run(&["tick"]).ok();
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_examines_the_rest_where_a_part_cannot_be_examined(db) {
        db.configure(ECHO);
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ('ghost')");
        db.execute("ALTER TABLE \"TaskQueuePauses\" RENAME TO \"TaskQueueAway\"");
        let found = troubles(db);
        assert!(found.contains(&"unexamined".to_owned()) && found.contains(&"no_handler".to_owned()), "{found:?}");
        let ended = db.cli().run(&["doctor"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), ""), "{ended:?}");
    }

    fn doctor_finds_that_nothing_creates_runs(db) {
        db.configure(ECHO);
        queue(db, "echo", &[]);
        db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00'");
        expect(db, "nothing_creates_runs", "1 task is due without a run, the oldest for ", "taskqueue create-runs");
        assert_eq!((&findings(db)[0]["level"], db.cli().run(&["doctor"]).code), (&"critical".into(), Some(2)));
        db.cli().run(&["tick"]).ok();
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_finds_that_nothing_runs(db) {
        db.configure(ECHO);
        queue(db, "echo", &[]);
        db.cli().run(&["create-runs"]).ok();
        db.execute("UPDATE \"TaskQueueRuns\" SET \"CreatedOn\" = '2020-01-01 00:00:00'");
        expect(db, "nothing_runs", "runs of class echo are waiting, first that of task 1: waits for a runner; no runner is alive", "taskqueue explain 1");
        db.cli().run(&["process-run"]).ok();
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_finds_runs_of_dead_runners(db) {
        db.configure(&shell_class(db, "slow", &format!("cd {}; echo on > began; sleep 600", db.home().display())));
        queue(db, "slow", &[]);
        db.cli().run(&["create-runs"]).ok();
        let mut runner = db.cli().spawn(&["process-run"]);
        wait_for_file(db, "began");
        signal(&runner, Signal::KILL);
        runner.wait().unwrap();
        expect(db, "lost_runs", "1 run lost, first that of task 1: the runner (process ", "taskqueue create-runs");
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_finds_runs_that_hang_in_all_slots_of_a_limit(db) {
        db.configure(&shell_class(db, "slow", "exec sleep 600"));
        db.cli().run(&["limit", "set", "slow", "--running", "1"]).ok();
        for (options, words) in [(&[][..], "its limit is 1 running"), (&["--limit-key", "db"], "the key db allows 1 at once")] {
            let (first, _) = (queue(db, "slow", options), queue(db, "slow", options));
            db.cli().run(&["create-runs"]).ok();
            let runner = db.cli().spawn(&["process-run"]);
            wait_until("the handler is recorded", || db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing' AND \"HandlerProcessId\" IS NOT NULL") == 1);
            assert_eq!(troubles(db), [""; 0]);
            db.execute("UPDATE \"TaskQueueRuns\" SET \"CreatedOn\" = '2020-01-01 00:00:00', \"UpdatedOn\" = '2020-01-01 00:00:00'");
            let cancel = format!("taskqueue cancel {first} --reason hangs");
            expect(db, "hung_runs", &format!("runs of class slow are waiting: {words}; no report from task {first} of class slow for "), &cancel);
            db.cli().run(&["cancel", &first]).ok();
            let _ = finish(runner);
            db.cli().run(&["cancel", "class=slow", "--yes"]).ok();
            db.cli().run(&["limit", "set", "slow", "--running", "9"]).ok();
        }
    }

    fn doctor_finds_classes_that_cannot_run(db) {
        db.configure("[class.gone]\nargv = [\"/no/such/program\"]\n");
        expect(db, "class_problem", "class gone cannot be executed here: ", "config.toml");
        queue(db, "gone", &[]);
        db.cli().run(&["tick"]).ok();
        assert_eq!(troubles(db), ["class_problem", "class_held"]);
        db.configure(ECHO);
        db.cli().run(&["class", "release", "gone"]).ok();
        expect(db, "no_handler", "class gone has tasks, but no handler on this host", "config.toml");
        assert_eq!(findings(db)[0]["level"], "warning");
        db.configure("[class.gone]\nargv = [\"/bin/sh\", \"/no/such/script\"]\n");
        expect(db, "missing_script", "class gone executes /no/such/script, which does not exist on this host", "config.toml");
        assert!(db.cli().run(&["class", "check"]).ok().contains(" /no/such/script does not exist "));
        db.configure("[class.gone]\nargv = [\"/bin/true\"]\n");
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_finds_a_pause_that_was_forgotten(db) {
        db.configure(ECHO);
        db.cli().run(&["pause", "--class", "echo"]).ok();
        assert_eq!(troubles(db), [""; 0]);
        db.execute("UPDATE \"TaskQueuePauses\" SET \"CreatedOn\" = '2020-01-01 00:00:00'");
        expect(db, "old_pause", "class echo paused ", "taskqueue resume --class echo");
        db.cli().run(&["resume", "--class", "echo"]).ok();
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_finds_schedules_and_tasks_that_nothing_moves(db) {
        db.configure(ECHO);
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\", \"Recurrence\") VALUES ('echo', '{}', 'nonsense')");
        db.cli().run(&["create-runs"]).ok();
        expect(db, "broken_schedules", "schedules that cannot be read: 1", "taskqueue schedule show 1");
        db.cli().run(&["schedule", "remove", "1"]).ok();
        assert_eq!(troubles(db), [""; 0]);
        let first = queue(db, "echo", &["--in", "1h"]);
        let second = queue(db, "echo", &["--after", &first]);
        db.cli().run(&["cancel", &first]).ok();
        expect(db, "stranded_tasks", &format!("tasks wait for others that were cancelled or have expired: {second}"), &format!("taskqueue explain {second}"));
        db.cli().run(&["cancel", &second]).ok();
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_finds_tasks_that_failed_under_a_clock_that_was_ahead(db) {
        db.configure(&shell_class(db, "bad", "exit 1"));
        queue(db, "bad", &[]);
        db.cli().run(&["tick"]).ok();
        assert_eq!(troubles(db), [""; 0]);
        db.execute("UPDATE \"TaskQueue\" SET \"UpdatedOn\" = '2100-01-01 00:00:00', \"ScheduledOn\" = '2100-01-01 00:01:00'");
        expect(db, "future_tasks", "tasks failed while the clock of the database was ahead", "taskqueue retry 1");
        db.cli().run(&["retry", "1"]).ok();
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_finds_schedules_that_were_planned_under_a_clock_ahead(db) {
        db.configure(ECHO);
        queue(db, "echo", &["--every", "@hourly"]);
        queue(db, "echo", &["--every", "0 0 1 1 *"]);
        queue(db, "echo", &["--every", "@hourly"]);
        queue(db, "echo", &["--every", "@hourly"]);
        db.cli().run(&["create-runs"]).ok();
        // An operator postpones one, and lets another skip times.
        db.cli().run(&["edit", "3", "--in", "3d"]).ok();
        db.cli().run(&["schedule", "pause", "4", "--for", "3d"]).ok();
        assert_eq!(troubles(db), [""; 0]);
        let ahead = sql_now(db.engine, 200_000);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"UpdatedOn\" = {ahead} WHERE \"Id\" IN (1, 2, 3)"));
        assert_eq!(troubles(db), [""; 0], "their times are the next ones");
        let later = sql_now(db.engine, 203_600);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"PlannedOn\" = {later}, \"ScheduledOn\" = {later} WHERE \"Id\" = 1"));
        expect(db, "future_schedules", "and skip the times until then: 1", "taskqueue schedule resume 1");
        db.cli().run(&["schedule", "resume", "1"]).ok();
        assert_eq!(troubles(db), [""; 0]);
        let soon = format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" = 1 AND \"PlannedOn\" < {}", sql_now(db.engine, 3_700));
        assert_eq!(db.number(&soon), 1);
    }

    fn doctor_finds_a_claim_that_was_renewed_under_a_clock_ahead(db) {
        db.configure(ECHO);
        queue(db, "echo", &[]);
        db.cli().run(&["worker", "claim", "--claimant", "bot", "--class", "echo"]).ok();
        assert_eq!(troubles(db), [""; 0]);
        let (on, lease) = (sql_now(db.engine, 200_000), sql_now(db.engine, 203_600));
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"UpdatedOn\" = {on}, \"LeaseExpiresOn\" = {lease}"));
        expect(db, "future_claim", "run 1 of task 1 was claimed or renewed while the clock", "taskqueue worker release 1 --force");
        db.cli().run(&["worker", "release", "1", "--force"]).ok();
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_finds_quarantined_tasks(db) {
        db.configure(&format!("{}crash_limit = 1\n", shell_class(db, "work", "kill -SEGV $$")));
        queue(db, "work", &[]);
        db.cli().run(&["tick"]).ok();
        expect(db, "quarantined", "1 task is quarantined", "taskqueue status status=quarantined");
        db.cli().run(&["retry", "1"]).ok();
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_finds_that_finished_tasks_are_kept_for_ever(db) {
        db.configure(ECHO);
        db.cli().run(&["setting", "set", "TaskQueueKeepSuccess", "0"]).ok();
        db.cli().run(&["setting", "set", "TaskQueueMaxSuccess", "0"]).ok();
        expect(db, "kept_for_ever", "tasks in the status success are kept forever", "taskqueue setting");
        db.cli().run(&["setting", "set", "TaskQueueMaxSuccess", "10"]).ok();
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_finds_an_index_that_is_not_there(db) {
        db.configure(ECHO);
        let on = if db.is_mysql_like() { " ON \"TaskQueueEvents\"" } else { "" };
        db.execute(&format!("DROP INDEX \"TaskQueueEventsByTask\"{on}"));
        let remedy = if db.is_mysql_like() { "ALTER TABLE `TaskQueueEvents` ADD KEY `TaskQueueEventsByTask`" } else { "CREATE INDEX \"TaskQueueEventsByTask\" ON \"TaskQueueEvents\"" };
        expect(db, "store", "the index TaskQueueEventsByTask is missing", remedy);
        let found = findings(db);
        db.execute(found[0]["remedy"].as_str().unwrap().trim_end_matches(';'));
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_finds_runners_of_another_version(db) {
        db.configure(ECHO);
        let runner = db.cli().spawn(&["work", "--slots", "1", "--name", "old"]);
        let live = "SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL";
        wait_until("a runner is registered", || db.number(live) == 1);
        db.execute("UPDATE \"TaskQueueRunners\" SET \"Version\" = '0.0.1'");
        expect(db, "other_version", "runner old has version 0.0.1", "taskqueue runner");
        signal(&runner, Signal::TERM);
        finish(runner).ok();
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_and_check_find_a_runner_that_lives_and_does_not_renew(db) {
        db.configure(ECHO);
        shorten_leases(db);
        // This process is no runner, but it is alive.
        let own = ProcessIdentity::own().unwrap();
        let row = format!("({}, 'here', '{own}', 'frozen', 2, '{}', '2020-01-01 00:00:00.000000')", own.pid, env!("CARGO_PKG_VERSION"));
        db.execute(&format!("INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"Host\", \"ProcessIdentity\", \"Name\", \"Slots\", \"Version\", \"HeartbeatOn\") VALUES {row}"));
        expect(db, "silent_runner", "runner frozen has not renewed its lease for ", "taskqueue runner");
        assert_eq!(findings(db)[0]["slots"], 2);
        let checked = db.cli().run(&["check"]);
        assert!(checked.code == Some(2) && checked.stdout.starts_with("TASKQUEUE CRITICAL - silent_runners 1 | "), "{checked:?}");
        db.execute("UPDATE \"TaskQueueRunners\" SET \"FinishedOn\" = \"HeartbeatOn\"");
        assert_eq!(troubles(db), [""; 0]);
    }

    fn doctor_finds_files_that_others_may_change(db) {
        db.configure(ECHO);
        let path = db.home().join(".config/taskqueue/config.toml");
        fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        expect(db, "open_file", "config.toml (mode 0664)", "chmod go-w ");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        if db.engine == EngineUnderTest::Sqlite {
            let store = db.url().path().unwrap();
            fs::set_permissions(&store, Permissions::from_mode(0o644)).unwrap();
            expect(db, "open_file", "(mode 0644)", "chmod go= ");
            fs::set_permissions(&store, Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(troubles(db), [""; 0]);
    }
}

// The users of the other servers may not read other users' transactions, and such a setting would apply to the whole server.

#[test]
fn doctor_finds_a_transaction_that_has_been_open_for_long() {
    on(EngineUnderTest::Postgres, |db| {
        db.configure(ECHO);
        let mut somebody = db.raw();
        somebody.execute("BEGIN");
        somebody.execute("UPDATE \"TaskQueueSettings\" SET \"Value\" = \"Value\"");
        let text = db.cli().run(&["doctor", "--long-transaction", "0s"]).stdout;
        let words = ["a transaction has been open for ", "idle in transaction (SELECT pg_terminate_backend("];
        assert!(words.iter().all(|words| text.contains(words)), "{text}");
        assert!(!db.cli().run(&["doctor"]).stdout.contains(words[0]));
        somebody.execute("ROLLBACK");
    });
}

#[test]
fn doctor_finds_a_setting_by_which_commits_can_be_lost() {
    on(EngineUnderTest::Postgres, |db| {
        db.configure(ECHO);
        let name = db.name_and_host().0;
        db.execute(&format!("ALTER DATABASE \"{name}\" SET synchronous_commit = off"));
        let message = "the database has synchronous_commit = off; it should be on";
        expect(db, "store", message, "synchronous_commit = on");
    });
}

#[test]
fn doctor_finds_dead_rows_that_nobody_has_cleaned_up() {
    on(EngineUnderTest::Postgres, |db| {
        db.configure(ECHO);
        db.execute("ALTER TABLE \"TaskQueueEvents\" SET (autovacuum_enabled = off)");
        db.execute("INSERT INTO \"TaskQueueEvents\" (\"Kind\") SELECT 'message' FROM generate_series(1, 60000)");
        db.execute("DELETE FROM \"TaskQueueEvents\"");
        // A session reports them when it ends, or later; the server counts them a moment after that.
        db.disconnect();
        wait_until("dead rows are found", || !findings(db).is_empty());
        expect(db, "store", "TaskQueueEvents has 6000", "VACUUM \"TaskQueueEvents\"");
        db.execute("VACUUM \"TaskQueueEvents\"");
        wait_until("they are gone", || findings(db).is_empty());
    });
}

#[test]
fn doctor_finds_a_log_of_sqlite_that_is_not_taken_in() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let mut somebody = db.raw();
        somebody.execute(
            "WITH RECURSIVE part (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM part WHERE n < 280)
             INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"Details\")
             SELECT 'message', json_object('data', hex(zeroblob(500000))) FROM part",
        );
        expect(db, "large_log", "-wal has grown to ", "fuser -v ");
        somebody.execute("PRAGMA wal_checkpoint(TRUNCATE)");
        assert_eq!(troubles(db), [""; 0]);
    });
}

/// Runs `script` with `$disk` as a small file system, `$program` as the program, and the spool of the configuration on that
/// disk.
fn on_small_disk(db: &TestDb, options: &str, script: &str) -> crate::support::cli::Ended {
    let disk = db.home().join("disk");
    fs::create_dir(&disk).unwrap();
    let disk = disk.to_str().unwrap();
    db.configure(&format!("spool = \"{disk}/spool\"\n{ECHO}"));
    let script =
        format!("program=$1 disk=$2\nmount -t tmpfs -o {options},mode=700 tmpfs \"$disk\" || exit 90\n{script}");
    let namespaces = if crate::races::stage::is_root() { "-m" } else { "-Urm" };
    let shell = db.cli().program(std::path::Path::new("/usr/bin/unshare"));
    shell.run(&[namespaces, "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_taskqueue"), disk])
}

/// Returns the findings of a report about the disk of [`on_small_disk`].
fn of_disk(ended: &crate::support::cli::Ended) -> Vec<(String, String, String)> {
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{ended:?}: {error}"));
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let all = report["findings"].as_array().unwrap().iter();
    let of_disk = all.filter(|finding| text(finding, "path").contains("/disk/"));
    of_disk.map(|finding| (text(finding, "trouble"), text(finding, "level"), text(finding, "remedy"))).collect()
}

each_engine! {
    fn doctor_finds_a_spool_whose_disk_is_full_or_has_no_inodes_left(db) {
        let script = r#"
            mkdir -m 700 "$disk/spool"
            cat /dev/zero > "$disk/spool/ballast" 2>/dev/null
            i=0; while true > "$disk/spool/$i"; do i=$((i + 1)); done 2>/dev/null
            "$program" doctor --json
        "#;
        let ended = on_small_disk(db, "size=8m,nr_inodes=20", script);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let found = of_disk(&ended);
        assert_eq!(found.len(), 2, "{ended:?}");
        assert_eq!((found[0].0.as_str(), found[0].1.as_str()), ("little_room", "critical"));
        assert_eq!((found[1].0.as_str(), found[1].1.as_str()), ("few_inodes", "critical"));
        assert!(found[0].2.starts_with("df -h ") && found[1].2.starts_with("df -i "), "{ended:?}");
    }

    fn doctor_finds_a_spool_that_is_open_to_others(db) {
        let spool = db.home().join("spool");
        fs::create_dir(&spool).unwrap();
        db.configure(&format!("spool = \"{}\"\n{ECHO}", spool.display()));
        fs::set_permissions(&spool, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(troubles(db), [""; 0]);
        fs::set_permissions(&spool, Permissions::from_mode(0o755)).unwrap();
        expect(db, "open_file", "may read or write", "chmod go= ");
        fs::set_permissions(&spool, Permissions::from_mode(0o777)).unwrap();
        expect(db, "open_file", "may read or write", "chmod go-w ");
        fs::set_permissions(&spool, Permissions::from_mode(0o700)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&spool, Some(65_534), None).unwrap();
            expect(db, "changeable_by_others", "belongs to the user with the id 65534", "ls -ld ");
        }
    }
}

#[test]
fn doctor_finds_a_disk_that_is_nearly_full() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let script = r#"
            program=$1 disk=$2 TASKQUEUE_DATABASE_URL=sqlite://$2/tasks.db
            export TASKQUEUE_DATABASE_URL
            mount -t tmpfs -o size=8m,mode=700 tmpfs "$disk" || exit 90
            "$program" db migrate >/dev/null 2>&1 || exit 91
            "$program" doctor --json || exit 92
            cat /dev/zero > "$disk/ballast" 2>/dev/null
            truncate -s -150000 "$disk/ballast"
            "$program" doctor --json
        "#;
        let disk = db.home().join("disk");
        fs::create_dir(&disk).unwrap();
        let namespaces = if crate::races::stage::is_root() { "-m" } else { "-Urm" };
        let shell = db.cli().program(std::path::Path::new("/usr/bin/unshare"));
        let program = env!("CARGO_BIN_EXE_taskqueue");
        let ended = shell.run(&[namespaces, "sh", "-c", script, "sh", program, disk.to_str().unwrap()]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let reports: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(reports[0]["findings"], serde_json::json!([]));
        let found = &reports[1]["findings"][0];
        assert_eq!((&found["trouble"], &found["level"]), (&"little_room".into(), &"critical".into()), "{found}");
        assert!(found["remedy"].as_str().unwrap().starts_with("df -h "), "{found}");
    });
}
