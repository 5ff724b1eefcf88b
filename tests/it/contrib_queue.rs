//! The helpers for queueing in contrib/queue, and the one for shell handlers: each is a file that an application copies.

use std::path::Path;

use serde_json::json;

use crate::contrib_roles::{Person, make_roles};
use crate::each_engine;
use crate::support::{Ended, EngineUnderTest, TestDb, contrib, db};

const CLASS: &str = "[class.echo]\nargv = [\"/bin/cat\"]\n";

/// Runs code with this interpreter in the folder of the helpers, with the program in PATH.
fn run(db: &TestDb, interpreter: &[&str], code: &str) -> Ended {
    let program_directory = Path::new(env!("CARGO_BIN_EXE_taskqueue")).parent().unwrap();
    let path = format!("{}:{}", program_directory.display(), std::env::var("PATH").unwrap());
    let cli = db.cli().program(Path::new("/usr/bin/env")).env("PATH", &path);
    let folder = contrib("queue");
    let cli = cli.env("FOLDER", folder.to_str().unwrap()).env("PYTHONDONTWRITEBYTECODE", "1");
    cli.run(&[interpreter, &[code]].concat())
}

/// Checks a helper that calls the program. `code` queues two tasks with one key, data with shell syntax, a priority and a
/// future time, then two with metadata, of which one waits for the others, and prints their ids. It then prints the error for an
/// unknown class and the exit status.
fn check_by_program(db: &TestDb, interpreter: &[&str], code: &str) {
    db.configure(CLASS);
    let printed = run(db, interpreter, code).ok();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[..4], ["1", "1", "2", "3"], "{printed}");
    assert!(lines[4].contains("the task class \"ecko\" is not known here") && lines[4].ends_with(" 2"), "{printed}");
    assert_eq!(lines.len(), 5, "{printed}");
    let detail = db.cli().run(&["status", "1", "--json"]).json();
    let task = &detail["task"];
    assert_eq!(task["data"], json!({ "text": "it's \"Zoë\" & $HOME" }));
    assert_eq!((&task["unique_key"], &task["priority"]), (&json!("-k"), &json!(-5)));
    assert_eq!(detail["why"]["reason"], "not_yet");
    for id in ["2", "3"] {
        let task = db.cli().run(&["status", id, "--json"]).json()["task"].clone();
        assert_eq!(task["meta"], json!({ "order": "17,a=b", "shop": "berlin" }), "{task}");
    }
    assert_eq!(db.cli().run(&["status", "3", "--json"]).json()["prerequisites"].as_array().unwrap().len(), 2);
    assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 3);
}

const BY_PYTHON: &str = r#"
import os, sys
sys.path.insert(0, os.environ["FOLDER"])
from taskqueue_queue import QueueError, queue
for _ in range(2):
    print(queue("echo", {"text": "it's \"Zoë\" & $HOME"}, unique="-k", delay=3600, priority=-5, limit_key=None))
print(queue("echo", meta=["order=17,a=b", "shop=berlin"]))
print(queue("echo", meta={"order": "17,a=b", "shop": "berlin"}, after=[1, 2]))
try:
    queue("ecko")
except QueueError as error:
    assert error.code == "class_unknown" and "did you mean" in error.hint, error.hint
    print(error, error.status)
for name in ("run", "wait", "batch"):
    try:
        queue("echo", **{name: True})
        sys.exit(f"{name} is not refused")
    except QueueError as error:
        assert error.status == 2 and name in str(error), error
"#;

const BY_PHP: &str = r#"
require getenv('FOLDER') . '/TaskqueueQueue.php';
for ($i = 0; $i < 2; $i++) {
    echo TaskqueueQueue::queue('echo', ['text' => 'it\'s "Zoë" & $HOME'], ['unique' => '-k', 'delay' => 3600, 'priority' => -5]), "\n";
}
echo TaskqueueQueue::queue('echo', options: ['meta' => ['order=17,a=b', 'shop=berlin']]), "\n";
echo TaskqueueQueue::queue('echo', options: ['meta' => ['order' => '17,a=b', 'shop' => 'berlin'], 'after' => [1, 2]]), "\n";
try {
    TaskqueueQueue::queue('ecko');
} catch (TaskqueueQueueException $error) {
    assert($error->kind === 'class_unknown');
    echo $error->getMessage(), ' ', $error->getCode(), "\n";
}
foreach (['run', 'wait', 'batch'] as $name) {
    try {
        TaskqueueQueue::queue('echo', [], [$name => true]);
        exit(1);
    } catch (TaskqueueQueueException $error) {
        assert($error->getCode() === 2 && str_contains($error->getMessage(), $name));
    }
}
"#;

