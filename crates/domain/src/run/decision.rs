//! Decides what happens to a run whose handler ended, from how it ended and what it reported. No other code decides this.

use super::ending::{Ending, ReportedError};
use super::exit_rules::{ExitMeaning, ExitRules};
use super::transition::RunEvent;

/// The end of the rule text of a run that was lost together with others.
const LOST_WITH_OTHERS: &str = ": retry, with nothing beside it (other runs were lost with it)";

/// What may have caused the loss of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Its task: the runner had no other run.
    Task,
    /// Its task, or the task of another run of the same runner.
    AnyOfSeveral,
    /// No task: the machine restarted.
    Restart,
}

/// The decision about a run, and the rule that led to it; the rule is stored on the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What happens to the run.
    pub event: RunEvent,
    /// Whether a failed task is retried while retries are left.
    pub may_retry: bool,
    /// Seconds that the handler asked to wait before the next attempt; `None` uses the backoff.
    pub delay_secs: Option<i64>,
    /// Whether the handler or its runner crashed rather than failed: the task may be the cause.
    pub is_crash: bool,
    /// Whether the class is held: its deployment on this host is broken.
    pub holds_class: bool,
    /// Whether the runner lacked processes, memory or descriptors: it should start fewer handlers.
    pub lacks_room: bool,
    /// Unknown keys that the handler sent, if any: "unknown key …".
    pub slip: Option<String>,
    /// ErrorCode; empty on success.
    pub error_code: String,
    /// ErrorMessage; empty on success.
    pub error_message: String,
    /// The rule, in words: "exit 75: retry (default rule)".
    pub rule: String,
}

/// The word in a decision's rule that rules out a retry of a failed task.
const NO_RETRY: &str = "no_retry";

/// Returns true if the rule stored on a failed run says that its task is not retried.
#[must_use]
pub fn rules_out_retry(rule: &str) -> bool {
    rule.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == NO_RETRY)
}

/// Returns the rule in the words for a task that is not retried.
#[must_use]
pub fn rule_without_retry(rule: &str) -> String {
    rule.replacen(": retry at once", ": not retried", 1).replacen(": retry", ": not retried", 1)
}

impl Decision {
    fn success(rule: String) -> Self {
        Self {
            event: RunEvent::Succeed,
            may_retry: true,
            delay_secs: None,
            is_crash: false,
            holds_class: false,
            lacks_room: false,
            slip: None,
            error_code: String::new(),
            error_message: String::new(),
            rule,
        }
    }

    fn failure(code: &str, message: &str, may_retry: bool, rule: String) -> Self {
        Self {
            event: RunEvent::Fail,
            may_retry,
            error_code: code.to_owned(),
            error_message: message.to_owned(),
            ..Self::success(rule)
        }
    }

    fn crash(code: &str, message: &str, rule: String) -> Self {
        Self { is_crash: true, ..Self::failure(code, message, true, rule) }
    }

    fn meaning(meaning: ExitMeaning, code: &str, message: &str, rule: String) -> Self {
        let may_retry = meaning != ExitMeaning::NoRetry;
        let failure = Self::failure(code, message, may_retry, rule);
        match meaning {
            ExitMeaning::Success => Self::success(failure.rule),
            ExitMeaning::Retry | ExitMeaning::NoRetry => failure,
            ExitMeaning::Hold => Self { event: RunEvent::Release, holds_class: true, ..failure },
            ExitMeaning::Release => Self { event: RunEvent::Release, ..failure },
        }
    }

    /// Returns the decision for an in-process handler (the Rust trait) that reported an error.
    #[must_use]
    pub fn reported(error: &ReportedError) -> Self {
        let may_retry = error.retry.unwrap_or(true);
        let word = if may_retry { "retry" } else { "no_retry" };
        let rule = format!("the handler reported an error: {word}");
        Self { delay_secs: error.delay_secs, ..Self::failure(&error.code, &error.message, may_retry, rule) }
    }

    /// Returns the decision for an in-process handler that succeeded.
    #[must_use]
    pub fn returned() -> Self {
        Self::success("the handler returned".to_owned())
    }

    /// Returns the decision to release the run without counting the attempt, for a reason unrelated to its task.
    #[must_use]
    pub fn released(code: &str, message: &str) -> Self {
        Self { event: RunEvent::Release, ..Self::failure(code, message, true, format!("{code}: released")) }
    }

    /// Adds to the rule how many event lines could not be read, so that the author of the handler can find out.
    #[must_use]
    pub fn with_unread_events(self, count: u64) -> Self {
        let rule = match count {
            0 => return self,
            1 => format!("{}; 1 event line could not be read", self.rule),
            _ => format!("{}; {count} event lines could not be read", self.rule),
        };
        Self { rule, ..self }
    }

