//! Completions: real shells with the scripts that the program prints, and the program itself, called like fish does.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use taskqueue_domain::task::ids::RunnerId;
use taskqueue_store::Store;

use super::{ECHO, shell_class, write};
use crate::each_engine;
use crate::support::cli::{Cli, finish};
use crate::support::db::on;
use crate::support::{EngineUnderTest, TestDb, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskqueue");

/// A shell that finds the tested program, with a long time limit for completions.
fn shell(cli: &Cli, name: &str) -> Cli {
    let directory = Path::new(PROGRAM).parent().unwrap().display();
    cli.clone()
        .program(Path::new(name))
        .env("PATH", &format!("{directory}:/usr/local/bin:/usr/bin:/bin"))
        .env("TASKQUEUE_COMPLETE_TIMEOUT", "60s")
}

/// Returns what is offered for the last of these words, each with its note.
fn offered_by(cli: &Cli, words: &[&str]) -> Vec<(String, String)> {
    let ended = cli.clone().env("TASKQUEUE_COMPLETE", "fish").run(&[&["--", "taskqueue"][..], words].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{words:?}: {ended:?}");
    let line = |line: &str| {
        let (word, note) = line.split_once('\t').unwrap_or((line, ""));
        (word.to_owned(), note.to_owned())
    };
    ended.stdout.lines().map(line).collect()
}

fn offered(db: &TestDb, words: &[&str]) -> Vec<(String, String)> {
    offered_by(&db.cli().env("TASKQUEUE_COMPLETE_TIMEOUT", "60s"), words)
}

fn words(offered: &[(String, String)]) -> Vec<&str> {
    offered.iter().map(|(word, _)| word.as_str()).collect()
}

/// Returns the ids among them.
fn ids(offered: &[(String, String)]) -> Vec<&str> {
    words(offered).into_iter().filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).collect()
}

/// Task 1 has failed without a retry, task 2 is for tomorrow, task 3 has an unknown class, and task 4 is a schedule.
fn fill(db: &TestDb) {
    db.configure(&format!("{ECHO}{}", shell_class(db, "mail.send", "exit 65")));
    db.cli().run(&["queue", "mail.send"]).ok();
    db.cli().run(&["tick"]).ok();
    db.cli().run(&["queue", "echo", "--in", "1d", "--unique", "order-17", "--tag", "account-17"]).ok();
    db.cli().run(&["queue", "--any-class", "other.class"]).ok();
    db.cli().run(&["queue", "echo", "--every", "0 3 * * *"]).ok();
    db.cli().run(&["create-runs"]).ok();
    db.cli().run(&["limit", "set", "--key", "server-7", "--running", "3"]).ok();
    db.cli().run(&["pause", "--class", "mail.send", "--reason", "it is down"]).ok();
    db.execute("INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"Name\", \"Host\") VALUES (1, 'import-1', 'web1')");
}

each_engine! {
    fn what_the_store_has_is_offered_where_it_can_stand(db) {
        fill(db);
        let tasks = offered(db, &["status", ""]);
        assert_eq!(ids(&tasks)[0], "1", "{tasks:?}");
        assert_eq!(tasks[0].1, "mail.send failed");
        assert!(tasks.contains(&("2".to_owned(), "echo scheduled".to_owned())), "{tasks:?}");
        assert!(words(&tasks).contains(&"last") && words(&tasks).contains(&"class="), "{tasks:?}");
        assert_eq!(ids(&offered(db, &["retry", ""])), ["1"]);
        assert_eq!(words(&offered(db, &["retry", "error="])), ["error=exit:65"]);
        assert_eq!(words(&offered(db, &["status", "key=ord"])), ["key=order-17"]);
        assert_eq!(words(&offered(db, &["status", "tag=a"])), ["tag=account-17"]);
        assert_eq!(words(&offered(db, &["worker", "claim", "--tag", ""])), ["account-17"]);
        assert_eq!(words(&offered(db, &["worker", "claim", "--tag", "b"])), [""; 0]);
        assert_eq!(words(&offered(db, &["status", "class=oth"])), ["class=other.class"]);
        assert_eq!(words(&offered(db, &["status", "status=exh"])), ["status=exhausted"]);
        assert_eq!(offered(db, &["queue", "ec"]), [("echo".to_owned(), "/bin/cat".to_owned())]);
        assert_eq!(words(&offered(db, &["failures", "--class", "o"])), ["other.class"]);
        assert_eq!(words(&offered(db, &["failures", "--class=o"])), ["--class=other.class"]);
        assert_eq!(words(&offered(db, &["queue", "echo", "--after", "1,2"])), ["1,2"]);
        assert_eq!(offered(db, &["schedule", "show", ""]), [("4".to_owned(), "echo 0 3 * * *".to_owned())]);
        assert_eq!(words(&offered(db, &["queue", "echo", "--limit-key", ""])), ["server-7"]);
        assert_eq!(offered(db, &["pause", "--runner", "im"]), [("import-1".to_owned(), "web1".to_owned())]);
        assert_eq!(offered(db, &["resume", "--class", ""]), [("mail.send".to_owned(), "it is down".to_owned())]);
        assert_eq!(offered(db, &["events", "--run", "1"])[0], ("1".to_owned(), "mail.send error".to_owned()));
        let waiting = offered(db, &["process-run", ""]);
        assert_eq!(waiting.iter().map(|(_, note)| note.as_str()).collect::<Vec<_>>(), ["other.class scheduled"]);
        let cli = db.cli().without_env("TASKQUEUE_DATABASE_URL").env("TASKQUEUE_COMPLETE_TIMEOUT", "60s");
        assert_eq!(ids(&offered_by(&cli, &["retry", ""])), Vec::<&str>::new());
        assert_eq!(ids(&offered_by(&cli, &["--database", db.url_text(), "retry", ""])), ["1"]);
        assert_eq!(ids(&offered_by(&cli, &["retry", &format!("--database={}", db.url_text()), ""])), ["1"]);
    }

    fn bash_offers_verbs_ids_and_classes_and_what_is_behind_an_equals_sign(db) {
        fill(db);
        let offers = |line: &str, replaced: &str| -> Vec<String> {
            let script = "source <(taskqueue completions bash)
                taskqueue() { echo 'a function'; }
                COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COLUMNS=80
                _taskqueue taskqueue \"$2\" ''
                printf '%s\\n' \"${COMPREPLY[@]}\"";
            let ended = shell(&db.cli(), "/bin/bash").run(&["--norc", "-c", script, "bash", line, replaced]);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{line}: {ended:?}");
            ended.stdout.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
        };
        assert_eq!(offers("taskqueue expl", "expl"), ["explain"]);
        assert_eq!(offers("taskqueue retry 1", "1"), ["1"]);
        let tasks = offers("taskqueue status ", "");
        assert!(tasks[0].starts_with("1 ") && tasks[0].ends_with("  (mail.send failed)"), "{tasks:?}");
        assert_eq!(offers("taskqueue retry class=mai", "mai"), ["mail.send"]);
        assert_eq!(offers("taskqueue retry \"class=mai", "class=mai"), ["class=mail.send"]);
        assert_eq!(offers("taskqueue failures --class=ec", "ec"), ["echo"]);
        assert_eq!(offers("taskqueue queue oth", "oth"), ["other.class"]);
    }

    fn whoever_looks_changes_nothing(db) {
        let mut store = Store::open_to_look(&db.url(), Duration::from_secs(60)).unwrap();
        db.execute("INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"Name\") VALUES (1, 'import-1')");
        let runner = db.number("SELECT \"Id\" AS value FROM \"TaskQueueRunners\"");
        assert_eq!(store.list_runner_names(10).unwrap().len(), 1);
        let refused = store.finish_runners(&[RunnerId(runner)]).unwrap_err().to_string();
        assert!(refused.to_lowercase().replace('-', "").replace("read only", "readonly").contains("readonly"), "{refused}");
    }
}

#[test]
fn words_of_the_program_itself_need_no_store() {
    let home = tempfile::tempdir().unwrap();
    let cli = Cli::new(home.path());
    let only = |given: &[&str]| words(&offered_by(&cli, given)).join(" ");
    assert_eq!(only(&["pru"]), "prune");
    assert_eq!(only(&["retry", "--dry"]), "--dry-run");
    assert_eq!(only(&["--color", "al"]), "always");
    assert_eq!(only(&["completions", "z"]), "zsh");
    assert_eq!(only(&["setting", "get", "TaskQueueRunnerL"]), "TaskQueueRunnerLimit");
    assert_eq!(only(&["status", "--status", "f"]), "failed");
    assert_eq!(only(&["queue", "echo", "--unique", "k", "--on-conflict", "rep"]), "replace");
    assert_eq!(only(&["help", "sel"]), "selections");
    std::fs::create_dir(home.path().join("pages")).unwrap();
    assert_eq!(only(&["man", "--directory", "pa"]), "pages/");
    // Options are offered if nothing else is possible.
    assert!(only(&["tick", ""]).contains("--max-time"), "{}", only(&["tick", ""]));
    assert!(!home.path().join(".local").exists(), "a file was created");
}

#[test]
fn a_store_that_cannot_be_asked_offers_nothing_and_says_nothing() {
    let home = tempfile::tempdir().unwrap();
    let place = |name: &str| home.path().join(name).display().to_string();
    std::fs::write(place("empty.db"), "").unwrap();
    let addresses = [
        "postgres://nobody@127.0.0.1:1/none".to_owned(),
        "mysql://nobody@127.0.0.1:1/none".to_owned(),
        place("missing.db"),
        place("no/such/directory.db"),
        place("empty.db"),
        "nonsense://nowhere".to_owned(),
    ];
    let asked = [["status", "1"], ["retry", "class=m"], ["retry", "error="], ["process-run", "1"]];
    for address in &addresses {
        let cli = Cli::new(home.path()).env("TASKQUEUE_DATABASE_URL", address);
        for words in &asked {
            assert!(offered_by(&cli, words).is_empty(), "{address} {words:?}");
        }
        let script = "source <(taskqueue completions bash)
            COMP_LINE='taskqueue status 1' COMP_POINT=18; _taskqueue taskqueue 1 status; echo \"${#COMPREPLY[@]}\"";
        let ended = shell(&cli, "/bin/bash").run(&["--norc", "-c", script]);
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("0\n", ""), "{address}");
    }
    assert!(!Path::new(&place("missing.db")).exists(), "a file was created");
    assert_eq!(std::fs::metadata(place("empty.db")).unwrap().len(), 0, "the store was migrated");
    crate::support::cli::configure_exactly(home.path(), "no_such_key = 1\n");
    assert!(offered_by(&Cli::new(home.path()), &["queue", "e"]).is_empty());
}