const BY_NODE: &str = r#"
const { queue, QueueError } = require(process.env.FOLDER + '/taskqueue-queue.js');
(async () => {
  for (let i = 0; i < 2; i++) {
    console.log(await queue('echo', { text: 'it\'s "Zoë" & $HOME' }, { unique: '-k', delay: 3600, priority: -5 }));
  }
  console.log(await queue('echo', {}, { meta: ['order=17,a=b', 'shop=berlin'] }));
  console.log(await queue('echo', {}, { meta: { order: '17,a=b', shop: 'berlin' }, after: [1, 2] }));
  await queue('ecko').catch((error) => {
    if (!(error instanceof QueueError) || error.code !== 'class_unknown') throw error;
    console.log(`${error.message} ${error.status}`);
  });
  for (const name of ['run', 'wait', 'batch']) {
    const error = await queue('echo', {}, { [name]: true }).catch((refused) => refused);
    if (error.status !== 2 || !error.message.includes(name)) throw error;
  }
})();
"#;

const BY_SHELL: &str = r#"
. "$FOLDER/taskqueue-queue.sh"
for again in 1 2; do
    taskqueue_queue echo "{\"text\":$(taskqueue_text "it's \"Zoë\" & \$HOME")}" --unique=-k --in 3600s --priority -5 2>/dev/null
done
taskqueue_queue echo '{}' --meta order=17,a=b --meta shop=berlin
taskqueue_queue echo '{}' --meta order=17,a=b --meta shop=berlin --after 1 --after 2
said=$(taskqueue_queue ecko '{}' 2>&1) || status=$?
echo "$(echo "$said" | head -n 1) $status"
for option in --run --wait --batch=-; do
    said=$(taskqueue_queue echo '{}' "$option" 2>&1) && exit 1
    case $said in "the option $option is not"*) ;; *) exit 1 ;; esac
done
"#;

#[test]
fn php_node_and_shell_helpers_queue_by_the_program_and_pass_on_refusals() {
    let strict = ["php", "-d", "zend.assertions=1", "-r"];
    for (interpreter, code) in
        [(strict.as_slice(), BY_PHP), (["node", "-e"].as_slice(), BY_NODE), (["sh", "-c"].as_slice(), BY_SHELL)]
    {
        db::on(EngineUnderTest::Sqlite, |db| check_by_program(db, interpreter, code));
    }
}

/// A driver that prints the statements with their parameters instead of executing them. Each INSERT finds that the key is taken.
const PRINTING_DRIVER: &str = r#"
import os, sys
sys.path.insert(0, os.environ["FOLDER"])
from taskqueue_queue import queue_in

class Connection:
    rowcount = 0
    def cursor(self):
        return self
    def execute(self, sql, parameters):
        self.found = (0,) if sql.startswith("SELECT") else None
        literal = lambda value: str(value) if isinstance(value, (int, float)) else "'" + value.replace("'", "''") + "'"
        print(sql % tuple(map(literal, parameters)) + ";")
    def fetchone(self):
        return self.found

"#;

const SQLITE_DRIVER: &str = r#"
import os, sqlite3, sys
sys.path.insert(0, os.environ["FOLDER"])
from taskqueue_queue import queue_in
db = sqlite3.connect(os.environ["TASKQUEUE_DATABASE_URL"][len("sqlite://"):], timeout=30)
"#;

const TWO_WITH_ONE_KEY: &str =
    "queue_in(db, 'echo', [1], unique='k', delay=3600, priority=3)\nqueue_in(db, 'echo', [2])\n";