    /// Adds the unknown keys of events to the rule, for the author of the handler.
    #[must_use]
    pub fn with_unknown_keys(self, keys: &[String]) -> Self {
        let slip = match keys {
            [] => return self,
            [key] => format!("unknown key in an event: {key}"),
            keys => format!("unknown keys in events: {}", keys.join(", ")),
        };
        Self { rule: format!("{}; {slip}", self.rule), slip: Some(slip), ..self }
    }

    /// Adds that the thread of a Rust handler did not end when asked to.
    #[must_use]
    pub fn with_thread_left_behind(self) -> Self {
        Self {
            error_message: format!("{}; the handler did not end when it was asked to", self.error_message),
            rule: format!("{}; thread left behind", self.rule),
            ..self
        }
    }

    /// Returns the decision for a run whose runner died or whose lease expired.
    #[must_use]
    pub fn lost(code: &str, message: &str, blame: Blame) -> Self {
        let rule = match blame {
            Blame::Task => format!("{code}: retry"),
            Blame::AnyOfSeveral => format!("{code}{LOST_WITH_OTHERS}"),
            Blame::Restart => format!("{code}: retry (its machine was started again)"),
        };
        Self { event: RunEvent::TimeOut, is_crash: blame == Blame::Task, ..Self::crash(code, message, rule) }
    }

    /// Returns true if this is the rule of a run that was lost together with others.
    #[must_use]
    pub fn is_of_one_lost_with_others(rule: &str) -> bool {
        rule.ends_with(LOST_WITH_OTHERS)
    }
}

/// Decides from how the handler ended. `error` is the handler's `{"error":…}` event; `stderr_tail` is the last line that it wrote
/// to standard error, used as the message if it reported none.
#[must_use]
pub fn decide(
    ending: &Ending,
    error: Option<&ReportedError>,
    stderr_tail: &str,
    rules: &ExitRules,
    timeout_secs: i64,
) -> Decision {
    match ending {
        Ending::Exited(code) => decide_exit(*code, error, stderr_tail, rules),
        Ending::Signalled(signal) => {
            let message = non_empty(stderr_tail, format!("the handler was ended by signal {signal}"));
            decide_signal(*signal, &message, error)
        }
        Ending::Killed { signal, why } => decide_signal(*signal, why, error),
        Ending::TimedOut => {
            let message = format!("the handler neither ended nor reported within {timeout_secs} seconds");
            Decision {
                event: RunEvent::TimeOut,
                ..Decision::failure("timeout", &message, true, "timeout: retry".to_owned())
            }
        }
        Ending::CouldNotStart(reason) => {
            let (meaning, origin) = rules.meaning_of_no_start();
            Decision::meaning(meaning, "could-not-start", reason, format!("could not start: {meaning} ({origin})"))
        }
        Ending::NoRoom(reason) => Decision {
            event: RunEvent::Release,
            lacks_room: true,
            ..Decision::failure("no-room", reason, true, "no room to start it: release".to_owned())
        },
        Ending::Misconfigured(reason) => {
            let rule = format!("could not start: {} (configuration)", ExitMeaning::Hold);
            Decision::meaning(ExitMeaning::Hold, "could-not-start", reason, rule)
        }
        Ending::Cancelled(reason) => Decision {
            event: RunEvent::Cancel,
            ..Decision::failure("cancelled", reason, false, "cancelled".to_owned())
        },
        Ending::KilledWithAnother(why) => Decision {
            event: RunEvent::Release,
            ..Decision::failure("handler-killed", why, true, "killed with another run: release".to_owned())
        },
        Ending::Stopped => Decision {
            event: RunEvent::Release,
            ..Decision::failure("runner-stopped", "the runner was stopped", true, "runner stopped: release".to_owned())
        },
    }
}

fn decide_signal(signal: i32, message: &str, error: Option<&ReportedError>) -> Decision {
    let rule = format!("signal {signal}: retry");
    error.map_or_else(
        || Decision::crash(&format!("signal:{signal}"), message, rule),
        |error| {
            let decision = Decision::reported(error);
            Decision { rule: format!("signal {signal}, but {}", decision.rule), ..decision }
        },
    )
}

fn decide_exit(code: i32, error: Option<&ReportedError>, stderr_tail: &str, rules: &ExitRules) -> Decision {
    let (meaning, origin) = rules.meaning(code);
    let rule = format!("exit {code}: {meaning} ({origin})");
    // An explicit event takes precedence over the exit code: a handler that reports an error and exits 0 has failed.
    if let Some(error) = error
        && matches!(meaning, ExitMeaning::Success | ExitMeaning::Retry | ExitMeaning::NoRetry)
    {
        let may_retry = error.retry.unwrap_or(meaning != ExitMeaning::NoRetry);
        return Decision {
            may_retry,
            ..Decision::reported(&ReportedError { retry: Some(may_retry), ..error.clone() })
        };
    }
    let error_code = error.map_or_else(|| format!("exit:{code}"), |error| error.code.clone());
    let fallback = non_empty(stderr_tail, format!("the handler exited with code {code}"));
    let message = error.map_or(fallback, |error| error.message.clone());
    let decision = Decision::meaning(meaning, &error_code, &message, rule);
    let delay_secs = error.and_then(|error| error.delay_secs).filter(|_| meaning == ExitMeaning::Release);
    Decision { delay_secs, ..decision }
}

