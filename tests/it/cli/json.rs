//! The output of `--json` fits the schemas of docs/json, on every engine, and everything that they describe is printed. The
//! schemas are open for later versions; here they are closed: a key or a value without a schema fails, so that it is
//! documented.

pub(crate) mod schemas;

use serde_json::{Value, json};

use self::schemas::{Forms, can_be_anything};
use super::unreadable::insert_unreadable;
use super::{ECHO, shell_class, wait_for_file, write};
use crate::each_engine;
use crate::support::db::on;
use crate::support::{Ended, EngineUnderTest, TestDb};

/// Runs verbs and checks their output against the schemas.
struct Stage<'a> {
    db: &'a TestDb,
    forms: Forms,
    /// The verb and its output.
    documents: Vec<(String, Value)>,
}

/// Returns the name of the schema of a command: its verb, or the verb below `worker` and `report`.
fn schema_of<'a>(args: &[&'a str]) -> &'a str {
    if ["worker", "report"].contains(&args[0]) { args[1] } else { args[0] }
}

impl<'a> Stage<'a> {
    fn new(db: &'a TestDb) -> Self {
        let stage = Self { db, forms: Forms::read(), documents: Vec::new() };
        let classes = [
            ECHO.to_owned(),
            shell_class(
                db,
                "talk",
                "echo '{\"progress\":40,\"message\":\"half\",\"result\":{\"n\":1}}' >&3; echo out; echo err >&2",
            ),
            shell_class(db, "bad", "echo no such box >&2; exit 65"),
            shell_class(db, "again", "exit 75"),
            shell_class(db, "later", "echo '{\"error\":{\"code\":\"busy\",\"delay\":3600}}' >&3; exit 99"),
            shell_class(db, "crash", "kill -9 $$"),
            shell_class(db, "slow", "exec sleep 600"),
            shell_class(
                db,
                "wait",
                &format!("cd {}; echo on > started; until test -e go; do sleep 0.02; done", db.home().display()),
            ),
            "[class.gone]\nargv = [\"/no/such/program\"]\n".to_owned(),
            "[exec]\nenabled = true\n".to_owned(),
        ];
        db.configure(&classes.concat());
        stage
    }

    /// Returns the output of a verb with `--json`, one value per line, at least one. Its exit status may depend on the data.
    #[track_caller]
    fn run(&mut self, args: &[&str]) -> Vec<Value> {
        self.run_with_input(args, "")
    }

    #[track_caller]
    fn run_with_input(&mut self, args: &[&str], input: &str) -> Vec<Value> {
        let at = args.iter().position(|argument| *argument == "--").unwrap_or(args.len());
        let with_json = [&args[..at], &["--json"], &args[at..]].concat();
        let ended = self.db.cli().stdin(input).run(&with_json);
        assert_ne!(ended.stdout, "", "{args:?}: {ended:?}");
        let lines: Vec<Value> = ended.stdout.lines().map(|line| parse(line, &ended)).collect();
        for line in &lines {
            self.take(schema_of(args), line);
        }
        lines
    }

    #[track_caller]
    fn take(&mut self, name: &str, document: &Value) {
        self.forms.check(name, document);
        self.documents.push((name.to_owned(), document.clone()));
    }

    /// Returns the error of a verb that fails.
    #[track_caller]
    fn fails(&mut self, args: &[&str]) -> Value {
        let ended = self.db.cli().run(&[args, &["--json"]].concat());
        let line = ended.stderr.lines().last().unwrap_or_default();
        let error = parse(line, &ended);
        self.take("error", &error);
        error["error"].clone()
    }

    /// Queues a task and returns its id.
    fn queue(&mut self, class: &str, more: &[&str]) -> String {
        let args = [&["queue", class], more].concat();
        self.run(&args)[0]["id"].to_string()
    }
}

#[track_caller]
fn parse(line: &str, ended: &Ended) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}: {ended:?}"))
}

