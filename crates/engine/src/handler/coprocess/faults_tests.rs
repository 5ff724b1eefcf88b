//! Processes that break the protocol, or never send a hello.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::panic)]

use super::tests::*;

fn why(handler: &CoprocessHandler) -> String {
    match run(&Coprocesses::default(), handler, "1").0.ending {
        Ending::CouldNotStart(why) => why,
        other => format!("{other:?}"),
    }
}

#[test]
fn a_program_without_a_proper_hello_could_not_be_started() {
    let mut mute = handler("time.sleep(600)");
    mute.config.start_timeout = Duration::from_millis(100);
    mute.command.kill_grace = Duration::from_millis(20);
    assert_eq!(why(&mute), "could not start python3: it sent no hello within 0.1 seconds");
    for (script, expected) in [
        ("say(type='hello', version=2)\nhear()", "it uses version 2 of the protocol, taskqueue uses 1"),
        ("say(type='pong')\nhear()", "its first message is not a hello"),
        ("print('ready', flush=True)\nhear()", "is not a message: ready"),
        ("hello(0)\nhear()", "its hello sets max_in_flight to 0"),
        ("sys.stderr.write('no module\\n')\nsys.exit(3)", "it ended with exit code 3 before its hello: no module"),
        ("os.kill(os.getpid(), 9)", "it was ended by signal 9 before its hello"),
        ("os.close(1)\nhear(); hear()", "it closed its standard output"),
    ] {
        let why = why(&handler(script));
        assert!(why.starts_with("could not start python3: ") && why.contains(expected), "{script}: {why}");
    }
    let mut absent = handler("");
    absent.command.argv = vec!["/nonexistent/program".to_owned()];
    assert!(why(&absent).contains("no such file"));
}

#[test]
fn all_who_wait_for_a_start_hear_that_it_failed() {
    for end in run_together(&Coprocesses::default(), &handler("sys.exit(7)"), 4) {
        assert!(matches!(end.ending, Ending::CouldNotStart(_)), "{end:?}");
    }
}

/// Returns how the run ends whose process executes `script`, and checks that another process takes the next run.
fn fault(script: &str) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "hello()\nis_first = not os.path.exists({0})\nopen({0}, 'w')\nfor run in runs():\n if is_first:\n  {script}\n \
         else:\n  done(run, os.getpid())",
        quoted(&directory.path().join("was-here"))
    );
    let (coprocesses, handler) = (Coprocesses::default(), handler(&script));
    let (end, seen) = run(&coprocesses, &handler, "1");
    let first = seen.handler.unwrap().pid;
    assert!(is_dead(first), "before its run has ended");
    assert_eq!(end.unended, None);
    assert_ne!(pid_of(&run(&coprocesses, &handler, "2").0), first);
    let error = end.said.error.unwrap();
    (error.code, error.message)
}

#[test]
fn who_breaks_the_protocol_ends_with_its_runs_and_the_next_run_is_done() {
    for (script, expected) in [
        ("say(type='done', id='70.4711'); hear()", "answered for \"70.4711\", which is not one of its runs"),
        ("say(type='done', id='7'); hear()", "answered for \"7\", which is not one of its runs"),
        ("say(type='fail'); hear()", "answered for \"\""),
        ("hello(); hear()", "sent hello twice"),
        ("print('debug\\x1b[1m', flush=True); hear()", "is not a message: debug [1m"),
        ("sys.stdout.write('x' * 3000000); sys.stdout.flush(); print(flush=True); hear()", "a line of more than 1 MiB"),
        ("os.close(1); hear()", "it closed its standard output"),
    ] {
        let (code, message) = fault(script);
        assert!(code == "protocol" && message.contains(expected), "{script}: {message}");
    }
}

#[test]
fn an_answer_for_a_run_that_it_does_not_have_ends_no_other_run_well() {
    // It has two runs; the answer is for a third one. Later output is ignored.
    let script = "hello(2)\nheld = []\nfor run in runs():\n held.append(run)\n if len(held) == 2:\n  \
                  say(type='done', id='70.99999', result='stray')\n  [done(run, 'late') for run in held]";
    for end in run_together(&Coprocesses::default(), &handler(script), 2) {
        assert_eq!((end.said.results, end.said.error.unwrap().code.as_str()), (None, "protocol"));
    }
}

#[test]
fn two_answers_for_one_run_are_an_answer_and_a_fault() {
    // Both are in one write; the second one might have been meant for the other run.
    let script = "hello(2)\nheld = []\nfor run in runs():\n held.append(run)\n if len(held) == 2:\n  \
                  twice = json.dumps({'type': 'done', 'id': held[0]['id'], 'result': held[0]['data']}) + '\\n'\n  \
                  os.write(1, twice.encode() * 2)";
    let ends = run_together(&Coprocesses::default(), &handler(script), 2);
    let (well, ill): (Vec<_>, Vec<_>) = ends.iter().enumerate().partition(|(_, end)| end.ending.is_success());
    assert_eq!((well.len(), ill.len()), (1, 1), "{ends:?}");
    assert_eq!(well[0].1.said.results, Some(well[0].0.to_string()));
    let error = ill[0].1.said.error.as_ref().unwrap();
    assert!(error.code == "protocol" && error.message.contains("not one of its runs"), "{error:?}");
    assert_eq!(ill[0].1.said.results, None);
}

#[test]
fn data_that_is_no_json_reaches_nobody() {
    let (end, seen) = run(&Coprocesses::default(), &handler(TELL_PID), "1,\"id\":\"70.1\"");
    assert_eq!((end.said.error.unwrap().retry, seen.handler), (Some(false), None));
}
