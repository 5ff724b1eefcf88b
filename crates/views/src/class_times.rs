//! How long the runs of a class waited and took, as two histograms side by side.

use chrono::TimeDelta;

use crate::human::{fitted_words, plural, short_distance};
use taskqueue_domain::monitoring::spread::Spread;
use taskqueue_domain::text::outside_text::clean_line;
use taskqueue_engine::inspect::status::ClassTimes;

/// The columns of the names and of the counts, with the space behind them.
const NAME_COLUMNS: usize = 14;
const COUNT_COLUMNS: usize = 6;
/// The longest bar: two histograms fit 80 columns.
const LONGEST_BAR: usize = 24;
/// The space between the histograms.
const GAP_COLUMNS: usize = 3;

/// Returns the lines of both histograms; none if no run has ended.
pub fn class_times(times: &ClassTimes, width: Option<u16>) -> Vec<String> {
    if times.runs == 0 {
        return Vec::new();
    }
    let bar = longest_bar(width);
    let row = |name: &str, left: String, right: &str| {
        let left_columns = COUNT_COLUMNS + bar + GAP_COLUMNS;
        format!("{name:<NAME_COLUMNS$}{left:<left_columns$}{right}").trim_end().to_owned()
    };
    let title = format!("The newest {} of {} that ended", plural(times.runs, "run"), times.class);
    let mut lines = vec![fitted_words(&clean_line(&title), width), row("", "due to start".to_owned(), "run time")];
    let (waited, took) = (&times.due_to_start, &times.run_time);
    for ((bucket, left), right) in took.buckets.iter().zip(bars(waited, bar)).zip(bars(took, bar)) {
        lines.push(row(&bound_words(bucket.le_secs), left, &right));
    }
    lines.push(row("median", secs_words(waited.median_secs), &secs_words(took.median_secs)));
    lines.push(row("95% within", secs_words(waited.p95_secs), &secs_words(took.p95_secs)));
    lines.push(row("runs", waited.count.to_string(), &took.count.to_string()));
    lines
}

/// Returns the length of the longest bar on a terminal of this width.
fn longest_bar(width: Option<u16>) -> usize {
    let others = NAME_COLUMNS + 2 * COUNT_COLUMNS + GAP_COLUMNS;
    width.map_or(LONGEST_BAR, |width| (usize::from(width).saturating_sub(others) / 2).min(LONGEST_BAR))
}

/// Returns the count and the bar of each bucket. A bucket that is not empty has a bar.
fn bars(spread: &Spread, longest: usize) -> Vec<String> {
    let most = spread.buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    let bar = |count: usize| "#".repeat((count * longest).div_ceil(most));
    let count_columns = COUNT_COLUMNS - 1;
    spread.buckets.iter().map(|bucket| format!("{:<count_columns$} {}", bucket.count, bar(bucket.count))).collect()
}

/// Formats the bound of a bucket: `up to 10m`, `longer`.
pub fn bound_words(le_secs: Option<f64>) -> String {
    let Some(secs) = le_secs else { return "longer".to_owned() };
    // The bounds are whole numbers of their units.
    let whole = secs as i64;
    match whole {
        86_400.. => format!("up to {}d", whole / 86_400),
        3_600.. => format!("up to {}h", whole / 3_600),
        60.. => format!("up to {}m", whole / 60),
        _ => format!("up to {secs}s"),
    }
}

/// Formats a duration, or `-` if there is none.
pub fn secs_words(secs: Option<f64>) -> String {
    let length = secs.map(|secs| TimeDelta::milliseconds((secs * 1_000.0).round() as i64));
    length.map_or_else(|| "-".to_owned(), short_distance)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn times() -> ClassTimes {
        let waited = (1..=100_u64).map(|millis| Duration::from_millis(millis * 2)).collect();
        let took = [5, 700, 3_000, 400_000, 9_000_000_u64].map(Duration::from_millis).to_vec();
        ClassTimes {
            class: "mail.send".to_owned(),
            runs: 100,
            due_to_start: Spread::of(waited),
            run_time: Spread::of(took),
        }
    }

    #[test]
    fn two_histograms_stand_side_by_side_in_80_columns() {
        let text = class_times(&times(), None).join("\n");
        let expected = "\
The newest 100 runs of mail.send that ended
              due to start                     run time
up to 0.1s    50    ########################   1     ########################
up to 1s      50    ########################   1     ########################
up to 10s     0                                1     ########################
up to 1m      0                                0
up to 10m     0                                1     ########################
up to 1h      0                                0
up to 1d      0                                1     ########################
longer        0                                0
median        0.100s                           3.000s
95% within    0.190s                           2h30m
runs          100                              5";
        assert_eq!(text, expected);
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 80));
        assert!(class_times(&times(), Some(50)).iter().all(|line| line.len() <= 50));
        let none = ClassTimes { runs: 0, ..times() };
        assert!(class_times(&none, None).is_empty());
    }
}
