//! Horizontal pod autoscalers: replicas by what pods use of what they asked for.
//!
//! ```text
//!  metrics.rs  what pods use            need.rs    how many replicas that calls for
//!  pace.rs     how fast to get there    tell.rs    conditions and status
//! ```
//!
//! Resource metrics come from `metrics.k8s.io`, which an add-on serves. Metrics of pods, objects and other systems are
//! not asked for, and the condition `ScalingActive` says so.
//! Source: <https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/>.

mod metrics;
mod need;
mod pace;
mod tell;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec};
use minato_api::k8s::core::v1::Pod;
use minato_api::kube::Api;
use minato_api::kube::api::{DynamicObject, PostParams};
use minato_meta::LabelSelector;
use minato_runtime::{Change, Controller, EventKind, Informer, Next, ObjectKey, Recorder};
use parking_lot::Mutex;

use crate::Context;
use crate::error::{Error, Result, is_conflict, is_not_found};
use crate::{ops, scale};
use pace::{Goal, History};
use tell::Telling;

/// Use is measured, not told: it has to be asked for.
const PERIOD: Duration = Duration::from_secs(15);

struct Autoscalers {
    cx: Context,
    all: Informer<HorizontalPodAutoscaler>,
    pods: Informer<Pod>,
    /// What each recommended and did of late. Lost with the process: then nothing is scaled down for a while.
    histories: Mutex<HashMap<ObjectKey, History>>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(Autoscalers {
        cx: cx.clone(),
        all: cx.informer(),
        pods: cx.informer(),
        histories: Mutex::default(),
        recorder: cx.runtime.recorder("horizontal-pod-autoscaler"),
    });
    let gone = this.clone();
    Controller::new("horizontalpodautoscaler", &cx.runtime)
        .watch(&this.all, move |change, add| {
            let key = ObjectKey::of(change.object().as_ref());
            match change {
                Change::Deleted(_) => drop(gone.histories.lock().remove(&key)),
                // What we tell ourselves is no news.
                Change::Updated { old, new } if old.spec == new.spec => {}
                Change::Added(_) | Change::Updated { .. } => add(key),
            }
        })
        .resync({
            let all = this.all.clone();
            move || all.keys()
        })
        .reads(&this.pods)
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

/// What came of one look.
struct Decision {
    replicas: i32,
    reason: String,
    /// Whether `replicas` may differ from what there is.
    rescales: bool,
}

impl Autoscalers {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(scaler) = self.all.get(&key) else {
            return Ok(Next::Done);
        };
        let spec = &scaler.spec;
        let now = Timestamp::now();
        let mut telling = Telling::new(&scaler, now);
        match self.scale(&scaler, spec, &key, &mut telling, now).await {
            // Somebody else wrote the target meanwhile: worth another try at once.
            Err(Error::Api(error)) if is_conflict(&error) => return Err(error.into()),
            Err(error) => tracing::debug!(autoscaler = %key, %error, "not scaled"),
            Ok(()) => {}
        }
        self.write(&scaler, telling).await?;
        Ok(Next::After(PERIOD))
    }

    async fn scale(
        &self,
        scaler: &HorizontalPodAutoscaler,
        spec: &HorizontalPodAutoscalerSpec,
        key: &ObjectKey,
        telling: &mut Telling,
        now: Timestamp,
    ) -> Result<()> {
        let target = &spec.scale_target_ref;
        let got = self.target(key, spec).await;
        let (api, mut scale) = got.inspect_err(|error| {
            let why = describe(error);
            self.recorder
                .event(scaler, EventKind::Warning, "FailedGetScale", why.clone());
            let message = format!("the HPA controller was unable to get the target's current scale: {why}");
            telling.condition(tell::ABLE, false, "FailedGetScale", message);
        })?;
        let message = "the HPA controller was able to get the target's current scale";
        telling.condition(tell::ABLE, true, "SucceededGetScale", message);
        let current = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        let selector = scale.status.as_ref().and_then(|status| status.selector.clone());
        telling.current = current;
        let decision = self.decide(scaler, spec, key, current, selector, telling, now).await?;
        telling.desired = Some(current);
        if !decision.rescales || decision.replicas == current {
            return Ok(());
        }
        scale.spec.get_or_insert_default().replicas = Some(decision.replicas);
        if let Err(error) = api.replace_scale(&target.name, &PostParams::default(), &scale).await {
            if is_conflict(&error) {
                return Err(error.into());
            }
            let why = crate::describe(&error);
            let event = format!(
                "New size: {}; reason: {}; error: {why}",
                decision.replicas, decision.reason
            );
            self.recorder.event(scaler, EventKind::Warning, "FailedRescale", event);
            let message = format!("the HPA controller was unable to update the target scale: {why}");
            telling.condition(tell::ABLE, false, "FailedUpdateScale", message);
            return Err(error.into());
        }
        let size = decision.replicas;
        let message = format!("the HPA controller was able to update the target scale to {size}");
        telling.condition(tell::ABLE, true, "SucceededRescale", message);
        let event = format!("New size: {size}; reason: {}", decision.reason);
        self.recorder
            .event(scaler, EventKind::Normal, "SuccessfulRescale", event);
        self.histories
            .lock()
            .entry(key.clone())
            .or_default()
            .scaled(now, size - current);
        telling.desired = Some(size);
        telling.rescaled = true;
        Ok(())
    }

