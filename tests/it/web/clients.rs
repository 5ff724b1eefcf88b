//! The clients of contrib/http: each is a file that an application copies. They queue, wait and work, and lose nothing if an
//! answer is lost.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::WebServer;
use crate::cli::{ECHO, shell_class};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{Cli, Ended, EngineUnderTest, TestDb, db, wait_until};

const PYTHON: [&str; 2] = ["python3", "-c"];
const PHP: [&str; 2] = ["php", "-r"];
const NODE: [&str; 2] = ["node", "-e"];
const SHELL: [&str; 2] = ["sh", "-c"];

/// Queues, waits, and works on four tasks: one succeeds, one fails, one is released, one fails by an error of its handler.
const BY_PYTHON: &str = r#"
import threading
for _ in range(2):
    print(queue.queue("echo", {"text": "it's \"Zoë\" & $HOME"}, unique="k", delay=3600, priority=-5))
print(*queue.queue_batch([{"class": "echo", "data": number} for number in (1, 2, 3, 4)]))
try:
    queue.queue("ecko")
except TaskqueueError as error:
    print(error.status, error)
print(queue.wait(1, 0)["task"]["status"])
stop = threading.Event()
def handle(run):
    if run["data"] == 1:
        return {"twice": 2}
    if run["data"] == 2:
        raise TaskFailed("paper", "there is none", retry=False)
    if run["data"] == 3:
        raise TaskReleased("not here")
    queue.heartbeat(run, 40, "half")
    stop.set()
    raise ValueError("odd")
queue.work(["echo"], handle, stop, wait_secs=1)
print(queue.wait(2, 50)["task"]["status"])
"#;

const BY_PHP: &str = r#"
for ($i = 0; $i < 2; $i++) {
    echo $queue->queue('echo', ['text' => 'it\'s "Zoë" & $HOME'], ['unique' => 'k', 'delay' => 3600, 'priority' => -5]), "\n";
}
echo implode(' ', $queue->queueBatch(array_map(fn ($number) => ['class' => 'echo', 'data' => $number], [1, 2, 3, 4]))), "\n";
try {
    $queue->queue('ecko');
} catch (TaskqueueHttpException $error) {
    echo $error->getCode(), ' ', $error->getMessage(), "\n";
}
echo $queue->wait(1, 0)['task']['status'], "\n";
$done = false;
$queue->work(['echo'], function (array $run) use ($queue, &$done) {
    if ($run['data'] === 1) {
        return ['twice' => 2];
    }
    if ($run['data'] === 2) {
        throw new TaskqueueTaskFailed('paper', 'there is none', retry: false);
    }
    if ($run['data'] === 3) {
        throw new TaskqueueTaskReleased('not here');
    }
    $queue->heartbeat($run, 40, 'half');
    $done = true;
    throw new LogicException('odd');
}, function () use (&$done) { return $done; }, 1);
echo $queue->wait(2, 50)['task']['status'], "\n";
"#;

const BY_NODE: &str = r#"
(async () => {
  for (let i = 0; i < 2; i++) {
    console.log(await queue.queue('echo', { text: 'it\'s "Zoë" & $HOME' }, { unique: 'k', delay: 3600, priority: -5 }));
  }
  console.log((await queue.queueBatch([1, 2, 3, 4].map((data) => ({ class: 'echo', data })))).join(' '));
  await queue.queue('ecko').catch((error) => console.log(`${error.status} ${error.message}`));
  console.log((await queue.wait(1, 0)).task.status);
  const stop = new AbortController();
  await queue.work(['echo'], async (run) => {
    if (run.data === 1) return { twice: 2 };
    if (run.data === 2) throw new TaskFailed('paper', 'there is none', { retry: false });
    if (run.data === 3) throw new TaskReleased('not here');
    await queue.heartbeat(run, 40, 'half');
    stop.abort();
    throw new RangeError('odd');
  }, { stop: stop.signal, waitSecs: 1 });
  console.log((await queue.wait(2, 50)).task.status);
})();
"#;

const BY_SHELL: &str = r#"
for again in 1 2; do
    taskqueue_http_queue echo "{\"text\":$(taskqueue_http_text "it's \"Zoë\" & \$HOME")}" '"unique":"k","in":"3600s","priority":-5'
