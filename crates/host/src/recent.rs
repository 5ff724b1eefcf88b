//! A short cache for checks that run at every start of a handler and would take a noticeable part of its time.
//!
//! Only for answers that may be a second old, as if the handler had been started a second earlier; each user of the cache states
//! why. Errors are not cached: a repair takes effect at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Moment;

/// The maximum age of an answer.
const VALID: Duration = Duration::from_secs(1);
/// The maximum number of cached answers: more than there are classes.
const MOST: usize = 64;

/// Answers by question.
pub struct Recent<Q, A> {
    valid: Duration,
    kept: Mutex<Vec<(Q, A, Moment)>>,
}

impl<Q: PartialEq, A: Clone> Recent<Q, A> {
    /// Returns a cache with the default age.
    #[expect(clippy::new_without_default, reason = "made in a static, where Default cannot be called")]
    #[must_use]
    pub const fn new() -> Self {
        Self::within(VALID)
    }

    /// Returns a cache with this maximum age.
    pub const fn within(valid: Duration) -> Self {
        Self { valid, kept: Mutex::new(Vec::new()) }
    }

    /// Returns the cached answer to this question, or calls `ask`.
    ///
    /// # Errors
    /// The error of `ask`.
    pub fn answer<E>(&self, question: Q, ask: impl FnOnce(&Q) -> Result<A, E>) -> Result<A, E> {
        if let Some(answer) = self.known(&question) {
            return Ok(answer);
        }
        // Counted from before the call, which may take time.
        let until = Moment::after(self.valid);
        let answer = ask(&question)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _, until)| !until.has_passed() && *known != question);
        if kept.len() < MOST {
            kept.push((question, answer.clone(), until));
        }
        Ok(answer)
    }

    fn known(&self, question: &Q) -> Option<A> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, answer, until) = kept.iter().find(|(known, ..)| known == question)?;
        (!until.has_passed()).then(|| answer.clone())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn answers(valid: Duration, questions: &[u32]) -> Vec<u32> {
        let recent = Recent::within(valid);
        let mut asked = 0;
        let mut answer = |question: &u32| {
            recent.answer(*question, |_| {
                asked += 1;
                Ok::<u32, ()>(asked)
            })
        };
        questions.iter().map(|question| answer(question).unwrap()).collect()
    }

    #[test]
    fn a_question_is_asked_again_only_when_its_answer_is_old() {
        assert_eq!(answers(Duration::from_secs(3600), &[7, 8, 7, 8]), [1, 2, 1, 2]);
        assert_eq!(answers(Duration::ZERO, &[7, 8, 7, 8]), [1, 2, 3, 4]);
    }

    #[test]
    fn a_refusal_is_not_kept_and_the_number_of_answers_has_an_end() {
        let recent = Recent { valid: Duration::from_secs(3600), ..Recent::new() };
        assert_eq!(recent.answer(1, |_| Err("no")), Err("no"));
        assert_eq!(recent.answer(1, |_| Ok::<_, &str>(5)), Ok(5));
        for question in 0..200 {
            recent.answer(question, |_| Ok::<_, ()>(question)).unwrap();
        }
        assert_eq!(recent.kept.lock().unwrap().len(), MOST);
    }
}
