//! Seeded bugs: each a patch with one defect, which its campaign must notice.

use std::time::Duration;

/// What became of a seeded bug.
pub struct Verdict {
    pub name: String,
    /// Campaign and engine.
    pub caught_by: Option<String>,
    pub trials: usize,
    pub took: Duration,
    /// The first violation, or why there is none.
    pub said: String,
}
