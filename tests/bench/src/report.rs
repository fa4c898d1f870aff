//! Figures, as a table and as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;

/// Names and numbers in the order in which they were measured.
#[derive(Debug, Default)]
pub(crate) struct Report {
    figures: Vec<(String, f64)>,
}

impl Report {
    /// Adds a figure and prints it, so that one sees how far a run is.
    pub(crate) fn add(&mut self, name: &str, value: f64) {
        let value = (value * 100.0).round() / 100.0;
        println!("{name:<36} {value:>12}");
        self.figures.push((name.to_owned(), value));
    }

    /// Writes the figures; those of an earlier run that were not measured now are kept.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let earlier = std::fs::read(path)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut all: BTreeMap<String, f64> = earlier.unwrap_or_default();
        all.extend(self.figures.iter().cloned());
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        }
        std::fs::write(path, serde_json::to_vec_pretty(&all)?).with_context(|| format!("writing {}", path.display()))
    }
}

/// The value below which this part of the samples lies, by the nearest rank.
pub(crate) fn quantile(samples: &[f64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "samples are few, and the product is at least zero"
    )]
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Milliseconds with their fraction.
pub(crate) fn milliseconds(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_by_nearest_rank() {
        let samples = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&samples, 0.5), 2.0);
        assert_eq!(quantile(&samples, 0.99), 4.0);
        assert_eq!(quantile(&samples, 0.0), 1.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn a_part_run_keeps_the_other_figures() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/bench.json");
        let mut first = Report::default();
        first.add("a", 1.004);
        first.add("b", 2.0);
        first.write(&path).unwrap();
        let mut second = Report::default();
        second.add("b", 3.0);
        second.write(&path).unwrap();
        let all: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(all, serde_json::json!({"a": 1.0, "b": 3.0}));
    }
}
