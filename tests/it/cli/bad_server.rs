//! Wrong addresses, and servers that cannot be reached, refuse, or take no writes.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpListener;

use super::bad_store::{SECRET, alone};
use super::{ECHO, error_and_hint};
use crate::support::cli::{configure, configure_exactly, finish};
use crate::support::db::on;
use crate::support::{Cli, EngineUnderTest};

/// Returns a port without a listener.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_bad_address_of_the_database_comes_with_the_place_that_sets_it() {
    let (home, cli) = alone();
    let hint_of = |cli: &Cli, args: &[&str]| {
        let (error, hint) = error_and_hint(&cli.run(args).fails(78));
        assert!(error.contains("unknown scheme"), "{error}");
        hint
    };
    configure_exactly(home.path(), "database = \"oracle://x\"\n");
    let file = home.path().join(".config/taskqueue/config.toml");
    assert_eq!(hint_of(&cli, &["status"]), format!("hint: `database` in {} sets the address", file.display()));
    let by_variable = cli.clone().env("TASKQUEUE_DATABASE_URL", "oracle://x");
    assert_eq!(hint_of(&by_variable, &["status"]), "hint: TASKQUEUE_DATABASE_URL sets the address");
    let by_option = hint_of(&by_variable, &["status", "--database", "oracle://x"]);
    assert_eq!(by_option, "hint: --database sets the address");
}

#[test]
fn a_server_that_is_down_or_hangs_up_is_named_with_69_and_no_password() {
    let (home, cli) = alone();
    configure(home.path(), &format!("connect_wait_secs = 0\n{ECHO}"));
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
                &["setting"],
                &["class"],
                &["db", "migrate"],
            ] {
                let stderr = by_variable.run(args).fails(69);
                let (error, hint) = error_and_hint(&stderr);
                assert!(
                    error.starts_with(&format!(
                        "error: cannot reach the database {scheme}://ann:***@127.0.0.1:{port}/tasks: "
                    )),
                    "{error}"
                );
                assert!(hint.contains("check that the server is running"), "{hint}");
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
fn a_key_that_is_as_good_as_a_password_is_never_printed_and_is_warned_of() {
    let (home, cli) = alone();
    configure(home.path(), &format!("connect_wait_secs = 0\n{ECHO}"));
    for option in ["password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"] {
        let address = format!("postgres://ann@127.0.0.1:{}/tasks?{option}={SECRET}", closed_port());
        let by_variable = cli.clone().env("TASKQUEUE_DATABASE_URL", &address);
        for args in [&["status"][..], &["--json", "status"], &["--verbose", "queue", "echo"]] {
            let printed = by_variable.run(args).fails(69);
            assert!(printed.contains(&format!("{option}=***")) && !printed.contains(SECRET), "{args:?}: {printed}");
        }
        let examined = by_variable.run(&["doctor", "--json"]);
        assert!(!examined.stdout.contains(SECRET) && !examined.stderr.contains(SECRET), "{examined:?}");
        let stderr = cli.run(&["status", "--database", &address]).fails(69);
        assert!(stderr.starts_with("warning: a password on the command line"), "{stderr}");
        assert!(!stderr.contains(SECRET), "{stderr}");
    }
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let (_home, cli) = alone();
    // The kernel accepts the connection, but no program reads it.
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
    configure(home.path(), &format!("connect_wait_secs = 0\n{ECHO}"));
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
            &["setting"],
            &["class"],
            &["db", "migrate"],
            &["db", "migrate", "--dry-run"],
        ] {
            let stderr = by_variable.run(args).fails(69);
            assert!(stderr.contains(&format!("ann:***@{hosts}/tasks")), "{stderr}");
            let refused = stderr.matches("refused").count() + stderr.matches("(111)").count();
            assert!(refused >= 2, "an error is missing: {stderr}");
            assert!(!stderr.contains(SECRET), "{stderr}");
        }
        let on_command_line = cli.run(&["status", "--database", &address]).fails(69);
        assert!(on_command_line.starts_with("warning: a password on the command line"), "{on_command_line}");
        assert!(!on_command_line.contains(SECRET), "{on_command_line}");
        let bad = cli.run(&["status", "--database", &address.replace(",127.0.0.1:", ",127.0.0.1:x")]).fails(78);
        assert!(bad.contains("check number 2") && !bad.contains(SECRET), "{bad}");
        configure(home.path(), &format!("connect_wait_secs = 0\ndatabase = \"{address}\"\n{ECHO}"));
        assert!(!cli.run(&["status"]).fails(69).contains(SECRET));
        configure(home.path(), &format!("connect_wait_secs = 0\n{ECHO}"));
    }
}

