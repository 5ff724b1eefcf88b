//! Writes the numbers in the text format of Prometheus (version 0.0.4), which Prometheus, node_exporter and most others read.
//! Only this file uses prometheus-client.
//!
//! That crate writes OpenMetrics, which describes a counter without the `_total` of its name, so that node_exporter considers
//! it untyped. Here every family is described under the full name of its series.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::inspect::monitoring::metrics::{Counted, OTHERS, StoreFacts};
use crate::inspect::monitoring::tally::WorkerFacts;
use taskqueue_domain::monitoring::histogram::Histogram;
use taskqueue_domain::text::outside_text::OutsideText;

/// The content type of this format in HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the text with the numbers of the store, if it could be read, the duration of the query, and the numbers of the
/// worker that serves the metrics, if any.
#[must_use]
pub fn text(store: Option<&StoreFacts>, took: Duration, worker: Option<&WorkerFacts>) -> String {
    let mut families = about_program(store.is_some(), took);
    families.extend(store.map(about_store).unwrap_or_default());
    families.extend(worker.map(about_worker).unwrap_or_default());
    let mut registry = Registry::with_prefix("taskqueue");
    registry.register_collector(Box::new(Exposition(families)));
    let mut text = String::new();
    // Formatting into a string cannot fail.
    let _ = encode_registry(&mut text, &registry);
    text
}

/// Label names and values. A value may be the name of a class or a host, which any client of the database can choose.
type Labels = Vec<(&'static str, OutsideText)>;
/// Labels as printed.
type CleanLabels = Vec<(&'static str, String)>;

/// All samples with one name.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    samples: Vec<(CleanLabels, MetricValue)>,
}

#[derive(Debug)]
enum MetricValue {
    Whole(i64),
    Real(f64),
    Spread(Histogram),
}

impl Family {
    fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricType::Gauge, samples: Vec::new() }
    }

    fn counter(name: &'static str, help: &'static str) -> Self {
        Self { kind: MetricType::Counter, ..Self::gauge(name, help) }
    }

    fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { kind: MetricType::Histogram, ..Self::gauge(name, help) }
    }

    /// Adds a value without labels.
    fn is(self, value: impl Into<MetricValue>) -> Self {
        self.with([(Labels::new(), value.into())])
    }

    fn with(mut self, samples: impl IntoIterator<Item = (Labels, MetricValue)>) -> Self {
        for (labels, value) in samples {
            let labels: CleanLabels = labels.iter().map(|(name, text)| (*name, text.to_string())).collect();
            // Two label values that look alike would be the same series twice, for which Prometheus refuses the whole response.
            match self.samples.iter_mut().find(|(known, _)| *known == labels) {
                Some((_, known)) => known.add(value),
                None => self.samples.push((labels, value)),
            }
        }
        self
    }

    /// Adds values with one label.
    fn by<L: Into<OutsideText>, V: Into<MetricValue>>(
        self,
        label: &'static str,
        samples: impl IntoIterator<Item = (L, V)>,
    ) -> Self {
        self.with(samples.into_iter().map(|(value, number)| (vec![(label, value.into())], number.into())))
    }
}

impl MetricValue {
    /// Merges two samples of one series: the sum of counts, the maximum of other values.
    fn add(&mut self, other: Self) {
        match (self, other) {
            (Self::Whole(number), Self::Whole(other)) => *number = number.saturating_add(other),
            (Self::Real(number), Self::Real(other)) => *number = number.max(other),
            (Self::Spread(histogram), Self::Spread(other)) => histogram.add(&other),
            _ => {}
        }
    }
}

macro_rules! values {
    ($($source:ty: |$value:ident| $converted:expr;)*) => {
        $(impl From<$source> for MetricValue {
            fn from($value: $source) -> Self {
                $converted
            }
        })*
    };
}

