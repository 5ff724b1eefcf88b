#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use super::*;
use crate::handler::active_run::tests::context;
use taskqueue_domain::run::exit_rules::{ExitCodes, ExitMeaning};
use taskqueue_host::testing::eventually;
use taskqueue_process::identities::identity::Liveness;

#[derive(Default)]
struct Seen {
    handler: Option<ProcessIdentity>,
    reports: Vec<String>,
}

impl Reporter for Seen {
    fn progress(&mut self, percent: i32, message: Option<&str>) {
        self.reports.push(format!("{percent} {}", message.unwrap_or("-")));
    }
    fn results(&mut self, json: &str) {
        self.reports.push(json.to_owned());
    }
    fn heartbeat(&mut self) {
        self.reports.push("alive".to_owned());
    }
}

impl CommandObserver for Seen {
    fn started(&mut self, handler: &ProcessIdentity) {
        self.handler = Some(handler.clone());
    }
    fn idle(&mut self) -> Control {
        Control::Continue
    }
}

fn handler(argv: &[&str]) -> CommandHandler {
    CommandHandler {
        argv: argv.iter().map(|argument| (*argument).to_owned()).collect(),
        source: CommandSource::Configuration,
        cwd: None,
        env: Vec::new(),
        pass_env: Vec::new(),
        confinement: Confinement::default(),
        kill_grace: Duration::from_secs(1),
        output_limit_bytes: 10_000,
    }
}

fn run(handler: &CommandHandler, data: &str) -> (HandlerEnd, Seen) {
    let mut seen = Seen::default();
    let end = handler.run(&ExitRules::default(), &context(data), &[], None, &mut seen);
    (end, seen)
}

#[test]
fn data_arrives_exactly_as_stored_and_never_in_the_command_line() {
    let data = "{\"x\": \"$(id) ; 'quoted' {class}\", \"u\": \"\\u0000ü\"}";
    let (end, _) = run(&handler(&["sh", "-c", "cat; echo; tr '\\0' ' ' </proc/$$/cmdline >&2", "name"]), data);
    assert_eq!(end.stdout.to_text(), format!("{data}\n"));
    assert!(!end.stderr.to_text().contains("id)"));
}

#[test]
fn only_the_class_is_replaced_in_arguments() {
    let (end, _) = run(&handler(&["printf", "%s|", "x{class}{class}", "{data}", "$HOME", "{ class }"]), "{}");
    assert_eq!(end.stdout.to_text(), "xmail.sendmail.send|{data}|$HOME|{ class }|");
}

#[test]
fn the_environment_is_clean_and_run_variables_cannot_be_replaced() {
    let mut handler = handler(&["env", "-0"]);
    handler.env = vec![
        ("EXTRA".to_owned(), "a b".to_owned()),
        ("LANG".to_owned(), "de_DE.UTF-8".to_owned()),
        ("TASKQUEUE_RUN_TOKEN".to_owned(), "forged".to_owned()),
    ];
    handler.pass_env = vec!["CARGO_MANIFEST_DIR".to_owned(), "NOT_SET_ANYWHERE".to_owned()];
    let socket = EventSocket::bind(None).unwrap();
    let run = context("{}");
    let end = handler.run(&ExitRules::default(), &run, &[], Some(&socket), &mut Seen::default());
    let text = end.stdout.to_text();
    let found: BTreeMap<&str, &str> =
        text.split_terminator('\u{2400}').map(|entry| entry.split_once('=').unwrap()).collect();
    let account = taskqueue_host::machine::host::account();
    let mut expected = BTreeMap::from([
        ("PATH", PATH),
        ("USER", account.name.as_str()),
        ("LOGNAME", account.name.as_str()),
        ("HOME", account.home.as_deref().unwrap_or_else(|| found["HOME"])),
        ("LANG", "de_DE.UTF-8"),
        ("SHELL", "/bin/sh"),
        ("EXTRA", "a b"),
        ("TASKQUEUE_TASK_ID", "7"),
        ("TASKQUEUE_RUN_ID", "70"),
        ("TASKQUEUE_ATTEMPT", "2"),
        ("TASKQUEUE_MAX_RETRIES", "5"),
        ("TASKQUEUE_CLASS", "mail.send"),
        ("TASKQUEUE_RUN_TOKEN", run.token.as_str()),
        ("TASKQUEUE_DEADLINE", "2026-08-01T10:01:00Z"),
        ("TASKQUEUE_PLANNED_ON", "2026-08-01T10:00:00Z"),
        ("TASKQUEUE_EVENTS_FD", "3"),
        ("TASKQUEUE_STOP_REASON_FD", "4"),
        ("TASKQUEUE_EVENTS_SOCKET", socket.name()),
    ]);
    // These are passed on only if the test process itself has them.
    let ours = ["TZ", "CARGO_MANIFEST_DIR"].map(|name| (name, std::env::var(name)));
    expected.extend(ours.iter().filter_map(|(name, value)| Some((*name, value.as_deref().ok()?))));
    assert_eq!(found, expected);
}

