//! Servers that cannot be reached, refuse, or take no writes.

use std::net::TcpListener;

use super::bad_store::{SECRET, alone};
use super::{ECHO, error_and_hint};
use crate::support::EngineUnderTest;
use crate::support::cli::configure;
use crate::support::db::on;

/// A port on which nobody listens.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_server_that_is_down_or_hangs_up_is_named_with_69_and_no_password() {
    let (home, cli) = alone();
    configure(home.path(), ECHO);
    let hangs_up = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = hangs_up.local_addr().unwrap().port();
    std::thread::spawn(move || hangs_up.incoming().for_each(drop));
    for port in [closed_port(), port] {
        for scheme in ["postgres", "mysql"] {
            let address = format!("{scheme}://ann:{SECRET}@127.0.0.1:{port}/tasks");
            let by_variable = cli.clone().env("TASKQUEUE_DATABASE_URL", &address);
            for args in [
                &["status"][..],
                &["queue", "echo"],
                &["create-runs"],
                &["process-run"],
                &["tick"],
                &["settings"],
                &["classes"],
                &["migrate"],
            ] {
                let stderr = by_variable.run(args).fails(69);
                let (error, hint) = error_and_hint(&stderr);
                assert!(
                    error.starts_with(&format!(
                        "error: cannot reach the database {scheme}://ann:***@127.0.0.1:{port}/tasks: "
                    )),
                    "{error}"
                );
                assert!(hint.contains("is the server running"), "{hint}");
                assert!(!error.contains("  "), "no indents of the client library: {error}");
                assert!(!stderr.contains(SECRET), "{stderr}");
            }
            let ended = cli.run(&["status", "--database", &address]);
            assert!(ended.stderr.starts_with("warning: a password on the command line"), "{ended:?}");
            assert!(!ended.fails(69).contains(SECRET));
            let json = by_variable.run(&["--json", "status"]).fails(69);
            let error: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(error["error"]["code"], "unreachable");
            assert!(!json.contains(SECRET));
        }
    }
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let (_home, cli) = alone();
    // The kernel accepts the connection; nobody ever reads it.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for scheme in ["postgres", "mysql"] {
        let address = format!("{scheme}://ann@{}/tasks?connect_timeout=2", silent.local_addr().unwrap());
        let by_variable = cli.clone().env("TASKQUEUE_DATABASE_URL", &address);
        let (error, _) = error_and_hint(&by_variable.run(&["status"]).fails(69));
        assert!(error.contains("timeout"), "{error}");
    }
}

#[test]
fn when_no_host_can_be_reached_all_are_named_with_69_and_no_password() {
    let (home, cli) = alone();
    configure(home.path(), ECHO);
    for scheme in ["postgres", "mysql"] {
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", closed_port(), closed_port());
        let options = if scheme == "postgres" { format!("?sslpassword={SECRET}") } else { String::new() };
        let address = format!("{scheme}://ann:{SECRET}@{hosts}/tasks{options}");
        let by_variable = cli.clone().env("TASKQUEUE_DATABASE_URL", &address);
        for args in [
            &["status"][..],
            &["--json", "status"],
            &["queue", "echo"],
            &["create-runs"],
            &["process-run"],
            &["tick"],
            &["settings"],
            &["classes"],
            &["migrate"],
            &["migrate", "--dry-run"],
        ] {
            let stderr = by_variable.run(args).fails(69);
            assert!(stderr.contains(&format!("ann:***@{hosts}/tasks")), "{stderr}");
            let refused = stderr.matches("refused").count() + stderr.matches("(111)").count();
            assert!(refused >= 2, "each says why: {stderr}");
            assert!(!stderr.contains(SECRET), "{stderr}");
        }
        let on_command_line = cli.run(&["status", "--database", &address]).fails(69);
        assert!(on_command_line.starts_with("warning: a password on the command line"), "{on_command_line}");
        assert!(!on_command_line.contains(SECRET), "{on_command_line}");
        let bad = cli.run(&["status", "--database", &address.replace(",127.0.0.1:", ",127.0.0.1:x")]).fails(78);
        assert!(bad.contains("look at number 2") && !bad.contains(SECRET), "{bad}");
        configure(home.path(), &format!("database = \"{address}\"\n{ECHO}"));
        assert!(!cli.run(&["status"]).fails(69).contains(SECRET));
        configure(home.path(), ECHO);
    }
}

