//! `settings`: what every host must agree on.

use super::{Context, EngineError, EngineResult};
use crate::domain::nearest::nearest_names;
use crate::domain::settings::{BadSetting, Setting, Settings};

/// Every setting with its value as it stands in the store.
///
/// # Errors
/// The database's.
pub fn list(ctx: &mut Context) -> EngineResult<Vec<(Setting, String)>> {
    let rows = ctx.store.setting_rows()?;
    let value = |setting: Setting| {
        let row = rows.iter().find(|(name, _)| name == setting.name());
        row.map_or_else(|| setting.default_value().to_string(), |(_, value)| value.clone())
    };
    Ok(Setting::ALL.into_iter().map(|setting| (setting, value(setting))).collect())
}

/// The setting with this name.
///
/// # Errors
/// [`EngineError::Input`] that names the one which may be meant.
pub fn find(name: &str) -> EngineResult<Setting> {
    Setting::parse(name).ok_or_else(|| {
        let meant = nearest(name).map(|setting| format!("; did you mean {setting}?")).unwrap_or_default();
        EngineError::Input(format!("\"{name}\" is no setting{meant}"))
    })
}

/// All names begin with the same letters, which tell nothing.
fn nearest(name: &str) -> Option<Setting> {
    let own_part = |name: &str| name.to_lowercase().trim_start_matches("taskqueue").to_owned();
    let known = Setting::ALL.map(|setting| own_part(setting.name()));
    let meant = nearest_names(&own_part(name), known).into_iter().next()?;
    Setting::ALL.into_iter().find(|setting| own_part(setting.name()) == meant)
}

/// Sets a value.
///
/// # Errors
/// [`EngineError::Input`] with the range for a value outside it, or why it does not go with the others; the database's.
pub fn set(ctx: &mut Context, setting: Setting, text: &str) -> EngineResult<i64> {
    let input = |error: BadSetting| EngineError::Input(error.to_string());
    let value = setting.value(text).map_err(input)?;
    // A store whose settings are wrong already must not keep anybody from mending them one by one.
    let before = ctx.store.setting_rows()?;
    let mut after = before.clone();
    after.retain(|(name, _)| name != setting.name());
    after.push((setting.name().to_owned(), value.to_string()));
    if Settings::from_rows(&before).is_ok() {
        Settings::from_rows(&after).map_err(input)?;
    }
    let is_this = |(name, _): &&(String, String)| name == setting.name();
    let earlier = before.iter().find(is_this).map(|(_, text)| text.as_str());
    let event = ctx.operator_event(
        "setting-changed",
        serde_json::json!({ "name": setting.name(), "from": earlier, "to": value.to_string() }),
    );
    ctx.store.set_setting(setting, value, &event)?;
    fault_point!("settings.committed");
    Ok(value)
}
