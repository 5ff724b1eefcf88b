//! JSON from outside: as a tree, and as text.

use maud::{Markup, html};
use serde_json::Value;

use super::parts::{block, text};

/// The most values of a tree: a longer one is shown as text alone.
const MOST_VALUES: usize = 500;

/// JSON as a tree with its text below, which a reader can open; text that has no tree as it is. `id` is of the element that opens.
pub(super) fn json(written: &str, id: &str) -> Markup {
    let value: Option<Value> = serde_json::from_str(written).ok();
    let pretty = value.as_ref().and_then(|value| serde_json::to_string_pretty(value).ok());
    let pretty = pretty.as_deref().unwrap_or(written);
    match value.filter(|value| children(value) > 0 && count(value) <= MOST_VALUES) {
        Some(value) => html! {
            (tree(&value))
            details id=(id) { summary { "As text" } (block(pretty)) }
        },
        None => block(pretty),
    }
}

fn children(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.len(),
        Value::Object(values) => values.len(),
        _ => 0,
    }
}

/// Returns how many values there are, this one included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(count).sum::<usize>(),
        Value::Object(values) => values.values().map(count).sum(),
        _ => 0,
    }
}

fn tree(value: &Value) -> Markup {
    html! {
        @match value {
            Value::Object(values) if !values.is_empty() => {
                ul.tree { @for (name, value) in values { li { b { (text(name)) } ": " (tree(value)) } } }
            },
            Value::Array(values) if !values.is_empty() => {
                ol.tree start="0" { @for value in values { li { (tree(value)) } } }
            },
            Value::String(value) => (text(value)),
            other => code { (other) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_under_their_names_and_the_text_below() {
        let shown = json("{\"to\":[\"ann\",{\"n\":1}],\"none\":{}}", "data").into_string();
        assert!(shown.contains("<b>to</b>: <ol class=\"tree\" start=\"0\"><li>ann</li>"), "{shown}");
        assert!(shown.contains("<b>none</b>: <code>{}</code>") && shown.contains("As text"), "{shown}");
    }

    #[test]
    fn what_has_no_tree_is_shown_as_text_alone() {
        for plain in ["17", "no json <b>", "[]", &format!("[{}1]", "1,".repeat(MOST_VALUES))] {
            let shown = json(plain, "data").into_string();
            assert!(shown.starts_with("<pre>") && !shown.contains("tree"), "{shown}");
        }
        assert!(json("no json <b>", "data").into_string().contains("&lt;b&gt;"));
    }
}
