//! TaskQueuePauses: what operators have paused. Claims read it under their lock; runners read it while they work.

use std::collections::HashMap;

use diesel::prelude::*;

use crate::backend;
use crate::base::cells::{ShownText, TimeOrPast};
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue_pauses::dsl::{
    author, created_on, host, mode, name, reason, scope, task_queue_pauses, until,
};
use crate::base::sql::{db_now, db_now_plus};
use crate::journal::events::{NewEvent, insert_event};
use crate::{Store, StoreResult};
use taskqueue_domain::limits::pause::{Pause, PauseMode, PauseScope};

/// A pause to be set.
#[derive(Clone, Debug)]
pub struct NewPause {
    /// What is paused.
    pub scope: PauseScope,
    /// What happens to runs in progress.
    pub mode: PauseMode,
    /// The reason.
    pub reason: String,
    /// Seconds after which it expires.
    pub for_secs: Option<i64>,
    /// Who sets it.
    pub author: String,
    /// The host from which it is set.
    pub host: String,
}

impl Store {
    /// Returns the pauses that have not expired.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_pauses(&mut self) -> StoreResult<Vec<Pause>> {
        self.read(load_pauses)
    }

    /// Sets a pause, replacing an earlier one with the same scope, and records the event. After it returns, no claim of what is
    /// paused begins.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn set_pause(&mut self, pause: &NewPause, event: &NewEvent) -> StoreResult<()> {
        // If two transactions pause the same at once, both find no row to remove; the second one is repeated.
        self.write_key_once(|conn| {
            backend::enter_both_tables(conn)?;
            remove(conn, &pause.scope)?;
            diesel::insert_into(task_queue_pauses)
                .values((
                    scope.eq(pause.scope.kind()),
                    name.eq(pause.scope.name()),
                    mode.eq(pause.mode.as_str()),
                    reason.eq(&pause.reason),
                    author.eq(&pause.author),
                    host.eq(&pause.host),
                    pause.for_secs.map(|secs| until.eq(db_now_plus(secs).nullable())),
                ))
                .execute(conn)?;
            insert_event(conn, event)?;
            fault_point!("pauses.before_set_commit");
            Ok(())
        })
    }

    /// Ends a pause, and records the event. Returns true if there was one.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn end_pause(&mut self, of: &PauseScope, event: &NewEvent) -> StoreResult<bool> {
        self.write_once(|conn| {
            backend::enter_both_tables(conn)?;
            let is_ended = remove(conn, of)? > 0;
            if is_ended {
                insert_event(conn, event)?;
            }
            fault_point!("pauses.before_end_commit");
            Ok(is_ended)
        })
    }

    /// Removes expired pauses, which no longer have an effect, and records the event of each.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn remove_ended_pauses(&mut self, event: impl Fn(&PauseScope) -> NewEvent) -> StoreResult<usize> {
        let ended: Vec<(String, ShownText)> = self.read(|conn| {
            Ok(task_queue_pauses.filter(until.le(db_now().nullable())).select((scope, name)).load(conn)?)
        })?;
        let mut removed = 0;
        for (kind, of) in ended {
            let Some(of) = PauseScope::parse(&kind, of.0) else { continue };
            removed += self.write_once(|conn| {
                backend::enter_both_tables(conn)?;
                // Only if it was not removed or set again meanwhile.
                let row = task_queue_pauses.filter(scope.eq(of.kind())).filter(name.eq(of.name()));
                let count = diesel::delete(row.filter(until.le(db_now().nullable()))).execute(conn)?;
                if count > 0 {
                    insert_event(conn, &event(&of))?;
                }
                fault_point!("pauses.before_remove_commit");
                Ok(count)
            })?;
        }
        Ok(removed)
    }
}

fn remove(conn: &mut AnyConnection, of: &PauseScope) -> QueryResult<usize> {
    diesel::delete(task_queue_pauses.filter(scope.eq(of.kind())).filter(name.eq(of.name()))).execute(conn)
}

/// Pauses in order, indexed by what they cover: there may be many pauses of single classes.
#[derive(Default)]
pub(crate) struct Pauses {
    all: Vec<Pause>,
    /// Indexes of pauses of single classes.
    by_class: HashMap<String, usize>,
    /// Indexes of the others.
    others: Vec<usize>,
}

impl From<Vec<Pause>> for Pauses {
    fn from(all: Vec<Pause>) -> Self {
        let mut pauses = Self { all, ..Self::default() };
        for (place, pause) in pauses.all.iter().enumerate() {
            match &pause.scope {
                PauseScope::Class(class) if !class.contains(['*', '?']) => {
                    pauses.by_class.insert(class.clone(), place);
                }
                _ => pauses.others.push(place),
            }
        }
        pauses
    }
}

impl Pauses {
    /// Returns the pauses that may cover a class, except those of single classes.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Pause> {
        self.others.iter().map(|place| &self.all[*place])
    }

    /// Returns the pauses that block a runner of this name from claiming runs of this class.
    pub(crate) fn covering(&self, class: &str, runner: &str) -> impl Iterator<Item = &Pause> {
        let covers = |place: &usize| self.all[*place].scope.covers(class, runner);
        let mut places: Vec<usize> = self.others.iter().copied().filter(covers).collect();
        places.extend(self.by_class.get(class));
        places.sort_unstable();
        places.into_iter().map(|place| &self.all[place])
    }
}

/// Loads the pauses that are in effect now.
pub(crate) fn load_pauses(conn: &mut AnyConnection) -> StoreResult<Vec<Pause>> {
    type Row = (String, ShownText, String, ShownText, ShownText, ShownText, TimeOrPast, Option<TimeOrPast>);
    let rows: Vec<Row> = task_queue_pauses
        .filter(until.is_null().or(until.gt(db_now().nullable())))
        .order((scope, name))
        .select((scope, name, mode, reason, author, host, created_on, until))
        .load(conn)?;
    let pause = |(kind, of, how, why, who, place, since, end): Row| {
        Some(Pause {
            scope: PauseScope::parse(&kind, of.0)?,
            mode: how.into(),
            reason: why.0,
            author: who.0,
            host: place.0,
            created_on: since.into(),
            until: end.map(Into::into),
        })
    };
    Ok(rows.into_iter().filter_map(pause).collect())
}