each_engine! {
    fn the_helper_for_python_queues_by_the_program_and_raises_what_it_refuses(db) {
        check_by_program(db, &["python3", "-c"], BY_PYTHON);
    }

    fn statements_of_the_python_helper_queue_a_task_and_a_keyed_one_once(db) {
        let module = if db.is_mysql_like() { "pymysql.connections" } else { "psycopg" };
        let shop = (db.engine != EngineUnderTest::Sqlite).then(|| {
            make_roles(db);
            Person::with_role(db, "taskqueue_enqueue")
        });
        for expected in [2, 3] {
            let code = match db.engine {
                EngineUnderTest::Sqlite => format!("{SQLITE_DRIVER}{TWO_WITH_ONE_KEY}db.commit()\n"),
                _ => format!("{PRINTING_DRIVER}Connection.__module__ = '{module}'\ndb = Connection()\n{TWO_WITH_ONE_KEY}"),
            };
            let statements = run(db, &["python3", "-c"], &code).ok();
            if let Some(shop) = &shop {
                let mut raw = shop.raw();
                for statement in statements.lines() {
                    let refused = raw.try_execute(statement).err().map(|error| error.to_string());
                    // The helper takes this error as the answer that another task has the key.
                    let is_expected = |why: &String| db.is_mysql_like() && why.contains("Duplicate entry");
                    assert!(refused.iter().all(is_expected), "{statement}: {refused:?}");
                }
            }
            assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), expected);
        }
        let with_key = "SELECT COUNT(*) AS value FROM \"TaskQueue\"
            WHERE \"UniqueKey\" = 'k' AND \"Priority\" = 3 AND \"ScheduledOn\" > \"QueuedOn\"";
        assert_eq!(db.number(with_key), 1);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"UniqueKey\" IS NULL AND \"Priority\" = 0"), 2);
    }
}

#[test]
fn what_the_helpers_queue_in_a_transaction_exists_only_if_it_commits() {
    let php = r#"
        require getenv('FOLDER') . '/TaskqueueQueue.php';
        $db = new PDO('sqlite:' . substr(getenv('TASKQUEUE_DATABASE_URL'), 9));
        foreach (['rollBack', 'commit'] as $end) {
            $db->beginTransaction();
            $ids = [];
            for ($i = 0; $i < 2; $i++) {
                $ids[] = TaskqueueQueue::queueIn($db, 'echo', [1], unique: 'k', delay: 3600, priority: 3);
            }
            $ids[] = TaskqueueQueue::queueIn($db, 'echo');
            $db->$end();
        }
        echo $ids[0] === $ids[1] && $ids[1] < $ids[2] ? 'as it should be' : json_encode($ids);
    "#;
    let python = format!(
        "{SQLITE_DRIVER}
for end in (db.rollback, db.commit):
    ids = [queue_in(db, 'echo', [1], unique='k', delay=3600, priority=3) for _ in range(2)] + [queue_in(db, 'echo')]
    end()
print('as it should be' if ids[0] == ids[1] < ids[2] else ids)
"
    );
    for (interpreter, code) in [(["php", "-r"], php), (["python3", "-c"], python.as_str())] {
        db::on(EngineUnderTest::Sqlite, |db| {
            assert_eq!(run(db, &interpreter, code).ok(), "as it should be");
            assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 2);
            assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"UniqueKey\" = 'k'"), 1);
        });
    }
}

/// Drivers of MySQL over a SQLite store: they translate what SQLite does not know, and report a taken key as MySQL does.
const MYSQL_OVER_SQLITE: &str = r#"
import os, sqlite3, sys
sys.path.insert(0, os.environ["FOLDER"])
from taskqueue_queue import queue_in

class ByArgument(Exception):
    pass

class ByNumber(Exception):
    errno = 1062

class Connection:
    def __init__(self, error):
        self.error, self.file = error, sqlite3.connect(os.environ["TASKQUEUE_DATABASE_URL"][len("sqlite://"):])
        self.db = self.file.cursor()
    def cursor(self):
        return self
    def execute(self, sql, parameters):
        sql = sql.replace("%s", "?").replace("UTC_TIMESTAMP(6)", "'2000-01-01'").replace(" LOCK IN SHARE MODE", "")
        try:
            self.db.execute(sql, parameters)
        except sqlite3.IntegrityError as error:
            raise self.error from error
    def __getattr__(self, name):
        return getattr(self.db, name)

Connection.__module__ = "pymysql.connections"
for error in (ByArgument(1062, "Duplicate entry"), ByNumber("Duplicate entry")):
    db = Connection(error)
    print([queue_in(db, "echo", unique="k") for _ in range(2)])
    db.file.commit()
try:
    queue_in(Connection(ByArgument(3819, "Check constraint")), "..", unique="k")
except ByArgument as error:
    print(error.args[0])
"#;