done
echo $(printf '{"class":"echo","data":%s}\n' 1 2 3 4 | taskqueue_http_batch)
echo "400 $(taskqueue_http_queue ecko '{}' 2>&1)"
taskqueue_http_wait 1 0
while taskqueue_http_claim '["echo"]' 1; do
    case $taskqueue_data in
        1) taskqueue_http_resolve '{"twice":2}' ;;
        2) taskqueue_http_fail paper 'there is none' false ;;
        3) taskqueue_http_release 'not here' ;;
        4) taskqueue_http_heartbeat 40 half && taskqueue_http_fail odd odd && break ;;
    esac
done
taskqueue_http_wait 2 50
"#;

/// Returns the beginning of a script: it loads the client, and names the server.
fn load(language: [&str; 2]) -> String {
    let folder = Path::new(env!("REPOSITORY_DIR")).join("contrib/http").display().to_string();
    match language {
        PYTHON => format!(
            "import os, sys\nsys.path.insert(0, {folder:?})\nfrom taskqueue_http import *\n\
             queue = Taskqueue(os.environ['TASKQUEUE_HTTP_URL'], os.environ['TASKQUEUE_HTTP_TOKEN'])\n"
        ),
        PHP => format!(
            "require {folder:?} . '/TaskqueueHttp.php';\n\
             $queue = new TaskqueueHttp(getenv('TASKQUEUE_HTTP_URL'), getenv('TASKQUEUE_HTTP_TOKEN'));\n"
        ),
        NODE => format!(
            "const {{ Taskqueue, TaskFailed, TaskReleased }} = require({folder:?} + '/taskqueue-http.js');\n\
             const queue = new Taskqueue(process.env.TASKQUEUE_HTTP_URL, process.env.TASKQUEUE_HTTP_TOKEN);\n"
        ),
        _ => format!(". '{folder}/taskqueue-http.sh'\n"),
    }
}

/// Returns the environment of a script, for the server at an address.
fn client(db: &TestDb, address: &str, token: &str) -> Cli {
    let cli = db.cli().program(Path::new("/usr/bin/env")).env("TASKQUEUE_HTTP_URL", &format!("http://{address}/"));
    cli.env("TASKQUEUE_HTTP_TOKEN", token).env("PYTHONDONTWRITEBYTECODE", "1")
}

/// Runs a script in this language.
fn run(db: &TestDb, language: [&str; 2], code: &str, address: &str, token: &str) -> Ended {
    client(db, address, token).run(&[language[0], language[1], &format!("{}{code}", load(language))])
}

fn check_client(db: &TestDb, language: [&str; 2], code: &str) {
    db.configure(ECHO);
    let server = WebServer::start(db, &[]);
    let printed = run(db, language, code, &server.address, server.token("work")).ok();
    let lines: Vec<&str> = printed.lines().collect();
    let refused = "400 input: line 1: the task class \"ecko\" is not known here; did you mean \"echo\"?";
    // In the shell, the quotation marks of the detail are those of JSON.
    let lines: Vec<String> = lines.iter().map(|line| line.replace("\\\"", "\"")).collect();
    assert_eq!(lines, ["1", "1", "2 3 4 5", refused, "scheduled", "success"], "{printed}");
    let detail = |id: &str| db.cli().run(&["status", id, "--json"]).json();
    let keyed = detail("1")["task"].clone();
    assert_eq!(keyed["data"], json!({ "text": "it's \"Zoë\" & $HOME" }));
    assert_eq!((&keyed["unique_key"], &keyed["priority"]), (&json!("k"), &json!(-5)));
    assert_eq!(detail("2")["runs"][0]["results"], json!({ "twice": 2 }));
    let failed = detail("3");
    assert_eq!((&failed["task"]["is_exhausted"], &failed["runs"][0]["error_code"]), (&json!(true), &json!("paper")));
    assert_eq!(failed["runs"][0]["error_message"], "there is none");
    assert_eq!(detail("4")["rejected_by"], json!(["work"]));
    let odd = detail("5")["runs"][0].clone();
    assert_eq!((&odd["status"], &odd["error_message"]), (&json!("error"), &json!("odd")));
    assert_eq!((&odd["percents_completed"], &odd["progress_message"]), (&json!(40), &json!("half")));
}

