//! `taskqueue init`

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use super::bad_store::alone;
use super::error_and_hint;
use super::signal;
use super::status_terminal::on_terminal;
use crate::support::cli::{Cli, finish};
use crate::support::db::{Raw, on};
use crate::support::{EngineUnderTest, wait_until};

#[test]
fn init_writes_a_configuration_that_works_and_says_what_to_do_next() {
    let (home, cli) = alone();
    let ended = cli.run(&["init"]);
    let path = home.path().join(".config/taskqueue/config.toml");
    assert!(ended.stderr.contains(&format!("wrote {}\n", path.display())), "{ended:?}");
    assert!(
        ended.stderr.contains("the store is sqlite://") && ended.stderr.contains("class hello can be executed; try:\n"),
        "{ended:?}"
    );
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(ended.stderr.contains("task 1 of class hello has run; it printed: {\"hello\":\"world\"}\n"), "{ended:?}");
    let next = ended.ok();
    let commands: Vec<&str> = next.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(commands, ["taskqueue queue hello '{\"hello\":\"world\"}'", "taskqueue tick", "taskqueue status"]);
    assert!(next.contains("# for every minute, in crontab -e:   * * * * * /") && next.contains(" tick\n"), "{next}");
    cli.run(&["queue", "hello", "{\"hello\":\"world\"}"]).ok();
    cli.run(&["tick"]).ok();
    assert!(cli.run(&["status"]).ok().contains("success 2"));
}

#[test]
fn init_shows_what_it_would_write_and_runs_a_task_with_chosen_data() {
    let (home, cli) = alone();
    let shown = cli.run(&["init", "mail", "--dry-run", "--", "/bin/cat", "-u"]);
    assert!(
        shown.stderr.starts_with("would write /") && shown.stdout.contains("argv = [\"/bin/cat\", \"-u\"]"),
        "{shown:?}"
    );
    assert!(!home.path().join(".config").exists() && !home.path().join(".local").exists());
    let created = cli.run(&["init", "mail", "--json", "--data", "[7]", "--", "/bin/cat", "-u"]).json();
    assert_eq!(created["task"], serde_json::json!({ "id": 1, "has_succeeded": true, "output": "[7]" }));
    let (home, cli) = alone();
    assert_eq!(cli.run(&["init", "mail", "--json", "--", "/bin/false"]).json()["task"], serde_json::Value::Null);
    std::fs::remove_dir_all(home.path().join(".config")).unwrap();
    let failed = cli.run(&["init", "mail", "--data", "{}", "--", "/bin/false"]);
    assert!(failed.code == Some(1) && failed.stderr.contains("task 1: exit:1: "), "{failed:?}");
}

#[test]
fn a_signal_during_the_first_task_of_init_is_an_interruption() {
    let (home, cli) = alone();
    let started = home.path().join("started");
    let script = format!("touch {}; exec sleep 600", started.display());
    let first = cli.spawn(&["init", "slow", "--data", "{}", "--", "/bin/sh", "-c", &script]);
    wait_until("the handler has started", || started.exists());
    signal(&first, Signal::INT);
    let ended = finish(first);
    assert!(ended.code == Some(130) && ended.stderr.contains("was asked to end"), "{ended:?}");
}

#[test]
fn on_a_terminal_init_shows_the_configuration_and_asks_first() {
    on(EngineUnderTest::Sqlite, |db| {
        // Without an answer, nothing is written.
        let text = on_terminal(db, 120, "", "init");
        assert!(text.contains("[class.\"hello\"]") && text.contains("Write it? [y/N] nothing was written"), "{text}");
        assert!(!db.home().join(".config").exists());
        assert!(on_terminal(db, 120, "", "init --yes").contains("task 1 of class hello has run"));
    });
}

