//! `taskqueue init`

use std::os::unix::fs::PermissionsExt as _;

use super::bad_store::alone;
use super::error_and_hint;

#[test]
fn init_writes_a_configuration_that_works_and_says_what_to_do_next() {
    let (home, cli) = alone();
    let ended = cli.run(&["init"]);
    let path = home.path().join(".config/taskqueue/config.toml");
    assert!(ended.stderr.contains(&format!("{} is written\n", path.display())), "{ended:?}");
    assert!(
        ended.stderr.contains("the store is sqlite://") && ended.stderr.contains("class hello can be executed; now:\n"),
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
    assert!(error.contains("there is a configuration already") && hint.contains("taskqueue classes"), "{error} {hint}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn init_says_what_keeps_a_class_from_being_executed() {
    let (_home, cli) = alone();
    let ended = cli.run(&["init", "mail", "--", "/no/such/program"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(78), ""), "{ended:?}");
    assert!(ended.stderr.contains("warning: class mail cannot be executed yet: "), "{ended:?}");
    for bad in [&["init", "exec"][..], &["init", "a b"], &["init", "mail", "--", "cat"]] {
        let (home, cli) = alone();
        assert_eq!(cli.run(bad).code, Some(2), "{bad:?}");
        assert!(!home.path().join(".config").exists(), "{bad:?}");
    }
    let (home, cli) = alone();
    assert_eq!(cli.run(&["init", "--database", "ftp://nowhere"]).code, Some(78));
    assert!(!home.path().join(".config").exists());
}
