//! What exit codes of handlers mean: the default rules (sysexits.h, qmail, Grid Engine) and the rules of a class.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::text::words::words;

/// The meaning of an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExitMeaning {
    /// The attempt succeeded.
    Success,
    /// The attempt failed; retry while retries are left.
    Retry,
    /// The attempt failed, and a retry would fail the same way.
    NoRetry,
    /// The deployment is broken, not the task: hold the class, without counting the attempt.
    Hold,
    /// The task cannot run now, and is not at fault: release the run at once, without counting the attempt.
    Release,
}

words! {
    /// Returns the name used in messages, documents and the configuration.
    ExitMeaning { Success = "success", Retry = "retry", NoRetry = "no_retry", Hold = "hold", Release = "release" }
}

/// The default rules; a code that is not listed means retry.
const DEFAULT_RULES: &[(RangeInclusive<i32>, ExitMeaning)] = &[
    (0..=0, ExitMeaning::Success),
    (64..=66, ExitMeaning::NoRetry),
    (69..=69, ExitMeaning::Retry),
    (75..=75, ExitMeaning::Retry),
    (77..=77, ExitMeaning::NoRetry),
    (78..=78, ExitMeaning::Hold),
    (99..=99, ExitMeaning::Release),
    (100..=100, ExitMeaning::NoRetry),
    (111..=111, ExitMeaning::Retry),
    (126..=127, ExitMeaning::Hold),
];

/// Rules that precede the default ones for a class whose tasks name the program (`exec`). A broken or missing program is the
/// mistake of that task, so the other tasks of the class must not wait.
const TASK_PROGRAM_RULES: &[(RangeInclusive<i32>, ExitMeaning)] =
    &[(78..=78, ExitMeaning::Retry), (126..=127, ExitMeaning::NoRetry)];

/// One exit code, or a range of them, as the configuration writes it: `75` or `"64-66"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitCodes(RangeInclusive<i32>);

impl ExitCodes {
    /// # Errors
    /// A code is outside 0 to 255, or the range ends before it starts.
    pub fn new(first: i64, last: i64) -> Result<Self, String> {
        let code = |code: i64| i32::from(u8::try_from(code).unwrap_or_default());
        if !(0..=255).contains(&first) || !(first..=255).contains(&last) {
            return Err(format!("{first}-{last} is not a range of exit codes: they are 0 to 255"));
        }
        Ok(Self(code(first)..=code(last)))
    }
}

impl FromStr for ExitCodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let code = |part: &str| {
            part.trim().parse().map_err(|_| format!("\"{text}\" is neither an exit code nor a range like \"64-66\""))
        };
        Self::new(code(first)?, code(last)?)
    }
}

/// The rules of a class, followed by the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitRules {
    own: Vec<(ExitCodes, ExitMeaning)>,
    task_names_program: bool,
}

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOrigin {
    /// The `exit` table of the class.
    Class,
    /// The exceptions for tasks that name the program: the class `exec`.
    TaskProgram,
    /// The default rules.
    Default,
}

impl fmt::Display for RuleOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Class => "rule of the class",
            Self::TaskProgram => "rule of exec",
            Self::Default => "default rule",
        })
    }
}

impl ExitRules {
    /// Returns the rules of a class whose tasks name the program.
    #[must_use]
    pub fn of_task_programs() -> Self {
        Self { own: Vec::new(), task_names_program: true }
    }

    /// Adds a rule of the class.
    ///
    /// # Errors
    /// Another rule of the class already covers one of these exit codes.
    pub fn add(&mut self, codes: ExitCodes, meaning: ExitMeaning) -> Result<(), String> {
        if let Some((_, other)) =
            self.own.iter().find(|(own, _)| own.0.start() <= codes.0.end() && codes.0.start() <= own.0.end())
        {
            return Err(format!(
                "exit codes {}-{} are listed under both {other} and {meaning}",
                codes.0.start(),
                codes.0.end()
            ));
        }
        self.own.push((codes, meaning));
        Ok(())
    }

    /// Returns what `code` means, and where that rule comes from.
    #[must_use]
    pub fn meaning(&self, code: i32) -> (ExitMeaning, RuleOrigin) {
        let own = self.own.iter().find(|(codes, _)| codes.0.contains(&code));
        if let Some((_, meaning)) = own {
            return (*meaning, RuleOrigin::Class);
        }
        if self.task_names_program
            && let Some(meaning) = find(TASK_PROGRAM_RULES, code)
        {
            return (meaning, RuleOrigin::TaskProgram);
        }
        (find(DEFAULT_RULES, code).unwrap_or(ExitMeaning::Retry), RuleOrigin::Default)
    }

    /// Returns the meaning of a program that could not be started, and where that rule comes from.
    #[must_use]
    pub const fn meaning_of_no_start(&self) -> (ExitMeaning, RuleOrigin) {
        if self.task_names_program {
            (ExitMeaning::NoRetry, RuleOrigin::TaskProgram)
        } else {
            (ExitMeaning::Hold, RuleOrigin::Default)
        }
    }
}

fn find(rules: &[(RangeInclusive<i32>, ExitMeaning)], code: i32) -> Option<ExitMeaning> {
    rules.iter().find(|(codes, _)| codes.contains(&code)).map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_rules_are_those_of_the_design() {
        let rules = ExitRules::default();
        for code in 0..=255 {
            let expected = match code {
                0 => ExitMeaning::Success,
                64 | 65 | 66 | 77 | 100 => ExitMeaning::NoRetry,
                78 | 126 | 127 => ExitMeaning::Hold,
                99 => ExitMeaning::Release,
                _ => ExitMeaning::Retry,
            };
            assert_eq!(rules.meaning(code), (expected, RuleOrigin::Default), "exit {code}");
        }
    }

    #[test]
    fn a_program_that_the_task_names_never_holds_its_class() {
        let rules = ExitRules::of_task_programs();
        for code in 0..=255 {
            let expected = match code {
                78 => (ExitMeaning::Retry, RuleOrigin::TaskProgram),
                126 | 127 => (ExitMeaning::NoRetry, RuleOrigin::TaskProgram),
                _ => ExitRules::default().meaning(code),
            };
            assert_eq!(rules.meaning(code), expected, "exit {code}");
            assert_ne!(rules.meaning(code).0, ExitMeaning::Hold, "exit {code}");
        }
        assert_eq!(rules.meaning_of_no_start().0, ExitMeaning::NoRetry);
    }

    #[test]
    fn a_class_overrides_the_defaults() {
        let mut rules = ExitRules::default();
        rules.add("3".parse().unwrap(), ExitMeaning::Success).unwrap();
        rules.add("64-66".parse().unwrap(), ExitMeaning::Retry).unwrap();
        assert_eq!(rules.meaning(3), (ExitMeaning::Success, RuleOrigin::Class));
        assert_eq!(rules.meaning(65), (ExitMeaning::Retry, RuleOrigin::Class));
        assert_eq!(rules.meaning(77), (ExitMeaning::NoRetry, RuleOrigin::Default));
    }

    #[test]
    fn a_code_under_two_meanings_is_refused() {
        let mut rules = ExitRules::default();
        rules.add("60-70".parse().unwrap(), ExitMeaning::Retry).unwrap();
        assert!(rules.add("70".parse().unwrap(), ExitMeaning::Hold).is_err());
    }

    #[test]
    fn what_is_no_exit_code_is_refused() {
        for bad in ["256", "-1", "x", "", "66-64", "1-", "1-256"] {
            assert!(bad.parse::<ExitCodes>().is_err(), "{bad}");
        }
    }
}
