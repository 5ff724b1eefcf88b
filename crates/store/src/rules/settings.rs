//! TaskQueueSettings.

use std::time::Instant;

use diesel::prelude::*;

use crate::backend::notices::warn_of;
use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue_settings::dsl::{name, task_queue_settings, value};
use crate::journal::events::{NewEvent, insert_event};
use crate::session::origin::SETTINGS_FRESH;
use crate::{Store, StoreResult};
use taskqueue_domain::settings::{BadSetting, Setting, Settings};

/// The name and the value of each stored setting.
pub(crate) type SettingRows = Vec<(String, String)>;

/// Returns a single setting, for a registration or the end of a run. Must not be called where a claim has locked the tables.
pub(crate) fn setting_now(conn: &mut AnyConnection, setting: Setting) -> QueryResult<i64> {
    let row = task_queue_settings.filter(name.eq(setting.name()));
    let text: Option<ShownText> = row.select(value).first(conn).optional()?;
    // Reading all settings reports an invalid value.
    Ok(text.and_then(|text| setting.value(&text.0).ok()).unwrap_or(setting.default_value()))
}

impl Store {
    /// Returns the current settings. Prints what is wrong with the rows, once.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn settings(&mut self) -> StoreResult<Settings> {
        let rows = self.setting_rows()?;
        Ok(self.keep_settings(&rows))
    }

    /// Returns the settings of rows that were just read, and keeps them for [`Store::recent_settings`].
    pub(crate) fn keep_settings(&mut self, rows: &[(String, String)]) -> Settings {
        let (settings, problems) = Settings::from_rows(rows);
        warn_of(&problems.iter().map(BadSetting::as_stored).collect::<Vec<_>>());
        self.audit = Some((settings.audits_transitions, Instant::now()));
        self.recent_settings = Some((settings.clone(), Instant::now()));
        settings
    }

    /// Returns settings that may be up to a second old: for frequent operations, and for those with which a command begins, because
    /// opening the store has read them.
    ///
    /// # Errors
    /// As for [`Store::settings`].
    pub fn recent_settings(&mut self) -> StoreResult<Settings> {
        match &self.recent_settings {
            Some((settings, read_at)) if read_at.elapsed() < SETTINGS_FRESH => Ok(settings.clone()),
            _ => self.settings(),
        }
    }

    /// Returns the name and the value of every row.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn setting_rows(&mut self) -> StoreResult<SettingRows> {
        let row = |(of, text): (ShownText, ShownText)| (of.0, text.0);
        self.read_each(row, |conn| task_queue_settings.select((name, value)).order(name).load(conn))
    }

    /// Sets values that were checked against their ranges, and records the event of each, in one transaction.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn set_settings(&mut self, changes: &[(Setting, i64, NewEvent)]) -> StoreResult<()> {
        self.write_once(|conn| {
            for (setting, new_value, event) in changes {
                let text = new_value.to_string();
                let row = task_queue_settings.filter(name.eq(setting.name()));
                if diesel::update(row).set(value.eq(&text)).execute(conn)? == 0 {
                    diesel::insert_into(task_queue_settings)
                        .values((name.eq(setting.name()), value.eq(&text)))
                        .execute(conn)?;
                }
                insert_event(conn, event)?;
            }
            fault_point!("settings.before_commit");
            Ok(())
        })?;
        self.recent_settings = None;
        Ok(())
    }
}
