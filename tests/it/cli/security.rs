//! Attacks on guarantees of docs/security.md that concern no single verb: passwords, file modes, `/tmp`, pasted commands.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::outside_text::PRINTING;
use super::work_metrics::{Worker, get};
use super::{ECHO, detail, printed, shell_class, task, wait_for_file};
use crate::contrib_roles::{PASSWORD, Person, make_roles};
use crate::support::cli::finish;
use crate::support::{Cli, Ended, EngineUnderTest};
use crate::{each_engine, each_server};

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskqueue");

fn assert_has_no_password(what: &str, ended: &Ended) {
    for text in [&ended.stdout, &ended.stderr] {
        assert!(!text.contains(PASSWORD), "{what}: {ended:?}");
    }
}

/// Collects every file and directory below this one, without following links.
fn all_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        // A file may be removed while the directory is read.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            all_below(&path, found);
        }
        found.push(path);
    }
}

/// Runs the program in a shell that first executes `first`.
fn after(cli: &Cli, first: &str, args: &[&str]) -> std::process::Child {
    let script = format!("{first}; exec \"$0\" \"$@\"");
    cli.clone().program(Path::new("/bin/sh")).spawn(&[&["-c", &script, PROGRAM], args].concat())
}

/// Checks that everything the program has created below these directories is private to its user. Returns the number of files.
fn check_modes(directories: &[PathBuf]) -> usize {
    let mut found = Vec::new();
    directories.iter().for_each(|directory| all_below(directory, &mut found));
    found.extend(directories.iter().filter(|directory| directory.exists()).cloned());
    let mut count = 0;
    for path in found {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        assert_eq!(metadata.permissions().mode() & 0o077, 0, "{}", path.display());
        count += usize::from(metadata.is_file());
    }
    count
}

each_engine! {
    fn what_the_program_makes_is_private_whatever_the_umask(db) {
        let ready = db.home().join("ready");
        let wait = format!("echo out; echo err >&2; echo >{0}; until test -e {0}.go; do sleep 0.01; done", ready.display());
        db.configure(&shell_class(db, "work", &wait));
        let cli = if db.engine == EngineUnderTest::Sqlite { db.cli().without_env("TASKQUEUE_DATABASE_URL") } else { db.cli() };
        let below = [db.home().join(".local/share/taskqueue"), db.home().join(".local/state/taskqueue")];
        let _ = finish(after(&cli, "umask 0", &["db", "migrate"])).ok();
        let _ = finish(after(&cli, "umask 0", &["queue", "work"])).ok();
        let worker = after(&cli, "umask 0", &["work", "--idle-exit", "0s"]);
        wait_for_file(db, "ready");
        let during = check_modes(&below);
        fs::write(db.home().join("ready.go"), "").unwrap();
        assert_eq!(finish(worker).code, Some(0));
        check_modes(&below);
        // The store with its log and index, and the file of the run.
        assert!(during >= if db.engine == EngineUnderTest::Sqlite { 4 } else { 1 }, "{during} files");
        let made = finish(after(&cli, "umask 0; rm -r .config", &["init", "work", "--", "/bin/cat"]));
        // On a server, the configuration must set a user.
        assert!(matches!(made.code, Some(0 | 78)), "{made:?}");
        assert_eq!(check_modes(&[db.home().join(".config/taskqueue")]), 1);
    }

    fn the_program_needs_no_tmp_and_leaves_nothing_in_it(db) {
        if !geteuid().is_root() {
            return;
        }
        db.configure(ECHO);
        let url = if db.engine == EngineUnderTest::Sqlite { "sqlite:///mnt/tasks.db" } else { db.url_text() };
        let home = db.home().display().to_string();
        for (options, verbs) in [
            ("ro", "queue echo; $T work --idle-exit 0s --slots 2; $T queue echo; $T tick; $T export >/dev/null; $T metrics >/dev/null"),
            ("rw", "queue echo; $T work --idle-exit 0s --slots 2; $T queue echo --run; $T metrics --textfile $HOME/m.prom; $T prune 1-9 --yes"),
        ] {
            let script = format!(
                "set -e; T={PROGRAM}; mount --bind {home} /mnt; mount -t tmpfs -o {options} none /tmp; export HOME=/mnt; cd /mnt; \
                 $T {verbs}; echo; echo \"left: $(ls -A /tmp)\""
            );
            let cli = db.cli().env("TASKQUEUE_DATABASE_URL", url).program(Path::new("/usr/bin/unshare"));
            let ended = cli.run(&["--mount", "/bin/sh", "-c", &script]);
            assert_eq!(ended.code, Some(0), "{options}: {ended:?}");
            assert_eq!(ended.stdout.lines().last(), Some("left: "), "{options}: {ended:?}");
        }
    }

    fn no_command_that_is_printed_runs_what_a_row_names(db) {
        let pwned = db.home().join("pwned");
        // One word in single quotes, in double quotes and without quotes: no text is harmless in all of them.
        let texts = ["$(touch pwned)", "'$(touch pwned)'", "\";touch pwned;\"", "x;touch pwned", "a&touch pwned", "|touch pwned"];
        for text in texts {
            let sql = text.replace('\'', "''");
            db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "exit 65")));
            db.cli().run(&["queue", "bad"]).ok();
            db.cli().run(&["queue", "echo", "--limit-key", "k", "--unique", text]).ok();
            db.cli().run(&["tick"]).ok();
            db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"ErrorCode\" = '{sql}', \"ErrorMessage\" = '{sql}' WHERE \"Status\" = 'error'"));
            db.execute(&format!("INSERT INTO \"TaskQueuePauses\" (\"Scope\", \"Name\") VALUES ('runner', '{sql}'), ('class', '{sql}')"));
            db.execute(&format!("INSERT INTO \"TaskQueueClassHolds\" (\"TaskClass\", \"Host\", \"Reason\", \"HeldUntil\") VALUES ('bad', '{sql}', '{sql}', '2099-01-01 00:00:00')"));
            db.execute(&format!("INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"Name\", \"Host\") VALUES (1, '{sql}', '{sql}')"));
            let mut pasted = HashSet::new();
            for args in PRINTING {
                let ended = db.cli().run(&args.split(' ').collect::<Vec<_>>());
                let mut commands = Vec::new();
                for line in ended.stdout.lines().chain(ended.stderr.lines()) {
                    commands.extend(line.match_indices("taskqueue ").map(|(at, _)| {
                        let end = if line[..at].ends_with('`') { line[at..].find('`') } else { None };
                        &line[at..end.map_or(line.len(), |end| at + end)]
                    }));
                }
                commands.retain(|command| pasted.insert((*command).to_owned()));
                // The pasted commands run with a program that does nothing, so that only the text itself could execute
                // something; each in a subshell, which alone is ended by bad syntax.
                let script = "taskqueue() { :; }; set -f; for command; do (eval \"$command\"); done";
                if !commands.is_empty() {
                    let _ = db.cli().program(Path::new("/bin/sh")).run(&[&["-c", script, "sh"], &commands[..]].concat());
                    assert!(!pwned.exists(), "{args}: {commands:?}");
                }
            }
            assert!(pasted.len() > 3, "{pasted:?}");
            for table in ["TaskQueuePauses", "TaskQueueClassHolds", "TaskQueueRunners"] {
                db.execute(&format!("DELETE FROM \"{table}\""));
            }
        }
    }
}