#[test]
fn events_become_reports_and_the_last_ones_are_kept() {
    let script = "cat >&3 <<E\n{\"progress\":10,\"message\":\"one\"}\nnonsense\n{\"progress\":20}\n{\"progress\":200}\n\
                  {\"heartbeat\":true}\n{\"result\":{\"n\":1}}\n{\"result\":{\"n\": 2}}\n\
                  {\"error\":{\"code\":4,\"message\":\"m\"}}\nE\nexit 75";
    let (end, seen) = run(&handler(&["sh", "-c", script]), "{}");
    assert_eq!(end.ending, Ending::Exited(75));
    assert_eq!(seen.reports, ["10 one", "20 -", "alive", "{\"n\":1}", "{\"n\": 2}"]);
    assert_eq!(end.said.results.as_deref(), Some("{\"n\": 2}"));
    assert_eq!((end.said.error.unwrap().code.as_str(), end.said.unread), ("4", 2));
    assert_eq!(end.said.first_unread.as_deref(), Some("nonsense"));
    assert!(seen.handler.is_some());
}

#[test]
fn a_failed_handler_leaves_no_process_outside_its_group() {
    let script = "setsid sh -c 'echo $$; exec sleep 600' >&1 2>/dev/null 3>&- & sleep 0.3; exit 1";
    let (end, _) = run(&handler(&["sh", "-c", script]), "\"straggler\"");
    assert_eq!((end.ending, end.unended), (Ending::Exited(1), None));
    let escaped = end.stdout.to_text().trim().parse().unwrap();
    let identity = ProcessIdentity::of_pid(escaped).unwrap();
    assert!(identity.is_none_or(|identity| identity.liveness() == Liveness::Dead));
}

/// Runs a script beside another process with its token. Returns its end, and whether the other process was ended.
fn run_beside_another(script: &str, rules: &ExitRules) -> (HandlerEnd, bool) {
    let run = context("{}");
    let mut other =
        std::process::Command::new("sleep").arg("600").env("TASKQUEUE_RUN_TOKEN", &run.token).spawn().unwrap();
    // The kernel lets its parent go on before it shows the environment.
    eventually(|| {
        std::fs::read(format!("/proc/{}/environ", other.id())).is_ok_and(|environment| !environment.is_empty())
    });
    let end = handler(&["sh", "-c", script]).run(rules, &run, &[], None, &mut Seen::default());
    let has_ended = other.try_wait().unwrap().is_some();
    let _ = other.kill().and_then(|()| other.wait());
    (end, has_ended)
}

#[test]
fn an_error_with_exit_code_zero_leaves_no_process_with_its_token() {
    let script = "echo '{\"error\":{\"code\":4}}' >&3";
    let (end, has_ended) = run_beside_another(script, &ExitRules::default());
    assert_eq!((end.ending, end.said.error.is_some(), end.unended), (Ending::Exited(0), true, None));
    assert!(has_ended);
}

#[test]
fn the_rules_of_the_class_say_whether_processes_may_be_left() {
    let mut rules = ExitRules::default();
    rules.add(ExitCodes::new(0, 0).unwrap(), ExitMeaning::Retry).unwrap();
    rules.add(ExitCodes::new(3, 3).unwrap(), ExitMeaning::Success).unwrap();
    for (code, is_success) in [(0, false), (3, true), (4, false)] {
        let (end, has_ended) = run_beside_another(&format!("exit {code}"), &rules);
        assert_eq!((end.ending, end.unended, has_ended), (Ending::Exited(code), None, !is_success), "{code}");
    }
    assert!(!run_beside_another("exit 0", &ExitRules::default()).1);
}

#[test]
fn the_timeout_of_the_run_ends_it() {
    for timeout_secs in [-1, 1] {
        let run = RunContext { timeout_secs, ..context("{}") };
        let end = handler(&["sleep", "600"]).run(&ExitRules::default(), &run, &[], None, &mut Seen::default());
        assert_eq!(end.ending, Ending::TimedOut);
    }
}

#[test]
fn what_is_misconfigured_does_not_start() {
    let why = |handler: &CommandHandler| match run(handler, "{}").0.ending {
        Ending::CouldNotStart(why) | Ending::Misconfigured(why) => why,
        other => format!("{other:?}"),
    };
    assert!(why(&handler(&[])).contains("no program"));
    assert!(why(&handler(&[""])).contains("no program"));
    let mut odd = handler(&["true"]);
    odd.env = vec![("A=B".to_owned(), String::new())];
    assert!(why(&odd).contains("\"A=B\""));
    odd.env = vec![("A".to_owned(), "\0".to_owned())];
    assert!(why(&odd).contains("could not start true"));
}
