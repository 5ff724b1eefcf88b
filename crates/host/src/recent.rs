//! Answers of a moment ago, for questions that are asked at every start of a handler and cost as much as a part of it.
//!
//! Only for what may be a second old, as it would be if the handler had been started a second earlier; whoever keeps
//! something here says why it may. A refusal is never kept: what was mended counts at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Moment;

/// How old an answer may be.
const VALID: Duration = Duration::from_secs(1);
/// More answers are not kept: there are not so many classes.
const MOST: usize = 64;

/// Answers by their questions.
pub struct Recent<Q, A> {
    valid: Duration,
    kept: Mutex<Vec<(Q, A, Moment)>>,
}

impl<Q: PartialEq, A: Clone> Recent<Q, A> {
    /// Keeps answers for the usual time.
    #[expect(clippy::new_without_default, reason = "made in a static, where Default cannot be called")]
    #[must_use]
    pub const fn new() -> Self {
        Self::within(VALID)
    }

    /// With answers that may be as old as this.
    pub const fn within(valid: Duration) -> Self {
        Self { valid, kept: Mutex::new(Vec::new()) }
    }

    /// The answer to this question, which is asked if it was not of late.
    ///
    /// # Errors
    /// The one of the question.
    pub fn answer<E>(&self, question: Q, ask: impl FnOnce(&Q) -> Result<A, E>) -> Result<A, E> {
        if let Some(answer) = self.known(&question) {
            return Ok(answer);
        }
        // From before the question: the answer may take its time.
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
