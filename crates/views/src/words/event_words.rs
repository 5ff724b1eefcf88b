//! The details of an event, for people.

use serde_json::Value;

const COUNTERS: [&str; 2] = ["failed_retries", "max_retries"];

/// Returns the details in words: `name TaskQueueRunnerLimit, from 8, to 4`. Names of inner values follow those of the outer ones:
/// `before.Priority 0`. Text that is more than a word stands in quotation marks, so that it cannot look like other values. What is
/// empty is left out, unless it was a value before an edit. So are the counters of retries: a failure that is not retried raises them
/// to their limit. Details that are no JSON object stay as they are.
pub fn event_words(details: &str) -> String {
    let Ok(Value::Object(values)) = serde_json::from_str(details) else { return details.to_owned() };
    let mut words = Vec::new();
    for (name, value) in &values {
        match value {
            _ if COUNTERS.contains(&name.as_str()) => {}
            Value::Null => {}
            Value::String(text) if text.is_empty() => {}
            Value::Array(values) if values.is_empty() => {}
            value => add(name, value, &mut words),
        }
    }
    words.join(", ")
}

fn add(name: &str, value: &Value, words: &mut Vec<String>) {
    match value {
        Value::Object(values) => {
            for (inner, value) in values {
                add(&format!("{name}.{inner}"), value, words);
            }
        }
        Value::Null => words.push(format!("{name} none")),
        Value::String(text) if is_word(text) => words.push(format!("{name} {text}")),
        other => words.push(format!("{name} {other}")),
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || matches!(c, ',' | '"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_their_names_and_empty_ones_are_left_out() {
        let details = r#"{"failed_retries":5,"max_retries":5,"scope":"all","name":"","reason":"ok, from 8","for_secs":null,"before":{"Priority":0,"Tag":null},"ids":[1,2]}"#;
        let words = "scope all, reason \"ok, from 8\", before.Priority 0, before.Tag none, ids [1,2]";
        assert_eq!(event_words(details), words);
        assert_eq!(event_words("{}"), "");
        for other in ["no json", "[1]"] {
            assert_eq!(event_words(other), other);
        }
    }
}
