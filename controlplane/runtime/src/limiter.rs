//! Delays: per item exponentially growing, and overall a token bucket.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// Doubling delays per item, until [`Exponential::forget`].
#[derive(Debug)]
pub struct Exponential<T> {
    base: Duration,
    max: Duration,
    failures: HashMap<T, u32>,
}

impl<T: Hash + Eq + Clone> Exponential<T> {
    /// Delays from `base`, doubled with each failure, up to `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self {
            base,
            max,
            failures: HashMap::new(),
        }
    }

    /// The delay before the next attempt at `item`; counts a failure.
    pub fn next(&mut self, item: &T) -> Duration {
        let failures = self.failures.entry(item.clone()).or_insert(0);
        let exponent = *failures;
        *failures = failures.saturating_add(1);
        let factor = 2_u32.checked_pow(exponent).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.max)
    }

    /// Failures in a row.
    pub fn failures(&self, item: &T) -> u32 {
        self.failures.get(item).copied().unwrap_or(0)
    }

    /// Starts afresh for `item`.
    pub fn forget(&mut self, item: &T) {
        self.failures.remove(item);
    }
}

/// A token bucket that lends: a caller is told how long to wait for its token.
#[derive(Debug)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// A full bucket of `burst` tokens that refills with `per_second`.
    pub fn new(per_second: f64, burst: f64) -> Self {
        Self {
            per_second,
            burst,
            tokens: burst,
            at: Instant::now(),
        }
    }

    fn refill(&mut self) {
        let now = Instant::now();
        let earned = now.duration_since(self.at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + earned).min(self.burst);
        self.at = now;
    }

    /// Takes a token, now or from the future; returns how long until it is there.
    pub fn reserve(&mut self) -> Duration {
        self.refill();
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64((-self.tokens / self.per_second).min(1e6))
        }
    }

    /// Takes a token if there is one.
    pub fn try_take(&mut self) -> bool {
        self.refill();
        let there = self.tokens >= 1.0;
        if there {
            self.tokens -= 1.0;
        }
        there
    }

    /// Changes the rate; the level stays.
    pub fn set_rate(&mut self, per_second: f64) {
        self.refill();
        self.per_second = per_second;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_limit_and_start_afresh() {
        let mut delays = Exponential::new(Duration::from_millis(5), Duration::from_secs(1000));
        let taken: Vec<_> = (0..4).map(|_| delays.next(&"a").as_millis()).collect();
        assert_eq!(taken, [5, 10, 20, 40]);
        assert_eq!(delays.next(&"b").as_millis(), 5);
        for _ in 0..60 {
            delays.next(&"a");
        }
        assert_eq!(delays.next(&"a"), Duration::from_secs(1000));
        delays.forget(&"a");
        assert_eq!(delays.next(&"a").as_millis(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_lends_beyond_its_burst() {
        let mut bucket = Bucket::new(10.0, 2.0);
        assert_eq!(bucket.reserve(), Duration::ZERO);
        assert_eq!(bucket.reserve(), Duration::ZERO);
        assert_eq!(bucket.reserve(), Duration::from_millis(100));
        assert!(!bucket.try_take());
        tokio::time::advance(Duration::from_millis(300)).await;
        assert!(bucket.try_take());
        assert!(bucket.try_take());
        assert!(!bucket.try_take());
    }
}
