//! The text of a configuration file: where each key is, and everything that is wrong with it. All mistakes are reported together,
//! each with its position.

use std::ops::Range;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::ConfigError;
use taskqueue_domain::text::parse_words::{plain, unknown_key};
use taskqueue_domain::time::when::parse_duration;

/// More mistakes than a reader corrects at once.
const MAX_PROBLEMS: usize = 20;
/// The longest line that is quoted.
const MAX_QUOTED_CHARS: usize = 160;

/// A parsed configuration file, and what is wrong with it.
pub(super) struct Document<'t> {
    text: &'t str,
    table: Spanned<DeTable<'t>>,
    problems: Vec<Problem>,
}

struct Problem {
    /// Where it is in the text; `None` if only the file is known.
    span: Option<Range<usize>>,
    message: String,
}

/// A key with its value, where the parser found a mistake.
struct Removed {
    path: Vec<String>,
    kind: String,
    is_text: Option<String>,
}

impl<'t> Document<'t> {
    pub(super) fn parse(text: &'t str) -> Self {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut document = Self { text, table, problems: Vec::new() };
        let mut last_line = None;
        for error in errors {
            let line = error.span().map(|span| document.position(span.start).0);
            // Later mistakes of a line often follow from its first one.
            if last_line.is_none() || line != last_line {
                let message = format!("this is not TOML: {}", plain(&error.message().replace('\n', ", "), "a table"));
                document.problems.push(Problem { span: error.span(), message });
            }
            last_line = line;
        }
        document
    }

    /// Returns the values of the file; wrong ones are noted and left out. `None` if the text cannot be parsed.
    pub(super) fn read<T: DeserializeOwned>(&mut self) -> Option<T> {
        if !self.problems.is_empty() {
            return None;
        }
        let mut table = self.table.clone();
        let mut removed: Vec<Vec<String>> = Vec::new();
        while self.problems.len() < MAX_PROBLEMS {
            let error = match T::deserialize(Deserializer::from(table.clone())) {
                Ok(values) => return Some(values),
                Err(error) => error,
            };
            let entry = error.span().and_then(|span| remove_at(table.get_mut(), &span));
            let span = error.span();
            let Some(entry) = entry else {
                self.problems.push(Problem { span, message: plain(error.message(), "a table") });
                return None;
            };
            // A key that was wrong is missing afterwards.
            let is_told = error.message().starts_with("missing field")
                && removed.iter().any(|path| path.starts_with(&entry.path) && path.len() > entry.path.len());
            if !is_told {
                let message = format!("{}{}", class_words(&entry.path), own_words(error.message(), &entry));
                self.problems.push(Problem { span, message });
            }
            removed.push(entry.path);
        }
        None
    }

    /// Returns the value, or notes what is wrong with the value at this path and returns a default.
    pub(super) fn check<T: Default>(&mut self, path: &[&str], checked: Result<T, String>) -> T {
        checked.unwrap_or_else(|message| {
            self.note(path, &message);
            T::default()
        })
    }

    /// Notes what is wrong at this path. If the message begins with names of keys, it is about these.
    pub(super) fn note(&mut self, path: &[&str], message: &str) {
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        let words = message.split(' ').map(|word| word.trim_end_matches([':', ',']).to_owned());
        let span = locate(self.table.get_ref(), path.iter().cloned(), words);
        self.problems.push(Problem { span, message: format!("{}{message}", class_words(&path)) });
    }

    /// Notes what is wrong at this path; the message names the class itself.
    pub(super) fn note_in(&mut self, path: &[&str], message: &str) {
        let span = locate(self.table.get_ref(), path.iter().map(|key| (*key).to_owned()), std::iter::empty());
        self.problems.push(Problem { span, message: message.to_owned() });
    }

    /// Returns the value if nothing is wrong.
    pub(super) fn finish<T>(mut self, path: &Path, value: Option<T>) -> Result<T, ConfigError> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => {
                self.problems.sort_by_key(|problem| problem.span.as_ref().map_or(0, |span| span.start));
                Err(self.error(path))
            }
        }
    }

    fn error(&self, path: &Path) -> ConfigError {
        // The names of keys may contain line breaks.
        let in_one_line = |problem| self.said(problem).replace(['\n', '\r'], " ");
        let said: Vec<String> = self.problems.iter().map(in_one_line).collect();
        let mut report = Vec::new();
        for (problem, said) in self.problems.iter().zip(&said) {
            if self.problems.len() > 1 {
                report.push(format!("{}: {said}", path.display()));
            }
            report.extend(problem.span.as_ref().map(|span| self.excerpt(span)).unwrap_or_default());
        }
        let message = match said.as_slice() {
            [one] => one.clone(),
            many => format!("{} mistakes: {}", many.len(), many.join("; ")),
        };
        let headline = (said.len() > 1).then(|| format!("{} mistakes in {}", said.len(), path.display()));
        ConfigError { headline, report, ..ConfigError::new(path, message) }
    }

    fn said(&self, problem: &Problem) -> String {
        let Some(span) = &problem.span else { return problem.message.clone() };
        let (line, column) = self.position(span.start);
        format!("line {line}, column {column}: {}", problem.message)
    }

    /// Returns line and column, both from 1.
    fn position(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
    }

    /// Returns the line and a line with carets below the place; nothing for a line that may contain a secret.
    fn excerpt(&self, span: &Range<usize>) -> Vec<String> {
        let (number, column) = self.position(span.start);
        let Some(line) = self.text.lines().nth(number - 1) else { return Vec::new() };
        let header = self.text.lines().take(number).filter(|line| line.trim_start().starts_with('[')).last();
        if line.chars().count() > MAX_QUOTED_CHARS || may_be_secret(line, header.unwrap_or_default()) {
            return Vec::new();
        }
        let marked = self.text.get(span.clone()).and_then(|marked| marked.lines().next()).unwrap_or_default();
        let (number, carets) = (number.to_string(), "^".repeat(marked.chars().count().max(1)));
        let (gap, indent) = (" ".repeat(number.len()), " ".repeat(column - 1));
        vec![format!("  {number} | {}", line.replace('\t', " ")), format!("  {gap} | {indent}{carets}")]
    }
}

