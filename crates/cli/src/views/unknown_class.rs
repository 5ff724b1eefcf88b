//! Warns about an unknown class. The value is stored anyway, because the class may come later or exist on another host.

use crate::error::did_you_mean;
use crate::output::Out;
use taskqueue_engine::Context;
use taskqueue_engine::change::classes;

/// Which unknown classes cause a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WarnOf {
    /// All of them.
    Any,
    /// Only one that resembles another class, for verbs that usually name a class before it is configured.
    LikelyMistake,
}

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
