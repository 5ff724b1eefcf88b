//! JSON from outside: as a tree, and as text.

use maud::{Markup, html};
use serde_json::Value;

use super::parts::{block, text};

/// The most values and bytes of a tree: what is longer is shown as text alone.
const MOST_VALUES: usize = 500;
const MOST_BYTES: usize = 16 << 10;

/// JSON as a tree with its text below, which a reader can open; text that has no tree as it is. `id` is of the element that opens.
pub(super) fn json(written: &str, id: &str) -> Markup {
    let value: Option<Value> =
        Some(written).filter(|text| text.len() <= MOST_BYTES).and_then(|text| serde_json::from_str(text).ok());
    // One value is no tree.
    match value.filter(|value| (2..=MOST_VALUES).contains(&count(value))) {
        Some(value) => html! {
            (tree(&value))
            details id=(id) { summary { "As text" } (block(written)) }
        },
        None => block(written),
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
            other => code { (text(other)) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_under_their_names_and_the_text_below() {
        let shown = json("{\"to\":[\"ann\",{\"n\":1}],\"none\":{}}", "data").into_string();
        assert!(
            shown.contains("<b>to</b>: <ol class=\"tree\" start=\"0\"><li><code>&quot;ann&quot;</code></li>"),
            "{shown}"
        );
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