fn non_empty(text: &str, otherwise: String) -> String {
    if text.trim().is_empty() { otherwise } else { text.trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_of_a_last_attempt_names_no_retry() {
        for (rule, last) in [
            ("exit 1: retry (default rule)", "exit 1: not retried (default rule)"),
            ("timeout: retry; thread left behind", "timeout: not retried; thread left behind"),
            ("runner-died: retry at once", "runner-died: not retried"),
            ("exit 64: no_retry (default rule)", "exit 64: no_retry (default rule)"),
        ] {
            assert_eq!(rule_without_retry(rule), last);
        }
    }

    fn exited(code: i32, error: Option<&ReportedError>) -> Decision {
        decide(&Ending::Exited(code), error, "", &ExitRules::default(), 60)
    }

    fn reported(retry: Option<bool>) -> ReportedError {
        ReportedError { code: "smtp".into(), message: "451 greylisted".into(), retry, delay_secs: Some(30) }
    }

    #[test]
    fn a_success_leaves_error_code_and_message_empty() {
        let decision = exited(0, None);
        assert_eq!(decision.event, RunEvent::Succeed);
        assert_eq!((decision.error_code.as_str(), decision.error_message.as_str()), ("", ""));
        assert_eq!(decision.rule, "exit 0: success (default rule)");
    }

    #[test]
    fn a_failure_takes_the_last_line_of_standard_error_as_its_message() {
        let decision = decide(&Ending::Exited(1), None, "disk on fire\n", &ExitRules::default(), 60);
        assert_eq!((decision.error_code.as_str(), decision.error_message.as_str()), ("exit:1", "disk on fire"));
        assert!(decision.may_retry);
    }

    #[test]
    fn codes_that_mean_a_broken_task_are_not_retried() {
        for code in [64, 65, 66, 77, 100] {
            let decision = exited(code, None);
            assert_eq!((decision.event, decision.may_retry), (RunEvent::Fail, false), "exit {code}");
        }
    }

    #[test]
    fn codes_that_mean_a_broken_deployment_hold_the_class_and_cost_no_attempt() {
        for code in [78, 126, 127] {
            let decision = exited(code, None);
            assert_eq!((decision.event, decision.holds_class), (RunEvent::Release, true), "exit {code}");
        }
        let decision = decide(&Ending::CouldNotStart("gone".into()), None, "", &ExitRules::default(), 60);
        assert_eq!((decision.event, decision.holds_class), (RunEvent::Release, true));
    }

    #[test]
    fn a_program_that_the_task_names_fails_its_task_and_holds_nobody_up() {
        let rules = ExitRules::of_task_programs();
        let decided = |ending: &Ending| {
            let decision = decide(ending, None, "", &rules, 60);
            (decision.event, decision.holds_class, decision.may_retry, decision.rule)
        };
        for (ending, may_retry, rule) in [
            (Ending::CouldNotStart("gone".into()), false, "could not start: no_retry (rule of exec)"),
            (Ending::Exited(126), false, "exit 126: no_retry (rule of exec)"),
            (Ending::Exited(127), false, "exit 127: no_retry (rule of exec)"),
            (Ending::Exited(78), true, "exit 78: retry (rule of exec)"),
        ] {
            assert_eq!(decided(&ending), (RunEvent::Fail, false, may_retry, rule.to_owned()));
        }
    }

    #[test]
    fn a_shortage_of_the_runner_releases_the_run_and_holds_no_class() {
        for rules in [ExitRules::default(), ExitRules::of_task_programs()] {
            let decision = decide(&Ending::NoRoom("too many open files".into()), None, "", &rules, 60);
            assert_eq!((decision.event, decision.holds_class, decision.lacks_room), (RunEvent::Release, false, true));
            assert_eq!((decision.error_code.as_str(), decision.delay_secs), ("no-room", None));
        }
    }

    #[test]
    fn exit_99_gives_the_run_back() {
        let decision = exited(99, None);
        assert_eq!((decision.event, decision.holds_class), (RunEvent::Release, false));
    }

    #[test]
    fn a_reported_error_says_more_than_the_exit_code() {
        let decision = exited(0, Some(&reported(None)));
        assert_eq!((decision.event, decision.error_code.as_str()), (RunEvent::Fail, "smtp"));
        assert_eq!(decision.delay_secs, Some(30));
        assert!(!exited(1, Some(&reported(Some(false)))).may_retry);
        assert!(exited(65, Some(&reported(Some(true)))).may_retry);
        assert!(!exited(65, Some(&reported(None))).may_retry);
    }

    #[test]
    fn after_a_signal_too_the_words_are_those_of_what_was_decided() {
        let killed = |error: Option<&ReportedError>| {
            let decision = decide(&Ending::Signalled(9), error, "", &ExitRules::default(), 60);
            (decision.may_retry, decision.rule)
        };
        assert_eq!(killed(None), (true, "signal 9: retry".to_owned()));
        for (retry, word) in [(false, "no_retry"), (true, "retry")] {
            let expected = format!("signal 9, but the handler reported an error: {word}");
            assert_eq!(killed(Some(&reported(Some(retry)))), (retry, expected));
        }
    }

    #[test]
    fn the_cause_of_a_signal_says_more_than_the_last_line_of_standard_error() {
        let ending = Ending::Killed { signal: 24, why: "over its limit".into() };
        let decision = decide(&ending, None, "still counting\n", &ExitRules::default(), 60);
        assert_eq!((decision.error_code.as_str(), decision.error_message.as_str()), ("signal:24", "over its limit"));
        assert!(decision.may_retry);
        let decision = decide(&Ending::Signalled(11), None, "still counting\n", &ExitRules::default(), 60);
        assert_eq!(decision.error_message, "still counting");
    }

    #[test]
    fn a_misconfiguration_holds_a_class_even_if_its_tasks_name_the_program() {
        for rules in [ExitRules::default(), ExitRules::of_task_programs()] {
            let decision = decide(&Ending::Misconfigured("no user".into()), None, "", &rules, 60);
            assert_eq!((decision.event, decision.holds_class), (RunEvent::Release, true));
        }
    }

    #[test]
    fn the_rule_of_each_failure_tells_whether_a_retry_is_ruled_out() {
        let rules = [ExitRules::default(), ExitRules::of_task_programs()];
        let endings = (0..=255).map(Ending::Exited).chain([
            Ending::Signalled(9),
            Ending::TimedOut,
            Ending::CouldNotStart("gone".into()),
            Ending::NoRoom("no process".into()),
        ]);
        for ending in endings {
            for (rules, error) in rules.iter().flat_map(|rules| {
                [None, Some(reported(None)), Some(reported(Some(false))), Some(reported(Some(true)))]
                    .map(|error| (rules, error))
            }) {
                let decision = decide(&ending, error.as_ref(), "", rules, 60);
                if decision.event == RunEvent::Fail || decision.event == RunEvent::TimeOut {
                    assert_eq!(rules_out_retry(&decision.rule), !decision.may_retry, "{decision:?}");
                }
            }
        }
    }

    #[test]
    fn event_lines_that_nobody_understood_are_named() {
        let rule = |count: u64| exited(0, None).with_unread_events(count).rule;
        assert_eq!(rule(0), "exit 0: success (default rule)");
        assert_eq!(rule(1), "exit 0: success (default rule); 1 event line could not be read");
        assert_eq!(rule(3), "exit 0: success (default rule); 3 event lines could not be read");
    }

    #[test]
    fn only_a_run_that_is_lost_alone_counts_as_a_crash() {
        let lost = |blame| Decision::lost("runner-died", "dead", blame);
        for (blame, is_crash, is_suspect) in
            [(Blame::Task, true, false), (Blame::AnyOfSeveral, false, true), (Blame::Restart, false, false)]
        {
            let decision = lost(blame);
            assert_eq!((decision.event, decision.may_retry, decision.delay_secs), (RunEvent::TimeOut, true, None));
            assert_eq!(
                (decision.is_crash, Decision::is_of_one_lost_with_others(&decision.rule)),
                (is_crash, is_suspect)
            );
        }
    }

    #[test]
    fn unknown_keys_stand_behind_the_rule() {
        let with = |keys: &[&str]| {
            exited(0, None).with_unknown_keys(&keys.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!((with(&[]).rule.as_str(), with(&[]).slip), ("exit 0: success (default rule)", None));
        assert_eq!(with(&["\"x\""]).rule, "exit 0: success (default rule); unknown key in an event: \"x\"");
        assert_eq!(with(&["\"x\"", "\"y\""]).slip.as_deref(), Some("unknown keys in events: \"x\", \"y\""));
    }

    #[test]
    fn a_handler_without_end_times_out_and_is_retried() {
        let decision = decide(&Ending::TimedOut, None, "", &ExitRules::default(), 60);
        assert_eq!((decision.event, decision.may_retry), (RunEvent::TimeOut, true));
        assert_eq!(decision.error_code, "timeout");
    }
}
