//! Runs that are ended, and processes that end with their runs.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::panic)]

use std::os::fd::AsFd as _;

use super::tests::*;

/// Runs with an alarm that is raised as soon as the handler has reported something.
fn run_with_alarm(coprocesses: &Coprocesses, handler: &CoprocessHandler) -> (HandlerEnd, Seen) {
    let alarm = Arc::new(Waker::new().unwrap());
    let mut seen = Seen { told: Some(Arc::clone(&alarm)), ..Seen::new() };
    let end = coprocesses.run(handler, &context("1"), &[alarm.as_fd()], None, &mut seen);
    (end, seen)
}

/// Reports, and ends the run when asked to.
const CANCELLABLE: &str = r#"hello(1, "cancel")
for message in iter(hear, None):
    if message["type"] == "run":
        say(type="progress", id=message["id"], progress=1)
    elif message["type"] == "cancel":
        say(type="fail", id=message["id"], error={"message": message["reason"]}, result=os.getpid())"#;

#[test]
fn a_run_that_must_end_is_ended_by_the_process_that_has_it() {
    let (coprocesses, handler) = (Coprocesses::default(), handler(CANCELLABLE));
    let (end, seen) = run_with_alarm(&coprocesses, &handler);
    assert_eq!((end.ending, end.said.error.unwrap().message.as_str()), (Ending::Stopped, "shutdown"));
    let pid = seen.handler.unwrap().pid;
    let late = RunContext { timeout_secs: 0, ..context("1") };
    let end = coprocesses.run(&handler, &late, &[], None, &mut Seen::new());
    assert_eq!((end.ending, end.said.error.unwrap().message.as_str()), (Ending::TimedOut, "timeout"));
    assert_eq!(end.said.results, Some(pid.to_string()), "and it keeps running");
}

#[test]
fn who_cannot_cancel_a_run_is_asked_to_end_itself() {
    let script = "hello()\nfor run in runs():\n say(type='progress', id=run['id'], progress=1)\n time.sleep(600)";
    let coprocesses = Coprocesses::default();
    let (end, seen) = run_with_alarm(&coprocesses, &handler(script));
    assert_eq!((end.ending, end.unended), (Ending::Stopped, None));
    assert!(is_dead(seen.handler.unwrap().pid));
    for timeout_secs in [-1, 1] {
        let run = RunContext { timeout_secs, ..context("1") };
        assert_eq!(coprocesses.run(&handler(script), &run, &[], None, &mut Seen::new()).ending, Ending::TimedOut);
    }
}

#[test]
fn a_report_starts_the_timeout_again() {
    let script = "hello()\nfor run in runs():\n for i in range(35):\n  time.sleep(0.1)\n  \
                  say(type='progress', id=run['id'], progress=i)\n done(run)";
    let run = RunContext { timeout_secs: 3, ..context("1") };
    let end = Coprocesses::default().run(&handler(script), &run, &[], None, &mut Seen::new());
    assert_eq!(end.ending, Ending::Exited(0));
}

#[test]
fn who_does_not_end_a_run_is_killed_and_its_other_runs_are_given_back() {
    let script = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nhello(2)\nfor run in runs():\n \
                  say(type='progress', id=run['id'], progress=1)";
    let (coprocesses, handler) = (Coprocesses::default(), with_grace(script, Duration::from_millis(50)));
    let (stopped, (other, seen)) = std::thread::scope(|scope| {
        let told = Arc::new(Waker::new().unwrap());
        let (theirs, context) = (Arc::clone(&told), RunContext { run_id: 71, ..context("1") });
        let (coprocesses, handler) = (&coprocesses, &handler);
        let other = scope.spawn(move || {
            let mut seen = Seen { told: Some(theirs), ..Seen::new() };
            (coprocesses.run(handler, &context, &[], None, &mut seen), seen)
        });
        told.wait(None, Duration::from_secs(60));
        (run_with_alarm(coprocesses, handler), other.join().unwrap())
    });
    assert_eq!(stopped.0.ending, Ending::Stopped);
    let Ending::KilledWithAnother(why) = &other.ending else { panic!("{other:?}") };
    assert!(why.starts_with("run 70 of the same coprocess did not end"), "{why}");
    let pids = [stopped.1.handler.unwrap().pid, seen.handler.unwrap().pid];
    assert!(pids[0] == pids[1] && is_dead(pids[0]));
}

