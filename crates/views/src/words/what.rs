//! What a task does, in a few words, for lists.

use crate::shell_word::shell_word;
use taskqueue_domain::task::records::Task;
use taskqueue_domain::task::task_class::EXEC_CLASS;
use taskqueue_domain::text::outside_text::clean_line;
use taskqueue_engine::handler::exec::ExecRequest;

/// The longest text in a list, in characters.
const LONGEST: usize = 32;

/// Returns the name of a task, else the command of an `exec` task, else the beginning of its data.
pub fn what(task: &Task) -> String {
    what_of(task.name.as_deref(), task.class.as_str(), &task.data)
}

/// As [`what`], for a task with this name, class and data.
pub fn what_of(name: Option<&str>, class: &str, data: &str) -> String {
    match name {
        Some(name) => cut(name),
        None if class == EXEC_CLASS => cut(&command(data).unwrap_or_else(|| data.to_owned())),
        None if data == "{}" => String::new(),
        None => cut(data),
    }
}

/// Returns the command line of an `exec` task. Of a script for a shell, only the script: the shell says nothing about the task.
fn command(data: &str) -> Option<String> {
    let ExecRequest { argv, .. } = ExecRequest::parse(data).ok()?;
    if let [shell, option, script] = argv.as_slice()
        && shell.ends_with("sh")
        && option == "-c"
    {
        return Some(script.clone());
    }
    Some(argv.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "))
}

/// Returns the beginning as one clean line. Only the beginning is read: data can have megabytes.
fn cut(text: &str) -> String {
    let beginning: String = text.chars().take(LONGEST + 1).collect();
    let line = clean_line(&beginning);
    if line.chars().count() <= LONGEST {
        return line;
    }
    line.chars().take(LONGEST - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_quoted_and_a_script_is_not() {
        assert_eq!(command(r#"{"argv":["/bin/echo","a b"]}"#).unwrap(), "/bin/echo 'a b'");
        assert_eq!(command(r#"{"argv":["/bin/sh","-c","echo a | wc"]}"#).unwrap(), "echo a | wc");
        assert_eq!(command("{}"), None);
    }

    #[test]
    fn a_long_text_is_cut_and_control_characters_are_replaced() {
        assert_eq!(cut(&"x".repeat(LONGEST)), "x".repeat(LONGEST));
        assert_eq!(cut(&"ü".repeat(LONGEST + 1)), format!("{}…", "ü".repeat(LONGEST - 1)));
        assert!(!cut("a\u{1b}[31m\nb").contains(['\u{1b}', '\n']));
    }
}