#[test]
fn a_server_that_never_answers_is_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let home = tempfile::tempdir().unwrap();
    for scheme in ["postgres", "mysql"] {
        let address = format!("{scheme}://nobody@{}/none?connect_timeout=3600", silent.local_addr().unwrap());
        let cli = Cli::new(home.path()).env("TASKQUEUE_DATABASE_URL", &address).env("TASKQUEUE_COMPLETE", "fish");
        let mut child = cli.spawn(&["--", "taskqueue", "status", "1"]);
        wait_until("it has given up", || child.try_wait().unwrap().is_some());
        let ended = finish(child);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""), "{scheme}");
    }
}

#[test]
fn a_configuration_that_is_a_pipe_is_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let found = home.path().join(".config/taskqueue/config.toml");
    std::fs::create_dir_all(found.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(&found).status().unwrap().success());
    let pipe = found.to_str().unwrap();
    let cli = Cli::new(home.path()).env("TASKQUEUE_COMPLETE", "fish");
    let by_variable = cli.clone().env("TASKQUEUE_CONFIG", pipe);
    let (by_option, device) = (["--config", pipe], ["--config", "/dev/zero"]);
    for (cli, options) in [(&cli, &by_option[..]), (&cli, &device), (&cli, &[]), (&by_variable, &[])] {
        for asked in [["queue", "e"], ["status", "1"]] {
            let mut child = cli.spawn(&[&["--", "taskqueue"][..], options, &asked].concat());
            wait_until("it has given up", || child.try_wait().unwrap().is_some());
            let ended = finish(child);
            assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""), "{options:?}");
        }
    }
}

