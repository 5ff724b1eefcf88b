//! JSON from outside: as a tree, and as text.

use maud::{Markup, html};
use serde_json::Value;

use crate::pages::parts::{block, text};
use taskqueue_domain::task::ids::TaskId;

/// The most values and bytes of a tree: what is longer is shown as text alone.
const MOST_VALUES: usize = 500;
const MOST_BYTES: usize = 16 << 10;
/// The most bytes of text: a browser gets slow with more.
const MOST_TEXT_BYTES: usize = 64 << 10;

/// JSON of a task as a tree with its text below, which a reader can open; text that has no tree as it is. `id` is of the element
/// that opens.
pub(super) fn json(written: &str, task: TaskId, id: &str) -> Markup {
    let value: Option<Value> =
        Some(written).filter(|text| text.len() <= MOST_BYTES).and_then(|text| serde_json::from_str(text).ok());
    // One value is no tree.
    match value.filter(|value| (2..=MOST_VALUES).contains(&count(value))) {
        Some(value) => html! {
            (tree(&value))
            details id=(id) { summary { "As text" } (block(written)) }
        },
        None => beginning(written, task),
    }
}

/// Text, or its beginning and where all of it is.
fn beginning(written: &str, task: TaskId) -> Markup {
    if written.len() <= MOST_TEXT_BYTES {
        return block(written);
    }
    html! {
        (block(&written[..written.floor_char_boundary(MOST_TEXT_BYTES)]))
        p.quiet {
            "The beginning of " (written.len()) " bytes. All of it: " code { "taskqueue status " (task) " --full" } ", or "
            a href=(format!("/api/v1/tasks/{task}")) { "as JSON" } "."
        }
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
        let shown = json("{\"to\":[\"ann\",{\"n\":1}],\"none\":{}}", TaskId(1), "data").into_string();
        assert!(
            shown.contains("<b>to</b>: <ol class=\"tree\" start=\"0\"><li><code>&quot;ann&quot;</code></li>"),
            "{shown}"
        );
        assert!(shown.contains("<b>none</b>: <code>{}</code>") && shown.contains("As text"), "{shown}");
    }

    #[test]
    fn what_has_no_tree_is_shown_as_text_alone() {
        for plain in ["17", "no json <b>", "[]", &format!("[{}1]", "1,".repeat(MOST_VALUES))] {
            let shown = json(plain, TaskId(1), "data").into_string();
            assert!(shown.starts_with("<pre>") && !shown.contains("tree"), "{shown}");
        }
        assert!(json("no json <b>", TaskId(1), "data").into_string().contains("&lt;b&gt;"));
    }

    #[test]
    fn long_text_is_cut_between_characters_and_says_where_all_of_it_is() {
        let whole = json(&"x".repeat(MOST_TEXT_BYTES), TaskId(17), "data").into_string();
        assert!(whole.ends_with("</pre>"), "{}", whole.len());
        let cut = json(&format!("{}{}", "x".repeat(MOST_TEXT_BYTES - 1), "ü".repeat(5 << 20)), TaskId(17), "data")
            .into_string();
        let (text, rest) = cut.split_once("</pre>").unwrap();
        assert_eq!(text.len(), "<pre>".len() + MOST_TEXT_BYTES - 1);
        for words in ["10551295 bytes", "taskqueue status 17 --full", "href=\"/api/v1/tasks/17\""] {
            assert!(rest.contains(words), "{rest}");
        }
    }
}