each_engine! {
    fn the_client_for_python_queues_waits_and_works(db) {
        check_client(db, PYTHON, BY_PYTHON);
    }

    fn the_client_for_php_queues_waits_and_works(db) {
        check_client(db, PHP, BY_PHP);
    }

    fn the_client_for_node_queues_waits_and_works(db) {
        check_client(db, NODE, BY_NODE);
    }

    fn the_client_for_the_shell_queues_waits_and_works(db) {
        check_client(db, SHELL, BY_SHELL);
    }
}

/// Handlers that end their runs with what the server refuses, and with texts that are not UTF-8. What a command in the shell
/// can print is no reason to refuse its error, so a proxy does.
const UNSTORABLE: [([&str; 2], &str); 4] = [
    (
        PYTHON,
        "import threading\nstop = threading.Event()\ndef handle(run):\n    if run['data'] == 1:\n        return 'a\\0b'\n\
         \x20   if run['data'] == 2:\n        raise TaskFailed('late', OSError(5), delay_secs=1.5)\n\
         \x20   if run['data'] == 3:\n        return 'x' * 17_000_000\n\
         \x20   if run['data'] == 4:\n        raise TaskReleased('a\\ud800b')\n\
         \x20   stop.set()\n    raise TaskFailed('odd', 'a\\ud800b')\nqueue.work(['echo'], handle, stop, wait_secs=1)\n",
    ),
    (
        PHP,
        "$done = false;\n$queue->work(['echo'], function (array $run) use (&$done) {\n    if ($run['data'] === 1) {\n\
         return \"a\\0b\";\n    }\n    if ($run['data'] === 2) {\n        throw new TaskqueueTaskFailed('');\n    }\n\
         if ($run['data'] === 3) {\n        return str_repeat('x', 17_000_000);\n    }\n\
         if ($run['data'] === 4) {\n        throw new TaskqueueTaskReleased(\"a\\xffb\");\n    }\n\
         $done = true;\n    throw new TaskqueueTaskFailed('odd', \"a\\xffb\");\n}, function () use (&$done) { return $done; }, 1);\n",
    ),
    (
        NODE,
        "const stop = new AbortController();\nqueue.work(['echo'], async (run) => {\n  if (run.data === 1) return 'a\\0b';\n\
         if (run.data === 2) throw new TaskFailed('late', '', { delaySecs: 1.5 });\n\
         if (run.data === 3) return 'x'.repeat(17_000_000);\n  if (run.data === 4) throw new TaskReleased('a\\ud800b');\n\
         stop.abort();\n  throw new TaskFailed('odd', 'a\\ud800b');\n}, { stop: stop.signal, waitSecs: 1 });\n",
    ),
    (
        SHELL,
        "curl() { grep -q exit:3 \"$folder/body\" && : >\"$folder/answer\" && printf 413 || command curl \"$@\"; }\n\
         TASKQUEUE_HTTP_WAIT=0 taskqueue_http_work '[\"echo\"]' sh -c \
         'read -r data; case $data in 1) echo \"\\\"a\\\\u0000b\\\"\" ;; 2) exit 3 ;; \
         3) head -c 17000000 /dev/zero | tr \"\\0\" 1 ;; *) printf \"a\\377b\"; exit 1 ;; esac'\n",
    ),
];

each_engine! {
    fn what_the_server_refuses_of_a_client_ends_the_run_and_says_why(db) {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        for (number, (language, code)) in UNSTORABLE.into_iter().enumerate() {
            for data in ["1", "2", "3", "4", "5"] {
                db.cli().run(&["queue", "echo", data]).ok();
            }
            run(db, language, code, &server.address, server.token("work")).ok();
            let id = |data: usize| (5 * number + data).to_string();
            let end = |data: usize| db.cli().run(&["status", &id(data), "--json"]).json();
            let too_large = "at most 16777216 are allowed here";
            for (data, code, part) in
                [(1, "invalid-results", "U+0000"), (2, "refused-answer", ""), (3, "invalid-results", too_large)]
            {
                let refused = end(data);
                let last = &refused["runs"][0];
                assert_eq!((&refused["task"]["is_exhausted"], &last["error_code"]), (&json!(true), &json!(code)), "{language:?}: {refused}");
                let message = last["error_message"].as_str().unwrap();
                assert!(!message.is_empty() && message.contains(part), "{language:?}: {message}");
            }
            for data in [4, 5] {
                // A task that was returned has a second run.
                let odd = end(data)["runs"].as_array().unwrap().last().unwrap().clone();
                let message = odd["error_message"].as_str().unwrap();
                assert!(message.starts_with('a') && message.ends_with('b'), "{language:?}: {odd}");
                let code = if language == SHELL { "exit:1" } else { ["rejected", "odd"][data - 4] };
                assert_eq!(odd["error_code"], code, "{language:?}: {odd}");
                db.cli().run(&["cancel", &id(data)]).ok();
            }
        }
    }
}

