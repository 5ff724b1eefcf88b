//! Configurations and databases that are invalid, and a standard output that cannot be written.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{ECHO, count_tasks, error_and_hint, task};
use crate::each_engine;
use crate::support::cli::{configure, configure_exactly, finish, listed_verbs};
use crate::support::db::Raw;
use crate::support::db::on;
use crate::support::{Cli, EngineUnderTest};

pub(super) const SECRET: &str = "s3cr3t-w0rd";

/// Returns a command line on SQLite with its own home.
pub(super) fn alone() -> (tempfile::TempDir, Cli) {
    let home = tempfile::tempdir().unwrap();
    let cli = Cli::new(home.path());
    (home, cli)
}

#[test]
fn help_is_the_same_as_a_verb_and_as_an_option() {
    let (home, cli) = alone();
    assert_eq!(cli.run(&["help"]).ok(), cli.run(&["--help"]).ok());
    assert_eq!(cli.run(&["help", "queue"]).ok(), cli.run(&["queue", "--help"]).ok());
    assert!(cli.run(&["help"]).ok().contains("`help TOPIC` explains: configuration, exit-status, "));
    let (short, all) = (cli.run(&["-h"]).ok(), cli.run(&["help", "all"]).ok());
    assert_eq!(short, cli.run(&["--help"]).ok());
    let narrow = crate::support::Cli::new(home.path()).env("COLUMNS", "80").run(&["--help"]).ok();
    assert!(narrow.lines().count() <= 24, "{narrow}");
    let compact: Vec<&str> = short.split_whitespace().collect();
    let verbs = listed_verbs(&all);
    let set_up_once = ["completions", "man"];
    let is_listed = |verb: &&&str| compact.contains(*verb) != set_up_once.contains(*verb);
    assert!(verbs.len() > 34 && verbs.iter().filter(is_listed).count() == verbs.len(), "{all}\n{short}");
    for heading in ["\n\nDaily:\n  queue ", "\n\nManage:\n  schedule ", "\n\nSet up:\n  init "] {
        assert!(all.contains(heading), "{heading:?}: {all}");
    }
    let text = cli.run(&["help", "exit-status"]).ok();
    assert_eq!(cli.run(&["help", "exit-status", "-v"]).ok(), text);
    assert!(text.starts_with("EXIT STATUS\n") && text.contains("\n  69   the database"), "{text}");
    for args in [&["help", "exit"][..], &["man", "exit"]] {
        let (error, hint) = error_and_hint(&cli.run(args).fails(2));
        assert!(
            error.contains("there is no command or topic \"exit\"") && hint.contains("`taskqueue --help` lists both"),
            "{error}\n{hint}"
        );
    }
}

#[test]
fn a_configuration_that_cannot_be_used_is_named_with_its_line_and_78() {
    let (home, cli) = alone();
    for (toml, why) in [
        ("databse = \"x\"\n", "line 1, column 1: unknown key `databse`"),
        ("[class.a]\nargv = [\"/bin/true\"]\ntimeout = 5\n", "line 3, column 1: class \"a\": unknown key `timeout`"),
        ("[class.a]\nargv = \"/bin/true\"\n", "line 2, column 8: class \"a\": argv is a string; it must be a list"),
        ("[class.a]\nargv = [\"true\"]\n", "needs an absolute path"),
        ("[class.a]\nargv = [\"/bin/true\"]\nexit = { retry = [300] }\n", "0 to 255"),
        ("[class.a]\nargv = [\"/bin/true\"]\noutput_limit_bytes = 99999999999\n", "output_limit_bytes"),
        ("[class.a\n", "line 1"),
        ("database = 5\n", "line 1"),
    ] {
        configure_exactly(home.path(), toml);
        for args in [
            &["status"][..],
            &["queue", "a"],
            &["tick"],
            &["create-runs"],
            &["process-run"],
            &["setting"],
            &["class"],
            &["db", "migrate"],
        ] {
            let (error, hint) = error_and_hint(&cli.run(args).fails(78));
            assert!(error.contains("config.toml: ") && error.contains(why), "{toml}: {error}");
            assert!(hint.contains("taskqueue help configuration"), "{hint}");
        }
    }
    assert!(!home.path().join(".local").exists(), "a file was created");
}

