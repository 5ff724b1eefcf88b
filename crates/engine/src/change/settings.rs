//! `setting`: the settings that all hosts share.

use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use taskqueue_domain::settings::{BadSetting, Setting, Settings};
use taskqueue_domain::text::nearest::nearest_names;

/// Returns every setting with its stored value.
///
/// # Errors
/// Returns an error if the database fails.
pub fn list(ctx: &mut Context) -> EngineResult<Vec<(Setting, String)>> {
    let rows = ctx.store.setting_rows()?;
    let value = |setting: Setting| {
        let row = rows.iter().find(|(name, _)| name == setting.name());
        row.map_or_else(|| setting.default_value().to_string(), |(_, value)| value.clone())
    };
    Ok(Setting::ALL.into_iter().map(|setting| (setting, value(setting))).collect())
}

/// Returns the setting with this name.
///
/// # Errors
/// Returns [`EngineError::Input`] with the most similar name.
pub fn find(name: &str) -> EngineResult<Setting> {
    Setting::parse(name).ok_or_else(|| {
        let meant = nearest(name).map(|setting| format!("; did you mean {setting}?")).unwrap_or_default();
        EngineError::Input(format!("\"{name}\" is not a setting{meant}"))
    })
}

/// All names begin with the same prefix, which must not count as similarity.
fn nearest(name: &str) -> Option<Setting> {
    let own_part = |name: &str| name.to_lowercase().trim_start_matches("taskqueue").to_owned();
    let known = Setting::ALL.map(|setting| own_part(setting.name()));
    let meant = nearest_names(&own_part(name), known).into_iter().next()?;
    Setting::ALL.into_iter().find(|setting| own_part(setting.name()) == meant)
}

/// Sets a value.
///
/// # Errors
/// Returns the same errors as [`set_together`].
pub fn set(ctx: &mut Context, setting: Setting, text: &str) -> EngineResult<()> {
    set_together(ctx, &[(setting, text.to_owned())]).map(drop)
}

/// Sets these values together. Each is checked against its range, and all of them against each other and the other settings.
///
/// # Errors
/// Returns [`EngineError::Input`] with the range for a value outside it, or with the conflict between values; then nothing is
/// set. Returns an error if the database fails.
pub fn set_together(ctx: &mut Context, changes: &[(Setting, String)]) -> EngineResult<Vec<(Setting, i64)>> {
    let input = |error: BadSetting| EngineError::Input(error.to_string());
    let mut values = Vec::with_capacity(changes.len());
    for (setting, text) in changes {
        if values.iter().any(|(other, _)| other == setting) {
            return Err(EngineError::Input(format!("{setting} is given twice")));
        }
        values.push((*setting, setting.value(text).map_err(input)?));
    }
    let before = ctx.store.setting_rows()?;
    // Conflicts are not checked if the stored settings are already inconsistent, so that they can be repaired one by one.
    if Settings::from_rows(&before).1.is_empty()
        && let Some(problem) = Settings::from_rows(&with_values(&before, &values)).1.into_iter().next()
    {
        return Err(input(problem));
    }
    let with_event = |(setting, value): &(Setting, i64)| {
        let earlier = before.iter().find(|(name, _)| name == setting.name()).map(|(_, text)| text.as_str());
        let details = serde_json::json!({ "name": setting.name(), "from": earlier, "to": value.to_string() });
        (*setting, *value, ctx.operator_event("setting-changed", details))
    };
    let kept: Vec<_> = values.iter().map(with_event).collect();
    ctx.store.set_settings(&kept)?;
    fault_point!("settings.committed");
    Ok(values)
}

fn with_values(rows: &[(String, String)], values: &[(Setting, i64)]) -> Vec<(String, String)> {
    let is_new = |name: &str| values.iter().any(|(setting, _)| setting.name() == name);
    let kept = rows.iter().filter(|(name, _)| !is_new(name)).cloned();
    kept.chain(values.iter().map(|(setting, value)| (setting.name().to_owned(), value.to_string()))).collect()
}
