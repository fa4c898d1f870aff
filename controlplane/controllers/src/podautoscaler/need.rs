//! How many replicas use calls for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerSpec};
use minato_api::k8s::core::v1::{Container, Pod};
use minato_meta::Quantity;

use crate::{ops, pods};

/// Within this share of the target nothing is done, unless the user says otherwise.
const TOLERANCE: f64 = 0.1;
/// What a pod uses of the processor while it starts says nothing about what it will use.
const STARTING: SignedDuration = SignedDuration::from_secs(300);
/// A pod that stops being ready so soon after its start was never ready.
const NEVER_READY: SignedDuration = SignedDuration::from_secs(30);

/// Use of a pod, in thousandths of the unit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) milli: i64,
    pub(super) at: Timestamp,
    pub(super) window: Duration,
}

/// Use by name of pod.
pub(super) type Samples = BTreeMap<String, Sample>;

/// What use should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Target {
    /// Percent of what was requested.
    Utilization(i64),
    /// Thousandths of the unit for each pod.
    Average(i64),
}

/// How far from its target use may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerance {
    pub(super) up: f64,
    pub(super) down: f64,
}

impl Tolerance {
    pub(super) fn of(spec: &HorizontalPodAutoscalerSpec) -> Self {
        let of = |rules: Option<&HPAScalingRules>| {
            let amount = rules.and_then(|rules| rules.tolerance.as_ref());
            let amount: Option<Quantity> = amount.and_then(|amount| amount.0.parse().ok());
            amount.map_or(TOLERANCE, |amount| thousandths(amount.milli()))
        };
        let behavior = spec.behavior.as_ref();
        Self {
            up: of(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
            down: of(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
        }
    }

    fn holds(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    pub(super) replicas: i32,
    /// Percent of what was requested.
    pub(super) utilization: Option<i32>,
    /// Thousandths of the unit for each pod.
    pub(super) average_milli: i64,
}

/// One metric of one autoscaler.
pub(super) struct Need<'a> {
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) samples: &'a Samples,
    pub(super) resource: &'a str,
    pub(super) container: Option<&'a str>,
    pub(super) current: i32,
    pub(super) target: Target,
    pub(super) tolerance: Tolerance,
    pub(super) now: Timestamp,
}

/// Pods by what is known of them.
#[derive(Debug, Default)]
struct Groups<'a> {
    measured: BTreeMap<&'a str, i64>,
    unready: Vec<&'a str>,
    silent: Vec<&'a str>,
}