/// Creates tasks with every end, and tasks with every reason to wait.
fn fill(stage: &mut Stage<'_>) {
    stage.queue("talk", &[]);
    stage.queue("bad", &["{\"to\":\"x\"}"]);
    stage.queue("again", &["--priority", "3", "--backoff", "fixed:1h", "--timeout", "90s"]);
    stage.queue("later", &[]);
    stage.queue("gone", &[]);
    stage.queue("slow", &["--timeout", "1s", "--max-retries", "1"]);
    let crashed = stage.queue("crash", &["--backoff", "fixed:0s", "--max-retries", "9"]);
    stage.run(&["exec", "--", "true"]);
    // As often as it may crash.
    for _ in 0..3 {
        stage.run(&["tick", "--max-runs", "20"]);
    }
    assert_eq!(stage.run(&["explain", &crashed])[0]["cause"]["why"]["reason"], "quarantined");
    for arrival in ["queued", "existing"] {
        let args = ["queue", "echo", "--unique", "k", "--unique-for", "1h", "--at", "2099-01-01T00:00:00Z"];
        assert_eq!(stage.run(&args)[0]["arrival"], arrival);
    }
    let batch = "{\"class\":\"echo\",\"name\":\"a\",\"in\":\"1h\"}\n{\"class\":\"echo\",\"after\":[\"a\"]}\n";
    let first = stage.run_with_input(&["queue", "--batch", "-"], batch)[0]["id"].to_string();
    assert_eq!(stage.run(&["cancel", &first, "--reason", "withdrawn"])[0]["result"], "cancelled");
    for _ in 0..2 {
        stage.queue("echo", &["--limit-key", "server-7"]);
    }
    stage.queue("nobody", &["--any-class"]);
    stage.run(&["create-runs"]);
    // Rows as applications write them.
    stage
        .db
        .execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"ScheduledOn\") VALUES ('echo', '2020-01-01 00:00:00')");
}

fn look(stage: &mut Stage<'_>) {
    for args in [
        ["status", "-n", "1000"].as_slice(),
        &["status", "1", "2"],
        &["status", "--runs", "-n", "1000"],
        &["status", "--runners"],
        &["status", "--full", "1-1000", "-n", "1000"],
        &["explain", "1-1000", "-n", "1000"],
        &["explain"],
        &["failures"],
        &["doctor"],
        &["check"],
        &["metrics"],
        &["top", "--once"],
        &["class"],
        &["events", "-n", "1000"],
        &["wait", "1"],
        &["logs", "1"],
        &["logs", "1", "--follow"],
        &["setting"],
        &["setting", "get", "TaskQueueRunnerLimit"],
        &["db", "migrate"],
        &["db", "migrate", "--dry-run"],
    ] {
        stage.run(args);
    }
    stage.run(&["web", "token", "add", "ann", "--may", "read"]);
    stage.run(&["web", "token", "add", "shop", "--may", "queue", "--class", "echo", "--force"]);
    stage.run(&["web", "token"]);
    stage.run(&["web", "token", "remove", "ann"]);
    // Only a SQLite store is copied by the program.
    let [store, copy] = ["store.db", "copy.db"].map(|name| stage.db.home().join(name).to_str().unwrap().to_owned());
    stage.run(&["db", "migrate", "--database", &store]);
    stage.run(&["db", "backup", &copy, "--replace", "--database", &store]);
    // A row that only SQL can write.
    stage.db.execute("UPDATE \"TaskQueue\" SET \"WaitingFor\" = 7 WHERE \"Id\" = 1");
    stage.run(&["db", "check"]);
    stage.db.execute("UPDATE \"TaskQueue\" SET \"WaitingFor\" = 0 WHERE \"Id\" = 1");
}

/// Starts a runner that works, then leaves one that is dead.
fn have_a_runner(stage: &mut Stage<'_>) {
    let id = stage.queue("wait", &[]);
    stage.run(&["create-runs"]);
    let run = stage.run(&["status", &id])[0]["task"]["current_run_id"].to_string();
    let mut runner = stage.db.cli().spawn(&["process-run", &run, "--name", "one"]);
    wait_for_file(stage.db, "started");
    assert_eq!(stage.run(&["runner"])[0]["works_on"][0]["run_id"].to_string(), run);
    stage.run(&["pause", "--runner", "one", "--reason", "a test"]);
    stage.run(&["pause"]);
    assert_eq!(stage.run(&["runner"])[0]["pause"]["reason"], "a test");
    look(stage);
    runner.kill().unwrap();
    runner.wait().unwrap();
    // The next attempts end at once.
    write(stage.db, "go", "");
    let id: i64 = id.parse().unwrap();
    let id_is = |lost: &Value| lost[0] == id;
    assert!(stage.run(&["explain"])[0]["lost"].as_array().unwrap().iter().any(id_is));
    stage.run(&["doctor"]);
    assert_eq!(stage.run(&["create-runs"])[0]["rescued"][0]["reason"], "runner-died");
    stage.run(&["resume", "--runner", "one"]);
}