const MYSQL_OVER_SQLITE_PDO: &str = r#"
require getenv('FOLDER') . '/TaskqueueQueue.php';
class Statement extends PDOStatement
{
    public static int $number = 1062;
    public function execute(?array $params = null): bool
    {
        try {
            return parent::execute($params);
        } catch (PDOException $error) {
            $error->errorInfo[1] = self::$number;
            throw $error;
        }
    }
}
class Mysql extends PDO
{
    public function getAttribute(int $attribute): mixed
    {
        return $attribute === PDO::ATTR_DRIVER_NAME ? 'mysql' : parent::getAttribute($attribute);
    }
    public function prepare(string $query, array $options = []): PDOStatement|false
    {
        return parent::prepare(strtr($query, ['UTC_TIMESTAMP(6)' => "'2000-01-01'", ' LOCK IN SHARE MODE' => '']), $options);
    }
}
foreach ([1, 2] as $round) {
    $db = new Mysql('sqlite:' . substr(getenv('TASKQUEUE_DATABASE_URL'), 9));
    $db->setAttribute(PDO::ATTR_STATEMENT_CLASS, ['Statement']);
    $db->beginTransaction();
    $ids = array_map(fn () => TaskqueueQueue::queueIn($db, 'echo', unique: 'k'), [1, 2]);
    echo '[', implode(', ', $ids), "]\n";
    $db->commit();
}
Statement::$number = 3819;
try {
    TaskqueueQueue::queueIn($db, '..', unique: 'k');
} catch (PDOException $error) {
    echo $error->errorInfo[1], "\n";
}
"#;

#[test]
fn the_helpers_return_the_task_that_has_the_key_on_mysql() {
    for (interpreter, code) in [(["php", "-r"], MYSQL_OVER_SQLITE_PDO), (["python3", "-c"], MYSQL_OVER_SQLITE)] {
        db::on(EngineUnderTest::Sqlite, |db| {
            assert_eq!(run(db, &interpreter, code).ok(), "[1, 1]\n[1, 1]\n3819", "{interpreter:?}");
        });
    }
}

/// A driver that returns nothing for the first INSERTs, and then a row by names.
const FORGETFUL_DRIVER: &str = r#"
import os, sys
sys.path.insert(0, os.environ["FOLDER"])
from taskqueue_queue import QueueError, queue_in

class Connection:
    def __init__(self, *rows):
        self.rows, self.inserts = list(rows), 0
    def cursor(self):
        return self
    def execute(self, sql, parameters):
        self.inserts += sql.startswith("INSERT")
    def fetchone(self):
        return self.rows.pop(0)

Connection.__module__ = "psycopg"
later, never = Connection(None, None, None, {"Id": 1}), Connection(None, None, None, None)
print(queue_in(later, "echo", unique="k"), later.inserts)
try:
    queue_in(never, "echo", unique="k")
except QueueError as error:
    print(error, never.inserts)
"#;

const FORGETFUL_PDO: &str = r#"
require getenv('FOLDER') . '/TaskqueueQueue.php';
class Forgetful extends PDO
{
    public int $inserts = 0;
    public int $found_by = 2;
    public function prepare(string $query, array $options = []): PDOStatement|false
    {
        $this->inserts += (int) str_starts_with($query, 'INSERT');
        $finds = !str_starts_with($query, 'SELECT') || $this->inserts >= $this->found_by;
        return parent::prepare($finds ? $query : "$query AND 1 = 0", $options);
    }
}
$file = 'sqlite:' . substr(getenv('TASKQUEUE_DATABASE_URL'), 9);
TaskqueueQueue::queueIn(new PDO($file), 'echo', unique: 'k');
$db = new Forgetful($file);
echo TaskqueueQueue::queueIn($db, 'echo', unique: 'k'), " $db->inserts\n";
[$db->inserts, $db->found_by] = [0, 9];
try {
    TaskqueueQueue::queueIn($db, 'echo', unique: 'k');
} catch (TaskqueueQueueException $error) {
    echo $error->getMessage(), " $db->inserts\n";
}
"#;

#[test]
fn a_key_that_is_given_up_meanwhile_is_asked_for_once_more() {
    for (interpreter, code) in [(["php", "-r"], FORGETFUL_PDO), (["python3", "-c"], FORGETFUL_DRIVER)] {
        db::on(EngineUnderTest::Sqlite, |db| {
            let printed = run(db, &interpreter, code).ok();
            let lines: Vec<&str> = printed.lines().collect();
            let refused = "the key \"k\" was taken and given up again, twice; nothing was queued 2";
            assert_eq!(lines, ["1 2", refused], "{printed}");
        });
    }
}

/// Drivers of all engines over a SQLite store, without a transaction: a worker ends the task before the helper asks for it.
const HASTY_DRIVER: &str = r#"
import os, sqlite3, sys
sys.path.insert(0, os.environ["FOLDER"])
from taskqueue_queue import queue_in

