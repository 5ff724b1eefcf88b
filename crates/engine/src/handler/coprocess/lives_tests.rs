//! What a process that follows the protocol receives, how long it is kept, and how it ends.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::panic)]

use super::tests::*;

#[test]
fn one_process_takes_one_run_after_the_other() {
    let (coprocesses, handler) = (Coprocesses::default(), handler(TELL_PID));
    let (first, seen) = run(&coprocesses, &handler, "1");
    let pid = pid_of(&first);
    assert_eq!(seen.handler.unwrap().pid, pid);
    for _ in 0..20 {
        assert_eq!(pid_of(&run(&coprocesses, &handler, "1").0), pid);
    }
    coprocesses.drain();
    assert!(is_dead(pid));
    assert_ne!(pid_of(&run(&coprocesses, &handler, "1").0), pid, "another one after the drain");
}

#[test]
fn a_coprocess_gets_its_run_by_message_and_not_by_the_environment() {
    let script = "hello()\nfor run in runs():\n done(run, [run, {k: v for k, v in os.environ.items() if k.startswith('TASKQUEUE')}])";
    let mut handler = handler(script);
    handler.command.env = vec![("TASKQUEUE_PROTOCOL".to_owned(), "forged".to_owned())];
    let run = context("{\"a\":\n [1.50]}");
    let end = Coprocesses::default().run(&handler, &run, &[], None, &mut Seen::new());
    let result: serde_json::Value = serde_json::from_str(end.said.results.as_ref().unwrap()).unwrap();
    let (message, environment) = (&result[0], result[1].as_object().unwrap());
    assert_eq!((&message["task_id"], &message["run_id"], &message["attempt"]), (&7.into(), &70.into(), &2.into()));
    assert_eq!((message["class"].as_str(), message["token"].as_str()), (Some("mail.send"), Some(run.token.as_str())));
    assert_eq!(message["data"], serde_json::json!({"a": [1.5]}));
    let names: Vec<&str> = environment.keys().map(String::as_str).collect();
    assert_eq!(environment.len(), 4, "{names:?}");
    assert_eq!(environment["TASKQUEUE_STOP_REASON_FD"], "4");
    assert_eq!(environment["TASKQUEUE_PROTOCOL"], "coprocess");
    assert_eq!(environment["TASKQUEUE_RUNNER"], ProcessIdentity::own().unwrap().to_string());
    assert_ne!(environment["TASKQUEUE_RUN_TOKEN"], run.token.as_str());
}

#[test]
fn several_runs_are_in_flight_and_each_gets_its_own_answer() {
    // It answers when it has four runs, the last one first.
    let script = "hello(4)\nheld = []\nfor run in runs():\n held.append(run)\n if len(held) == 4:\n  \
                  while held: run = held.pop(); done(run, [os.getpid(), run['data']])";
    let coprocesses = Coprocesses::default();
    let ends = run_together(&coprocesses, &handler(script), 8);
    let results: Vec<(i32, usize)> =
        ends.iter().map(|end| serde_json::from_str(end.said.results.as_ref().unwrap()).unwrap()).collect();
    assert_eq!(results.iter().map(|(_, data)| *data).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    let mut pids: Vec<i32> = results.into_iter().map(|(pid, _)| pid).collect();
    pids.sort_unstable();
    pids.dedup();
    assert!(pids.len() <= 2, "{pids:?}");
}

#[test]
fn as_many_processes_as_runs_at_once_where_each_takes_one() {
    // None answers before three runs are in progress.
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "hello()\nfor run in runs():\n open(os.path.join({0}, str(os.getpid())), 'w')\n \
         while len(os.listdir({0})) < 3: time.sleep(0.002)\n done(run, os.getpid())",
        quoted(directory.path())
    );
    let mut pids: Vec<i32> = run_together(&Coprocesses::default(), &handler(&script), 3).iter().map(pid_of).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 3);
}