each_server! {
    fn no_verb_prints_or_keeps_the_password_of_the_server(db) {
        make_roles(db);
        let operator = Person::with_role(db, "taskqueue_admin");
        let environment = shell_class(db, "work", "env");
        let classes = format!("{environment}{}", shell_class(db, "bad", "exit 65"));
        db.configure(&classes);
        for class in ["bad", "work", "work"] {
            operator.cli().run(&["queue", class]).ok();
        }
        operator.cli().run(&["queue", "work", "--every", "0 3 * * *"]).ok();
        operator.cli().run(&["tick"]).ok();
        let in_file = operator.cli().without_env("TASKQUEUE_DATABASE_URL");
        let places = [("environment", operator.cli(), String::new()), ("file", in_file, format!("database = \"{}\"\n", operator.url()))];
        for (place, cli, line) in places {
            db.configure(&format!("{line}{classes}"));
            let more = ["export", "db migrate", "db migrate --dry-run", "man", "queue nothing", "status 999", "heartbeat 1 --token x", "exec -- true", "init work -- /bin/cat"];
            for args in PRINTING.iter().chain(&more) {
                let words: Vec<&str> = args.split(' ').collect();
                for first in [&[][..], &["--json"], &["--verbose"]] {
                    assert_has_no_password(&format!("{place}: {first:?} {args}"), &cli.run(&[first, &words].concat()));
                }
            }
            let wrong = format!("{}_gone", operator.url());
            assert_has_no_password("no such database", &cli.clone().env("TASKQUEUE_DATABASE_URL", &wrong).run(&["status"]));
        }
        let warned = operator.cli().run(&["--database", &operator.url(), "status"]);
        assert!(warned.stderr.starts_with("warning: a password on the command line"), "{warned:?}");
        assert_has_no_password("the command line", &warned);
        db.configure(&classes);
        let worker = Worker::start_as(&operator.cli(), &["--metrics", "127.0.0.1:0"]);
        for path in ["/metrics", "/healthz", "/"] {
            let (_, text) = get(&worker.address, path).unwrap();
            assert!(!text.contains(PASSWORD), "{path}: {text}");
        }
        worker.end();
        let after = detail(db, "2");
        assert_eq!(task(db, "2")["status"], "success");
        assert!(printed(&after, "stdout").contains("TASKQUEUE_CLASS=work"), "{after}");
        for args in [&["export"][..], &["events", "--json"], &["status", "--runners", "--json"], &["logs", "2"]] {
            assert_has_no_password("the tables", &db.cli().run(args));
        }
    }
}
