//! Histograms of durations.

use std::time::Duration;

/// The upper bounds of the buckets, in seconds. A last bucket without a bound counts longer durations.
pub const BOUNDS_SECS: [f64; 17] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];

/// The number of durations in each bucket, and the sum of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    counts: [u64; BOUNDS_SECS.len() + 1],
    sum: Duration,
}

impl Histogram {
    /// Adds a duration.
    pub fn observe(&mut self, took: Duration) {
        let secs = took.as_secs_f64();
        self.counts[BOUNDS_SECS.partition_point(|bound| *bound < secs)] += 1;
        self.sum = self.sum.saturating_add(took);
    }

    /// Adds the counts and the sum of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations, in seconds.
    #[must_use]
    pub fn sum_secs(&self) -> f64 {
        self.sum.as_secs_f64()
    }

    /// Returns the upper bound of each bucket, the last one infinite, and its own count, without those of lower buckets.
    #[must_use]
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        BOUNDS_SECS.into_iter().chain([f64::INFINITY]).zip(self.counts).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_lies_in_the_first_class_whose_bound_it_does_not_exceed() {
        let mut histogram = Histogram::default();
        for millis in [0, 1, 2, 3_600_000, 3_600_001] {
            histogram.observe(Duration::from_millis(millis));
        }
        let buckets = histogram.buckets();
        assert_eq!((buckets[0], buckets[1]), ((0.001, 2), (0.005, 1)));
        assert_eq!(buckets[16], (3600.0, 1));
        assert_eq!(*buckets.last().unwrap(), (f64::INFINITY, 1));
        assert_eq!((histogram.count(), histogram.sum_secs()), (5, 7200.004));
        assert!(BOUNDS_SECS.is_sorted());
    }
}