    /// The scale of what is to be scaled.
    async fn target(
        &self,
        key: &ObjectKey,
        spec: &HorizontalPodAutoscalerSpec,
    ) -> Result<(Api<DynamicObject>, minato_api::k8s::autoscaling::v1::Scale)> {
        let target = &spec.scale_target_ref;
        let version = target.api_version.as_deref().unwrap_or("v1");
        let found = scale::find(self.cx.client(), version, &target.kind).await?;
        let none = || Error::Invalid(format!("no matches for kind {:?} in version {version:?}", target.kind));
        let resource = found.ok_or_else(none)?.with_scale()?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.cx.client().clone(), &key.namespace, &resource);
        let scale = api.get_scale(&target.name).await?;
        Ok((api, scale))
    }

    async fn decide(
        &self,
        scaler: &HorizontalPodAutoscaler,
        spec: &HorizontalPodAutoscalerSpec,
        key: &ObjectKey,
        current: i32,
        selector: Option<String>,
        telling: &mut Telling,
        now: Timestamp,
    ) -> Result<Decision> {
        let (least, most) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
        let to = |replicas: i32, reason: &str| Decision {
            replicas,
            reason: reason.to_owned(),
            rescales: true,
        };
        self.histories
            .lock()
            .entry(key.clone())
            .or_default()
            .begin(now, current);
        if current == 0 && least != 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            telling.condition(tell::ACTIVE, false, "ScalingDisabled", message);
            return Ok(Decision {
                rescales: false,
                ..to(0, "")
            });
        }
        if current > most {
            return Ok(to(most, "Current number of replicas above Spec.MaxReplicas"));
        }
        if current < least {
            return Ok(to(least, "Current number of replicas below Spec.MinReplicas"));
        }
        let selector = self.selector(scaler, selector, telling)?;
        let mut pods = self.pods.list_in(&key.namespace);
        pods.retain(|pod| selector.matches_map(pod.metadata.labels.as_ref().unwrap_or(&Default::default())));
        let wanted = match self
            .measure(scaler, spec, key, current, &selector, &pods, telling, now)
            .await
        {
            Ok(wanted) => wanted,
            Err(why) => {
                let reason = "FailedComputeMetricsReplicas";
                self.recorder.event(scaler, EventKind::Warning, reason, why.clone());
                return Err(Error::Invalid(why));
            }
        };
        let reason = match wanted.replicas {
            more if more > current => format!("{} above target", wanted.metric),
            _ => "All metrics below target".to_owned(),
        };
        let goal = Goal {
            current,
            desired: wanted.replicas,
            least,
            most,
        };
        let paced = {
            let mut histories = self.histories.lock();
            let history = histories.entry(key.clone()).or_default();
            pace::pace(&goal, spec.behavior.as_ref(), history, now)
        };
        let (reason_of, message) = paced.stabilized;
        telling.condition(tell::ABLE, true, reason_of, message);
        let (limited, reason_of, message) = paced.limited;
        telling.condition(tell::LIMITED, limited, reason_of, message);
        Ok(to(paced.replicas, &reason))
    }

    fn selector(
        &self,
        scaler: &HorizontalPodAutoscaler,
        text: Option<String>,
        telling: &mut Telling,
    ) -> Result<LabelSelector> {
        let text = text.filter(|text| !text.is_empty());
        let parsed = text.as_deref().map(LabelSelector::parse);
        if let Some(Ok(selector)) = parsed {
            return Ok(selector);
        }
        let message = "the HPA target's scale is missing a selector";
        self.recorder
            .event(scaler, EventKind::Warning, "SelectorRequired", "selector is required");
        telling.condition(tell::ACTIVE, false, "InvalidSelector", message);
        Err(Error::Invalid(message.to_owned()))
    }

    async fn write(&self, scaler: &HorizontalPodAutoscaler, telling: Telling) -> Result<()> {
        let Some(status) = telling.status(scaler) else {
            return Ok(());
        };
        let api = ops::namespaced::<HorizontalPodAutoscaler>(self.cx.client(), ops::namespace(&scaler.metadata));
        let updated = HorizontalPodAutoscaler {
            status: Some(status),
            ..scaler.clone()
        };
        let (name, params) = (ops::name(&scaler.metadata), PostParams::default());
        match api.replace_status(name, &params, &updated).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn describe(error: &Error) -> String {
    match error {
        Error::Api(error) => crate::describe(error),
        other => other.to_string(),
    }
}
