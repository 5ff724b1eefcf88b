//! A diamond of dependencies: one task, then two that wait for it, then three, and so on to the widest row and back to one.
//! Each task waits for its neighbours in the previous row.
//!
//! `TASKQUEUE_TEST_DIAMOND` is the width of the widest row: 100 creates 10,000 tasks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use chrono::Utc;
use serde_json::json;
use taskqueue::HandlerError;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::trace::Trace;
use taskqueue_engine::Context;
use taskqueue_engine::change::retry::{RetryOptions, retry_tasks};
use taskqueue_engine::change::selected::TaskAnswer;
use taskqueue_engine::queueing::queue::ClassCheck;
use taskqueue_engine::queueing::queue_batch::{BatchDefaults, queue_batch};
use taskqueue_engine::running::process_run::{ProcessOptions, ProcessReport};
use taskqueue_engine::running::tick::tick;
use taskqueue_process::signals::stop_signals::StopSignals;

use super::fixture::*;
use crate::each_engine;

/// A position in the diamond: row and number in the row.
type Place = (usize, usize);

fn places(width: usize) -> Vec<Place> {
    let rows = 2 * width - 1;
    (0..rows).flat_map(|row| (0..row.min(rows - 1 - row) + 1).map(move |number| (row, number))).collect()
}

/// Returns the positions that it waits for.
fn before((row, number): Place, width: usize) -> Vec<Place> {
    if row == 0 {
        return Vec::new();
    }
    // While the rows grow, the neighbours are `number - 1` and `number`, if they exist; afterwards `number` and `number + 1`.
    let (first, length) = if row < width { (number.wrapping_sub(1), row) } else { (number, 2 * width - row) };
    [first, first.wrapping_add(1)].into_iter().filter(|other| *other < length).map(|other| (row - 1, other)).collect()
}

fn name((row, number): Place) -> String {
    format!("{row}.{number}")
}

/// Returns the lines of the batch; a line may name later ones.
fn lines(width: usize) -> String {
    let line = |place: &Place| {
        let after: Vec<String> = before(*place, width).into_iter().map(name).collect();
        json!({ "class": "work", "data": name(*place), "name": name(*place), "after": after, "max_retries": 1 })
            .to_string()
    };
    places(width).iter().rev().map(line).collect::<Vec<_>>().join("\n")
}

fn tick_once(ctx: &mut Context) -> ProcessReport {
    let options = ProcessOptions { drain: true, ..ProcessOptions::default() };
    tick(ctx, &options, &StopSignals::install().unwrap(), &mut Deaf).unwrap().processed
}

each_engine! {
    fn a_diamond_runs_in_order_around_a_failed_task_and_ends_after_its_retry(db) {
        let width = std::env::var("TASKQUEUE_TEST_DIAMOND").map_or(7, |text| text.parse().unwrap());
        let middle = (width - 1, width / 2);
        let order = Arc::new(Mutex::new(Vec::new()));
        let is_mended = Arc::new(AtomicBool::new(false));
        let (noted, mended) = (Arc::clone(&order), Arc::clone(&is_mended));
        let mut ctx = context(db, "work", move |run| {
            let name_of_it: String = run.data()?;
            if name_of_it == name(middle) && !mended.load(Ordering::Relaxed) {
                return Err(HandlerError::new("E1", "in the middle"));
            }
            noted.lock().unwrap().push(name_of_it);
            Ok(())
        });
        let defaults = BatchDefaults {
            may_name_users: true, may_replace: true,
            queued_by: "tester".to_owned(),
            classes: None,
            check: ClassCheck::KnownHere,
            spread: None,
            trace: Trace::default(),
        };
        let started = Instant::now();
        let queued = queue_batch(&mut ctx, &mut lines(width).as_bytes(), &Utc, &defaults, &mut |_, _| {}).unwrap();
        let queueing = started.elapsed();
        let ids: HashMap<String, TaskId> = queued.into_iter().map(|line| (line.name.unwrap(), line.task.id)).collect();
        // The tasks that wait for the middle, directly or indirectly.
        let mut blocked: Vec<Place> = vec![middle];
        for place in places(width) {
            if before(place, width).iter().any(|other| blocked.contains(other)) {
                blocked.push(place);
            }
        }
        let started = Instant::now();
        assert_eq!(tick_once(&mut ctx).failed, 1);
        assert_eq!(order.lock().unwrap().len(), width * width - blocked.len());
        assert_eq!(tick_once(&mut ctx).processed, 0);
        is_mended.store(true, Ordering::Relaxed);
        let mut is_retried = false;
        let mut hear = |answer: TaskAnswer| is_retried = answer.result.is_some();
        retry_tasks(&mut ctx, &[ids[&name(middle)]], &RetryOptions::default(), &mut hear).unwrap();
        assert!(is_retried);
        assert_eq!(tick_once(&mut ctx).succeeded, blocked.len() as u64);
        let running = started.elapsed();
        let order = order.lock().unwrap();
        let place_of: HashMap<&str, usize> = order.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
        for place in places(width) {
            for other in before(place, width) {
                assert!(place_of[name(other).as_str()] < place_of[name(place).as_str()], "{place:?} ran before {other:?}");
            }
        }
        assert_eq!((order.len(), place_of.len()), (width * width, width * width));
        eprintln!("{} tasks on {}: queued in {queueing:.2?}, executed in {running:.2?}", order.len(), db.engine.name());
    }
}