fn order(stage: &mut Stage<'_>) {
    stage.run(&["pause", "--class", "echo", "--for", "2h"]);
    stage.run(&["drain", "--class", "talk"]);
    stage.run(&["stop", "--class", "bad"]);
    stage.db.execute("UPDATE \"TaskQueuePauses\" SET \"CreatedOn\" = '2020-01-01 00:00:00'");
    stage.run(&["setting", "set", "TaskQueueKeepSuccess", "0"]);
    stage.run(&["limit", "set", "nobody", "--running", "1", "--rate", "1/1h"]);
    stage.run(&["limit", "set", "--key", "server-7", "--running", "1"]);
    stage.run(&["limit"]);
    look(stage);
    for class in ["echo", "talk", "bad"] {
        stage.run(&["resume", "--class", class]);
    }
    stage.run(&["resume", "--all"]);
    stage.run(&["limit", "remove", "nobody"]);
    stage.run(&["limit", "remove", "--key", "server-7"]);
    stage.run(&["class", "release", "gone"]);
}

/// Claims runs for workers that are no runners.
fn claim(stage: &mut Stage<'_>) {
    for _ in 0..2 {
        stage.queue("nobody", &["--any-class"]);
    }
    stage.run(&["create-runs"]);
    for last in ["resolve", "release"] {
        let line = stage.run(&["worker", "claim", "--claimant", "bot", "--class", "nobody"]).remove(0);
        let (run, token) = (line["run_id"].to_string(), line["token"].as_str().unwrap().to_owned());
        stage.run(&["status", "--token", &token]);
        stage.run(&["status", &line["task_id"].to_string()]);
        stage.run(&["worker", "heartbeat", &run, "--token", &token]);
        stage.run(&["report", "progress", &run, "40", "half", "--token", &token]);
        stage.run(&["report", "message", &run, "note", "{\"n\":1}", "--token", &token]);
        stage.run(&["report", "message", "--class", "*", "note"]);
        stage.run(&["worker", last, &run, "--token", &token]);
        assert_eq!(stage.fails(&["worker", "heartbeat", &run, "--token", &token])["code"], "not_held");
    }
    stage.queue("nobody", &["--any-class"]);
    let line = stage.run(&["worker", "claim", "--claimant", "other", "--class", "nobody"]).remove(0);
    let (run, task) = (line["run_id"].to_string(), line["task_id"].to_string());
    for verb in ["explain", "retry", "cancel"] {
        stage.run(&[verb, &task]);
    }
    stage.run(&["worker", "heartbeat", &run, "--token", line["token"].as_str().unwrap(), "--check"]);
    stage.run(&["doctor"]);
    stage.run(&["worker", "release", &run, "--force"]);
    stage.run(&["retry", &task, "--force"]);
    stage.run(&["worker", "claim", "--claimant", "other", "--class", "nobody"]);
    stage.db.execute("UPDATE \"TaskQueueRuns\" SET \"Claimant\" = NULL WHERE \"Status\" = 'processing'");
    assert_eq!(stage.fails(&["worker", "release", &run_in_progress(stage), "--force"])["code"], "not_taken_back");
}

fn run_in_progress(stage: &Stage<'_>) -> String {
    stage.db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing'").to_string()
}

fn repeat(stage: &mut Stage<'_>) {
    let id = stage.queue("echo", &["--every", "0 3 * * *", "--tz", "Europe/Berlin"]);
    stage.db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"Recurrence\") VALUES ('echo', 'nonsense')");
    stage.run(&["create-runs"]);
    stage.run(&["schedule", "list"]);
    for args in [["show"].as_slice(), &["pause"], &["resume"], &["edit", "--every", "0 4 * * *"]] {
        stage.run(&[&["schedule", args[0], &id], &args[1..]].concat());
    }
    look(stage);
    stage.run(&["schedule", "run", &id, "--any-class"]);
    stage.run(&["schedule", "remove", &id]);
    stage.run(&["schedule", "add", "leap-day", "0 0 29 2 *", "--", "true"]);
    stage.run(&["schedule", "remove", "leap-day"]);
    let parts = stage.db.home().join(".config/taskqueue/conf.d");
    std::fs::create_dir_all(&parts).unwrap();
    std::fs::write(parts.join("leap.toml"), "[schedule.leap]\nclass = \"echo\"\nevery = \"0 0 29 2 *\"\n").unwrap();
    stage.run(&["schedule", "diff"]);
    std::fs::remove_dir_all(parts).unwrap();
}

