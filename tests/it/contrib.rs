//! Everything in contrib works unchanged: handlers, ways to queue, cron lines, units, the sample configuration, the first
//! steps.

use std::path::Path;
use std::process::Command;

use taskqueue_engine::config::{Environment, load};

use crate::each_engine;
use crate::support::{Cli, EngineUnderTest, TestDb, contrib, db};

/// The output of `printf 'hello\n' | sha256sum`.
const HELLO_SHA256: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

fn read(name: &str) -> String {
    std::fs::read_to_string(contrib(name)).unwrap()
}

/// Configures a handler with its interpreter. The clean environment has only the usual directories in its PATH, so an
/// interpreter elsewhere is named explicitly.
fn configure_checksum(db: &TestDb, handler: &str) {
    let interpreter = match handler.rsplit_once('.').unwrap().1 {
        "sh" => "sh",
        "php" => "php",
        "py" => "python3",
        _ => "node",
    };
    let script = contrib("handlers").join(handler);
    db.configure(&format!("[class.checksum]\nargv = [\"/usr/bin/env\", \"{interpreter}\", {script:?}]\n"));
}

fn status(db: &TestDb, id: &str) -> serde_json::Value {
    db.cli().run(&["status", "--json", id]).json()
}

/// Checks a valid file, invalid data in several forms, and a file that does not exist yet.
fn check_handler(db: &TestDb, handler: &str) {
    configure_checksum(db, handler);
    let queue = |data: &str| db.cli().run(&["queue", "checksum", data]).ok();
    let file = db.home().join("hällo \"world\".txt");
    let file_json = serde_json::json!({ "file": file }).to_string();
    std::fs::write(&file, "hello\n").unwrap();
    let good = queue(&file_json);
    let bad = ["{}", "[]", "{\"file\":7}", "{\"file\":\"relative\"}", "null"].map(queue);
    let missing = queue("{\"file\":\"/nonexistent\"}");
    assert_eq!(db.cli().run(&["tick"]).ok(), "");

    let task = status(db, &good);
    assert_eq!(task["task"]["status"], "success", "{task}");
    assert_eq!(task["runs"][0]["results"], serde_json::json!({"bytes": 6, "sha256": HELLO_SHA256}));
    assert_ne!(task["runs"][0]["progress_message"], "", "{task}");
    for id in &bad {
        let task = status(db, id);
        assert_eq!((&task["task"]["is_exhausted"], &task["runs"][0]["error_code"]), (&true.into(), &"exit:65".into()));
        assert!(task["runs"][0]["error_message"].as_str().unwrap().contains("the data must be"), "{task}");
    }
    let task = status(db, &missing);
    assert_eq!((&task["task"]["failed_retries"], &task["runs"][0]["error_code"]), (&1.into(), &"exit:75".into()));
}

#[test]
fn the_handler_in_shell_works() {
    db::on(EngineUnderTest::Sqlite, |db| check_handler(db, "checksum.sh"));
}

#[test]
fn the_handler_in_php_works() {
    db::on(EngineUnderTest::Sqlite, |db| check_handler(db, "checksum.php"));
}

#[test]
fn the_handler_in_node_works() {
    db::on(EngineUnderTest::Sqlite, |db| check_handler(db, "checksum.js"));
}

each_engine! {
    fn the_handler_in_python_works(db) {
        check_handler(db, "checksum.py");
    }
}

/// Runs a sample that queues, with the program in PATH.
fn run_sample(db: &TestDb, name: &str, args: &[&str]) {
    let program_directory = Path::new(env!("CARGO_BIN_EXE_taskqueue")).parent().unwrap();
    let path = format!("{}:{}", program_directory.display(), std::env::var("PATH").unwrap());
    let cli = db.cli().program(&contrib("queue").join(name)).env("PATH", &path);
    assert_eq!(cli.run(args).ok(), "queued task 1", "{name}");
    assert_eq!(
        db.text("SELECT \"TaskData\" AS value FROM \"TaskQueue\" WHERE \"TaskClass\" = 'checksum'").unwrap(),
        "[1]"
    );
}

