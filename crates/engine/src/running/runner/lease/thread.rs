//! The lease thread: does the next piece of work, with its own connection.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::error::{EngineError, EngineResult};
use crate::running::runner::lease::inboxes::{Horizon, deliver};
use crate::running::runner::lease::shared::{LeaseWork, Leases, RETRY_PAUSE, RenewalPlan};
use crate::running::runner::silence::boot_ms_now;
use taskqueue_host::clock::Moment;
use taskqueue_host::random::spread;
use taskqueue_store::{DatabaseUrl, RenewalRequest, Store, StoreResult};

/// The pause between two reads of the orders of operators.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// How often cancelled and followed runs and messages are queried, even if the engine sends notifications: not every request causes
/// one. A person who opens a log waits for this.
const ASK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn start(leases: &Arc<Leases>, url: &DatabaseUrl) -> EngineResult<()> {
    let (kept, url) = (Arc::clone(leases), url.clone());
    thread::Builder::new()
        .name("leases".to_owned())
        .spawn(move || keep(&kept, &url))
        .map_err(|source| EngineError::Os { what: "cannot start a thread for the leases", source })?;
    Ok(())
}

fn keep(leases: &Leases, url: &DatabaseUrl) {
    fault_point!("lease.thread_started");
    let mut store: Option<Store> = None;
    let mut horizon = Horizon::new();
    let mut plan = RenewalPlan {
        renew_at: Moment::after(leases.times.renewal_pause(spread())),
        ask_at: Moment::after(ASK_EVERY),
        next_check_at: Moment::after(LOOK_PAUSE),
    };
    loop {
        let is_well = match leases.next_work(&plan, store.as_ref().and_then(Store::listening_socket)) {
            LeaseWork::End => break,
            LeaseWork::Listen => true,
            LeaseWork::Look => {
                let looked = connected(&mut store, url).and_then(Store::list_pauses);
                plan.next_check_at = Moment::after(if looked.is_ok() { LOOK_PAUSE } else { RETRY_PAUSE });
                if let Ok(pauses) = &looked {
                    leases.orders.note(pauses, &leases.runner_name, &leases.classes());
                }
                fault_point!("lease.looked");
                looked.is_ok()
            }
            LeaseWork::Ask(runs) => {
                let asked = connected(&mut store, url).and_then(|store| store.list_run_requests(&runs));
                let mut is_well = asked.is_ok();
                fault_point!("lease.cancel_heard");
                if let Ok(requests) = asked {
                    leases.hear(&runs, requests);
                }
                if is_well {
                    let delivered = connected(&mut store, url).and_then(|store| deliver(store, leases, &mut horizon));
                    is_well = delivered.is_ok();
                }
                plan.ask_at = Moment::after(if is_well { ASK_EVERY } else { RETRY_PAUSE });
                is_well
            }
            LeaseWork::Save(run, update) => {
                let saved = connected(&mut store, url).and_then(|store| update.save(store, &run));
                let is_well = saved.is_ok();
                fault_point!("lease.news_saved");
                leases.saved(&run, update, &saved);
                is_well
            }
            LeaseWork::Renew { due, fresh } => {
                let asked_at = Moment::now();
                let request = RenewalRequest {
                    runner_id: leases.runner_id,
                    due: &due,
                    fresh: &fresh,
                    lease_secs: leases.times.lease_secs,
                    boot_ms: boot_ms_now,
                    origin: &leases.origin,
                };
                let renewed = connected(&mut store, url).and_then(|store| store.renew_leases(&request));
                let pause = leases.times.renewal_pause(spread());
                plan.renew_at = Moment::after(if renewed.is_ok() { pause } else { (pause / 4).min(RETRY_PAUSE) });
                let is_well = renewed.is_ok();
                fault_point!("lease.renewed");
                if let Ok(renewal) = renewed {
                    let renewed = if renewal.was_clock_set { [due, fresh].concat() } else { due };
                    leases.note(&renewal, &renewed, asked_at);
                }
                is_well
            }
        };
        if !is_well {
            store = None;
        }
        // A notification may have arrived during another query; then nothing more comes to the socket.
        match store.as_mut().map(Store::was_notified_of_cancel) {
            Some(Ok(true)) => {
                leases.ask_about_all();
                plan.ask_at = Moment::now();
            }
            Some(Err(_)) => store = None,
            Some(Ok(false)) | None => {}
        }
    }
    leases.end();
}

fn connected<'a>(store: &'a mut Option<Store>, url: &DatabaseUrl) -> StoreResult<&'a mut Store> {
    match store {
        Some(store) => Ok(store),
        None => Ok(store.insert(Store::connect_listening(url)?)),
    }
}