/// Passes each connection on to a server, and the answer back if `passes` returns true.
fn relay(listener: &TcpListener, server: &str, mut passes: impl FnMut(String, &[u8]) -> bool) {
    for client in listener.incoming() {
        let mut client = client.unwrap();
        let Some(request) = read_request(&mut client) else { continue };
        let mut upstream = TcpStream::connect(server).unwrap();
        let closing = request.replacen("\r\n", "\r\nConnection: close\r\n", 1).replace("keep-alive", "close");
        upstream.write_all(closing.as_bytes()).unwrap();
        let mut answer = Vec::new();
        upstream.read_to_end(&mut answer).unwrap();
        if passes(request, &answer) {
            client.write_all(&answer).unwrap();
        }
        let _ = client.shutdown(Shutdown::Both);
    }
}

/// Loses the answer to the first try of each request.
fn lose_first_answers(listener: &TcpListener, server: &str) {
    let mut tried = BTreeSet::new();
    relay(listener, server, |request, _| !tried.insert(request));
}

fn read_request(client: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    while !is_whole(&request) {
        let mut part = [0; 4_096];
        let length = client.read(&mut part).ok().filter(|length| *length > 0)?;
        request.extend(&part[..length]);
    }
    String::from_utf8(request).ok()
}

/// Returns true if the request has all its body.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(key, _)| key.eq_ignore_ascii_case("content-length"));
    body.len() >= length.map_or(0, |(_, length)| length.parse().unwrap())
}

/// Queues without a key, with a key that must be new, and with a key; claims and resolves.
const LOSSY: [([&str; 2], &str); 4] = [
    (
        PYTHON,
        "for options in [{}, {'unique': 'f', 'on_conflict': 'fail'}]:\n    try:\n        queue.queue('echo', [2], **options)\n\
         \x20   except TaskqueueError as error:\n        print(error.code)\n\
         print(queue.queue('echo', [1], unique='k'))\n[run] = queue.claim(['echo'])\n\
         print(queue.resolve(run, 7)['was_recorded_before'])\n",
    ),
    (
        PHP,
        "foreach ([[], ['unique' => 'f', 'on_conflict' => 'fail']] as $options) {\n\
         try { $queue->queue('echo', [2], $options); } catch (TaskqueueHttpException $error) { echo $error->kind, \"\\n\"; }\n}\n\
         echo $queue->queue('echo', [1], ['unique' => 'k']), \"\\n\";\n[$run] = $queue->claim(['echo']);\n\
         echo json_encode($queue->resolve($run, 7)['was_recorded_before']), \"\\n\";\n",
    ),
    (
        NODE,
        "(async () => {\n  for (const options of [{}, { unique: 'f', on_conflict: 'fail' }]) {\n\
         await queue.queue('echo', [2], options).catch((error) => console.log(error.code));\n  }\n\
         console.log(await queue.queue('echo', [1], { unique: 'k' }));\n  const [run] = await queue.claim(['echo']);\n\
         console.log((await queue.resolve(run, 7)).was_recorded_before);\n})();\n",
    ),
    (
        SHELL,
        "taskqueue_http_queue echo '{}' 2>&1 | cut -d: -f1\n\
         taskqueue_http_queue echo '{}' '\"unique\":\"f\",\"on_conflict\": \"fail\"' 2>&1 | cut -d: -f1\ntaskqueue_http_queue echo '[1]' '\"unique\":\"k\"'\n\
         taskqueue_http_claim '[\"echo\"]'\n\
         taskqueue_http_end resolve ',\"results\":7' | sed 's/.*\"was_recorded_before\":\\([a-z]*\\).*/\\1/'\n",
    ),
];

