//! The rules of the domain: what each task, each end and each line of input is put through.

use std::hint::black_box;

use chrono::{DateTime, TimeDelta, Utc};
use criterion::Criterion;
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::decision::decide;
use taskqueue_domain::run::due::{DueFacts, is_due};
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::task::choosing::selection::Selection;
use taskqueue_domain::task::new_task::validate_data;
use taskqueue_domain::time::recurrence::Recurrence;
use taskqueue_domain::time::when::parse_start;

pub(crate) fn measure(criterion: &mut Criterion) {
    let now: DateTime<Utc> = "2026-03-28T12:00:00Z".parse().unwrap();
    let mut group = criterion.benchmark_group("rules");
    let facts = DueFacts {
        status: Stored::Known(TaskStatus::Failed),
        has_open_run: false,
        failed_retries: 2,
        retry_limit: Some(5),
        waiting_for: 0,
        is_quarantined: false,
        is_planned: true,
        is_schedule_paused: false,
        due_from: now - TimeDelta::minutes(1),
    };
    group.bench_function("a task is due", |bench| bench.iter(|| is_due(black_box(&facts), now)));
    let backoff = Backoff::Exponential { base_secs: 10, max_secs: 3_600 };
    group.bench_function("the wait before a retry", |bench| bench.iter(|| backoff.delay_secs(black_box(4), 17)));
    let rules = ExitRules::of_task_programs();
    group.bench_function("an exit code", |bench| {
        bench.iter(|| decide(&Ending::Exited(black_box(75)), None, "no room", &rules, 60));
    });
    let yearly = Recurrence::parse("30 2 29 2 *", "Europe/Berlin", "latest").unwrap();
    let often = Recurrence::parse("*/15 * * * *", "Europe/Berlin", "latest").unwrap();
    group.bench_function("the next quarter of an hour", |bench| bench.iter(|| often.next_after(black_box(now))));
    group.bench_function("the next 29th of February", |bench| bench.iter(|| yearly.next_after(black_box(now))));
    group.bench_function("a time as people write it", |bench| {
        bench.iter(|| parse_start(black_box("tomorrow 03:00"), &now));
    });
    let words = ["class=mail.*", "status=exhausted", "older=2d", "7-12"];
    group.bench_function("a selection", |bench| bench.iter(|| Selection::parse(black_box(&words))));
    let data = format!(r#"{{"text":"{}"}}"#, "x".repeat(1_000));
    group.bench_function("a kilobyte of task data", |bench| bench.iter(|| validate_data(black_box(&data), 1 << 20)));
    group.finish();
}
