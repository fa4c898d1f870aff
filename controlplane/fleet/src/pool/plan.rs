//! From what is recorded, what the cloud has and what is wanted, to what is recorded next. Pure.
//!
//! A machine is recorded before the cloud is asked for it and until the cloud no longer has it, and its name is the
//! client token of the creating call: whatever is cut short is found and finished, and nothing is made twice.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::fleet::{MachinePhase, MachineRecord};
use minato_api::meta_v1::Time;
use minato_provider_interface::Machine;

/// How long the pods of a node that goes may take to move.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// What the plan is made from.
pub(super) struct Inputs<'a> {
    pub(super) records: &'a [MachineRecord],
    pub(super) cloud: &'a [Machine],
    pub(super) wanted: usize,
    /// Whether pods are moved first: not when the whole cluster goes, or has gone.
    pub(super) drain: bool,
    /// Nodes that are Ready, by name.
    pub(super) ready: &'a dyn Fn(&str) -> bool,
    /// Nodes without pods that need moving, by name.
    pub(super) drained: &'a dyn Fn(&str) -> bool,
    pub(super) now: Timestamp,
    /// A new machine's name.
    pub(super) new_name: &'a mut dyn FnMut() -> String,
}

/// The records as they should be.
pub(super) fn plan(inputs: &mut Inputs<'_>) -> Vec<MachineRecord> {
    let cloud: BTreeMap<&str, &Machine> = inputs.cloud.iter().map(|m| (m.name.as_str(), m)).collect();
    let mut records: Vec<MachineRecord> = inputs.records.iter().filter_map(|r| observe(r, &cloud)).collect();
    adopt(&mut records, inputs.cloud, inputs.now);
    finish_drains(&mut records, inputs);
    scale(&mut records, inputs);
    records
}

fn enter(record: &mut MachineRecord, phase: MachinePhase, now: Timestamp) {
    record.phase = phase;
    // Seconds are what the API keeps.
    record.since = Timestamp::from_second(now.as_second()).ok().map(Time);
}

/// What has become of a recorded machine; `None` once it is gone.
fn observe(record: &MachineRecord, cloud: &BTreeMap<&str, &Machine>) -> Option<MachineRecord> {
    let machine = cloud.get(record.name.as_str());
    let mut record = record.clone();
    match (record.phase, machine) {
        (MachinePhase::Creating, Some(machine)) => {
            record.phase = MachinePhase::Created;
            record.provider_id = machine.provider_id.as_str().to_owned();
        }
        (MachinePhase::Creating, None) | (_, Some(_)) => {}
        // Deleted as asked, or taken away by the cloud: in the second case another takes its place.
        (_, None) => return None,
    }
    Some(record)
}

/// Machines with our tags and no record, as after the loss of the management plane's data: ours all the same.
fn adopt(records: &mut Vec<MachineRecord>, cloud: &[Machine], now: Timestamp) {
    for machine in cloud {
        if records.iter().all(|record| record.name != machine.name) {
            let mut record = MachineRecord {
                name: machine.name.clone(),
                provider_id: machine.provider_id.as_str().to_owned(),
                ..MachineRecord::default()
            };
            enter(&mut record, MachinePhase::Created, now);
            records.push(record);
        }
    }
}

fn finish_drains(records: &mut [MachineRecord], inputs: &Inputs<'_>) {
    for record in records
        .iter_mut()
        .filter(|record| record.phase == MachinePhase::Draining)
    {
        let Some(Time(since)) = record.since else {
            continue;
        };
        let waited = Duration::try_from(inputs.now.duration_since(since)).unwrap_or_default();
        if !inputs.drain || waited >= DRAIN_TIMEOUT || (inputs.drained)(&record.name) {
            enter(record, MachinePhase::Deleting, inputs.now);
        }
    }
}

fn scale(records: &mut Vec<MachineRecord>, inputs: &mut Inputs<'_>) {
    let counts = |record: &MachineRecord| matches!(record.phase, MachinePhase::Creating | MachinePhase::Created);
    let alive = records.iter().filter(|record| counts(record)).count();
    for _ in alive..inputs.wanted {
        let mut record = MachineRecord {
            name: (inputs.new_name)(),
            ..MachineRecord::default()
        };
        enter(&mut record, MachinePhase::Creating, inputs.now);
        records.push(record);
    }
    for _ in inputs.wanted..alive {
        let Some(victim) = records
            .iter_mut()
            .filter(|record| counts(record))
            .min_by_key(|record| cost(record, inputs))
        else {
            return;
        };
        let drain = inputs.drain && victim.phase == MachinePhase::Created && (inputs.ready)(&victim.name);
        let phase = if drain {
            MachinePhase::Draining
        } else {
            MachinePhase::Deleting
        };
        enter(victim, phase, inputs.now);
    }
}