#[test]
fn the_observer_can_have_it_killed_at_once() {
    let coprocesses = Coprocesses::default();
    let mut seen = Seen { control: Control::Kill, ..Seen::new() };
    let script = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nhello()\nfor run in runs(): time.sleep(600)";
    let end = coprocesses.run(&handler(script), &context("1"), &[], None, &mut seen);
    assert_eq!(end.ending, Ending::Stopped);
    assert!(seen.handler.is_none_or(|handler| is_dead(handler.pid)));
}

#[test]
fn a_stop_reaches_a_run_that_has_no_process_yet() {
    let alarm = Waker::new().unwrap();
    alarm.wake();
    let coprocesses = Coprocesses::default();
    let mut seen = Seen::new();
    let end = coprocesses.run(&handler("time.sleep(600)"), &context("1"), &[alarm.as_fd()], None, &mut seen);
    assert_eq!((end.ending, seen.handler), (Ending::Stopped, None));
}

#[test]
fn a_process_that_dies_takes_its_own_runs_with_it_and_no_others() {
    for (end, expected, code) in [
        ("os.kill(os.getpid(), 11)", Ending::Signalled(11), None),
        ("os._exit(75)", Ending::Exited(75), None),
        ("os._exit(0)", Ending::Exited(0), Some("no-answer")),
    ] {
        let script = format!("hello()\nfor run in runs():\n if run['data'] == 'die': {end}\n done(run, os.getpid())");
        let (coprocesses, handler) = (Coprocesses::default(), handler(&script));
        let (lost, seen) = run(&coprocesses, &handler, "\"die\"");
        assert_eq!((&lost.ending, lost.said.error.as_ref().map(|error| error.code.as_str())), (&expected, code));
        assert!(is_dead(seen.handler.unwrap().pid));
        pid_of(&run(&coprocesses, &handler, "1").0);
    }
}

#[test]
fn an_answer_that_was_given_before_the_end_counts() {
    let script = "hello()\nfor run in runs():\n done(run, os.getpid())\n os._exit(9)";
    let (coprocesses, handler) = (Coprocesses::default(), handler(script));
    let (first, _) = run(&coprocesses, &handler, "1");
    let pid = pid_of(&first);
    eventually(|| is_dead(pid));
    pid_of(&run(&coprocesses, &handler, "1").0);
}

#[test]
fn a_run_that_a_dying_process_has_not_read_goes_to_another() {
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "import fcntl, struct, termios\nhello(2)\nif not os.path.exists({0}):\n open({0}, 'w')\n lines = 0\n \
         while lines < 2: lines += os.read(0, 1) == b'\\n'\n \
         while not struct.unpack('i', fcntl.ioctl(0, termios.FIONREAD, b'1234'))[0]: time.sleep(0.002)\n os._exit(3)\n\
         for run in runs(): done(run, os.getpid())",
        quoted(&directory.path().join("was-here"))
    );
    let mut endings: Vec<Ending> =
        run_together(&Coprocesses::default(), &handler(&script), 2).into_iter().map(|end| end.ending).collect();
    endings.sort_by_key(|ending| *ending != Ending::Exited(3));
    assert_eq!(endings, [Ending::Exited(3), Ending::Exited(0)]);
}

#[test]
fn who_always_dies_before_it_has_read_a_run_is_not_tried_for_ever() {
    let script = "hello()\nos.read(0, 1)\nos.kill(os.getpid(), 6)";
    let (end, _) = run(&Coprocesses::default(), &handler(script), "1");
    assert!(matches!(end.ending, Ending::Signalled(6) | Ending::CouldNotStart(_)), "{end:?}");
}

#[test]
fn nothing_of_a_dead_process_works_on_when_its_runs_have_ended() {
    let script = "import subprocess\nhello()\nfor run in runs():\n \
                  child = subprocess.Popen(['setsid', 'sleep', '600'])\n \
                  say(type='progress', id=run['id'], result=child.pid)\n os._exit(1)";
    let (end, seen) = run(&Coprocesses::default(), &handler(script), "1");
    assert_eq!((end.ending, end.unended), (Ending::Exited(1), None));
    assert!(is_dead(end.said.results.unwrap().parse().unwrap()) && is_dead(seen.handler.unwrap().pid));
}