#[test]
fn what_is_said_of_a_run_while_it_lasts_is_reported() {
    let script = r#"hello()
for run in runs():
    sys.stderr.write("working\n"); sys.stderr.flush()
    say(type="progress", id=run["id"], progress=10, message="one")
    say(type="later", id=run["id"])
    say(type="progress", id=run["id"], progress=101)
    say(type="progress", id="70.999999", progress=99)
    say(type="progress", id=run["id"], heartbeat=True)
    say(type="progress", id=run["id"], result=[1])
    say(type="fail", id=run["id"], exit=75, error={"code": 4, "message": "m", "delay": 3})"#;
    let (end, seen) = run(&Coprocesses::default(), &handler(script), "1");
    assert_eq!(seen.reports, ["10 one", "alive", "[1]"]);
    assert_eq!(String::from_utf8(seen.output).unwrap(), "working\n");
    assert_eq!((&end.ending, end.said.results.as_deref(), end.said.unread), (&Ending::Exited(75), Some("[1]"), 2));
    let error = ReportedError { code: "4".to_owned(), message: "m".to_owned(), retry: None, delay_secs: Some(3) };
    assert_eq!((end.said.error.unwrap(), end.stderr.to_text()), (error, "working\n".to_owned()));
}

#[test]
fn standard_error_belongs_to_the_runs_in_flight_up_to_the_limit() {
    let script =
        "hello()\nfor run in runs():\n sys.stderr.write(str(run['data']) * 20000); sys.stderr.flush()\n done(run)";
    let (coprocesses, handler) = (Coprocesses::default(), handler(script));
    for data in ["1", "2"] {
        let (end, seen) = run(&coprocesses, &handler, data);
        assert_eq!((end.stderr.total_bytes, seen.output.len()), (20_000, 20_000));
        assert_eq!(end.stderr.head.len() + end.stderr.tail.len(), 10_000);
        assert!(seen.output.iter().all(|byte| *byte == data.as_bytes()[0]));
    }
}

#[test]
fn large_data_and_results_pass_in_both_directions() {
    let script = "hello()\nfor run in runs(): done(run, run['data'][:1000000])";
    let data = format!("\"{}\"", "x".repeat(3_000_000));
    let (end, _) = run(&Coprocesses::default(), &handler(script), &data);
    assert_eq!(end.said.results.unwrap().len(), 1_000_002);
}

#[test]
fn a_coprocess_is_replaced_at_its_limit_of_runs_age_or_memory() {
    let pids = |handler: &CoprocessHandler| {
        let coprocesses = Coprocesses::default();
        let mut pids: Vec<i32> = (0..4).map(|_| pid_of(&run(&coprocesses, handler, "1").0)).collect();
        coprocesses.drain();
        assert!(pids.iter().all(|pid| is_dead(*pid)));
        pids.dedup();
        pids.len()
    };
    let plain = handler(TELL_PID);
    let none = plain.config;
    let pids = |config: CoprocessConfig| pids(&CoprocessHandler { config, ..plain.clone() });
    let megabytes = |count: u64| Some(count << 20);
    assert_eq!(pids(CoprocessConfig { max_runs: Some(2), ..none }), 2);
    assert_eq!(pids(CoprocessConfig { max_age: Some(Duration::ZERO), ..none }), 4);
    assert_eq!(pids(CoprocessConfig { max_age: Some(Duration::from_secs(600)), ..none }), 1);
    assert_eq!(pids(CoprocessConfig { max_rss_bytes: megabytes(1), ..none }), 4);
    assert_eq!(pids(CoprocessConfig { max_rss_bytes: megabytes(4096), ..none }), 1);
}

#[test]
fn a_process_may_say_itself_that_it_wants_no_more_runs() {
    let script = "hello()\nfor run in runs():\n say(type='drain')\n done(run, os.getpid())";
    let (coprocesses, handler) = (Coprocesses::default(), handler(script));
    let pids = [(); 2].map(|()| pid_of(&run(&coprocesses, &handler, "1").0));
    assert_ne!(pids[0], pids[1]);
}