#[test]
fn a_remote_host_that_need_not_speak_tls_is_warned_of_once() {
    let (home, cli) = alone();
    configure(home.path(), "connect_wait_secs = 0\n");
    // An address for documentation, which is never used.
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
fn a_remote_host_that_is_not_in_the_address_is_warned_of_once() {
    // No TCP connection can be made to this address.
    const REMOTE: &str = "255.255.255.255";
    let (home, cli) = alone();
    configure(home.path(), "connect_wait_secs = 0\n");
    let services = home.path().join("services.conf");
    std::fs::write(
        &services,
        format!("[far]\nhost={REMOTE}\n[address]\nhostaddr={REMOTE}\n[safe]\nhost={REMOTE}\nsslmode=verify-full\n"),
    )
    .unwrap();
    let cli = cli.env("PGSERVICEFILE", services.to_str().unwrap());
    let run = |address: &str, variables: &[(&str, &str)]| {
        let cli = variables.iter().fold(cli.clone(), |cli, (name, value)| cli.env(name, value));
        cli.env("TASKQUEUE_DATABASE_URL", address).run(&["status"]).fails(69)
    };
    for (address, variables) in [
        ("postgres:///tasks", &[("PGHOST", REMOTE)][..]),
        ("postgres://ann@localhost/tasks", &[("PGHOSTADDR", REMOTE)]),
        ("postgres:///tasks", &[("PGSERVICE", "far")]),
        ("postgres://ann@localhost/tasks", &[("PGSERVICE", "address")]),
        ("postgres:///tasks?service=far", &[("PGSSLMODE", "prefer")]),
    ] {
        let stderr = run(address, variables);
        let warnings: Vec<&str> = stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
        assert_eq!(warnings.len(), 1, "{address} {variables:?}: {stderr}");
        assert!(warnings[0].contains(REMOTE) && warnings[0].contains("sslmode=verify-full"), "{stderr}");
    }
    let here = format!("postgres://ann@127.0.0.1:{}/tasks", closed_port());
    for (address, variables) in [
        ("postgres:///tasks", &[("PGSERVICE", "safe")][..]),
        ("postgres:///tasks?service=safe", &[]),
        ("postgres:///tasks", &[("PGHOST", REMOTE), ("PGSSLMODE", "require")]),
        ("postgres:///tasks?service=far&sslmode=require", &[]),
        // The host of the address is the one that is used.
        (&here, &[("PGHOST", REMOTE)]),
    ] {
        let stderr = run(address, variables);
        assert!(!stderr.contains("warning: "), "{address} {variables:?}: {stderr}");
    }
}

#[test]
fn the_library_returns_the_host_that_an_address_uses_without_tls() {
    for (address, host) in [
        ("postgres://ann@db/tasks", Some("db")),
        ("postgres://ann@localhost/tasks?hostaddr=192.0.2.1", Some("192.0.2.1")),
        ("postgres://ann@db/tasks?sslmode=verify-full", None),
        ("mysql://ann@db/tasks", Some("db")),
        ("mysql://ann@localhost/tasks", None),
        ("tasks.db", None),
    ] {
        assert_eq!(taskqueue::TaskQueue::host_without_tls(address).unwrap().as_deref(), host, "{address}");
    }
    assert!(taskqueue::TaskQueue::host_without_tls("postgress://db/tasks").is_err());
}

#[test]
fn tls_that_is_demanded_of_a_server_without_it_is_an_error() {
    // The MySQL client library, which is MariaDB's here, always supports TLS.
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
            assert!(stderr.contains("unknown key `bad`") && !stderr.contains(SECRET), "{stderr}");
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
            [&["queue", "echo"][..], &["create-runs"], &["tick"], &["setting", "set", "TaskQueueRunnerLimit", "3"]]
        {
            let (error, hint) = error_and_hint(&db.cli().run(args).fails(69));
            assert!(error.contains("cannot be written") && hint.contains("primary server"), "{error} {hint}");
        }
        assert_eq!(db.cli().run(&["status", "--json"]).json()["counts"]["scheduled"]["count"], 1);
    });
}