#[test]
fn a_variable_that_was_left_behind_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    for (name, value) in
        [("COMPLETE", "bash"), ("COMPLETE", "1"), ("TASKQUEUE_COMPLETE", "zsh"), ("TASKQUEUE_COMPLETE", "1")]
    {
        let ended = Cli::new(home.path()).env(name, value).run(&["help", "times"]);
        assert!(ended.clone().ok().starts_with("TIMES\n"), "{name}={value}: {ended:?}");
        let refused = Cli::new(home.path()).env(name, value).run(&["stauts"]).fails(2);
        assert!(refused.contains("status"), "{name}={value}: {refused}");
    }
}

#[test]
fn fish_offers_verbs_ids_and_classes_with_what_they_are() {
    on(EngineUnderTest::Sqlite, |db| {
        fill(db);
        let fish = shell(&db.cli(), "/usr/bin/fish").env("TERM", "dumb");
        let offers = |line: &str| {
            let script = format!("taskqueue completions fish | source; complete --do-complete '{line}'");
            let ended = fish.run(&["--no-config", "-c", &script]);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{line}: {ended:?}");
            ended.stdout
        };
        assert!(offers("taskqueue expl").starts_with("explain\t"), "{}", offers("taskqueue expl"));
        assert_eq!(offers("taskqueue retry 1"), "1\tmail.send failed\n");
        assert!(offers("taskqueue queue ec").starts_with("echo\t/bin/cat"), "{}", offers("taskqueue queue ec"));
        assert!(offers("taskqueue retry class=mai").starts_with("class=mail.send"));
    });
}