impl Need<'_> {
    pub(super) fn replicas(&self) -> Result<Measured, String> {
        if self.pods.is_empty() {
            return Err("no pods returned by selector while calculating replica count".to_owned());
        }
        let requests = match self.target {
            Target::Utilization(_) => self.requests()?,
            Target::Average(_) => BTreeMap::new(),
        };
        let mut groups = self.groups();
        if groups.measured.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
        }
        let ready = groups.measured.len();
        let (ratio, utilization, average_milli) = self.ratio(&groups.measured, &requests)?;
        let found = |replicas: i32| Measured {
            replicas,
            utilization,
            average_milli,
        };
        let rising_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !rising_unready && groups.silent.is_empty() {
            if self.tolerance.holds(ratio) {
                return Ok(found(self.current));
            }
            return Ok(found(times(ratio, ready)));
        }
        // Of whom nothing is known, the assumption is the one that changes least.
        for name in std::mem::take(&mut groups.silent) {
            if ratio < 1.0 {
                groups.measured.insert(name, self.full_use(name, &requests));
            } else if ratio > 1.0 {
                groups.measured.insert(name, 0);
            }
        }
        if rising_unready {
            for name in std::mem::take(&mut groups.unready) {
                groups.measured.insert(name, 0);
            }
        }
        let (assumed, _, _) = self.ratio(&groups.measured, &requests)?;
        let turned = ratio < 1.0 && assumed > 1.0 || ratio > 1.0 && assumed < 1.0;
        if self.tolerance.holds(assumed) || turned {
            return Ok(found(self.current));
        }
        let replicas = times(assumed, groups.measured.len());
        let backwards = assumed < 1.0 && replicas > self.current || assumed > 1.0 && replicas < self.current;
        Ok(found(if backwards { self.current } else { replicas }))
    }

    fn groups(&self) -> Groups<'_> {
        let mut groups = Groups::default();
        for pod in self.pods {
            let name = ops::name(&pod.metadata);
            if pods::is_terminating(pod) || pods::phase(pod) == "Failed" {
                continue;
            }
            let sample = self.samples.get(name);
            match sample {
                _ if pods::phase(pod) == "Pending" => groups.unready.push(name),
                None => groups.silent.push(name),
                Some(sample) if self.resource == "cpu" && self.is_starting(pod, sample) => groups.unready.push(name),
                Some(sample) => drop(groups.measured.insert(name, sample.milli)),
            }
        }
        groups
    }

    /// Whether what a pod uses of the processor says nothing yet.
    fn is_starting(&self, pod: &Pod, sample: &Sample) -> bool {
        let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let (Some(ready), Some(started)) = (pods::condition(pod, "Ready"), started) else {
            return true;
        };
        let turned = ready
            .last_transition_time
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        if started.0 + STARTING > self.now {
            return ready.status == "False" || sample.at < turned + sample.window;
        }
        ready.status == "False" && started.0 + NEVER_READY > turned
    }

    /// What each pod requested.
    fn requests(&self) -> Result<BTreeMap<&str, i64>, String> {
        let mut requests = BTreeMap::new();
        for pod in self.pods {
            let name = ops::name(&pod.metadata);
            let spec = pod.spec.as_ref();
            let sidecars = spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
            let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
            let containers = spec.iter().flat_map(|spec| spec.containers.iter()).chain(sidecars);
            let mut total: i64 = 0;
            for container in containers {
                if self.container.is_some_and(|meant| meant != container.name) {
                    continue;
                }
                let request = request(container, self.resource);
                let missing = || {
                    format!(
                        "missing request for {} in container {} of Pod {name}",
                        self.resource, container.name
                    )
                };
                total = total.saturating_add(request.ok_or_else(missing)?);
            }
            requests.insert(name, total);
        }
        Ok(requests)
    }

    /// Use in relation to its target, in percent of requests, and on average.
    fn ratio(
        &self,
        measured: &BTreeMap<&str, i64>,
        requests: &BTreeMap<&str, i64>,
    ) -> Result<(f64, Option<i32>, i64), String> {
        let sum = |values: &mut dyn Iterator<Item = i64>| values.fold(0_i64, i64::saturating_add);
        match self.target {
            Target::Average(target) => {
                let average = sum(&mut measured.values().copied()) / count(measured.len());
                Ok((float(average) / float(target), None, average))
            }
            Target::Utilization(target) => {
                let known = || measured.iter().filter(|(name, _)| requests.contains_key(*name));
                let used = sum(&mut known().map(|(_, milli)| *milli));
                let requested = sum(&mut known().filter_map(|(name, _)| requests.get(name).copied()));
                if requested == 0 {
                    return Err("no metrics returned matched known pods".to_owned());
                }
                let percent = used.saturating_mul(100) / requested;
                let average = used / count(known().count());
                let shown = i32::try_from(percent).unwrap_or(i32::MAX);
                Ok((float(percent) / float(target), Some(shown), average))
            }
        }
    }

    /// What a silent pod is assumed to use while the others use too little.
    fn full_use(&self, name: &str, requests: &BTreeMap<&str, i64>) -> i64 {
        match self.target {
            Target::Average(target) => target,
            Target::Utilization(target) => {
                let request = requests.get(name).copied().unwrap_or(0);
                request.saturating_mul(target.max(100)) / 100
            }
        }
    }
}

fn request(container: &Container, resource: &str) -> Option<i64> {
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    let amount: Quantity = requests.get(resource)?.0.parse().ok()?;
    Some(amount.milli())
}

fn times(ratio: f64, pods: usize) -> i32 {
    let product = (ratio * float(count(pods))).ceil();
    #[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
    let replicas = product as i32;
    replicas
}

fn count(pods: usize) -> i64 {
    i64::try_from(pods).unwrap_or(i64::MAX).max(1)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 53 bits")]
fn float(number: i64) -> f64 {
    number as f64
}

fn thousandths(milli: i64) -> f64 {
    float(milli) / 1000.0
}