/// Writes a program of the system for the tests, whose users' crontabs and services must not change.
fn stub(home: &std::path::Path, name: &str, script: &str) {
    let programs = home.join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    std::fs::write(programs.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(programs.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns a home whose user has a crontab in the file `crontab`.
fn with_crontab() -> (tempfile::TempDir, Cli) {
    let (home, cli) = alone();
    let path = format!("{}:/usr/bin:/bin", home.path().join("programs").display());
    let kept = home.path().display();
    let list = format!("test -e {kept}/crontab || {{ echo 'no crontab for ann' >&2; exit 1; }}; cat {kept}/crontab");
    stub(home.path(), "crontab", &format!("case $1 in -l) {list};; -) cat > {kept}/crontab;; esac"));
    let cli = cli.env("PATH", &path);
    (home, cli)
}

#[test]
fn what_init_installs_uses_its_store_without_the_variables_of_the_user() {
    let at_home = |home: &tempfile::TempDir, name: &str| home.path().join(name).display().to_string();
    for has_option in [false, true] {
        let (home, cli) = with_crontab();
        let (configs, states) = (at_home(&home, "xc"), at_home(&home, "x s%"));
        let cli = cli.env("XDG_CONFIG_HOME", &configs).env("XDG_STATE_HOME", &states);
        let cli = if has_option { cli.env("TASKQUEUE_CONFIG", &at_home(&home, "c.toml")) } else { cli };
        cli.run(&["init", "--yes"]).ok();
        cli.run(&["queue", "hello"]).ok();
        cli.run(&["init", "--install", "cron"]).ok();
        let line = std::fs::read_to_string(home.path().join("crontab")).unwrap();
        let command = line.trim_end().strip_prefix("* * * * * ").unwrap().replace("\\%", "%");
        Cli::new(home.path()).program("/bin/sh".as_ref()).run(&["-c", &command]).ok();
        assert!(cli.run(&["status"]).ok().contains("success 2"), "{line}");
        assert!(!home.path().join(".local").exists() && !home.path().join(".config").exists(), "{line}");
        // The manager of the user reads the directory of the variable only if it has the variable.
        let command = command.strip_suffix(" tick").unwrap().replace('%', "%%");
        let printed = cli.run(&["init", "--install", "service"]).ok();
        assert!(printed.contains(&format!("\nExecStart={command} work\n")), "{command}: {printed}");
        for (script, directory) in [("exit 1", ".config"), ("echo /run/user $XDG_CONFIG_HOME/systemd/user", "xc")] {
            stub(home.path(), "systemctl", script);
            cli.run(&["init", "--install", "user-timer"]).ok();
            let unit = home.path().join(directory).join("systemd/user/taskqueue-tick.service");
            let unit = std::fs::read_to_string(unit).unwrap();
            assert!(unit.contains(&format!("\nExecStart={command} tick ")), "{command}: {unit}");
        }
    }
}

#[test]
fn init_warns_if_cron_will_not_have_the_named_store() {
    let (home, cli) = with_crontab();
    let store = format!("sqlite://{}", home.path().join("shop.db").display());
    let install = ["init", "--install", "cron"];
    let warning = |source: &str| format!("warning: cron and systemd do not have {source}: write `database = ");
    let named = cli.clone().env("TASKQUEUE_DATABASE_URL", &store);
    for _ in ["first", "again"] {
        let ended = named.run(&install);
        assert!(ended.stderr.contains(&warning("TASKQUEUE_DATABASE_URL")), "{ended:?}");
    }
    let ended = cli.run(&[&install[..], &["--database", &store]].concat());
    assert!(ended.stderr.contains(&warning("--database")), "{ended:?}");
    let (_home, cli) = with_crontab();
    for call in [cli.clone(), cli.clone(), cli.env("TASKQUEUE_DATABASE_URL", &store)] {
        let ended = call.run(&[&install[..], &["--database", &store]].concat());
        assert!(ended.code == Some(0) && !ended.stderr.contains("warning"), "{ended:?}");
    }
}

#[test]
fn init_adds_one_line_to_the_crontab_and_keeps_the_others() {
    let (home, cli) = with_crontab();
    let file = home.path().join("crontab");
    let line = format!("* * * * * {} tick\n", env!("CARGO_BIN_EXE_taskqueue"));
    let ended = cli.run(&["init", "--install", "cron"]);
    assert!(ended.stderr.contains("added to the crontab: * * * * * /"), "{ended:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), line);
    // What is there stays, also a last line without its end.
    std::fs::write(&file, "MAILTO=ann\n0 3 * * * backup").unwrap();
    for expected in ["added to the crontab", "the crontab has this line already"] {
        let ended = cli.run(&["init", "--install", "cron"]);
        assert!(ended.stderr.contains(" exists already and is kept\n") && ended.stderr.contains(expected), "{ended:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("MAILTO=ann\n0 3 * * * backup\n{line}"));
    }
    stub(home.path(), "crontab", "echo 'you are not allowed to use this program' >&2; exit 1");
    let ended = cli.run(&["init", "--install", "cron"]);
    let words = "error: `crontab -l` failed: you are not allowed to use this program\nhint: add the line with `crontab -e`: * * * * * /";
    assert!(ended.code == Some(1) && ended.stderr.contains(words), "{ended:?}");
}

#[test]
fn init_writes_a_user_timer_and_prints_the_commands_that_remain() {
    let (home, cli) = alone();
    let path = format!("{}:/usr/bin:/bin", home.path().join("programs").display());
    let cli = cli.env("PATH", &path);
    stub(home.path(), "systemctl", "exit 1");
    let timer = home.path().join(".config/systemd/user/taskqueue-tick.timer");
    for words in ["wrote ", "exists already, with the same content"] {
        let ended = cli.run(&["init", "--install", "user-timer"]);
        assert!(ended.stderr.contains(words), "{ended:?}");
        assert!(ended.stdout.contains("systemctl --user daemon-reload\nsystemctl --user enable --now taskqueue-tick.timer\nloginctl enable-linger "), "{ended:?}");
    }
    let service = std::fs::read_to_string(timer.with_extension("service")).unwrap();
    assert!(service.contains(&format!("ExecStart={} tick ", env!("CARGO_BIN_EXE_taskqueue"))), "{service}");
    std::fs::write(&timer, "[Timer]\nOnCalendar=hourly\n").unwrap();
    let ended = cli.run(&["init", "--install", "user-timer"]);
    assert!(ended.code == Some(1) && ended.stderr.contains("exists already, with other content"), "{ended:?}");
    // Where systemd runs for the user, init starts the timer.
    std::fs::remove_file(&timer).unwrap();
    stub(home.path(), "systemctl", &format!("echo \"$*\" >> {}/called", home.path().display()));
    let ended = cli.run(&["init", "--install", "user-timer"]);
    assert!(!ended.stdout.contains("systemctl") && ended.stdout.contains("loginctl enable-linger "), "{ended:?}");
    let called = std::fs::read_to_string(home.path().join("called")).unwrap();
    assert!(called.ends_with("--user daemon-reload\n--user enable --now taskqueue-tick.timer\n"), "{called}");
    // A trial calls and writes nothing.
    std::fs::remove_file(&timer).unwrap();
    let ended = cli.run(&["init", "--install", "user-timer", "--dry-run"]);
    assert!(ended.stderr.contains("would write ") && !timer.exists(), "{ended:?}");
    assert_eq!(std::fs::read_to_string(home.path().join("called")).unwrap(), called);
    let printed = cli.run(&["init", "--install", "service"]).ok();
    assert!(
        printed.contains(" work\n") && printed.contains("\nWantedBy=multi-user.target\nEND\nsudo systemctl "),
        "{printed}"
    );
}

#[test]
fn init_leaves_a_configuration_alone_that_is_there() {
    let (home, cli) = alone();
    cli.run(&["init", "mail", "--", "/bin/cat", "-u"]).ok();
    let path = home.path().join(".config/taskqueue/config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("[class.\"mail\"]\nargv = [\"/bin/cat\", \"-u\"]\n"), "{text}");
    let (error, hint) = error_and_hint(&cli.run(&["init", "other"]).fails(1));
    assert!(error.contains("exists already") && hint.contains("taskqueue class"), "{error} {hint}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn init_refuses_what_cannot_be_right_and_writes_nothing() {
    for bad in [&["init", "exec"][..], &["init", "a b"], &["init", "mail", "--", "cat"], &["init", "--data", "{bad"]] {
        let (home, cli) = alone();
        assert_eq!(cli.run(bad).code, Some(2), "{bad:?}");
        assert!(!home.path().join(".config").exists(), "{bad:?}");
    }
    let (home, cli) = alone();
    assert_eq!(cli.run(&["init", "--database", "ftp://nowhere"]).code, Some(78));
    assert!(!home.path().join(".config").exists());
}

#[test]
fn with_the_right_program_init_works_after_it_was_called_with_a_bad_one() {
    let (home, cli) = alone();
    let program = home.path().join("send mail");
    let call = ["init", "mail", "--", program.to_str().unwrap()];
    for why in ["does not exist", "is not executable"] {
        let (error, hint) = error_and_hint(&cli.run(&call).fails(78));
        assert!(error.starts_with("error: class mail cannot be executed: ") && error.contains(why), "{error}");
        assert!(hint.contains("nothing was written"), "{hint}");
        assert!(!home.path().join(".config").exists() && !home.path().join(".local").exists(), "{why}");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    cli.run(&call).ok();
    assert!(cli.run(&["class"]).ok().contains("mail"));
}

#[test]
fn init_removes_an_unusable_configuration_and_keeps_one_without_tables() {
    let (home, cli) = alone();
    let path = home.path().join(".config/taskqueue/config.toml");
    let parts = home.path().join(".config/taskqueue/conf.d");
    std::fs::create_dir_all(&parts).unwrap();
    std::fs::write(parts.join("mail.toml"), "[class.mail]\nargv = [\"/bin/cat\"]\n").unwrap();
    let (error, _) = error_and_hint(&cli.run(&["init", "mail"]).fails(78));
    assert!(error.contains("class \"mail\" is defined already"), "{error}");
    assert!(!path.exists());
    error_and_hint(&cli.run(&["init", "--database", "postgres://127.0.0.1:1/none"]).fails(69));
    assert!(!path.exists());
    // The missing tables are created by `db migrate`, which reads their address from this configuration.
    let shop = home.path().join("shop.db");
    Raw::connect(EngineUnderTest::Sqlite, shop.to_str().unwrap())
        .execute("CREATE TABLE Orders (Id INTEGER PRIMARY KEY)");
    let ended = cli.run(&["init", "--database", "shop.db"]);
    assert!(ended.code == Some(78) && ended.stderr.contains("wrote "), "{ended:?}");
    assert!(std::fs::read_to_string(&path).unwrap().contains("shop.db"));
    cli.run(&["db", "migrate"]).ok();
    assert_eq!(cli.run(&["queue", "hello"]).ok(), "1");
}