#[test]
fn a_remote_host_that_need_not_speak_tls_is_warned_of_once() {
    let (_home, cli) = alone();
    // An address of documentation, where nobody is.
    for (address, mode) in [
        ("postgres://ann@192.0.2.1/tasks?connect_timeout=2", "sslmode=verify-full"),
        ("mysql://ann@127.0.0.1:1,192.0.2.1/tasks?connect_timeout=1", "ssl_mode=verify_identity"),
    ] {
        let stderr = cli.clone().env("TASKQUEUE_DATABASE_URL", address).run(&["status"]).fails(69);
        let warnings: Vec<&str> = stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
        assert_eq!(warnings.len(), 1, "{stderr}");
        assert!(warnings[0].contains("192.0.2.1") && warnings[0].contains(mode), "{stderr}");
        let safe = format!("{address}&{mode}");
        let stderr = cli.clone().env("TASKQUEUE_DATABASE_URL", &safe).run(&["status"]).fails(69);
        assert!(!stderr.contains("warning: "), "{stderr}");
    }
    let local = cli.clone().env("TASKQUEUE_DATABASE_URL", &format!("mysql://ann@127.0.0.1:{}/tasks", closed_port()));
    assert!(!local.run(&["status"]).fails(69).contains("warning: "));
    let by_variable = cli
        .env("PGSSLMODE", "require")
        .env("TASKQUEUE_DATABASE_URL", "postgres://ann@192.0.2.1/tasks?connect_timeout=2");
    assert!(!by_variable.run(&["status"]).fails(69).contains("warning: "));
}

#[test]
fn tls_that_is_demanded_of_a_server_without_it_is_an_error() {
    // MySQL cannot be had without it; its client is MariaDB's here.
    for engine in [EngineUnderTest::Postgres, EngineUnderTest::Mariadb] {
        on(engine, |db| {
            let demands = match engine {
                EngineUnderTest::Postgres => ["sslmode=require", "sslmode=verify-full"],
                _ => ["ssl_mode=required", "ssl_mode=verify_identity"],
            };
            for demand in demands {
                let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &format!("{}?{demand}", db.url_text()));
                let stderr = cli.run(&["status"]).fails(69);
                assert!(["SSL", "TLS", "certificate"].iter().any(|word| stderr.contains(word)), "{stderr}");
                assert!(!stderr.contains(":taskqueue@"), "{stderr}");
            }
        });
    }
}

#[test]
fn a_wrong_password_is_refused_and_never_printed() {
    for engine in [EngineUnderTest::Postgres, EngineUnderTest::Mariadb, EngineUnderTest::Mysql] {
        on(engine, |db| {
            let (user, server) = db.url_text().split_once('@').unwrap();
            let address = format!("{}:{SECRET}@{server}", user.rsplit_once(':').unwrap().0);
            let stderr = db.cli().env("TASKQUEUE_DATABASE_URL", &address).run(&["status"]).fails(69);
            assert!(stderr.contains("***") && !stderr.contains(SECRET), "{stderr}");
            db.configure(&format!("database = \"{address}\"\nbad = 1\n"));
            let stderr = db.cli().without_env("TASKQUEUE_DATABASE_URL").run(&["status"]).fails(78);
            assert!(stderr.contains("unknown field `bad`") && !stderr.contains(SECRET), "{stderr}");
        });
    }
}

#[test]
fn a_server_that_takes_no_writes_is_named_with_69_and_status_still_works() {
    on(EngineUnderTest::Postgres, |db| {
        db.configure(ECHO);
        db.cli().run(&["queue", "echo"]).ok();
        let name = db.url_text().rsplit_once('/').unwrap().1;
        db.execute(&format!("ALTER DATABASE \"{name}\" SET default_transaction_read_only = on"));
        assert!(db.cli().run(&["status"]).ok().contains("due 1"));
        for args in
            [&["queue", "echo"][..], &["create-runs"], &["tick"], &["settings", "set", "TaskQueueRunnerLimit", "3"]]
        {
            let (error, hint) = error_and_hint(&db.cli().run(args).fails(69));
            assert!(error.contains("cannot be written") && hint.contains("primary server"), "{error} {hint}");
        }
        assert_eq!(db.cli().run(&["status", "--json"]).json()["counts"]["scheduled"]["count"], 1);
    });
}
