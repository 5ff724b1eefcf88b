//! Which tasks a request means: the words of a selection, and where a page of them begins.

use crate::app::App;
use crate::serving::problem::Problem;
use taskqueue_domain::task::choosing::selection::{PagePlace, PageStart, Selection};
use taskqueue_domain::task::ids::TaskId;

/// The most tasks that a program may ask for at once.
pub(crate) const MOST: i64 = 1_000;
/// The most words of a selection: each may be a query.
const MOST_WORDS: usize = 30;

/// Returns where a page begins: the newest tasks come first, unless it begins after a task.
pub(crate) fn page_start(before: Option<i64>, after: Option<i64>) -> Result<PageStart, Problem> {
    match (before, after) {
        (Some(_), Some(_)) => Err(Problem::input("before and after cannot be combined")),
        (_, Some(after)) => Ok(PageStart::After(PagePlace::of(TaskId(after)))),
        (Some(before), None) => Ok(PageStart::Before(PagePlace::of(TaskId(before)))),
        (None, None) => Ok(PageStart::NEWEST),
    }
}

/// Parses the words of a selection; spaces in a word are written in quotation marks. Without any, all tasks are meant. Hidden data
/// could be guessed by selections, so none may be by data then.
pub(crate) fn selection(app: &App, text: &str) -> Result<Selection, Problem> {
    let selection = parsed(text)?;
    if !selection.data.is_empty() && app.hidden_data().is_some() {
        return Err(Problem::forbidden(
            "tasks cannot be selected by their data here: hide_data of the configuration hides some",
        ));
    }
    Ok(selection)
}

/// Parses the words.
pub(crate) fn parsed(text: &str) -> Result<Selection, Problem> {
    let words = words(text);
    if words.is_empty() {
        return Ok(Selection::default());
    }
    if words.len() > MOST_WORDS {
        return Err(Problem::input(format!("a selection can have at most {MOST_WORDS} words here")));
    }
    Selection::parse(&words).map_err(Problem::input)
}

fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted, mut has_word) = (Vec::new(), String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' => (is_quoted, has_word) = (!is_quoted, true),
            c if c.is_whitespace() && !is_quoted => {
                if std::mem::take(&mut has_word) {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => {
                word.push(c);
                has_word = true;
            }
        }
    }
    if has_word {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_outside_quotation_marks_separate_the_words_of_a_selection() {
        assert_eq!(words("  class=a  status=due "), ["class=a", "status=due"]);
        assert_eq!(words("data~\"two words\" 17"), ["data~two words", "17"]);
        assert!(words(" ").is_empty());
    }
}
