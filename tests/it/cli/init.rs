//! `taskqueue init`

use std::os::unix::fs::PermissionsExt as _;

use super::bad_store::alone;
use super::error_and_hint;
use crate::support::EngineUnderTest;
use crate::support::db::Raw;

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
    let next = ended.ok();
    let commands: Vec<&str> = next.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(commands, ["taskqueue queue hello '{\"hello\":\"world\"}'", "taskqueue tick", "taskqueue status"]);
    assert!(next.ends_with(" tick") && next.contains("# for every minute, in crontab -e:   * * * * * /"), "{next}");
    cli.run(&["queue", "hello", "{\"hello\":\"world\"}"]).ok();
    cli.run(&["tick"]).ok();
    assert!(cli.run(&["status"]).ok().contains("success 1"));
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
    for bad in [&["init", "exec"][..], &["init", "a b"], &["init", "mail", "--", "cat"]] {
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
    // The missing tables are created by `migrate`, which reads their address from this configuration.
    let shop = home.path().join("shop.db");
    Raw::connect(EngineUnderTest::Sqlite, shop.to_str().unwrap())
        .execute("CREATE TABLE Orders (Id INTEGER PRIMARY KEY)");
    let ended = cli.run(&["init", "--database", "shop.db"]);
    assert!(ended.code == Some(78) && ended.stderr.contains("wrote "), "{ended:?}");
    assert!(std::fs::read_to_string(&path).unwrap().contains("shop.db"));
    cli.run(&["db", "migrate"]).ok();
    assert_eq!(cli.run(&["queue", "hello"]).ok(), "1");
}