#[test]
fn a_configuration_that_cannot_be_read_is_an_error_and_not_the_default() {
    let (home, cli) = alone();
    for path in ["/no/such/config.toml", "/usr"] {
        let (error, _) = error_and_hint(&cli.run(&["status", "--config", path]).fails(78));
        assert!(error.contains(path), "{error}");
        assert!(cli.clone().env("TASKQUEUE_CONFIG", path).run(&["status"]).fails(78).contains(path));
    }
    configure(home.path(), ECHO);
    let parts = home.path().join(".config/taskqueue/conf.d");
    std::fs::create_dir(&parts).unwrap();
    std::fs::write(parts.join("10-bad.toml"), "database = \"elsewhere\"\n").unwrap();
    assert!(cli.run(&["status"]).fails(78).contains("10-bad.toml: line 1, column 1: unknown key `database`"));
    std::fs::write(parts.join("10-bad.toml"), b"\xff").unwrap();
    assert!(cli.run(&["status"]).fails(78).contains("10-bad.toml"));
    std::fs::remove_file(parts.join("10-bad.toml")).unwrap();
    let main = home.path().join(".config/taskqueue/config.toml");
    std::fs::set_permissions(&main, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(cli.run(&["status"]).fails(78).contains("can be written by everybody"));
}

#[test]
fn a_configuration_without_permission_is_an_error() {
    let (home, _) = alone();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = home.path().join("secret.toml");
    std::fs::write(&file, ECHO).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let output = as_nobody(home.path(), &["status", "--config", &file.display().to_string()]);
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let (error, hint) = error_and_hint(&String::from_utf8(output.stderr).unwrap());
    assert!(error.contains("secret.toml: Permission denied"), "{error}");
    assert!(hint.contains("check the path and its permissions"), "{hint}");
}

#[test]
fn a_configuration_directory_without_access_is_an_error_not_the_default() {
    let (home, _) = alone();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    configure(home.path(), ECHO);
    let directory = home.path().join(".config/taskqueue");
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).unwrap();
    // Its owner may write it; if the tests do not run as root, no user may.
    if !rustix::process::geteuid().is_root() {
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o000)).unwrap();
    }
    for verb in ["tick", "class"] {
        let output = as_nobody(home.path(), &[verb]);
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        let (error, hint) = error_and_hint(&String::from_utf8(output.stderr).unwrap());
        assert!(error.contains("taskqueue/config.toml: Permission denied"), "{error}");
        assert!(hint.contains("check the path and its permissions"), "{hint}");
    }
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_variable_that_is_not_utf8_is_refused_with_78_and_not_taken_as_unset() {
    let (home, cli) = alone();
    let with = |name: &str| cli.clone().raw_env(name, OsStr::from_bytes(b"/srv/\xff"));
    for (name, args) in [
        ("TASKQUEUE_DATABASE_URL", &["status"][..]),
        ("TASKQUEUE_DATABASE_URL", &["queue", "echo"]),
        ("TASKQUEUE_DATABASE_URL", &["db", "migrate", "--dry-run"]),
        ("TASKQUEUE_DATABASE_URL", &["init"]),
        ("TASKQUEUE_CONFIG", &["tick"]),
        ("TASKQUEUE_CONFIG", &["class"]),
        ("TASKQUEUE_CONFIG", &["init"]),
        ("TASKQUEUE_CLAIMANT", &["worker", "claim"]),
        ("TASKQUEUE_EVENTS_SOCKET", &["report", "progress", "40"]),
        ("TASKQUEUE_RUN_TOKEN", &["report", "result", "1"]),
        ("TASKQUEUE_RUN_TOKEN", &["report", "message", "arrived"]),
        ("TASKQUEUE_JOURNAL_SOCKET", &["tick"]),
        ("TASKQUEUE_JOURNAL_SOCKET", &["process-run"]),
        ("TASKQUEUE_JOURNAL_SOCKET", &["work"]),
    ] {
        let (error, hint) = error_and_hint(&with(name).run(args).fails(78));
        assert_eq!(error, format!("error: the value of the variable {name} is not UTF-8"), "{args:?}");
        assert!(hint.starts_with(&format!("hint: `unset {name}`")), "{hint}");
    }
    let json = with("TASKQUEUE_DATABASE_URL").run(&["status", "--json"]).fails(78);
    assert!(json.contains("\"code\":\"config\""), "{json}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

/// Runs the program as a user without rights, because the tests themselves may run as root, to which file modes do not apply.
fn as_nobody(home: &Path, args: &[&str]) -> std::process::Output {
    let program = env!("CARGO_BIN_EXE_taskqueue");
    Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", program])
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn a_store_that_may_not_be_written_is_named_with_69() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        assert_eq!(count_tasks(db), 1, "by a program that removes the log");
        let modes = |directory: u32, file: u32| {
            for entry in std::fs::read_dir(db.home()).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    std::fs::set_permissions(path, std::fs::Permissions::from_mode(file)).unwrap();
                }
            }
            std::fs::set_permissions(db.home(), std::fs::Permissions::from_mode(directory)).unwrap();
        };
        let database = db.url_text().to_owned();
        for (directory, file, whose) in [(0o755, 0o444, "neither"), (0o555, 0o666, "the file alone")] {
            modes(directory, file);
            for args in [
                &["status"][..],
                &["queue", "exec", "{\"argv\":[\"true\"]}"],
                &["create-runs"],
                &["tick"],
                &["setting", "set", "TaskQueueRunnerLimit", "3"],
            ] {
                let output = as_nobody(db.home(), &[&["--database", &database], args].concat());
                let stderr = String::from_utf8(output.stderr).unwrap();
                let ended = (output.status.code(), output.stdout.as_slice());
                assert_eq!(ended, (Some(69), &b""[..]), "{whose} may be written, {args:?}: {stderr}");
                let (error, hint) = error_and_hint(&stderr);
                assert!(error.contains("tasks.db cannot be written: this user may not write"), "{args:?}: {error}");
                assert!(error.contains("even reading needs"), "{error}");
                assert!(hint.contains("permissions of the file and its directory"), "{hint}");
            }
        }
        modes(0o700, 0o600);
        assert_eq!(count_tasks(db), 1);
    });
}

