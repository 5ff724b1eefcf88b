//! TaskQueuePauses: what operators keep from being claimed. Claims read it under their lock, runners look at it while they
//! work.

use std::collections::HashMap;

use diesel::prelude::*;

use crate::backend::{self, AnyConnection};
use crate::base::cells::ShownText;
use crate::base::schema::task_queue_pauses::dsl::{
    author, created_on, host, mode, name, reason, scope, task_queue_pauses, until,
};
use crate::base::sql::{Moment, db_now, db_now_plus};
use crate::upkeep::events::{NewEvent, insert_event};
use crate::{Store, StoreResult};
use taskqueue_domain::pause::{Pause, PauseMode, PauseScope};

/// A pause that somebody asks for.
#[derive(Clone, Debug)]
pub struct NewPause {
    /// What is paused.
    pub scope: PauseScope,
    /// What happens to those at work.
    pub mode: PauseMode,
    /// Why.
    pub reason: String,
    /// Seconds after which it ends by itself.
    pub for_secs: Option<i64>,
    /// Who asks.
    pub author: String,
    /// Where.
    pub host: String,
}

impl Store {
    /// The pauses whose time is not over.
    ///
    /// # Errors
    /// The database could not be asked.
    pub fn list_pauses(&mut self) -> StoreResult<Vec<Pause>> {
        self.read(load_pauses)
    }

    /// Pauses something, in place of an earlier pause of the same, and keeps the event. Once it has returned, no claim of
    /// what is paused begins.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn set_pause(&mut self, pause: &NewPause, event: &NewEvent) -> StoreResult<()> {
        // Two who pause the same at once find nothing to remove; the second one looks again.
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

    /// Ends a pause, and keeps the event. Whether there was one.
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

    /// Removes the pauses whose time is over, and keeps the event of each. They have counted no more since then.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn remove_ended_pauses(&mut self, event: impl Fn(&PauseScope) -> NewEvent) -> StoreResult<usize> {
        let ended: Vec<(String, String)> = self.read(|conn| {
            Ok(task_queue_pauses.filter(until.le(db_now().nullable())).select((scope, name)).load(conn)?)
        })?;
        let mut removed = 0;
        for (kind, of) in ended {
            let Some(of) = PauseScope::parse(&kind, of) else { continue };
            removed += self.write_once(|conn| {
                backend::enter_both_tables(conn)?;
                // Only if nobody has removed it, or paused the same anew, meanwhile.
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

/// Pauses in their order, found by what they cover: those of one class each may be many.
#[derive(Default)]
pub(crate) struct Pauses {
    all: Vec<Pause>,
    /// Places of those of one class.
    by_class: HashMap<String, usize>,
    /// Places of the others.
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
    /// Those that may cover a class, beside those of one class each.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Pause> {
        self.others.iter().map(|place| &self.all[*place])
    }

    /// Those that keep runs of this class from a runner of this name.
    pub(crate) fn covering(&self, class: &str, runner: &str) -> impl Iterator<Item = &Pause> {
        let covers = |place: &usize| self.all[*place].scope.covers(class, runner);
        let mut places: Vec<usize> = self.others.iter().copied().filter(covers).collect();
        places.extend(self.by_class.get(class));
        places.sort_unstable();
        places.into_iter().map(|place| &self.all[place])
    }
}

/// The pauses that count now.
pub(crate) fn load_pauses(conn: &mut AnyConnection) -> StoreResult<Vec<Pause>> {
    type Row = (String, ShownText, String, ShownText, ShownText, ShownText, Moment, Option<Moment>);
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