/// Starts a PostgreSQL that refuses each connection with this code, in another language.
fn refusing_postgres(code: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let refusal = format!("SFATAL\0C{code}\0MVerbindung abgelehnt\0\0");
    let answer = move |mut stream: std::net::TcpStream| -> std::io::Result<()> {
        let mut head = [0; 8];
        loop {
            stream.read_exact(&mut head)?;
            let request = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
            // The client asks for TLS or GSSAPI.
            if request != 80_877_103 && request != 80_877_104 {
                break;
            }
            stream.write_all(b"N")?;
        }
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        stream.read_exact(&mut vec![0; length as usize - 8])?;
        stream.write_all(b"E")?;
        stream.write_all(&(u32::try_from(refusal.len()).unwrap() + 4).to_be_bytes())?;
        stream.write_all(refusal.as_bytes())
    };
    std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(answer(stream))));
    port
}

/// Starts a MySQL that refuses each connection with this code, in another language.
fn refusing_mysql(code: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut refusal = vec![0xff];
    refusal.extend(code.to_le_bytes());
    refusal.extend(b"Verbindung abgelehnt");
    let mut packet = vec![u8::try_from(refusal.len()).unwrap(), 0, 0, 0];
    packet.extend(refusal);
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|mut stream| drop(stream.write_all(&packet)));
    });
    port
}

#[test]
fn a_server_without_free_connections_is_named_with_75_in_any_language() {
    let (home, cli) = alone();
    configure(home.path(), &format!("connect_wait_secs = 2\n{ECHO}"));
    for (scheme, port, code, hint) in [
        (
            "postgres",
            refusing_postgres("53300"),
            "too_many_connections",
            "max_connections, or CONNECTION LIMIT of this role, put PgBouncer in front of it",
        ),
        ("mysql", refusing_mysql(1040), "too_many_connections", "max_user_connections of this user, put ProxySQL"),
        ("postgres", refusing_postgres("57P03"), "not_ready", "the server is starting"),
        ("mysql", refusing_mysql(1053), "not_ready", "the server is starting"),
    ] {
        let cli = cli.clone().env("TASKQUEUE_DATABASE_URL", &format!("{scheme}://ann@127.0.0.1:{port}/tasks"));
        let stderr = cli.run(&["queue", "echo"]).fails(75);
        let waits = format!("warning: cannot reach the database {scheme}://ann@127.0.0.1:{port}/tasks: ");
        assert!(stderr.starts_with(&waits) && stderr.contains("; retrying for up to 2 seconds\n"), "{stderr}");
        assert!(stderr.contains(hint), "{stderr}");
        let json = cli.run(&["--json", "status"]).fails(75);
        let error: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
        assert_eq!(error["error"]["code"], code);
    }
    // A permanent refusal is not retried.
    let refused = format!("postgres://ann@127.0.0.1:{}/tasks", refusing_postgres("28P01"));
    let stderr = cli.env("TASKQUEUE_DATABASE_URL", &refused).run(&["status"]).fails(69);
    assert!(!stderr.contains("retrying"), "{stderr}");
}

#[test]
fn a_worker_waits_for_a_server_until_it_is_told_to_stop() {
    let (home, cli) = alone();
    configure(home.path(), ECHO);
    for (scheme, port) in [("postgres", refusing_postgres("53300")), ("mysql", closed_port())] {
        let address = format!("{scheme}://ann@127.0.0.1:{port}/tasks");
        let mut worker = cli.clone().env("TASKQUEUE_DATABASE_URL", &address).spawn(&["work"]);
        let mut line = String::new();
        std::io::BufReader::new(worker.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.ends_with("; retrying until it can be reached\n"), "{line}");
        let pid = rustix::process::Pid::from_raw(i32::try_from(worker.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(finish(worker).code, Some(0));
    }
}