/// What goes first: machines that are not there yet, then those whose node is not Ready, then the youngest.
fn cost(record: &MachineRecord, inputs: &Inputs<'_>) -> (bool, bool, std::cmp::Reverse<Option<Timestamp>>) {
    let since = record.since.as_ref().map(|Time(since)| *since);
    (
        record.phase == MachinePhase::Created,
        (inputs.ready)(&record.name),
        std::cmp::Reverse(since),
    )
}

#[cfg(test)]
mod tests {
    use minato_provider_interface::{ClusterId, MachineState, OwnerTags, ProviderId};

    use super::*;

    fn machine(name: &str) -> Machine {
        Machine {
            provider_id: ProviderId::new(format!("mock:///a/{name}")),
            name: name.to_owned(),
            state: MachineState::Running,
            instance_type: String::new(),
            zone: String::new(),
            addresses: Vec::new(),
            owner: OwnerTags {
                cluster: ClusterId("c".into()),
                owner_kind: "NodePool".into(),
                owner_name: "d/p".into(),
                owner_uid: "u".into(),
            },
        }
    }

    struct Case {
        records: Vec<MachineRecord>,
        cloud: Vec<Machine>,
        drained: bool,
        drain: bool,
        seconds: i64,
    }

    impl Default for Case {
        fn default() -> Self {
            Self {
                records: Vec::new(),
                cloud: Vec::new(),
                drained: false,
                drain: true,
                seconds: 0,
            }
        }
    }

    impl Case {
        /// Plans once, keeps the records, and says name and phase of each.
        fn step(&mut self, wanted: usize) -> Vec<(String, MachinePhase)> {
            let mut next = 0;
            let taken = self.records.len();
            let drained = self.drained;
            self.records = plan(&mut Inputs {
                records: &self.records.clone(),
                cloud: &self.cloud,
                wanted,
                drain: self.drain,
                ready: &|name| name != "m1",
                drained: &|_| drained,
                now: Timestamp::from_second(self.seconds).unwrap_or_default(),
                new_name: &mut || {
                    next += 1;
                    format!("m{}", taken + next)
                },
            });
            self.records.iter().map(|r| (r.name.clone(), r.phase)).collect()
        }
    }

    fn named(list: &[(&str, MachinePhase)]) -> Vec<(String, MachinePhase)> {
        list.iter().map(|(name, phase)| ((*name).to_owned(), *phase)).collect()
    }

    use MachinePhase::{Created, Creating, Deleting, Draining};

    #[test]
    fn a_machine_is_recorded_before_it_is_made_and_never_twice() {
        let mut case = Case::default();
        assert_eq!(case.step(2), named(&[("m1", Creating), ("m2", Creating)]));
        // The cloud was asked for one of them when the manager was killed.
        case.cloud = vec![machine("m1")];
        assert_eq!(case.step(2), named(&[("m1", Created), ("m2", Creating)]));
        assert_eq!(case.records[0].provider_id, "mock:///a/m1");
        assert_eq!(case.step(2), named(&[("m1", Created), ("m2", Creating)]));
    }

    #[test]
    fn scaling_down_drains_ready_nodes_and_takes_those_that_are_not_first() {
        let mut case = Case {
            cloud: vec![machine("m1"), machine("m2"), machine("m3")],
            ..Case::default()
        };
        assert_eq!(case.step(3).len(), 3);
        // m1 is not Ready: there is nothing to move from it.
        assert_eq!(case.step(2)[0], ("m1".to_owned(), Deleting));
        assert_eq!(case.step(1)[1], ("m2".to_owned(), Draining));
        case.drained = true;
        assert_eq!(case.step(1)[1], ("m2".to_owned(), Deleting));
        case.cloud = vec![machine("m3")];
        assert_eq!(case.step(1), named(&[("m3", Created)]));
    }

    #[test]
    fn a_drain_ends_by_time() {
        let mut case = Case {
            cloud: vec![machine("m2")],
            ..Case::default()
        };
        case.step(1);
        assert_eq!(case.step(0), named(&[("m2", Draining)]));
        case.seconds = 59;
        assert_eq!(case.step(0), named(&[("m2", Draining)]));
        case.seconds = 60;
        assert_eq!(case.step(0), named(&[("m2", Deleting)]));
    }

    #[test]
    fn what_the_cloud_took_is_replaced_and_what_it_keeps_is_ours() {
        let mut case = Case {
            cloud: vec![machine("m2")],
            ..Case::default()
        };
        case.step(1);
        case.cloud.clear();
        assert_eq!(case.step(1), named(&[("m2", Creating)]));
        case.drain = false;
        case.cloud = vec![machine("m2"), machine("stray")];
        assert_eq!(case.step(0), named(&[("m2", Deleting), ("stray", Deleting)]));
    }
}