#[test]
fn a_store_without_a_log_that_may_not_be_written_is_named() {
    let (home, cli) = alone();
    cli.run(&["db", "migrate", "--database", "tasks.db"]).ok();
    let file = home.path().join("tasks.db");
    let count = r#"SELECT COUNT(*) AS value FROM "TaskQueue""#;
    assert_eq!(Raw::connect(EngineUnderTest::Sqlite, file.to_str().unwrap()).numbers(count), [Some(0)]);
    assert!(!home.path().join("tasks.db-wal").exists(), "removed by the last one");
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let database = file.display().to_string();
    let output = as_nobody(home.path(), &["doctor", "--database", &database]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("cannot be opened") && text.contains("this user may not write"), "{text}");
    assert!(text.contains("(mode 0644)"), "the file is examined all the same: {text}");
}

#[test]
fn who_may_only_read_a_store_and_its_log_can_read_it() {
    let (home, cli) = alone();
    cli.run(&["exec", "--database", "tasks.db", "--", "true"]).ok();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let file = home.path().join(format!("tasks.db{suffix}"));
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o444)).unwrap();
    }
    let database = home.path().join("tasks.db").display().to_string();
    let shown = as_nobody(home.path(), &["status", "1", "--database", &database]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("task 1   exec"), "{shown:?}");
    let refused = as_nobody(home.path(), &["create-runs", "--database", &database]);
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
}