#[test]
fn clients_repeat_what_is_safe_when_an_answer_is_lost() {
    for (language, code) in LOSSY {
        db::on(EngineUnderTest::Sqlite, |db| {
            db.configure(ECHO);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let between = listener.local_addr().unwrap().to_string();
            let server = WebServer::start(db, &["--host", &between]);
            let address = server.address.clone();
            std::thread::spawn(move || lose_first_answers(&listener, &address));
            // A claim whose answer is lost takes a run, too.
            db.cli().run(&["queue", "echo", "--priority", "9"]).ok();
            let printed = run(db, language, code, &between, server.token("work")).ok();
            let lines: Vec<String> = printed.lines().map(str::to_lowercase).collect();
            // The first two requests were carried out once, the third was repeated: it found the task of the first try.
            assert_eq!(lines, ["lost", "lost", "4", "true"], "{language:?}: {printed}");
            assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 4);
            let resolved = "SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'resolved'";
            assert_eq!(db.number(resolved), 1, "{language:?}");
        });
    }
}

/// Queues three tasks.
const HASTY: [([&str; 2], &str); 4] = [
    (PYTHON, "for _ in range(3):\n    print(queue.queue('echo'))\n"),
    (PHP, "for ($i = 0; $i < 3; $i++) {\n    echo $queue->queue('echo'), \"\\n\";\n}\n"),
    (NODE, "(async () => {\n  for (let i = 0; i < 3; i++) console.log(await queue.queue('echo'));\n})();\n"),
    (SHELL, "for i in 1 2 3; do taskqueue_http_queue echo '{}'; done\n"),
];

#[test]
fn clients_wait_if_they_send_more_requests_than_allowed() {
    for (language, code) in HASTY {
        db::on(EngineUnderTest::Sqlite, |db| {
            db.configure(ECHO);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let between = listener.local_addr().unwrap().to_string();
            let server = WebServer::start(db, &["--rate", "2/2s", "--host", &between]);
            let (address, refused) = (server.address.clone(), Arc::new(AtomicBool::new(false)));
            let is_refused = Arc::clone(&refused);
            std::thread::spawn(move || {
                relay(&listener, &address, |_, answer| {
                    is_refused.fetch_or(answer.starts_with(b"HTTP/1.1 429"), Ordering::SeqCst);
                    true
                });
            });
            // A slow client may send its requests within what is allowed.
            let mut queued = 0;
            wait_until("a request is refused", || {
                let printed = run(db, language, code, &between, server.token("queue")).ok();
                let expected: Vec<String> = (queued + 1..=queued + 3).map(|id: i64| id.to_string()).collect();
                assert_eq!(printed.lines().collect::<Vec<_>>(), expected, "{language:?}");
                queued += 3;
                refused.load(Ordering::SeqCst)
            });
        });
    }
}

#[test]
fn clients_name_the_problem_of_a_wrong_token_at_once() {
    db::on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        let printed = run(db, SHELL, "taskqueue_http_queue echo '{}'", &server.address, "wrong").fails(1);
        assert!(printed.starts_with("login: log in"), "{printed}");
    });
}

#[test]
fn a_worker_in_the_shell_runs_a_command_for_each_task() {
    db::on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        for data in ["{\"n\":1}", "\"no JSON\"", "3", "4"] {
            db.cli().run(&["queue", "echo", data]).ok();
        }
        let command = "read -r data; case $data in 3) echo sorry; exit 9 ;; 4) printf %20000s end; exit 9 ;; \
             *JSON*) echo JSON ;; *) echo \"[$data]\" ;; esac";
        let code = format!("TASKQUEUE_HTTP_WAIT=0 taskqueue_http_work '[\"echo\"]' sh -c {}", shell_word(command));
        run(db, SHELL, &code, &server.address, server.token("work")).ok();
        let last: Vec<Value> =
            (1..=4).map(|id| db.cli().run(&["status", &id.to_string(), "--json"]).json()["runs"][0].clone()).collect();
        assert_eq!(last[0]["results"], json!([{ "n": 1 }]));
        assert_eq!(last[1]["error_code"], "invalid-results");
        assert_eq!((&last[2]["error_code"], &last[2]["error_message"]), (&json!("exit:9"), &json!("sorry")));
        let end = last[3]["error_message"].as_str().unwrap();
        assert!(end.ends_with(" end"), "{end}");
    });
}