/// Returns true for a line with an address, which may contain a password, or with variables.
fn may_be_secret(line: &str, header: &str) -> bool {
    let key = line.split('=').next().unwrap_or_default().trim();
    line.contains("://") || key.starts_with("database") || key.contains("env") || header.contains("env")
}

/// Returns `class "a": ` for a path below a class.
fn class_words(path: &[String]) -> String {
    match path {
        [table, name, ..] if table == "class" => format!("class \"{name}\": "),
        _ => String::new(),
    }
}

/// Finds the deepest key of the path, then of the words, that exists.
fn locate(
    table: &DeTable<'_>,
    path: impl Iterator<Item = String>,
    words: impl Iterator<Item = String>,
) -> Option<Range<usize>> {
    let mut here = Some(table);
    let mut found = None;
    for (key, is_required) in path.map(|key| (key, true)).chain(words.map(|word| (word, false))) {
        let Some(table) = here else { break };
        match table.iter().find(|(name, _)| **name.get_ref() == *key) {
            Some((name, value)) => {
                here = table_in(value);
                found = Some(if here.is_some() { name.span() } else { value.span() });
            }
            None if is_required => return found,
            None => break,
        }
    }
    found
}

fn table_in<'v, 't>(value: &'v Spanned<DeValue<'t>>) -> Option<&'v DeTable<'t>> {
    match value.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// Removes the entry whose key or value is there, or a list with a value there.
fn remove_at(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<Removed> {
    let mut here = None;
    for (key, value) in table.iter_mut() {
        if key.span() == *span || value.span() == *span {
            here = Some((key.clone(), described(value.get_ref())));
            break;
        }
        match value.get_mut() {
            DeValue::Table(below) => {
                if let Some(mut removed) = remove_at(below, span) {
                    removed.path.insert(0, key.get_ref().to_string());
                    return Some(removed);
                }
            }
            DeValue::Array(elements) => {
                if let Some(element) = elements.iter().find(|element| element.span() == *span) {
                    here = Some((key.clone(), described(element.get_ref())));
                    break;
                }
            }
            _ => {}
        }
    }
    let (key, (kind, is_text)) = here?;
    table.remove(&key);
    Some(Removed { path: vec![key.get_ref().to_string()], kind, is_text })
}

/// Returns what a value is, without the contents of a string, and the string.
fn described(value: &DeValue<'_>) -> (String, Option<String>) {
    match value {
        DeValue::String(text) => ("a string".to_owned(), Some(text.to_string())),
        DeValue::Integer(number) => (format!("the number {number}"), None),
        DeValue::Float(number) => (format!("the number {number}"), None),
        DeValue::Boolean(value) => (value.to_string(), None),
        DeValue::Datetime(_) => ("a time".to_owned(), None),
        DeValue::Array(_) => ("a list".to_owned(), None),
        DeValue::Table(_) => ("a table".to_owned(), None),
    }
}

/// Returns the message of the parser in the words of this program.
fn own_words(message: &str, entry: &Removed) -> String {
    let key = entry.path.last().map(String::as_str).unwrap_or_default();
    if message.starts_with("unknown field") {
        return unknown_key(key, message);
    }
    if let Some(missing) = message.strip_prefix("missing field ") {
        return format!("{missing} is missing");
    }
    let said = plain(message, "a table");
    let wanted = if message.contains("untagged enum") {
        "a number, or a range like \"65-78\""
    } else if let Some((_, wanted)) = said.rsplit_once("expected ") {
        wanted
    } else {
        return format!("{key}: {said}");
    };
    format!("{key} is {}; it must be {wanted}{}", entry.kind, advice(key, entry))
}

/// Returns how to write a value whose unit is in the wrong place: in the name of the key, or missing.
fn advice(key: &str, entry: &Removed) -> String {
    let number = entry.kind.strip_prefix("the number ");
    match (&entry.is_text, number) {
        (Some(text), _) if key.ends_with("_secs") => parse_duration(text)
            .map_or_else(|_| String::new(), |length| format!(" of seconds: {key} = {}", length.as_secs())),
        (Some(text), _) if key.ends_with("_bytes") => {
            bytes(text).map_or_else(String::new, |bytes| format!(" of bytes: {key} = {bytes}"))
        }
        (None, Some(number)) if key.starts_with("keep") => {
            format!(" with a unit: {key} = \"{number}s\" for seconds, \"{number}d\" for days")
        }
        (None, Some(number)) if key == "backoff" => format!(" with a unit: {key} = \"fixed:{number}s\""),
        _ => String::new(),
    }
}

/// Returns the bytes of `200M` or `1 GiB`.
fn bytes(text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let shift = match unit.trim().to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}