#[test]
fn a_store_in_a_missing_or_unwritable_directory_is_named_with_69() {
    let (home, cli) = alone();
    for address in ["sqlite:///no/such/directory/tasks.db", "/no/such/directory/tasks.db"] {
        for verb in ["status", "tick"] {
            let (error, hint) = error_and_hint(&cli.run(&[verb, "--database", address]).fails(69));
            assert!(
                error.contains("/no/such/directory") && hint.contains("`mkdir -p /no/such/directory`"),
                "{error} {hint}"
            );
        }
    }
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = as_nobody(home.path(), &["tick", "--database", &format!("{}/tasks.db", home.path().display())]);
    let (error, hint) = error_and_hint(&String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(69));
    assert!(error.contains("Permission denied") && hint.contains("permissions"), "{error} {hint}");
    // The default store of a user whose home is not writable.
    let output = as_nobody(home.path(), &["create-runs"]);
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_is_no_database_is_left_as_it_is() {
    let (home, cli) = alone();
    let file = home.path().join("notes.txt");
    let notes = "not a database, but long enough to look like one\n".repeat(100);
    std::fs::write(&file, &notes).unwrap();
    let ended = cli.run(&["status", "--database", &file.display().to_string()]);
    let (error, hint) = error_and_hint(&ended.fails(69));
    assert!(error.contains("notes.txt") && error.contains("not a database"), "{error}");
    assert!(hint.contains("name another file") && !hint.contains("permissions"), "{hint}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), notes);
    for path in ["/usr", "/dev/null"] {
        let (error, hint) = error_and_hint(&cli.run(&["status", "--database", path]).fails(69));
        assert!(error.contains(path) && error.contains("not a regular file"), "{error}");
        assert!(hint.contains("name another file"), "{hint}");
    }
    let link = home.path().join("link.db");
    std::os::unix::fs::symlink("/no/such/tasks.db", &link).unwrap();
    let (error, hint) = error_and_hint(&cli.run(&["status", "--database", "link.db"]).fails(69));
    assert!(error.contains("a link that leads to a file that does not exist"), "{error}");
    assert!(hint.contains("the file that the link points to"), "{hint}");
}

#[test]
fn a_store_that_does_not_exist_is_made_only_by_verbs_that_add_to_it() {
    let (home, cli) = alone();
    configure(home.path(), ECHO);
    let named = cli.clone().env("TASKQUEUE_DATABASE_URL", "typo.db");
    for args in [
        &["status"][..],
        &["events"],
        &["retry", "--yes", "status=failed"],
        &["cancel", "1"],
        &["pause"],
        &["resume", "--all"],
        &["setting"],
        &["setting", "get", "TaskQueueRunnerLimit"],
        &["limit"],
        &["limit", "remove", "echo"],
        &["class", "release", "echo"],
        &["schedule", "list"],
        &["export"],
        &["wait", "1"],
    ] {
        let (error, hint) = error_and_hint(&named.run(args).fails(69));
        assert_eq!(error, "error: there is no store sqlite://typo.db", "{args:?}");
        assert!(hint.contains("`taskqueue --database sqlite://typo.db db migrate`"), "{hint}");
        assert!(!home.path().join("typo.db").exists(), "{args:?}");
    }
    assert!(cli.run(&["status", "--database", "other.db"]).fails(69).contains("there is no store"));
    assert_eq!(named.run(&["queue", "echo"]).ok(), "1");
    assert!(named.run(&["status"]).ok().contains("echo"));
    for (number, args) in [
        &["pause", "--all"][..],
        &["drain", "--class", "echo"],
        &["stop", "--all"],
        &["setting", "set", "TaskQueueRunnerLimit", "4"],
        &["limit", "set", "echo", "--running", "1"],
    ]
    .into_iter()
    .enumerate()
    {
        let file = format!("first-{number}.db");
        cli.run(&[args, &["--database", &file]].concat()).ok();
        assert!(home.path().join(file).exists(), "{args:?}");
    }
}

#[test]
fn verbs_that_only_read_create_no_store_and_no_directory() {
    let (home, cli) = alone();
    configure(home.path(), ECHO);
    let names = || std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name());
    for (code, args) in [
        (0, &["status"][..]),
        (3, &["status", "1"]),
        (3, &["explain", "1"]),
        (3, &["logs", "1"]),
        (0, &["events"]),
        (0, &["failures"]),
        (0, &["check"]),
        (0, &["metrics"]),
        (0, &["export"]),
        (3, &["wait", "1"]),
        (0, &["top", "--once"]),
        (0, &["doctor"]),
        (0, &["class"]),
        (0, &["class", "check"]),
        (0, &["setting"]),
        (0, &["limit"]),
        (0, &["runner"]),
        (0, &["pause"]),
        (0, &["schedule", "list"]),
        (69, &["status", "--watch", "1s"]),
        (69, &["events", "--follow"]),
    ] {
        let ended = cli.run(args);
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert!(names().eq([".config"]), "{args:?}");
    }
    assert!(cli.run(&["class", "--database", "typo.db"]).ok().contains("echo"));
    assert!(names().eq([".config"]));
}

#[test]
fn a_dry_run_of_migrate_makes_no_files_and_lists_what_is_pending() {
    let (home, cli) = alone();
    let names = || -> Vec<_> {
        std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let named = cli.clone().env("TASKQUEUE_DATABASE_URL", "new.db");
    for cli in [&cli, &named] {
        let shown = cli.run(&["db", "migrate", "--dry-run"]).ok();
        assert!(shown.contains("pending") && !shown.contains("applied"), "{shown}");
        let lines = cli.run(&["db", "migrate", "--dry-run", "--json"]).ok();
        assert!(lines.lines().count() > 0 && lines.lines().all(|line| line.contains("\"applied\":false")), "{lines}");
        assert_eq!(names(), Vec::<String>::new());
    }
    // With the same message as `migrate` itself.
    for args in [&["db", "migrate"][..], &["db", "migrate", "--dry-run"]] {
        let (error, hint) = error_and_hint(&cli.run(&[args, &["--database", "no/such/new.db"]].concat()).fails(69));
        assert!(error.contains("no/such/new.db") && hint.contains("`mkdir -p no/such`"), "{args:?}: {error} {hint}");
    }
    std::fs::write(home.path().join("new.db"), "").unwrap();
    assert!(named.run(&["db", "migrate", "--dry-run"]).ok().contains("pending"));
    assert_eq!(names(), ["new.db"]);
    assert_eq!(std::fs::metadata(home.path().join("new.db")).unwrap().len(), 0);
    for cli in [&cli, &named] {
        cli.run(&["db", "migrate"]).ok();
        let shown = cli.run(&["db", "migrate", "--dry-run"]).ok();
        assert!(shown.contains("applied") && !shown.contains("pending"), "{shown}");
    }
}

#[test]
fn a_file_of_another_application_is_left_alone_until_it_is_migrated() {
    let (home, cli) = alone();
    configure(home.path(), ECHO);
    let file = home.path().join("shop.db");
    let mut shop = Raw::connect(EngineUnderTest::Sqlite, file.to_str().unwrap());
    shop.execute("CREATE TABLE Orders (Id INTEGER PRIMARY KEY)");
    drop(shop);
    let before = std::fs::read(&file).unwrap();
    let cli = cli.env("TASKQUEUE_DATABASE_URL", "shop.db");
    for args in [&["status"][..], &["queue", "echo"], &["tick"], &["setting"]] {
        let (error, hint) = error_and_hint(&cli.run(args).fails(78));
        assert!(error.contains("sqlite://shop.db has tables, but none of taskqueue"), "{args:?}: {error}");
        assert!(hint.contains("`taskqueue db migrate`"), "{hint}");
        assert_eq!(std::fs::read(&file).unwrap(), before, "{args:?}");
    }
    cli.run(&["db", "migrate"]).ok();
    assert_eq!(cli.run(&["queue", "echo"]).ok(), "1");
    let mut shop = Raw::connect(EngineUnderTest::Sqlite, file.to_str().unwrap());
    assert_eq!(shop.numbers("SELECT COUNT(*) AS value FROM Orders"), [Some(0)]);
    assert_eq!(shop.texts("SELECT journal_mode AS value FROM pragma_journal_mode"), [Some("wal".to_owned())]);
}

#[test]
fn an_address_that_is_none_is_refused_and_makes_no_file() {
    let (home, cli) = alone();
    for bad in ["postgress://u@h/d", "sqlite:x", "http://x", "sqlite://", "mysql://u@h", ""] {
        let ended = cli.run(&["status", "--database", bad]);
        let (error, _) = error_and_hint(&ended.fails(78));
        assert!(error.contains("sqlite:///path") || error.contains("names no database"), "{bad}: {error}");
    }
    for (bad, known) in
        [("mysql://u@127.0.0.1/d?ssl_mod=required", "ssl_mode"), ("postgres://u@h/d?ssl_mode=require", "sslmode")]
    {
        let stderr = cli.run(&["status", "--database", bad]).fails(78);
        assert!(stderr.contains("unknown parameter") && stderr.contains(known), "{bad}: {stderr}");
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

each_engine! {
    fn a_database_without_tables_says_that_it_has_to_be_migrated(db) {
        if db.engine == EngineUnderTest::Sqlite {
            // SQLite migrates the store automatically.
            db.configure(ECHO);
            let fresh = db.cli().env("TASKQUEUE_DATABASE_URL", &db.home().join("fresh.db").display().to_string());
            assert_eq!(fresh.run(&["queue", "echo"]).ok(), "1");
            return;
        }
        let (base, name) = db.url_text().rsplit_once('/').unwrap();
        let empty = format!("{name}_empty");
        db.execute(&format!("CREATE DATABASE \"{empty}\""));
        let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &format!("{base}/{empty}"));
        db.configure(ECHO);
        let verbs: [&[&str]; 7] = [&["status"], &["queue", "echo"], &["create-runs"], &["process-run"], &["tick"], &["setting"], &["class"]];
        let ended: Vec<_> = verbs.iter().map(|args| cli.run(args)).collect();
        let migrated = cli.run(&["db", "migrate"]);
        let after = cli.run(&["status"]);
        db.execute(&format!("DROP DATABASE \"{empty}\""));
        for ended in ended {
            let (error, hint) = error_and_hint(&ended.fails(78));
            assert!(error.contains("has 1 migration of taskqueue pending"), "{error}");
            assert_eq!(hint, "hint: taskqueue db migrate");
        }
        migrated.ok();
        assert!(after.ok().contains("No tasks"));
    }

    fn a_user_without_privileges_is_told_so_and_not_to_migrate(db) {
        if db.engine == EngineUnderTest::Sqlite {
            // SQLite has no users.
            return;
        }
        db.configure(ECHO);
        let name = db.url_text().rsplit_once('/').unwrap().1;
        let user = format!("{name}_guest");
        // Without a privilege on some table, the user could not connect at all.
        db.execute("CREATE TABLE \"Other\" (\"Id\" bigint)");
        match db.engine {
            EngineUnderTest::Postgres => db.execute(&format!("CREATE ROLE \"{user}\" LOGIN PASSWORD 'guest'")),
            _ => db.execute(&format!("CREATE USER {user}@'%' IDENTIFIED BY 'guest'; GRANT SELECT ON \"Other\" TO {user}@'%'")),
        }
        let place = db.url_text().split_once('@').unwrap().1;
        let scheme = db.url_text().split_once(':').unwrap().0;
        let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &format!("{scheme}://{user}:guest@{place}"));
        let ended: Vec<_> = [&["status"][..], &["queue", "echo"], &["tick"], &["db", "migrate"], &["db", "migrate", "--dry-run"]]
            .map(|args| cli.run(args))
            .into();
        db.execute(&format!("DROP {} \"{user}\"", if db.is_mysql_like() { "USER" } else { "ROLE" }));
        for ended in ended {
            let (error, hint) = error_and_hint(&ended.fails(78));
            assert!(error.contains("denied") && error.contains("__diesel_schema_migrations"), "{error}");
            assert!(hint.contains("GRANT") && !hint.contains("migrate"), "{hint}");
        }
    }

    fn a_database_with_newer_tables_is_left_alone(db) {
        db.configure(ECHO);
        db.execute("INSERT INTO \"__diesel_schema_migrations\" (\"version\") VALUES ('99990101000000')");
        for args in [&["status"][..], &["queue", "echo"], &["create-runs"], &["process-run"], &["tick"], &["setting"], &["db", "migrate"]] {
            let (error, hint) = error_and_hint(&db.cli().run(args).fails(78));
            assert!(error.contains("newer taskqueue (99990101000000)") && hint.contains("install the newer"), "{error} {hint}");
        }
        assert_eq!(count_tasks(db), 0);
    }

    fn a_status_that_somebody_else_wrote_is_named_and_left_alone(db) {
        db.configure(ECHO);
        let insert = "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"ScheduledOn\") VALUES ('echo', 'hibernating', '2020-01-01 00:00:00');";
        match db.engine {
            EngineUnderTest::Sqlite => db.raw().execute(&format!("PRAGMA ignore_check_constraints = ON; {insert}")),
            EngineUnderTest::Postgres => db.execute(&format!(
                "ALTER DOMAIN \"TaskQueueTaskStatus\" DROP CONSTRAINT \"LastStatus is known\"; {insert}"
            )),
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
                db.execute("ALTER TABLE \"TaskQueue\" DROP CONSTRAINT \"LastStatus is known\"");
                db.execute(insert);
            }
        }
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!((&task(db, "1")["status"], &task(db, "2")["status"]), (&"hibernating".into(), &"success".into()));
        let text = db.cli().run(&["status", "1"]).ok();
        assert!(text.contains("hibernating (unknown)") && text.contains("a newer version wrote this status"), "{text}");
    }

    fn a_full_standard_output_is_an_error_and_a_reader_that_has_gone_is_none(db) {
        db.configure(ECHO);
        for _ in 0..3 {
            db.cli().run(&["queue", "echo"]).ok();
        }
        let to = |args: &str, stdout: Stdio| {
            Command::new(env!("CARGO_BIN_EXE_taskqueue"))
                .args(args.split(' '))
                .env_clear()
                .env("HOME", db.home())
                .env("TASKQUEUE_DATABASE_URL", db.url_text())
                .stdin(Stdio::null())
                .stdout(stdout)
                .stderr(Stdio::piped())
                .output()
                .unwrap()
        };
        for args in ["status", "status --json", "status --runs", "setting", "class", "queue echo", "db migrate --dry-run"] {
            let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
            let output = to(args, full.into());
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{args}: {error}");
            assert!(error.contains("cannot write to standard output: No space left"), "{args}: {error}");
            assert_eq!(error.contains("task 4 is queued, but its id cannot be printed"), args == "queue echo", "{error}");
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let output = to(args, writer.into());
            assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{args}");
        }
    }

    fn two_of_every_command_at_once_both_succeed(db) {
        db.configure(&format!("{ECHO}[exec]\nenabled = true\n"));
        let batch = "{\"class\":\"echo\"}\n".repeat(20);
        let commands: [&[&str]; 14] = [
            &["db", "migrate"], &["queue", "--batch", "-"], &["queue", "echo"], &["exec", "--", "true"], &["create-runs"], &["process-run"],
            &["process-run", "--drain"], &["tick"], &["status"], &["status", "--runs"], &["setting", "set", "TaskQueueRunnerLimit", "6"],
            &["setting"], &["class"], &["queue", "echo", "[1]", "--run"],
        ];
        for args in commands {
            let cli = db.cli().stdin(batch.as_str());
            for child in [cli.spawn(args), cli.spawn(args)] {
                let ended = finish(child);
                assert!(ended.code == Some(0) && !ended.stderr.contains("error") && ended.stderr.lines().all(|line| !line.contains("warning") || line.contains("waiting for the store")), "{args:?}: {ended:?}");
            }
        }
        db.cli().run(&["tick"]).ok();
        assert_eq!(count_tasks(db), 46);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'success'"), 46);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\""), 46);
    }
}
