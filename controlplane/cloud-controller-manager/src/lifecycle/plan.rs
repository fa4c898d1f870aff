//! What it takes to delete a Node. A wrong credential, region or project must not cost a cluster its nodes.

use std::time::Duration;

use crate::CloudControllerManagerConfig;

/// So many nodes may go at once in any cluster.
const ALWAYS: usize = 3;

/// A node whose instance is not to be found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubt {
    /// The cloud is certain: the id is unknown or ended. Otherwise only no instance has the node's name.
    pub(super) certain: bool,
    pub(super) age: Duration,
    /// How long the cloud has been saying so.
    pub(super) missing_for: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) young: Duration,
    pub(super) unknown: Duration,
    pub(super) second_look: Duration,
    pub(super) mass_share: f64,
    pub(super) mass_wait: Duration,
}

impl Rules {
    pub(super) fn of(config: &CloudControllerManagerConfig) -> Self {
        Self {
            young: config.young_node,
            unknown: config.unknown_node,
            second_look: config.second_look,
            mass_share: config.mass_deletion_share,
            mass_wait: config.mass_deletion_wait,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// For each doubt whether the node goes now.
    pub(super) goes: Vec<bool>,
    /// Too many would go at once.
    pub(super) braked: bool,
}

pub(super) fn verdict(doubts: &[Doubt], total: usize, rules: &Rules) -> Verdict {
    #[expect(clippy::cast_precision_loss, reason = "numbers of nodes are small")]
    let many = doubts.len() > ALWAYS && doubts.len() as f64 > rules.mass_share * total as f64;
    let goes: Vec<bool> = doubts.iter().map(|doubt| doubt.is_settled(rules)).collect();
    let waits = |doubt: &Doubt| many && doubt.missing_for < rules.mass_wait;
    let braked = doubts.iter().zip(&goes).any(|(doubt, goes)| *goes && waits(doubt));
    let goes = doubts
        .iter()
        .zip(goes)
        .map(|(doubt, goes)| goes && !waits(doubt))
        .collect();
    Verdict { goes, braked }
}

impl Doubt {
    fn is_settled(&self, rules: &Rules) -> bool {
        let twice = self.missing_for >= rules.second_look;
        match self.certain {
            true => self.age >= rules.young || twice,
            false => self.age >= rules.unknown && twice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn rules() -> Rules {
        Rules {
            young: seconds(120),
            unknown: seconds(300),
            second_look: seconds(30),
            mass_share: 0.3,
            mass_wait: seconds(300),
        }
    }

    fn doubt(certain: bool, age: u64, missing_for: u64) -> Doubt {
        Doubt {
            certain,
            age: seconds(age),
            missing_for: seconds(missing_for),
        }
    }

    fn goes(doubts: &[Doubt], total: usize) -> Vec<bool> {
        verdict(doubts, total, &rules()).goes
    }

    #[test]
    fn doubt_keeps_a_node_and_certainty_ends_it() {
        assert_eq!(goes(&[doubt(true, 1000, 0)], 10), [true]);
        assert_eq!(goes(&[doubt(true, 60, 0)], 10), [false]);
        assert_eq!(goes(&[doubt(true, 60, 30)], 10), [true]);
        assert_eq!(goes(&[doubt(false, 1000, 0)], 10), [false]);
        assert_eq!(goes(&[doubt(false, 1000, 30)], 10), [true]);
        assert_eq!(goes(&[doubt(false, 299, 200)], 10), [false]);
    }

    #[test]
    fn many_at_once_are_rather_a_mistake() {
        let all = |missing_for| vec![doubt(true, 1000, missing_for); 8];
        let braked = verdict(&all(0), 10, &rules());
        assert_eq!((braked.goes.contains(&true), braked.braked), (false, true));
        assert_eq!(goes(&all(300), 10), [true; 8]);
        // Eight of a hundred are not many, and three never are.
        assert_eq!(goes(&all(0), 100), [true; 8]);
        assert_eq!(goes(&all(0)[..3], 3), [true; 3]);
    }
}