#[test]
fn shell_and_node_queue_by_the_program() {
    for name in ["queue.sh", "queue.js"] {
        db::on(EngineUnderTest::Sqlite, |db| {
            configure_checksum(db, "checksum.sh");
            run_sample(db, name, &["checksum", "[1]"]);
        });
    }
}

#[test]
fn php_and_python_queue_by_plain_sql() {
    db::on(EngineUnderTest::Sqlite, |db| {
        let file = db.url().path().unwrap();
        run_sample(db, "queue.py", &[file.to_str().unwrap(), "checksum", "[1]"]);
    });
    db::on(EngineUnderTest::Sqlite, |db| {
        let dsn = format!("sqlite:{}", db.url().path().unwrap().display());
        run_sample(db, "queue.php", &[&dsn, "checksum", "[1]"]);
    });
}

#[test]
fn a_sample_that_is_called_without_what_it_needs_says_how_it_is_called() {
    for name in ["queue.sh", "queue.js", "queue.py", "queue.php"] {
        let ended = Command::new(contrib("queue").join(name)).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{name}: {said}");
        assert!(said.starts_with(&format!("usage: {name} ")) && said.lines().count() == 1, "{name}: {said}");
    }
}

/// Returns the command lines of the crontab, including commented alternatives.
fn cron_commands() -> Vec<String> {
    let crontab = read("crontab");
    let is_field = |field: &str| field.chars().all(|c| c.is_ascii_digit() || "*/,-".contains(c));
    let command = |line: &str| {
        let line = line.strip_prefix('#').unwrap_or(line);
        let fields: Vec<&str> = line.splitn(6, ' ').collect();
        match fields.as_slice() {
            [minute, hour, day, month, weekday, command]
                if [minute, hour, day, month, weekday].into_iter().all(|field| is_field(field)) =>
            {
                Some((*command).to_owned())
            }
            _ => None,
        }
    };
    crontab.lines().filter_map(command).collect()
}

#[test]
fn the_lines_of_the_crontab_can_be_run() {
    let commands = cron_commands();
    assert_eq!(commands.len(), 5, "{commands:?}");
    let program_directory = Path::new(env!("CARGO_BIN_EXE_taskqueue")).parent().unwrap();
    db::on(EngineUnderTest::Sqlite, |db| {
        for command in &commands {
            // Cron cuts a line at a percent sign.
            assert!(!command.contains('%'), "{command}");
            let path = format!("{}:/usr/bin:/bin", program_directory.display());
            let ended = db.cli().program(Path::new("/bin/sh")).env("PATH", &path).run(&["-c", command]);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{command}: {ended:?}");
        }
    });
}

/// The path of the program in the units.
const INSTALLED: &str = "/usr/local/bin/taskqueue";

/// Returns the values of a key of a unit file.
fn unit_values(name: &str, key: &str) -> Vec<String> {
    let prefix = format!("{key}=");
    read(name).lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
}

#[test]
fn the_units_start_a_verb_that_exists_and_systemd_accepts_them() {
    // A worker would not exit.
    for (service, more) in
        [("systemd/taskqueue-tick.service", ""), ("systemd/taskqueue-work.service", " --idle-exit 0s")]
    {
        let starts = unit_values(service, "ExecStart");
        let (program, arguments) = starts[0].split_once(' ').unwrap();
        assert_eq!(program, INSTALLED);
        db::on(EngineUnderTest::Sqlite, |db| {
            let arguments = format!("{arguments}{more}");
            let arguments: Vec<&str> = arguments.split(' ').collect();
            assert_eq!(db.cli().run(&arguments).ok(), "");
        });
        for (key, value) in [("NoNewPrivileges", "yes"), ("PrivateTmp", "yes"), ("ProtectSystem", "strict")] {
            assert_eq!(unit_values(service, key), [value]);
        }
    }
    // As root on a new host, after the program was installed.
    for service in ["tick", "web", "work"] {
        let steps = read(&format!("systemd/taskqueue-{service}.service"));
        let (user, copy) = (steps.find("\n#   useradd --system "), steps.find("\n#   cp taskqueue-"));
        assert!(user.is_some() && user < copy, "{service} has a user: {steps}");
        assert!(!steps.contains("\n#   install -m"), "{service} makes its directory: {steps}");
    }
    verify_units();
}

