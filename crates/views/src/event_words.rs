//! The details of an event, for people.

use serde_json::Value;

/// Returns the details in words: `name TaskQueueRunnerLimit, from 8, to 4`. Names of inner values follow those of the outer ones:
/// `before.Priority 0`. What is empty is left out. Details that are no JSON object stay as they are.
pub fn event_words(details: &str) -> String {
    let Ok(Value::Object(values)) = serde_json::from_str(details) else { return details.to_owned() };
    let mut words = Vec::new();
    add_all("", &Value::Object(values), &mut words);
    words.join(", ")
}

fn add_all(name: &str, value: &Value, words: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(values) => {
            for (inner, value) in values {
                let name = if name.is_empty() { inner.clone() } else { format!("{name}.{inner}") };
                add_all(&name, value, words);
            }
        }
        Value::String(text) if text.is_empty() => {}
        Value::String(text) => words.push(format!("{name} {text}")),
        other => words.push(format!("{name} {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_their_names_and_empty_ones_are_left_out() {
        let details =
            r#"{"scope":"all","name":"","reason":"we deploy","for_secs":null,"before":{"Priority":0},"ids":[1,2]}"#;
        assert_eq!(event_words(details), "scope all, reason we deploy, before.Priority 0, ids [1,2]");
        assert_eq!(event_words("{}"), "");
        for other in ["no json", "[1]"] {
            assert_eq!(event_words(other), other);
        }
    }
}