class Connection:
    def __init__(self):
        file = os.environ["TASKQUEUE_DATABASE_URL"][len("sqlite://"):]
        self.db = sqlite3.connect(file, isolation_level=None).cursor()
    def cursor(self):
        return self
    def execute(self, sql, parameters):
        if sql.startswith("SELECT"):
            self.db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'")
        ours = {"UTC_TIMESTAMP(6)": "'2000-01-01'", "clock_timestamp()": "'2000-01-01'", "%s": "?", " LOCK IN SHARE MODE": ""}
        for theirs, own in ours.items():
            sql = sql.replace(theirs, own)
        self.db.execute(sql, parameters)
    def __getattr__(self, name):
        return getattr(self.db, name)

for module in ("sqlite3", "psycopg", "pymysql.connections"):
    Connection.__module__ = module
    db = Connection()
    print(queue_in(db, "echo", unique=module))
"#;

const HASTY_PDO: &str = r#"
require getenv('FOLDER') . '/TaskqueueQueue.php';
class Hasty extends PDO
{
    public string $driver = 'sqlite';
    public function getAttribute(int $attribute): mixed
    {
        return $attribute === PDO::ATTR_DRIVER_NAME ? $this->driver : parent::getAttribute($attribute);
    }
    public function prepare(string $query, array $options = []): PDOStatement|false
    {
        if (str_starts_with($query, 'SELECT')) {
            $this->exec("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'");
        }
        $ours = ['UTC_TIMESTAMP(6)' => "'2000-01-01'", 'clock_timestamp()' => "'2000-01-01'", ' LOCK IN SHARE MODE' => ''];
        return parent::prepare(strtr($query, $ours), $options);
    }
}
foreach (['sqlite', 'pgsql', 'mysql'] as $driver) {
    $db = new Hasty('sqlite:' . substr(getenv('TASKQUEUE_DATABASE_URL'), 9));
    $db->driver = $driver;
    echo TaskqueueQueue::queueIn($db, 'echo', unique: $driver), "\n";
}
"#;

#[test]
fn a_keyed_task_that_ends_at_once_is_queued_once() {
    for (interpreter, code) in [(["php", "-r"], HASTY_PDO), (["python3", "-c"], HASTY_DRIVER)] {
        db::on(EngineUnderTest::Sqlite, |db| {
            assert_eq!(run(db, &interpreter, code).ok(), "1\n2\n3", "{interpreter:?}");
            assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 3);
        });
    }
}

each_engine! {
    fn the_helper_for_handlers_in_shell_reports_what_its_script_says(db) {
        let script = ". \"$FOLDER/taskqueue-handler.sh\"\n\
            taskqueue_progress 40 \"page \\\"4\\\" of 10\"\n\
            taskqueue_heartbeat\n\
            taskqueue_result \"{\\\"data\\\":$(cat)}\"\n\
            taskqueue_emit note '[1]'\n\
            taskqueue_meta order '17 \"b\"'\n\
            test \"$TASKQUEUE_CLASS\" = good || taskqueue_fail paper 'there is \"none\"' --no-retry\n";
        std::fs::write(db.home().join("handler.sh"), script).unwrap();
        let class = |name: &str| format!(
            "[class.{name}]\nargv = [\"/bin/sh\", {:?}]\nenv = {{ FOLDER = {:?} }}\n",
            db.home().join("handler.sh"), contrib("handlers")
        );
        db.configure(&format!("{}{}", class("good"), class("bad")));
        for name in ["good", "bad"] {
            db.cli().run(&["queue", name, "[7]"]).ok();
        }
        db.cli().run(&["tick"]).ok();
        let good = db.cli().run(&["status", "1", "--json"]).json();
        let run = &good["runs"][0];
        assert_eq!((&good["task"]["status"], &run["results"]), (&json!("success"), &json!({ "data": [7] })), "{good}");
        assert_eq!((&run["percents_completed"], &run["progress_message"]), (&json!(100), &json!("page \"4\" of 10")));
        let notes = db.cli().run(&["events", "--task", "1", "--kind", "message", "--json"]).json();
        assert_eq!(notes["details"], json!({ "name": "note", "data": [1] }));
        assert_eq!(good["task"]["meta"], json!({ "order": "17 \"b\"" }));
        let bad = db.cli().run(&["status", "2", "--json"]).json();
        let run = &bad["runs"][0];
        assert_eq!((&bad["task"]["is_exhausted"], &run["error_code"]), (&json!(true), &json!("paper")), "{bad}");
        assert_eq!(run["error_message"], "there is \"none\"");
    }
}
