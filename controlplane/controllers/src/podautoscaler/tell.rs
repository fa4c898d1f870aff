//! What an autoscaler tells.

use jiff::Timestamp;
use minato_api::k8s::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricStatus,
};
use minato_api::meta_v1::Time;

pub(super) const ABLE: &str = "AbleToScale";
pub(super) const ACTIVE: &str = "ScalingActive";
pub(super) const LIMITED: &str = "ScalingLimited";

/// A status in the making.
#[derive(Debug)]
pub(super) struct Telling {
    conditions: Vec<HorizontalPodAutoscalerCondition>,
    pub(super) metrics: Vec<MetricStatus>,
    pub(super) current: i32,
    /// Unknown when there was no decision.
    pub(super) desired: Option<i32>,
    pub(super) rescaled: bool,
    now: Timestamp,
}

impl Telling {
    pub(super) fn new(scaler: &HorizontalPodAutoscaler, now: Timestamp) -> Self {
        let status = scaler.status.clone().unwrap_or_default();
        Self {
            conditions: status.conditions.unwrap_or_default(),
            metrics: Vec::new(),
            current: status.current_replicas.unwrap_or(0),
            desired: None,
            rescaled: false,
            now,
        }
    }

    /// Sets a condition. Its time is kept while its status is the same.
    pub(super) fn condition(&mut self, type_: &str, holds: bool, reason: &str, message: impl Into<String>) {
        let status = if holds { "True" } else { "False" };
        let known = self.conditions.iter_mut().find(|condition| condition.type_ == type_);
        let since = known
            .as_ref()
            .filter(|condition| condition.status == status)
            .and_then(|condition| condition.last_transition_time.clone());
        let next = HorizontalPodAutoscalerCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.into()),
            last_transition_time: Some(since.unwrap_or(Time(self.now))),
        };
        match known {
            Some(known) => *known = next,
            None => self.conditions.push(next),
        }
    }

    /// The status, if it tells anything new. Without a decision the former one stands.
    pub(super) fn status(self, scaler: &HorizontalPodAutoscaler) -> Option<HorizontalPodAutoscalerStatus> {
        let before = scaler.status.clone().unwrap_or_default();
        let metrics = Some(self.metrics).filter(|metrics| !metrics.is_empty());
        let status = HorizontalPodAutoscalerStatus {
            conditions: Some(self.conditions),
            current_metrics: match self.desired {
                Some(_) => metrics,
                None => before.current_metrics.clone(),
            },
            current_replicas: Some(self.current),
            desired_replicas: self.desired.unwrap_or(before.desired_replicas),
            last_scale_time: match self.rescaled {
                true => Some(Time(self.now)),
                false => before.last_scale_time.clone(),
            },
            observed_generation: scaler.metadata.generation,
        };
        (scaler.status.as_ref() != Some(&status)).then_some(status)
    }
}