values! {
    i64: |number| Self::Whole(number);
    u64: |number| Self::Whole(i64::try_from(number).unwrap_or(i64::MAX));
    usize: |number| Self::Whole(i64::try_from(number).unwrap_or(i64::MAX));
    bool: |is_so| Self::Whole(i64::from(is_so));
    f64: |number| Self::Real(number);
    Counted: |counted| Self::Whole(counted.count);
    Histogram: |histogram| Self::Spread(histogram);
}

/// All families in order.
#[derive(Debug)]
struct Exposition(Vec<Family>);

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, family.kind)?;
            for (labels, value) in &family.samples {
                if labels.is_empty() {
                    encode_value(&mut metric, value)?;
                } else {
                    encode_value(&mut metric.encode_family(labels)?, value)?;
                }
            }
        }
        Ok(())
    }
}

/// Encodes a counter as a gauge, because no suffix is added to the name of a gauge.
fn encode_value(metric: &mut MetricEncoder<'_>, value: &MetricValue) -> fmt::Result {
    match value {
        MetricValue::Whole(number) => metric.encode_gauge(number),
        MetricValue::Real(number) => metric.encode_gauge(number),
        MetricValue::Spread(histogram) => {
            metric.encode_histogram::<NoLabelSet>(histogram.sum_secs(), histogram.count(), &histogram.buckets(), None)
        }
    }
}

fn about_program(is_up: bool, took: Duration) -> Vec<Family> {
    vec![
        Family::gauge("up", "Whether the database could be queried.").is(is_up),
        Family::gauge("build_info", "Always 1; the version of the program.")
            .by("version", [(env!("CARGO_PKG_VERSION"), 1_i64)]),
        Family::gauge("scrape_duration_seconds", "How long the queries to the database took.").is(took.as_secs_f64()),
    ]
}

fn about_store(facts: &StoreFacts) -> Vec<Family> {
    [about_tasks(facts), about_runs(facts), about_runners(facts)].into_iter().flatten().collect()
}

fn about_tasks(facts: &StoreFacts) -> Vec<Family> {
    vec![
        Family::gauge("due_tasks", "Tasks that are due and have no run, up to 100000.").is(facts.due),
        Family::gauge("oldest_due_age_seconds", "How long the oldest due task has had no run; 0 if none is due.")
            .is(facts.oldest_due_secs),
        Family::gauge("later_tasks", "Tasks that are due later, including retries, up to 100000.").is(facts.later),
        Family::gauge("failed_tasks", "Tasks whose last attempt failed or timed out, up to 200000.").is(facts.failed),
        Family::gauge("quarantined_tasks", "Tasks that crashed too often and need an operator, up to 100000.")
            .is(facts.quarantined),
        Family::gauge("recently_over_tasks", "Tasks that finished in the last hour, up to 100000 of each status.")
            .by("status", facts.over.iter().map(|(status, count)| (*status, *count))),
        Family::gauge("schedules", "Schedules by the state of their next task.")
            .by("state", facts.schedules.iter().map(|(state, count)| (state, *count))),
        Family::gauge("late_schedules", "Schedules whose time passed more than a minute ago without a run.")
            .is(facts.late_schedules),
    ]
}

fn about_runs(facts: &StoreFacts) -> Vec<Family> {
    let classes = || facts.classes.iter();
    // Of the other classes only some were read.
    let told_apart = classes().filter(|(class, _)| *class != OTHERS);
    vec![
        Family::gauge("waiting_runs", "Runs that are waiting for a runner, up to 10000 of each class.")
            .by("class", classes().map(|(class, of)| (class, of.waiting))),
        Family::gauge("next_waiting_age_seconds", "Age of the run that is claimed next; 0 if none is waiting.")
            .by("class", told_apart.map(|(class, of)| (class, of.next_waiting_secs))),
        Family::gauge("running_runs", "Runs in progress, including those claimed in advance.")
            .by("class", classes().map(|(class, of)| (class, of.running))),
        Family::gauge("runs_waiting_for_key", "Runs that are waiting for a slot of their limit key, up to 100000.")
            .is(facts.waiting_for_key),
        Family::gauge("lost_runs", "Runs whose runner is dead or silent, among the first 500 in progress.")
            .is(facts.lost),
    ]
}

