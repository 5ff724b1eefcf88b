//! The database: tables, migrations and every statement. It guards changes (every change of a status is a compare-and-set), but
//! makes no decisions. It returns domain types.

// With one client alone, code that only the others need is unused.
#![cfg_attr(
    not(all(feature = "mysql", feature = "postgres", feature = "sqlite")),
    allow(dead_code, unused_imports, unused_variables)
)]

#[macro_use]
extern crate taskqueue_host;

#[cfg(not(any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
compile_error!("choose at least one of the features mysql, postgres and sqlite");

mod address;
mod backend;
pub mod base;
mod error;
pub mod insert;
mod journal;
pub mod reading;
mod records;
pub mod rules;
mod session;
mod transitions;
pub mod upkeep;

pub use self::address::pooler::Pooler;
pub use self::address::url::{DatabaseUrl, Engine};
pub use self::base::counted::Counted;
pub use self::error::{ConnectFailure, DatabaseError, StoreError, StoreResult};
pub use self::insert::callers::{CallersConnection, callers_now, callers_settings, insert_in};
pub use self::insert::queueing::{BatchNeeds, EachPart};
pub use self::insert::transfer::{ExportedTask, Imported, OpenDependency, TransferredTask};
pub use self::journal::events::NewEvent;
pub use self::reading::candidates::{ScheduleName, WhichRuns};
pub use self::reading::event_log::{Event, EventFilter, is_narrow_range};
pub use self::reading::failures::{FailedTask, FinalCause};
pub use self::reading::measuring::metrics::{TaskBacklog, WaitingRuns};
pub use self::reading::measuring::queues::ClassCounts;
pub use self::reading::measuring::starts::RunStart;
pub use self::reading::status::{TaskCounts, TaskFilter, TaskPage};
pub use self::records::outputs::OutputSize;
pub use self::records::runs::{RunRef, RunReport};
pub use self::records::task_messages::{Envelope, MESSAGE_TO_TASK, Recipient};
pub use self::rules::classes::ClassHold;
pub use self::rules::key_slots::KeyUse;
pub use self::rules::leases::{Renewal, RenewalRequest};
pub use self::rules::pauses::NewPause;
pub use self::rules::runners::{NewRunner, Registration};
pub use self::rules::unique::Holder;
pub use self::session::change_listener::ChangeListener;
pub use self::session::connecting::ConnectWait;
pub use self::session::health::Symptom;
pub use self::session::migrate::{Migration, MigrationBegun, MigrationReport, all_pending};
pub use self::session::origin::Origin;
pub use self::session::store::Store;
pub use self::transitions::{
    Advanced, CancelAnswer, Claim, Crash, EditAnswer, EndCondition, EndResult, Lateness, Loss, ManyClaimed, NewStart,
    NextWork, OutsideClaim, OutsideRun, RestartAnswer, RunEnd, RunRequest, ScheduleAnswer, ScheduleChange,
    SpecificClaim, WantedSchedule,
};
pub use self::upkeep::cleanup::CleanupNeeds;
pub use self::upkeep::prunable::PruneVerdict;
pub use self::upkeep::prune::{PrunePlace, PruneRule, PruneWindow, Pruned};
pub use crate::backend::notices::print_notices_with;
#[cfg(feature = "sqlite")]
pub use crate::backend::sqlite::kept_log::keep_sqlite_logs;
pub use crate::backend::transport::host_without_tls;
pub use crate::records::notices::{NewNotice, NoticeChoice, TakenNotices};
