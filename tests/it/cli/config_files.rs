//! Pipes and devices instead of a configuration file: read if a command line names them, and never waited for by accident.

use std::path::Path;
use std::process::Command;

use super::bad_store::alone;
use super::{ECHO, error_and_hint};
use crate::support::cli::configure_exactly;
use crate::support::{Cli, Ended};

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskqueue");

fn make_pipe(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Runs a command; returns 124 if it does not end within a minute.
fn ended(cli: &Cli, args: &[&str]) -> Ended {
    cli.clone().program(Path::new("/usr/bin/timeout")).run(&[&["60", PROGRAM][..], args].concat())
}

#[track_caller]
fn refused(cli: &Cli, args: &[&str], path: &str) {
    let (error, hint) = error_and_hint(&ended(cli, args).fails(78));
    assert!(error.contains(path) && error.contains("it is not a regular file"), "{args:?}: {error}");
    assert!(hint.contains("--config or TASKQUEUE_CONFIG"), "{hint}");
}

#[test]
fn a_pipe_in_the_place_of_a_configuration_is_an_error_without_a_wait() {
    let (home, cli) = alone();
    let found = home.path().join(".config/taskqueue/config.toml");
    make_pipe(&found);
    for args in [&["status"][..], &["queue", "echo"], &["tick"], &["class"], &["db", "migrate"], &["doctor"]] {
        refused(&cli, args, "taskqueue/config.toml");
    }
    let named = cli.clone().env("TASKQUEUE_CONFIG", &found.display().to_string());
    refused(&named, &["status"], "taskqueue/config.toml");
    std::fs::remove_file(&found).unwrap();
    configure_exactly(home.path(), ECHO);
    make_pipe(&home.path().join(".config/taskqueue/conf.d/10-mail.toml"));
    refused(&cli, &["status"], "conf.d/10-mail.toml");
    assert!(!home.path().join(".local").exists(), "a file was created");
}

#[test]
fn a_device_or_a_directory_is_no_configuration_whoever_names_it() {
    let (_home, cli) = alone();
    for path in ["/dev/zero", "/dev/tty", "/usr"] {
        refused(&cli, &["status", "--config", path], path);
        refused(&cli.clone().env("TASKQUEUE_CONFIG", path), &["status"], path);
    }
}

#[test]
fn the_null_device_means_no_configuration() {
    let (home, cli) = alone();
    configure_exactly(home.path(), ECHO);
    let link = home.path().join("none");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    assert!(ended(&cli, &["class"]).ok().contains("echo"));
    for path in ["/dev/null", link.to_str().unwrap()] {
        let by_variable = cli.clone().env("TASKQUEUE_CONFIG", path);
        for found in [ended(&cli, &["class", "--config", path]), ended(&by_variable, &["class"])] {
            let text = found.ok();
            assert!(text.contains("exec") && !text.contains("echo"), "{text}");
        }
        ended(&by_variable, &["tick"]).ok();
        ended(&cli, &["queue", "--config", path, "exec", "{\"argv\":[\"/bin/true\"]}"]).ok();
    }
}

#[test]
fn a_pipe_that_somebody_names_on_the_command_line_is_read() {
    let (home, cli) = alone();
    assert_eq!(ended(&cli.clone().stdin(ECHO), &["--config", "/dev/stdin", "queue", "echo"]).ok(), "1");
    std::fs::write(home.path().join("classes"), ECHO).unwrap();
    let line = format!("exec timeout 60 {PROGRAM} --config <(cat classes) queue echo");
    assert_eq!(cli.clone().program(Path::new("/bin/bash")).run(&["-c", &line]).ok(), "2");
    let pipe = home.path().join("pipe");
    make_pipe(&pipe);
    let mut writer =
        Command::new("/bin/sh").args(["-c", "exec cat classes >pipe"]).current_dir(home.path()).spawn().unwrap();
    let queued = ended(&cli, &["--config", pipe.to_str().unwrap(), "queue", "echo"]);
    let _ = writer.kill();
    writer.wait().unwrap();
    assert_eq!(queued.ok(), "3");
    let (error, _) = error_and_hint(&ended(&cli.stdin("nonsense = 1"), &["--config", "/dev/stdin", "tick"]).fails(78));
    assert!(error.contains("/dev/stdin: line 1, column 1: unknown key `nonsense`"), "{error}");
}

#[test]
fn no_configured_program_interprets_the_name_of_a_class() {
    let (home, cli) = alone();
    let refused = |toml: &str, part: Option<&str>| {
        configure_exactly(home.path(), toml);
        let directory = home.path().join(".config/taskqueue/conf.d");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("10-part.toml"), part.unwrap_or_default()).unwrap();
        for args in [&["status"][..], &["queue", "a", "--run"], &["tick"], &["class", "check"]] {
            let stderr = cli.run(args).fails(78);
            assert!(stderr.contains("{class}") && stderr.contains("$TASKQUEUE_CLASS"), "{toml}: {stderr}");
        }
    };
    for argv in [
        r#"["/srv/any-program", "run '{class}'"]"#,
        r#"["/bin/sh", "-c", "--", "echo \"class {class}\" \"see issue; echo PWNED #5\""]"#,
        r#"["/bin/sh", "-c", "-e", "{class}"]"#,
        r#"["/usr/bin/env", "-S", "sh -c", "{class}"]"#,
        r#"["/usr/bin/ssh", "host", "run", "{class}"]"#,
    ] {
        let handler = format!("[class.\"*\"]\nargv = {argv}\n");
        refused(&handler, None);
        refused(ECHO, Some(&handler));
        refused(&format!("{handler}protocol = \"coprocess\"\n"), None);
        refused(&format!("[class.\"*\"]\nargv = [\"/bin/true\"]\nexists = {argv}\n"), None);
        refused(&format!("[notify]\nargv = {argv}\n"), None);
        for hook in ["success", "failed", "retry"] {
            refused(&format!("[hooks]\n{hook} = {argv}\n"), None);
        }
    }
}
