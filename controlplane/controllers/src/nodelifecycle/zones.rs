//! How fast pods may be moved away, by how much of a zone is out of order: one sick node is replaced, a sick zone is
//! handled with care, and when nothing answers any more it is rather us who are cut off.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use minato_api::k8s::core::v1::Node;
use minato_runtime::Bucket;

use super::health::ready;
use crate::ops;

const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// Rates and bounds.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    /// Nodes per second, normally and when a whole zone is down.
    pub(super) normal: f64,
    /// Nodes per second when a large zone is partly down.
    pub(super) slow: f64,
    /// A zone with more nodes is large; in a small one that is partly down nothing is moved.
    pub(super) large: usize,
    /// Share of nodes out of order from which a zone counts as partly down.
    pub(super) threshold: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Normal,
    Partly,
    Fully,
}

struct Seen {
    zone: String,
    /// None while it has not reported, or when it does not count.
    ready: Option<bool>,
}

struct Zone {
    state: State,
    rate: f64,
    bucket: Bucket,
}

/// All zones of the cluster.
pub(super) struct Zones {
    pace: Pace,
    nodes: HashMap<String, Seen>,
    zones: BTreeMap<String, Zone>,
    dirty: bool,
    all_down: bool,
}

/// What [`Zones::assess`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shift {
    Same,
    /// Some zone's state is another.
    Changed,
    /// Nodes answer again after none did.
    Recovered,
}

pub(super) fn zone_of(node: &Node) -> String {
    let part = |key: &str| ops::label(&node.metadata, key).unwrap_or_default();
    format!(
        "{}:{}",
        part("topology.kubernetes.io/region"),
        part("topology.kubernetes.io/zone")
    )
}

impl Zones {
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            pace,
            nodes: HashMap::new(),
            zones: BTreeMap::new(),
            dirty: false,
            all_down: false,
        }
    }

    pub(super) fn observe(&mut self, node: &Node) {
        let counts = ops::label(&node.metadata, EXCLUDED).is_none();
        let seen = Seen {
            zone: zone_of(node),
            ready: ready(node).filter(|_| counts).map(|ready| ready == "True"),
        };
        self.nodes.insert(ops::name(&node.metadata).to_owned(), seen);
        self.dirty = true;
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.nodes.remove(name);
        self.dirty = true;
    }

    /// Works out the zones' states anew if anything changed.
    pub(super) fn assess(&mut self) -> Shift {
        if !std::mem::take(&mut self.dirty) {
            return Shift::Same;
        }
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for seen in self.nodes.values() {
            let (up, down) = counts.entry(&seen.zone).or_default();
            match seen.ready {
                Some(true) => *up += 1,
                Some(false) => *down += 1,
                None => {}
            }
        }
        let states: BTreeMap<String, (State, usize)> = counts
            .into_iter()
            .map(|(zone, (up, down))| (zone.to_owned(), (self.pace.state(up, down), up + down)))
            .collect();
        let all_down = !states.is_empty() && states.values().all(|(state, _)| *state == State::Fully);
        let mut shift = Shift::Same;
        self.zones.retain(|zone, _| states.contains_key(zone));
        for (name, (state, size)) in states {
            let rate = self.pace.rate(state, size);
            let zone = self.zones.entry(name).or_insert_with(|| Zone {
                state: State::Normal,
                rate,
                bucket: Bucket::new(rate, 1.0),
            });
            if zone.state != state {
                zone.state = state;
                shift = Shift::Changed;
            }
            if zone.rate != rate {
                zone.rate = rate;
                zone.bucket.set_rate(rate);
            }
        }
        if all_down != self.all_down {
            shift = if all_down { Shift::Changed } else { Shift::Recovered };
        }
        self.all_down = all_down;
        shift
    }

    /// Whether no node of any zone answers.
    pub(super) fn all_down(&self) -> bool {
        self.all_down
    }

    /// Takes a turn to move the pods of a node of this zone away. Otherwise how long to wait before asking again;
    /// none: until the zone's state is another.
    pub(super) fn take_turn(&mut self, zone: &str) -> Result<(), Option<Duration>> {
        let Some(zone) = self.zones.get_mut(zone) else {
            return Err(None);
        };
        if zone.rate <= 0.0 {
            return Err(None);
        }
        match zone.bucket.try_take() {
            true => Ok(()),
            false => Err(Some(Duration::from_secs_f64((1.0 / zone.rate).clamp(0.01, 60.0)))),
        }
    }
}

impl Pace {
    fn state(&self, up: usize, down: usize) -> State {
        #[expect(clippy::cast_precision_loss, reason = "numbers of nodes are small")]
        let share = down as f64 / (up + down).max(1) as f64;
        match (up, down) {
            (0, 1..) => State::Fully,
            (_, 3..) if share >= self.threshold => State::Partly,
            _ => State::Normal,
        }
    }

    fn rate(&self, state: State, size: usize) -> f64 {
        match state {
            State::Normal | State::Fully => self.normal,
            State::Partly if size > self.large => self.slow,
            State::Partly => 0.0,
        }
    }
}
