//! [`Selection`]: the tasks that a call applies to.

use std::str::FromStr;

use super::error::Error;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::choosing::selection::Selection as Words;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::Context;
use taskqueue_engine::change::selected::select_tasks;

/// The tasks that a call applies to: ids, or a selection as on the command line (`docs/selections.md`).
///
/// An id, a list of ids or a [`Selection`] can be passed where a selection is expected. Parse text first.
///
/// ```
/// use taskqueue::{Selection, TaskId};
///
/// # fn main() -> Result<(), taskqueue::Error> {
/// let one: Selection = TaskId(4_711).into();
/// let failed: Selection = "class=mail.* status=exhausted".parse()?;
/// // A value with spaces is one word.
/// let of_ann = Selection::words(["by=Ann Smith", "newer=1d"])?;
/// # let _ = (one, failed, of_ann);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection(Chosen);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Chosen {
    Ids(Vec<TaskId>),
    /// With the words as they were passed.
    Words(Box<Words>, String),
}

impl Selection {
    /// Creates a selection from words as the shell passes them to the command line: `12`, `5-9`, `last`, `class=mail.*`.
    ///
    /// # Errors
    /// Returns [`Error::Input`] if a word is invalid, or if there is none.
    pub fn words<Word: AsRef<str>>(words: impl IntoIterator<Item = Word>) -> Result<Self, Error> {
        let words: Vec<Word> = words.into_iter().collect();
        let text = words.iter().map(Word::as_ref).collect::<Vec<_>>().join(" ");
        Words::parse(&words).map(|words| Self(Chosen::Words(Box::new(words), text))).map_err(Error::Input)
    }

    /// Selects these tasks. An empty list selects none.
    pub fn ids(ids: impl IntoIterator<Item = TaskId>) -> Self {
        Self(Chosen::Ids(ids.into_iter().collect()))
    }

    /// Returns the words of the selection on the command line.
    pub(super) fn text(&self) -> String {
        match &self.0 {
            Chosen::Ids(ids) => ids.iter().map(TaskId::to_string).collect::<Vec<_>>().join(" "),
            Chosen::Words(_, text) => text.clone(),
        }
    }

    /// Returns the tasks that it matches now. If it names no task and no status, only tasks in one of `statuses` match; an
    /// empty list allows all.
    pub(super) fn find(&self, ctx: &mut Context, statuses: &[TaskStatus]) -> Result<Vec<TaskId>, Error> {
        // Without any words, every task would match.
        if self.0 == Chosen::Ids(Vec::new()) {
            return Ok(Vec::new());
        }
        Ok(select_tasks(ctx, &self.narrowed_to(statuses))?)
    }

    /// Returns the statuses of the tasks that [`Self::find`] returns; empty if they can have any.
    pub(super) fn statuses(&self, statuses: &[TaskStatus]) -> Vec<TaskStatus> {
        self.narrowed_to(statuses).allowed_statuses()
    }

    fn narrowed_to(&self, statuses: &[TaskStatus]) -> Words {
        let mut words = match &self.0 {
            Chosen::Ids(ids) => Words::of_ids(ids),
            Chosen::Words(words, _) => (**words).clone(),
        };
        words.narrow_to(statuses);
        words
    }
}

impl FromStr for Selection {
    type Err = Error;

    /// Parses words separated by spaces. A value that contains a space needs [`Selection::words`].
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::words(text.split_whitespace())
    }
}

impl From<TaskId> for Selection {
    fn from(id: TaskId) -> Self {
        Self::ids([id])
    }
}

impl From<&[TaskId]> for Selection {
    fn from(ids: &[TaskId]) -> Self {
        Self::ids(ids.iter().copied())
    }
}

impl<const N: usize> From<[TaskId; N]> for Selection {
    fn from(ids: [TaskId; N]) -> Self {
        Self::ids(ids)
    }
}

impl From<Vec<TaskId>> for Selection {
    fn from(ids: Vec<TaskId>) -> Self {
        Self(Chosen::Ids(ids))
    }
}