each_engine! {
    fn systemd_does_not_restart_a_service_with_wrong_options(db) {
        // A web server without logins, and a worker without slots.
        for args in [&["web"][..], &["work", "--slots", "0"]] {
            let code = db.cli().run(args).code.unwrap().to_string();
            let prevented = unit_values(&format!("systemd/taskqueue-{}.service", args[0]), "RestartPreventExitStatus");
            assert_eq!(prevented, [code], "{args:?}");
        }
    }
}

/// Checks the units with the built program instead of the installed path.
fn verify_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("no systemd-analyze on this machine; the units were only read");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut units = Vec::new();
    for name in [
        "taskqueue-tick.service",
        "taskqueue-tick.timer",
        "taskqueue-web.socket",
        "taskqueue-web.service",
        "taskqueue-work.service",
    ] {
        let unit = directory.path().join(name);
        let text = read(&format!("systemd/{name}")).replace(INSTALLED, env!("CARGO_BIN_EXE_taskqueue"));
        std::fs::write(&unit, text).unwrap();
        units.push(unit);
    }
    let verified = Command::new("systemd-analyze").arg("verify").args(&units).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stderr);
    // It also reports problems of other units on this machine.
    assert!(!said.contains("taskqueue-"), "{said}");
}

#[test]
fn the_sample_configuration_loads_and_shows_every_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    std::fs::copy(contrib("config.toml"), &path).unwrap();
    let config = load(Some(&path), &Environment::default()).unwrap();
    assert_eq!(config.classes.by_name().len(), 3);
    assert_eq!(config.classes.find(&"App\\Tasks\\Resize".parse().unwrap()).unwrap().name, "App\\Tasks\\*");
    assert_eq!(config.exec_enabled, Some(false));
    assert_eq!(config.user.as_deref(), Some("taskqueue"));
    let text = read("config.toml");
    for key in crate::docs::configuration_keys() {
        assert!(
            text.contains(&format!("{key} = "))
                || text.contains(&format!("[{key}"))
                || text.contains(&format!(".{key}]")),
            "{key} is not shown"
        );
    }
}

#[test]
fn the_configuration_of_the_package_loads_and_has_no_class_yet() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    std::fs::copy(contrib("package/config.toml"), &path).unwrap();
    let config = load(Some(&path), &Environment::default()).unwrap();
    assert_eq!(config.database.as_deref(), Some("sqlite:///var/lib/taskqueue/taskqueue.db"));
    assert_eq!(config.spool.as_deref(), Some(Path::new("/var/lib/taskqueue/spool")));
    assert_eq!((config.exec_enabled, config.user.as_deref()), (Some(false), Some("taskqueue")));
    assert!(config.classes.by_name().is_empty());
}

#[test]
fn the_first_steps_succeed() {
    let home = tempfile::tempdir().unwrap();
    let steps = Cli::new(home.path()).program(&contrib("try"));
    let steps = steps.env("TMPDIR", home.path().to_str().unwrap()).env("TASKQUEUE_TRY_FILES", "30");
    let said = steps.run(&[env!("CARGO_BIN_EXE_taskqueue")]).ok();
    assert!(said.contains("$ taskqueue tick\n") && said.contains("# Done.") && said.contains("30 files, "), "{said}");
    assert!(steps.run(&["/nonexistent"]).fails(1).contains("there is no /nonexistent"));
}
