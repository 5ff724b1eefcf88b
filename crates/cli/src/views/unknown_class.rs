//! Names of classes that are probably not what the user meant.

use crate::error::{CliError, did_you_mean};
use crate::output::Out;
use taskqueue_engine::Context;
use taskqueue_engine::change::classes;
use taskqueue_views::shell_word::shell_word;

/// Which unknown classes cause a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WarnOf {
    /// All of them.
    Any,
    /// Only one that resembles another class, for verbs that usually name a class before it is configured.
    LikelyMistake,
}

/// Refuses a pattern where `--class` takes one name. `selecting` is the verb whose selection accepts the pattern.
pub(crate) fn refuse_pattern(class: Option<&str>, selecting: &str) -> Result<(), CliError> {
    let Some(pattern) = class.filter(|class| class.contains(['*', '?'])) else { return Ok(()) };
    let filter = shell_word(&format!("class={pattern}"));
    Err(CliError::usage("--class takes the name of one class, not a pattern")
        .with_hint(format!("`taskqueue {selecting} {filter}` accepts a pattern; `taskqueue class` lists the names")))
}

/// Warns about an unknown class. The value is stored anyway, because the class may come later or exist on another host.
pub(crate) fn warn_of_unknown_class(
    ctx: &mut Context,
    class: &str,
    which: WarnOf,
    out: &mut Out,
) -> anyhow::Result<()> {
    if let Some(nearest) = classes::nearest_if_unknown(ctx, class)?
        && (which == WarnOf::Any || !nearest.is_empty())
    {
        out.warn(&format!("no class \"{class}\" is known here, and no task has it{}", did_you_mean(&nearest)));
    }
    Ok(())
}
