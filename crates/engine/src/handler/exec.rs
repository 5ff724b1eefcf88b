//! The built-in class `exec`: the data of the task names the program to run. It is on for a user's own store, and off where
//! others can queue unless it is configured. This module does not decide whether it is allowed.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::command::{CommandHandler, CommandSource, is_variable_name};

/// The data of an `exec` task: `{"argv":["program","argument",…]}`, optionally `"cwd"` and `"env"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecRequest {
    /// The program and its arguments; no shell. A bare name is looked up in PATH.
    pub argv: Vec<String>,
    /// The working directory.
    pub cwd: Option<PathBuf>,
    /// Added to the clean environment.
    pub env: Vec<(String, String)>,
}

/// An error in the data of an `exec` task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data of an exec task must be {{\"argv\":[\"program\",…]}}, optionally with \"cwd\" and \"env\": {0}")]
pub struct ExecProblem(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    env: Option<Map<String, Value>>,
}

impl ExecRequest {
    /// Parses the data of a task; also used to check it when the task is queued.
    ///
    /// # Errors
    /// Returns what is missing or malformed. A retry cannot help.
    pub fn parse(data: &str) -> Result<Self, ExecProblem> {
        let problem = |text: &str| ExecProblem(text.to_owned());
        if !data.trim_start().starts_with('{') {
            return Err(problem("it is not an object"));
        }
        let data: Data = serde_json::from_str(data).map_err(|error| ExecProblem(error.to_string()))?;
        let argv = data.argv.ok_or_else(|| problem("argv is missing"))?;
        if argv.first().is_none_or(String::is_empty) {
            return Err(problem("argv names no program"));
        }
        if argv.iter().chain(&data.cwd).any(|text| text.contains('\0')) {
            return Err(problem("argv and cwd must not contain NUL"));
        }
        if data.cwd.as_ref().is_some_and(String::is_empty) {
            return Err(problem("cwd is empty"));
        }
        let env = data.env.unwrap_or_default().into_iter().map(|(name, value)| match value {
            Value::String(value) if is_variable_name(&name) && !value.contains('\0') => Ok((name, value)),
            _ => Err(ExecProblem(format!("env entry {name:?} must be a variable name with a text without NUL"))),
        });
        let env = env.collect::<Result<Vec<_>, _>>()?;
        if let Some((name, _)) = env.iter().find(|(name, _)| is_reserved_variable(name)) {
            return Err(ExecProblem(format!("env must not set {name}: TASKQUEUE_* and LD_* are reserved")));
        }
        Ok(Self { argv, cwd: data.cwd.map(PathBuf::from), env })
    }

    /// Returns the command line as a shell would read it, for people.
    #[must_use]
    pub fn command_line(&self, quote: impl Fn(&str) -> String) -> String {
        self.argv.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
    }

    /// Returns the program of the request with the limits of `class`, the configured class `exec`. The request overrides the
    /// directory and the environment of the class.
    #[must_use]
    pub fn into_command(self, class: &CommandHandler) -> CommandHandler {
        CommandHandler {
            argv: self.argv,
            source: CommandSource::TaskData,
            cwd: self.cwd.or_else(|| class.cwd.clone()),
            env: class.env.iter().cloned().chain(self.env).collect(),
            ..class.clone()
        }
    }
}

/// Returns true for a variable that the runner sets, or that changes which code the loader executes.
#[must_use]
pub fn is_reserved_variable(name: &str) -> bool {
    name.starts_with("TASKQUEUE_") || name.starts_with("LD_")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::handler::active_run::tests::context;

    #[test]
    fn a_whole_request_is_read_and_taken_literally() {
        let data = r#"{"argv":["echo","{class}","a b"],"cwd":"/tmp","env":{"A":"own","B":""}}"#;
        let class = CommandHandler {
            argv: vec!["ignored".to_owned()],
            source: CommandSource::Configuration,
            cwd: Some("/".into()),
            env: vec![("A".to_owned(), "configured".to_owned()), ("C".to_owned(), "c".to_owned())],
            pass_env: Vec::new(),
            confinement: taskqueue_domain::limits::confinement::Confinement::default(),
            kill_grace: Duration::from_secs(1),
            output_limit_bytes: 100,
        };
        let spec = ExecRequest::parse(data).unwrap().into_command(&class).child_spec(&context(data), None).unwrap();
        assert_eq!((spec.program, spec.args), ("echo".into(), vec!["{class}".into(), "a b".into()]));
        assert_eq!(spec.cwd, Some("/tmp".into()));
        for (name, value) in [("A", "own"), ("B", ""), ("C", "c")] {
            assert_eq!(spec.env.iter().filter(|entry| entry.0 == name).count(), 1);
            assert!(spec.env.contains(&(name.into(), value.into())));
        }
    }

    #[test]
    fn malformed_requests_are_explained() {
        let why = |data: &str| ExecRequest::parse(data).unwrap_err().to_string();
        for (data, reason) in [
            ("[]", "not an object"),
            ("[[\"a\"],null,null]", "not an object"),
            ("{}", "argv is missing"),
            (r#"{"argv":[]}"#, "no program"),
            (r#"{"argv":[""]}"#, "no program"),
            (r#"{"argv":"ls -l"}"#, "expected a sequence"),
            (r#"{"argv":[1]}"#, "expected a string"),
            (r#"{"argv":["a\u0000"]}"#, "NUL"),
            (r#"{"argv":["a"],"cwd":""}"#, "cwd is empty"),
            (r#"{"argv":["a"],"env":{"A":1}}"#, "env entry \"A\""),
            (r#"{"argv":["a"],"env":{"A=B":"1"}}"#, "env entry \"A=B\""),
            (r#"{"argv":["a"],"env":{"LD_PRELOAD":"/x.so"}}"#, "env must not set LD_PRELOAD"),
            (r#"{"argv":["a"],"env":{"TASKQUEUE_TASK_ID":"7"}}"#, "env must not set TASKQUEUE_TASK_ID"),
            (r#"{"argv":["a"],"shell":true}"#, "unknown field `shell`"),
        ] {
            let text = why(data);
            assert!(text.contains(reason) && text.starts_with("the data of an exec task must be {\"argv\""), "{text}");
        }
    }
}