fn about_runners(facts: &StoreFacts) -> Vec<Family> {
    let runners = facts.runners.iter().map(|group| {
        let labels = vec![("host", group.host.as_str().into()), ("state", group.state.as_str().into())];
        (labels, MetricValue::from(group.runners))
    });
    vec![
        Family::gauge("runners", "Runners that are not marked as finished: alive, dead, or silent on another host.")
            .with(runners),
        Family::gauge("runner_slots", "Slots of these runners.").is(facts.slots_in_use),
        Family::gauge("runner_slots_limit", "Most slots that may be in use: TaskQueueRunnerLimit.")
            .is(facts.slots_limit),
        Family::gauge("pauses", "Pauses set by operators: of everything, classes or runners.")
            .by("scope", facts.pauses.iter().map(|(scope, count)| (*scope, *count))),
        Family::gauge("held_classes", "Classes that are held on a host because their program cannot start there.")
            .is(facts.held_classes),
    ]
}

fn about_worker(facts: &WorkerFacts) -> Vec<Family> {
    let classes = || facts.classes.iter();
    let ended = classes().flat_map(|(class, of)| {
        of.ended.iter().map(move |(outcome, count)| {
            (vec![("class", class.into()), ("outcome", (*outcome).into())], MetricValue::from(*count))
        })
    });
    vec![
        Family::counter("worker_runs_claimed_total", "Runs that this worker has claimed.")
            .by("class", classes().map(|(class, of)| (class, of.claimed))),
        Family::counter("worker_runs_ended_total", "Runs of this worker that have ended, by outcome.").with(ended),
        Family::histogram("worker_run_wait_seconds", "How long after they were due its runs were claimed.")
            .by("class", classes().map(|(class, of)| (class, of.waits.clone()))),
        Family::histogram("worker_run_duration_seconds", "How long its handlers took.")
            .by("class", classes().map(|(class, of)| (class, of.durations.clone()))),
        Family::counter(
            "worker_handler_cpu_seconds_total",
            "Processor time that its handlers used, if they are programs.",
        )
        .by("class", classes().map(|(class, of)| (class, Duration::from_millis(of.cpu_msecs).as_secs_f64()))),
        Family::histogram("worker_commit_duration_seconds", "How long it took to record a batch of outcomes.")
            .is(facts.commits.clone()),
        Family::counter("worker_lease_renewals_total", "How often it has renewed its leases.").is(facts.renewals),
        Family::gauge("worker_slots", "Runs that it executes at once, at most.").is(facts.slots),
        Family::gauge("worker_slots_busy", "Slots that execute a run.").is(facts.working),
        Family::gauge(
            "worker_left_behind_threads",
            "Threads of handlers in Rust that did not return when they were asked to stop.",
        )
        .is(facts.left_behind),
        Family::gauge("worker_database_up", "Whether the last query of the worker succeeded.").is(!facts.is_away),
        Family::gauge("worker_resident_memory_bytes", "Memory of the worker, without its handlers.")
            .with(facts.memory_bytes.map(|bytes| (Labels::new(), bytes.into()))),
        Family::gauge("worker_start_time_seconds", "When it started, in seconds since 1970.")
            .with(facts.began_secs.map(|secs| (Labels::new(), secs.into()))),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use chrono::DateTime;

    use super::*;
    use crate::inspect::monitoring::metrics::ClassFacts;
    use crate::inspect::monitoring::tally::ClassTally;

    fn store() -> StoreFacts {
        let of_class = ClassFacts { running: 2, ..ClassFacts::default() };
        StoreFacts {
            now: DateTime::UNIX_EPOCH,
            due: Counted { count: 7, or_more: false },
            oldest_due_secs: 1.5,
            later: Counted::default(),
            failed: Counted::default(),
            quarantined: Counted::default(),
            over: BTreeMap::new(),
            waiting_for_key: Counted::default(),
            classes: BTreeMap::from([("App\\Tasks\\\"x\"\ny\x1b".to_owned(), of_class)]),
            lost: 0,
            runners: Vec::new(),
            slots_in_use: 0,
            slots_limit: 8,
            pauses: BTreeMap::new(),
            held_classes: 0,
            schedules: BTreeMap::new(),
            late_schedules: Counted::default(),
        }
    }

    #[test]
    fn a_metric_has_its_description_and_odd_class_names_are_escaped() {
        let text = text(Some(&store()), Duration::from_millis(250), None);
        assert!(text.starts_with("# HELP taskqueue_up "), "{text}");
        assert!(text.contains("# TYPE taskqueue_due_tasks gauge\ntaskqueue_due_tasks 7\n"), "{text}");
        assert!(text.contains("\ntaskqueue_scrape_duration_seconds 0.25\n"), "{text}");
        assert!(text.contains("taskqueue_running_runs{class=\"App\\\\Tasks\\\\\\\"x\\\" y\u{fffd}\"} 2\n"), "{text}");
        assert!(!text.contains("# EOF") && !text.contains("# UNIT") && !text.contains("worker"), "{text}");
    }

    #[test]
    fn classes_whose_names_read_alike_are_one_series() {
        let mut store = store();
        let of = |running| ClassFacts { running, next_waiting_secs: running as f64, ..ClassFacts::default() };
        store.classes =
            BTreeMap::from([("a\x1b".to_owned(), of(2)), ("a\u{9b}".to_owned(), of(3)), ("b".to_owned(), of(1))]);
        let text = text(Some(&store), Duration::ZERO, None);
        assert!(text.contains("taskqueue_running_runs{class=\"a\u{fffd}\"} 5\n"), "{text}");
        assert!(text.contains("taskqueue_next_waiting_age_seconds{class=\"a\u{fffd}\"} 3.0\n"), "{text}");
        assert_eq!(text.matches("taskqueue_running_runs{").count(), 2, "{text}");
    }

    #[test]
    fn a_store_that_cannot_be_asked_is_down_and_has_no_numbers() {
        let text = text(None, Duration::ZERO, None);
        assert!(text.contains("\ntaskqueue_up 0\n") && !text.contains("due_tasks"), "{text}");
    }

    #[test]
    fn a_counter_has_its_whole_name_and_a_histogram_its_buckets() {
        let mut of_class = ClassTally { claimed: 3, ..ClassTally::default() };
        of_class.ended.insert("success", 2);
        of_class.durations.observe(Duration::from_millis(2));
        let facts = WorkerFacts {
            classes: BTreeMap::from([("echo".to_owned(), of_class)]),
            slots: 4,
            ..WorkerFacts::default()
        };
        let text = text(None, Duration::ZERO, Some(&facts));
        let counter = "# TYPE taskqueue_worker_runs_claimed_total counter\ntaskqueue_worker_runs_claimed_total{class=\"echo\"} 3\n";
        assert!(text.contains(counter), "{text}");
        assert!(text.contains("taskqueue_worker_runs_ended_total{class=\"echo\",outcome=\"success\"} 2\n"), "{text}");
        assert!(
            text.contains("taskqueue_worker_run_duration_seconds_bucket{le=\"0.001\",class=\"echo\"} 0\n"),
            "{text}"
        );
        assert!(
            text.contains("taskqueue_worker_run_duration_seconds_bucket{le=\"+Inf\",class=\"echo\"} 1\n"),
            "{text}"
        );
        assert!(
            text.contains("taskqueue_worker_database_up 1\n") && text.contains("taskqueue_worker_slots 4\n"),
            "{text}"
        );
    }
}