fn change(stage: &mut Stage<'_>) {
    for args in [
        ["retry", "2", "--dry-run"].as_slice(),
        &["retry", "2", "4711"],
        &["edit", "2", "--priority", "7"],
        &["retry", "1"],
        &["cancel", "status=scheduled", "--dry-run"],
        &["cancel", "1"],
        &["prune", "--dry-run"],
        &["prune", "1"],
        &["prune"],
    ] {
        stage.run(args);
    }
    let stale = stage.run(&["edit", "2", "--priority", "8", "--if-updated-on", "2020-01-01T00:00:00.000000Z"]);
    assert_eq!(stale[0]["task"]["priority"], 7);
    stage.run(&["process-run"]);
    stage.run(&["work", "--idle-exit", "0s"]);
}

fn carry_over(stage: &mut Stage<'_>) {
    let lines = stage.run(&["export"]);
    assert_eq!(lines.last().unwrap()["end_of_export"].to_string(), (lines.len() - 2).to_string());
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    write(stage.db, "tasks.ndjson", text);
    stage.run(&["import", "--allow-exec", "tasks.ndjson", "--database", "other.db"]);
    insert_unreadable(stage.db);
    stage.run(&["export", "last"]);
    stage.db.execute("DELETE FROM \"TaskQueue\" WHERE \"Id\" = (SELECT id FROM (SELECT MAX(\"Id\") AS id FROM \"TaskQueue\") AS last)");
}

fn fail(stage: &mut Stage<'_>) {
    assert_eq!(stage.fails(&["status", "4711"])["code"], "not_found");
    assert_eq!(stage.fails(&["queue", "no class"])["code"], "usage");
    assert_eq!(stage.fails(&["queue", "ecko"])["code"], "class_unknown");
    let nowhere = stage.run(&["check", "--database", "/no/such/directory/tasks.db"]);
    assert_eq!(nowhere[0]["level"], "unknown");
    stage.run(&["init", "hello", "--config", "first.toml"]);
    stage.run(&["completions", "bash"]);
    stage.run(&["class", "add", "added", "--config", "first.toml", "--", "/bin/cat"]);
    stage.run(&["class", "remove", "added", "--config", "first.toml"]);
    assert_eq!(stage.run(&["class", "test", "talk"])[0]["results"], json!({ "n": 1 }));
    stage.run(&["man", "queue"]);
    stage.run(&["man", "--directory", "pages"]);
}

/// Returns the document without the key, with the key renamed, and with another value.
fn spoiled(document: &Value, key: &str) -> Vec<Value> {
    let mut spoiled = Vec::new();
    let mut renamed = document.clone();
    let object = renamed.as_object_mut().unwrap();
    let value = object.remove(key).unwrap();
    object.insert(format!("{key}_of_a_later_version"), value);
    spoiled.push(renamed);
    if !can_be_anything(key) {
        let mut other = document.clone();
        other[key] = json!({ "of": ["another", "type"] });
        spoiled.push(other);
    }
    spoiled
}

each_engine! {
    fn json_output_fits_its_schema_and_covers_every_form_of_every_schema(db) {
        let mut stage = Stage::new(db);
        fill(&mut stage);
        look(&mut stage);
        have_a_runner(&mut stage);
        order(&mut stage);
        claim(&mut stage);
        repeat(&mut stage);
        carry_over(&mut stage);
        change(&mut stage);
        fail(&mut stage);
        assert_eq!(stage.forms.unused(), [""; 0]);
    }
}

#[test]
fn a_document_with_a_wrong_key_or_a_wrong_type_of_value_fits_no_schema() {
    on(EngineUnderTest::Sqlite, |db| {
        let mut stage = Stage::new(db);
        fill(&mut stage);
        look(&mut stage);
        repeat(&mut stage);
        let mut spoilt = 0;
        for (name, document) in &stage.documents {
            for key in document.as_object().unwrap().keys() {
                for bad in spoiled(document, key) {
                    assert!(!stage.forms.fits(name, &bad), "{name}: {bad}");
                    spoilt += 1;
                }
            }
        }
        assert!(spoilt > 500, "{spoilt}");
    });
}
