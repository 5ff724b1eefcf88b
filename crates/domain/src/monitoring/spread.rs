//! How durations are spread: a few buckets from a tenth of a second to days, the median and the 95th percentile.

use std::time::Duration;

use serde::Serialize;

/// The upper bounds of the buckets, in seconds. A last bucket without a bound counts longer durations.
pub const SPREAD_BOUNDS_SECS: [f64; 7] = [0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0];

/// The spread of durations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// How many durations there are.
    pub count: usize,
    /// Half of them are not longer; `None` if there are none.
    pub median_secs: Option<f64>,
    /// 95 of 100 are not longer; `None` if there are none.
    pub p95_secs: Option<f64>,
    /// All buckets, those of short durations first.
    pub buckets: Vec<SpreadBucket>,
}

/// The durations up to a bound that are longer than the bound of the bucket before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpreadBucket {
    /// The bound; `None` for the last bucket.
    pub le_secs: Option<f64>,
    /// How many there are, without those of the buckets before.
    pub count: usize,
}

impl Spread {
    /// Returns the spread of these durations.
    #[must_use]
    pub fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        let mut buckets: Vec<SpreadBucket> = Vec::with_capacity(SPREAD_BOUNDS_SECS.len() + 1);
        let mut below = 0;
        for bound in SPREAD_BOUNDS_SECS {
            let up_to = durations.partition_point(|duration| duration.as_secs_f64() <= bound);
            buckets.push(SpreadBucket { le_secs: Some(bound), count: up_to - below });
            below = up_to;
        }
        buckets.push(SpreadBucket { le_secs: None, count: durations.len() - below });
        let percentile = |percent: usize| {
            let rank = (durations.len() * percent).div_ceil(100);
            Some(durations.get(rank.checked_sub(1)?)?.as_secs_f64())
        };
        Self { count: durations.len(), median_secs: percentile(50), p95_secs: percentile(95), buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let of_millis = |millis: &[u64]| Spread::of(millis.iter().copied().map(Duration::from_millis).collect());
        let spread = of_millis(&[100, 101, 86_400_000, 86_400_001, 5_000]);
        let counts: Vec<usize> = spread.buckets.iter().map(|bucket| bucket.count).collect();
        assert_eq!(counts, [1, 1, 1, 0, 0, 0, 1, 1]);
        assert_eq!((spread.count, spread.median_secs, spread.p95_secs), (5, Some(5.0), Some(86_400.001)));
        assert_eq!(spread.buckets.last().map(|bucket| bucket.le_secs), Some(None));
        let none = of_millis(&[]);
        assert_eq!((none.count, none.median_secs, none.p95_secs, none.buckets.len()), (0, None, None, 8));
        let hundred = Spread::of((1..=100).map(Duration::from_secs).collect());
        assert_eq!((hundred.median_secs, hundred.p95_secs), (Some(50.0), Some(95.0)));
        assert!(SPREAD_BOUNDS_SECS.is_sorted());
    }
}