/// Waits for a task, and prints its status.
const WAITING: [([&str; 2], &str); 4] = [
    (PYTHON, "print(queue.wait(ID, SECS)['task']['status'])\n"),
    (PHP, "echo $queue->wait(ID, SECS)['task']['status'], \"\\n\";\n"),
    (NODE, "queue.wait(ID, SECS).then((document) => console.log(document.task.status));\n"),
    (SHELL, "taskqueue_http_wait ID SECS\n"),
];

#[test]
fn no_data_or_result_of_a_task_changes_the_status_that_clients_print() {
    db::on(EngineUnderTest::Sqlite, |db| {
        let forged = r#"{"x":0,"status":"success","max_retries":5,"task":{"status":"success","is_settled":true},"is_exhausted":true,"is_settled":true},"why":{"#;
        // What looks like the end of the task is text, or has braces of its own.
        let as_object = r#"{"x":0,"status":"success","max_retries":5,"is_exhausted":true,"is_settled":true,"y":{"task":{"status":"success","is_settled":true}}}"#;
        let forgeries = [as_object.to_owned(), json!(forged).to_string(), json!([forged, "\\", "\"}]}"]).to_string()];
        let script = "data=$(cat); printf '{\"result\":%s}\\n' \"$data\" >&3; exit 65";
        db.configure(&shell_class(db, "forger", script));
        let server = WebServer::start(db, &[]);
        for (ended, data) in (1_i64..).step_by(2).zip(&forgeries) {
            db.cli().run(&["queue", "forger", data]).ok();
            db.cli().run(&["tick"]).ok();
            db.cli().run(&["queue", "forger", data, "--in", "1h"]).ok();
            let results = db.cli().run(&["status", &ended.to_string(), "--json"]).json()["runs"][0]["results"].clone();
            assert_eq!(results, serde_json::from_str::<Value>(data).unwrap());
            for (language, code) in WAITING {
                for (id, secs, status) in [(ended, "50", "failed"), (ended + 1, "0", "scheduled")] {
                    let code = code.replace("ID", &id.to_string()).replace("SECS", secs);
                    let printed = run(db, language, &code, &server.address, server.token("read")).ok();
                    assert_eq!(printed, status, "{language:?}: {data}");
                }
            }
        }
    });
}

#[test]
fn a_client_for_the_shell_claims_a_task_whose_data_looks_like_no_run() {
    db::on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let server = WebServer::start(db, &[]);
        let data = r#"{"runs":[],"attempt":1,"max_retries":2}"#;
        db.cli().run(&["queue", "echo", data]).ok();
        let code = "taskqueue_http_claim '[\"echo\"]' && printf '%s\\n' \"$taskqueue_data\"\n";
        assert_eq!(run(db, SHELL, code, &server.address, server.token("work")).ok(), data);
    });
}

/// Handlers that take long.
const PATIENT: [([&str; 2], &str); 3] = [
    (
        PYTHON,
        "stop = threading.Event()\ndef handle(run):\n    stop.set()\n    run['stop'].wait(60)\n    raise TaskFailed('cancelled')\n\
         queue.work(['echo'], handle, stop, wait_secs=1)\n",
    ),
    (
        NODE,
        "const stop = new AbortController();\nqueue.work(['echo'], async (run) => {\n  stop.abort();\n\
         await new Promise((resolve) => run.stop.addEventListener('abort', resolve));\n  throw new TaskFailed('cancelled');\n\
         }, { stop: stop.signal, waitSecs: 1 });\n",
    ),
    (SHELL, "TASKQUEUE_HTTP_WAIT=0 taskqueue_http_work '[\"echo\"]' sleep 600\n"),
];

#[test]
fn a_handler_of_a_client_is_stopped_when_its_task_is_cancelled() {
    for (language, code) in PATIENT {
        db::on(EngineUnderTest::Sqlite, |db| {
            db.configure(ECHO);
            let server = WebServer::start(db, &[]);
            // A third of its timeout is how often a client renews the lease.
            db.cli().run(&["queue", "echo", "--timeout", "3s"]).ok();
            let script = format!("{}{code}", load(language));
            let worker = client(db, &server.address, server.token("work")).spawn(&[language[0], language[1], &script]);
            let status = || db.cli().run(&["status", "1", "--json"]).json()["task"]["status"].clone();
            wait_until("it is claimed", || status() == "processing");
            db.cli().run(&["cancel", "1"]).ok();
            finish(worker).ok();
            assert_eq!(status(), "cancelled", "{language:?}");
        });
    }
}

fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