#[test]
fn a_changed_class_gets_new_coprocesses_and_old_ones_stay_until_retired() {
    let coprocesses = Coprocesses::default();
    let old = handler(TELL_PID);
    let config = CoprocessConfig { max_runs: Some(1_000), ..old.config };
    let new = CoprocessHandler { config, ..old.clone() };
    let first = pid_of(&run(&coprocesses, &old, "1").0);
    let second = pid_of(&run(&coprocesses, &new, "1").0);
    assert_ne!(second, first);
    assert_eq!(pid_of(&run(&coprocesses, &old, "1").0), first);
    coprocesses.retire(&|handler| *handler == old);
    eventually(|| is_dead(first));
    assert_eq!(pid_of(&run(&coprocesses, &new, "1").0), second);
    let third = pid_of(&run(&coprocesses, &old, "1").0);
    assert_ne!(third, second, "a run that comes too late for the old one has one of its own");
    coprocesses.retire(&|handler| *handler == old);
    eventually(|| is_dead(third));
    assert!(!is_dead(second));
}

#[test]
fn classes_of_one_pattern_share_a_process_unless_it_is_told_the_class() {
    let coprocesses = Coprocesses::default();
    let mut handler = handler(TELL_PID);
    let pid = |handler: &CoprocessHandler, class: &str| {
        let run = RunContext { class: class.parse().unwrap(), ..context("1") };
        pid_of(&coprocesses.run(handler, &run, &[], None, &mut Seen::new()))
    };
    assert_eq!(pid(&handler, "mail.a"), pid(&handler, "mail.b"));
    handler.command.argv.push("{class}".to_owned());
    assert_ne!(pid(&handler, "mail.a"), pid(&handler, "mail.b"));
    assert_eq!(pid(&handler, "mail.a"), pid(&handler, "mail.a"));
}

#[test]
fn a_drain_lets_the_handler_tidy_up_and_ends_one_that_does_not_listen() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidy");
    let script = format!(
        "hello()\nwhile True:\n run = hear()\n if run['type'] == 'drain': open({}, 'w').write('x'); break\n \
         if run['type'] == 'run': done(run, os.getpid())",
        quoted(&file)
    );
    let coprocesses = Coprocesses::default();
    let tidy = pid_of(&run(&coprocesses, &handler(&script), "1").0);
    coprocesses.drain();
    assert!(file.exists() && is_dead(tidy));
    let deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nhello()\nrun = hear()\nrun = hear()\n\
                done(run, os.getpid())\ntime.sleep(600)";
    let pid = pid_of(&run(&coprocesses, &with_grace(deaf, Duration::from_millis(20)), "1").0);
    coprocesses.drain();
    assert!(is_dead(pid));
}

#[test]
fn who_answers_pings_is_kept_and_who_does_not_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let pinged = directory.path().join("pinged");
    let script = format!(
        "hello()\nfor line in sys.stdin:\n m = json.loads(line)\n if m['type'] == 'run': done(m, os.getpid())\n \
         elif m['type'] == 'ping': open({}, 'a').write('x'); say(type='pong')",
        quoted(&pinged)
    );
    let often = |handler| CoprocessHandler { ping_every: Duration::from_millis(10), ..handler };
    let coprocesses = Coprocesses::default();
    let answering = often(handler(&script));
    let pid = pid_of(&run(&coprocesses, &answering, "1").0);
    eventually(|| std::fs::metadata(&pinged).is_ok_and(|file| file.len() >= 5));
    assert_eq!(pid_of(&run(&coprocesses, &answering, "1").0), pid);
    let silent = "hello()\nfor line in sys.stdin:\n m = json.loads(line)\n if m['type'] == 'run': done(m, os.getpid())";
    let silent = often(with_grace(silent, Duration::from_millis(20)));
    let pid = pid_of(&run(&coprocesses, &silent, "1").0);
    eventually(|| is_dead(pid));
}
