//! The warning of a class that nobody knows. What is said of it is kept all the same: it may come later, or be known on
//! another host.

use crate::error::did_you_mean;
use crate::output::Out;
use taskqueue_engine::Context;
use taskqueue_engine::change::classes;

/// Which unknown classes somebody is warned of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WarnOf {
    /// Every one.
    Any,
    /// Only one that resembles another class, where it is usual to name a class before it is configured.
    LikelyMistake,
}

pub(super) fn warn_of_unknown_class(
    ctx: &mut Context,
    class: &str,
    which: WarnOf,
    out: &mut Out,
) -> anyhow::Result<()> {
    if let Some(nearest) = classes::nearest_if_unknown(ctx, class)?
        && (which == WarnOf::Any || !nearest.is_empty())
    {
        out.warn(&format!("no class \"{class}\" is known here, and no task is of it{}", did_you_mean(&nearest)));
    }
    Ok(())
}
