//! How fast to get there: what was recommended of late, and what the user allows.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};

/// Nothing is taken away that was recommended so lately, unless the user says otherwise.
const DOWN_WINDOW: i64 = 300;
/// Nothing older than this matters: the longest windows and periods that users may ask for.
const MEMORY: SignedDuration = SignedDuration::from_secs(3600);
/// Without rules a target may double, and small ones get to four at once.
const DOUBLE: i64 = 2;
/// See [`DOUBLE`].
const FOUR: i64 = 4;

/// Where things stand, and where they should go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goal {
    pub(super) current: i32,
    pub(super) desired: i32,
    pub(super) least: i32,
    pub(super) most: i32,
}

/// What an autoscaler recommended and did.
#[derive(Debug, Default)]
pub(super) struct History {
    recommended: VecDeque<(Timestamp, i32)>,
    changes: VecDeque<(Timestamp, i32)>,
}

impl History {
    /// What is there at first counts as recommended.
    pub(super) fn begin(&mut self, now: Timestamp, current: i32) {
        if self.recommended.is_empty() {
            self.recommended.push_back((now, current));
        }
    }

    pub(super) fn scaled(&mut self, now: Timestamp, change: i32) {
        self.changes.push_back((now, change));
    }

    fn forget(&mut self, now: Timestamp) {
        for list in [&mut self.recommended, &mut self.changes] {
            while list.front().is_some_and(|(at, _)| now.duration_since(*at) > MEMORY) {
                list.pop_front();
            }
        }
    }

    fn recommended_within(&self, seconds: i64, now: Timestamp) -> impl Iterator<Item = i32> {
        let since = now - SignedDuration::from_secs(seconds);
        self.recommended
            .iter()
            .filter(move |(at, _)| *at > since)
            .map(|(_, replicas)| *replicas)
    }

    /// The replicas that there were so long ago.
    fn replicas_before(&self, seconds: i32, current: i32, now: Timestamp) -> i64 {
        let since = now - SignedDuration::from_secs(i64::from(seconds));
        let changes = self.changes.iter().filter(|(at, _)| *at > since);
        i64::from(current) - changes.map(|(_, change)| i64::from(*change)).sum::<i64>()
    }
}

/// What to do, and what the conditions say about it.
#[derive(Debug, PartialEq)]
pub(super) struct Paced {
    pub(super) replicas: i32,
    pub(super) stabilized: (&'static str, &'static str),
    pub(super) limited: (bool, &'static str, &'static str),
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const HIGHER: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const LOWER: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: (bool, &str, &str) = (
    false,
    "DesiredWithinRange",
    "the desired count is within the acceptable range",
);
const TOO_FEW: (bool, &str, &str) = (
    true,
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
);
const TOO_MANY: (bool, &str, &str) = (
    true,
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
);
const TOO_FAST_UP: (bool, &str, &str) = (
    true,
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
);
const TOO_FAST_DOWN: (bool, &str, &str) = (
    true,
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);

/// Paces a goal, and remembers it.
pub(super) fn pace(
    goal: &Goal,
    behavior: Option<&HorizontalPodAutoscalerBehavior>,
    history: &mut History,
    now: Timestamp,
) -> Paced {
    history.forget(now);
    let up = behavior.and_then(|behavior| behavior.scale_up.as_ref());
    let down = behavior.and_then(|behavior| behavior.scale_down.as_ref());
    let window = |rules: Option<&HPAScalingRules>, otherwise: i64| {
        let seconds = rules.and_then(|rules| rules.stabilization_window_seconds);
        seconds.map_or(otherwise, i64::from)
    };
    let lowest = history
        .recommended_within(window(up, 0), now)
        .fold(goal.desired, i32::min);
    let highest = history
        .recommended_within(window(down, DOWN_WINDOW), now)
        .fold(goal.desired, i32::max);
    history.recommended.push_back((now, goal.desired));
    // As near to what there is as the lowest and the highest allow.
    let stable = match behavior {
        Some(_) => goal.current.max(lowest).min(highest),
        None => highest,
    };
    let stabilized = match stable {
        same if same == goal.desired => READY,
        _ if behavior.is_some() && goal.desired > goal.current => LOWER,
        _ => HIGHER,
    };
    let (replicas, limited) = match behavior {
        Some(_) => by_rules(goal, stable, up, down, history, now),
        None => without_rules(goal, stable),
    };
    Paced {
        replicas,
        stabilized,
        limited,
    }
}

fn without_rules(goal: &Goal, desired: i32) -> (i32, (bool, &'static str, &'static str)) {
    let fastest = (DOUBLE * i64::from(goal.current)).max(FOUR);
    let (most, why) = match i64::from(goal.most) > fastest {
        true => (narrow(fastest), TOO_FAST_UP),
        false => (goal.most, TOO_MANY),
    };
    match desired {
        few if few < goal.least => (goal.least, TOO_FEW),
        many if many > most => (most, why),
        right => (right, WITHIN),
    }
}

fn by_rules(
    goal: &Goal,
    desired: i32,
    up: Option<&HPAScalingRules>,
    down: Option<&HPAScalingRules>,
    history: &History,
    now: Timestamp,
) -> (i32, (bool, &'static str, &'static str)) {
    if desired > goal.current {
        let fastest = reach(goal.current, up, true, history, now).max(goal.current);
        let (most, why) = match goal.most > fastest {
            true => (fastest, TOO_FAST_UP),
            false => (goal.most, TOO_MANY),
        };
        if desired > most {
            return (most, why);
        }
    } else if desired < goal.current {
        let fastest = reach(goal.current, down, false, history, now).min(goal.current);
        let (least, why) = match goal.least < fastest {
            true => (fastest, TOO_FAST_DOWN),
            false => (goal.least, TOO_FEW),
        };
        if desired < least {
            return (least, why);
        }
    }
    (desired, WITHIN)
}

/// How far the policies let a target go now.
fn reach(current: i32, rules: Option<&HPAScalingRules>, up: bool, history: &History, now: Timestamp) -> i32 {
    let select = rules.and_then(|rules| rules.select_policy.as_deref()).unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    let policies = rules.and_then(|rules| rules.policies.as_deref()).unwrap_or_default();
    let reaches = policies.iter().map(|policy| {
        let start = history.replicas_before(policy.period_seconds, current, now);
        let value = i64::from(policy.value);
        let end = match (policy.type_.as_str(), up) {
            ("Pods", true) => start.saturating_add(value),
            ("Pods", false) => start.saturating_sub(value),
            // Up: rounded up. Down: what is left is rounded down.
            (_, true) => start.saturating_mul(100 + value).saturating_add(99).div_euclid(100),
            (_, false) => start.saturating_mul(100 - value).div_euclid(100),
        };
        narrow(end)
    });
    // The policy that allows the most change, or the least.
    let reached = match (select == "Min", up) {
        (false, true) | (true, false) => reaches.max(),
        (true, true) | (false, false) => reaches.min(),
    };
    reached.unwrap_or(current)
}

fn narrow(replicas: i64) -> i32 {
    i32::try_from(replicas.max(0)).unwrap_or(i32::MAX)
}