/// A shell on its own terminal, with keys typed into it.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    fn open(db: &TestDb, shell: &str) -> Self {
        let directory = Path::new(PROGRAM).parent().unwrap().display();
        let line = format!("stty cols 120 rows 40; exec {shell}");
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env_clear()
            .env("PATH", format!("{directory}:/usr/local/bin:/usr/bin:/bin"))
            .env("HOME", db.home())
            .env("TERM", "xterm")
            .env("LANG", "C.UTF-8")
            .env("INPUTRC", "/dev/null")
            .env("NO_COLOR", "1")
            .env("TASKQUEUE_DATABASE_URL", db.url_text())
            .env("TASKQUEUE_COMPLETE_TIMEOUT", "60s")
            .current_dir(db.home())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let shown = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut part) {
                let text = String::from_utf8_lossy(&part[..length]).into_owned();
                heard.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        let terminal = Self { child, keys, shown };
        wait_until("the shell prompts", || !terminal.shown().is_empty());
        terminal
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn wait_for(&self, text: &str) {
        wait_until(&format!("the terminal shows {text:?}"), || self.shown().contains(text));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Types the unique beginnings of a verb, an id and a class, each followed by TAB, and checks the result.
fn complete_by_tab(db: &TestDb, shell: &str, load: &str) {
    db.configure(&format!("{ECHO}{}", shell_class(db, "mail.send", "exit 65")));
    db.execute("INSERT INTO \"TaskQueue\" (\"Id\", \"TaskClass\") VALUES (4711, 'mail.send')");
    let mut terminal = Terminal::open(db, shell);
    terminal.press(&format!("{load}; echo load''ed\n"));
    terminal.wait_for("loaded");
    terminal.press("taskqueue stat\t47\t\n");
    terminal.wait_for("task 4711");
    let count = |what: &str| db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE {what}"));
    terminal.press("taskqueue queue mail.s\t\n");
    wait_until("it is queued", || count("\"TaskClass\" = 'mail.send'") == 2);
    terminal.press("taskqueue cancel --yes class=mai\t\n");
    wait_until("they are cancelled", || count("\"LastStatus\" = 'cancelled'") == 2);
    terminal.press("exit\n");
    wait_until("the shell ends", || terminal.child.try_wait().unwrap().is_some());
}

#[test]
fn a_tab_in_bash_completes_a_verb_an_id_and_a_class() {
    on(EngineUnderTest::Sqlite, |db| {
        complete_by_tab(db, "bash --norc --noprofile -i", "source <(taskqueue completions bash)");
    });
}

#[test]
fn a_tab_in_zsh_completes_a_verb_an_id_and_a_class() {
    on(EngineUnderTest::Sqlite, |db| {
        std::fs::create_dir(db.home().join("functions")).unwrap();
        write(db, "functions/_taskqueue", db.cli().run(&["completions", "zsh"]).ok());
        let load = "fpath=(~/functions $fpath); autoload -Uz compinit; compinit -u -D";
        complete_by_tab(db, "zsh -f -i", load);
    });
}

/// Completes a key that a shell would execute as a command, and uses it.
fn complete_a_command_by_tab(db: &TestDb, shell: &str, load: &str) {
    let key = "k$(touch pwned)`touch pwned`;touch pwned";
    db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LimitKey\") VALUES ('echo', '{key}')"));
    db.execute(&format!("INSERT INTO \"TaskQueueKeyLimits\" (\"LimitKey\", \"MaxRunning\") VALUES ('{key}', 1)"));
    let mut terminal = Terminal::open(db, shell);
    terminal.press(&format!("{load}; echo load''ed\n"));
    terminal.wait_for("loaded");
    terminal.press("taskqueue limit set --running 7 --key k\t\n");
    wait_until("the limit is set", || {
        db.number("SELECT MAX(\"MaxRunning\") AS value FROM \"TaskQueueKeyLimits\"") == 7
    });
    assert_eq!(
        db.number(&format!(
            "SELECT COUNT(*) AS value FROM \"TaskQueueKeyLimits\" WHERE \"LimitKey\" = '{key}' AND \"MaxRunning\" = 7"
        )),
        1
    );
    terminal.press("exit\n");
    wait_until("the shell ends", || terminal.child.try_wait().unwrap().is_some());
    assert!(!db.home().join("pwned").exists());
}

#[test]
fn a_tab_in_bash_makes_no_command_of_a_key() {
    on(EngineUnderTest::Sqlite, |db| {
        complete_a_command_by_tab(db, "bash --norc --noprofile -i", "source <(taskqueue completions bash)");
    });
}

#[test]
fn a_tab_in_zsh_makes_no_command_of_a_key() {
    on(EngineUnderTest::Sqlite, |db| {
        std::fs::create_dir(db.home().join("functions")).unwrap();
        write(db, "functions/_taskqueue", db.cli().run(&["completions", "zsh"]).ok());
        complete_a_command_by_tab(db, "zsh -f -i", "fpath=(~/functions $fpath); autoload -Uz compinit; compinit -u -D");
    });
}
