//! TaskQueueSettings.

use std::time::Instant;

use diesel::prelude::*;

use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue_settings::dsl::{name, task_queue_settings, value};
use crate::journal::events::{NewEvent, insert_event};
use crate::session::origin::SETTINGS_FRESH;
use crate::{Store, StoreResult};
use taskqueue_domain::settings::{Setting, Settings};

/// Returns a single setting, for the end of a run. Must not be called where a claim has locked the tables.
pub(crate) fn setting_now(conn: &mut AnyConnection, setting: Setting) -> QueryResult<i64> {
    let row = task_queue_settings.filter(name.eq(setting.name()));
    let text: Option<ShownText> = row.select(value).first(conn).optional()?;
    // An invalid value must not block the end of a run: reading all settings reports it.
    Ok(text.and_then(|text| setting.value(&text.0).ok()).unwrap_or(setting.default_value()))
}

impl Store {
    /// Returns the current settings.
    ///
    /// # Errors
    /// A value is outside its range ([`crate::StoreError::Setting`]).
    pub fn settings(&mut self) -> StoreResult<Settings> {
        let rows = self.setting_rows()?;
        Ok(Settings::from_rows(&rows)?)
    }

    /// Returns settings that may be up to a second old: for operations so frequent that a query each time would cost more than
    /// the work. Also updates whether transitions are recorded.
    ///
    /// # Errors
    /// As for [`Store::settings`].
    pub fn recent_settings(&mut self) -> StoreResult<Settings> {
        if let Some((settings, asked)) = &self.recent_settings
            && asked.elapsed() < SETTINGS_FRESH
        {
            return Ok(settings.clone());
        }
        let settings = self.settings()?;
        self.audit = Some((settings.audits_transitions, Instant::now()));
        self.recent_settings = Some((settings.clone(), Instant::now()));
        Ok(settings)
    }

    /// Returns the name and the value of every row.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn setting_rows(&mut self) -> StoreResult<Vec<(String, String)>> {
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
