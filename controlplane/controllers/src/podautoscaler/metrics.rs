//! What pods use, and what each metric of an autoscaler calls for.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::apimachinery::pkg::api::resource::Quantity as Amount;
use minato_api::k8s::autoscaling::v2::{
    ContainerResourceMetricStatus, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, MetricSpec, MetricStatus,
    MetricTarget, MetricValueStatus, ResourceMetricStatus,
};
use minato_api::k8s::core::v1::Pod;
use minato_api::kube::Api;
use minato_api::kube::api::{ApiResource, DynamicObject, ListParams};
use minato_meta::{LabelSelector, Quantity, QuantityFormat};
use minato_runtime::{EventKind, ObjectKey};
use serde_json::Value;

use super::need::{self, Measured, Sample, Samples, Target, Tolerance};
use super::tell::{self, Telling};
use super::{Autoscalers, describe};

/// The most that any metric calls for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    pub(super) replicas: i32,
    pub(super) metric: String,
}

/// Why a metric tells nothing: the condition's reason, and the words.
type Failure = (&'static str, String);

/// One metric that can be measured.
struct Question<'a> {
    resource: &'a str,
    container: Option<&'a str>,
    target: &'a MetricTarget,
    reason: &'static str,
}

impl Question<'_> {
    fn failed(&self, why: &str) -> String {
        let what = match self.container.is_none() && self.target.average_utilization.is_some() {
            true => "utilization",
            false => "usage",
        };
        format!("failed to get {} {what}: {why}", self.resource)
    }
}

impl Autoscalers {
    /// # Errors
    /// The first metric's failure, when all failed, or when some did and the others call for fewer replicas: those that
    /// are silent might call for more.
    #[expect(
        clippy::too_many_arguments,
        reason = "one look at one autoscaler, split for length alone"
    )]
    pub(super) async fn measure(
        &self,
        scaler: &HorizontalPodAutoscaler,
        spec: &HorizontalPodAutoscalerSpec,
        key: &ObjectKey,
        current: i32,
        selector: &LabelSelector,
        pods: &[Arc<Pod>],
        telling: &mut Telling,
        now: Timestamp,
    ) -> Result<Wanted, String> {
        let metrics = spec.metrics.as_deref().unwrap_or_default();
        let tolerance = Tolerance::of(spec);
        let (mut wanted, mut failures): (Option<Wanted>, Vec<Failure>) = (None, Vec::new());
        for metric in metrics {
            let answer = match question(metric) {
                Err(failure) => Err(failure),
                Ok(question) => {
                    let samples = self.samples(key, selector, &question).await;
                    samples.and_then(|samples| ask(&question, pods, &samples, current, tolerance, now))
                }
            };
            match answer {
                Ok((status, proposal)) => {
                    telling.metrics.push(status);
                    if wanted.as_ref().is_none_or(|most| proposal.replicas > most.replicas) {
                        wanted = Some(proposal);
                    }
                }
                Err((reason, why)) => {
                    self.recorder.event(scaler, EventKind::Warning, reason, why.clone());
                    failures.push((reason, why));
                }
            }
        }
        let doubtful = wanted.as_ref().is_none_or(|wanted| wanted.replicas < current);
        match (wanted, failures.first()) {
            (Some(wanted), first) if first.is_none() || !doubtful => {
                let message = format!(
                    "the HPA was able to successfully calculate a replica count from {}",
                    wanted.metric
                );
                telling.condition(tell::ACTIVE, true, "ValidMetricFound", message);
                Ok(wanted)
            }
            (_, Some((reason, why))) => {
                let message = format!("the HPA was unable to compute the replica count: {why}");
                telling.condition(tell::ACTIVE, false, reason, message);
                Err(format!(
                    "invalid metrics ({} invalid out of {}), first error is: {why}",
                    failures.len(),
                    metrics.len()
                ))
            }
            (_, None) => Err("there are no metrics".to_owned()),
        }
    }

    /// What the pods use of a resource now.
    async fn samples(
        &self,
        key: &ObjectKey,
        selector: &LabelSelector,
        question: &Question<'_>,
    ) -> Result<Samples, Failure> {
        let resource = ApiResource {
            group: "metrics.k8s.io".to_owned(),
            version: "v1beta1".to_owned(),
            api_version: "metrics.k8s.io/v1beta1".to_owned(),
            kind: "PodMetrics".to_owned(),
            plural: "pods".to_owned(),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(self.cx.client().clone(), &key.namespace, &resource);
        let listed = api.list(&ListParams::default().labels(&selector.to_string())).await;
        let failed = |why: String| {
            let resource = question.resource;
            (
                question.reason,
                question.failed(&format!("unable to get metrics for resource {resource}: {why}")),
            )
        };
        let listed = listed.map_err(|error| {
            let why = describe(&error.into());
            failed(format!("unable to fetch metrics from resource metrics API: {why}"))
        })?;
        if listed.items.is_empty() {
            return Err(failed("no metrics returned from resource metrics API".to_owned()));
        }
        let samples = listed.items.iter().filter_map(|item| {
            let name = item.metadata.name.clone()?;
            Some((name, sample(&item.data, question)?))
        });
        Ok(samples.collect())
    }
}

/// Use of one pod: of one container, or of all, none of which may be silent.
fn sample(data: &Value, question: &Question<'_>) -> Option<Sample> {
    let containers = data.get("containers")?.as_array()?;
    let meant = containers
        .iter()
        .filter(|container| question.container.is_none_or(|name| container["name"] == name));
    let mut total = None;
    for container in meant {
        let usage = container["usage"].get(question.resource)?.as_str()?;
        let usage: Quantity = usage.parse().ok()?;
        total = Some(usage.milli().saturating_add(total.unwrap_or(0)));
    }
    let at = data.get("timestamp")?.as_str()?.parse().ok()?;
    let window = data.get("window").and_then(Value::as_str).and_then(seconds);
    Some(Sample {
        milli: total?,
        at,
        window: window.unwrap_or(Duration::from_secs(60)),
    })
}

/// Durations such as `30s`, `1m0s` or `20.5s`.
fn seconds(text: &str) -> Option<Duration> {
    let (mut total, mut number) = (0.0, String::new());
    for letter in text.chars() {
        if letter.is_ascii_digit() || letter == '.' {
            number.push(letter);
            continue;
        }
        let unit = match letter {
            'h' => 3600.0,
            'm' => 60.0,
            's' => 1.0,
            _ => return None,
        };
        total += std::mem::take(&mut number).parse::<f64>().ok()? * unit;
    }
    Duration::try_from_secs_f64(total).ok().filter(|_| number.is_empty())
}

fn question(metric: &MetricSpec) -> Result<Question<'_>, Failure> {
    match (&metric.resource, &metric.container_resource) {
        (Some(source), _) => Ok(Question {
            resource: &source.name,
            container: None,
            target: &source.target,
            reason: "FailedGetResourceMetric",
        }),
        (None, Some(source)) => Ok(Question {
            resource: &source.name,
            container: Some(&source.container),
            target: &source.target,
            reason: "FailedGetContainerResourceMetric",
        }),
        (None, None) => {
            let (reason, api) = match metric.type_.as_str() {
                "Object" => ("FailedGetObjectMetric", "custom"),
                "Pods" => ("FailedGetPodsMetric", "custom"),
                "External" => ("FailedGetExternalMetric", "external"),
                other => {
                    return Err((
                        "InvalidMetricSourceType",
                        format!("unknown metric source type {other:?}"),
                    ));
                }
            };
            Err((reason, format!("the {api} metrics API is not supported")))
        }
    }
}

fn ask(
    question: &Question<'_>,
    pods: &[Arc<Pod>],
    samples: &Samples,
    current: i32,
    tolerance: Tolerance,
    now: Timestamp,
) -> Result<(MetricStatus, Wanted), Failure> {
    let failed = |why: String| (question.reason, why);
    let target = match (&question.target.average_value, question.target.average_utilization) {
        (Some(Amount(text)), _) => {
            let amount: Result<Quantity, _> = text.parse();
            Target::Average(amount.map_err(|error| failed(error.to_string()))?.milli())
        }
        (None, Some(percent)) => Target::Utilization(i64::from(percent)),
        (None, None) => {
            let why = "invalid resource metric source: neither an average utilization target nor an average value \
                       (usage) target was set";
            return Err(failed(why.to_owned()));
        }
    };
    let need = need::Need {
        pods,
        samples,
        resource: question.resource,
        container: question.container,
        current,
        target,
        tolerance,
        now,
    };
    let measured = need.replicas().map_err(|why| failed(question.failed(&why)))?;
    let what = match question.container {
        Some(_) => format!("{} container resource", question.resource),
        None => format!("{} resource", question.resource),
    };
    let metric = match target {
        Target::Utilization(_) => format!("{what} utilization (percentage of request)"),
        Target::Average(_) => what,
    };
    let wanted = Wanted {
        replicas: measured.replicas,
        metric,
    };
    Ok((status(question, &measured), wanted))
}

fn status(question: &Question<'_>, measured: &Measured) -> MetricStatus {
    let average = Quantity::from_milli(measured.average_milli, QuantityFormat::DecimalSi);
    let current = MetricValueStatus {
        average_utilization: measured.utilization,
        average_value: Some(Amount(average.to_string())),
        value: None,
    };
    let name = question.resource.to_owned();
    match question.container {
        None => MetricStatus {
            type_: "Resource".to_owned(),
            resource: Some(ResourceMetricStatus { name, current }),
            ..MetricStatus::default()
        },
        Some(container) => MetricStatus {
            type_: "ContainerResource".to_owned(),
            container_resource: Some(ContainerResourceMetricStatus {
                container: container.to_owned(),
                name,
                current,
            }),
            ..MetricStatus::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_uses_what_its_containers_use() {
        let target = MetricTarget::default();
        let of = |container| {
            let question = Question {
                resource: "cpu",
                container,
                target: &target,
                reason: "",
            };
            let data = json!({"timestamp": "2026-01-01T00:00:00Z", "window": "1m30s", "containers": [
                {"name": "a", "usage": {"cpu": "100m"}}, {"name": "b", "usage": {"cpu": "2500000n"}}]});
            sample(&data, &question).map(|sample| (sample.milli, sample.window.as_secs()))
        };
        assert_eq!(of(None), Some((103, 90)));
        assert_eq!(of(Some("a")), Some((100, 90)));
        assert_eq!(of(Some("c")), None);
    }

    #[test]
    fn failures_say_what_was_asked_for() {
        let metric = serde_json::from_value(json!({"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}));
        let metric: MetricSpec = metric.unwrap();
        let tolerance = Tolerance { up: 0.1, down: 0.1 };
        let asked = question(&metric).unwrap();
        let answer = ask(&asked, &[], &Samples::new(), 1, tolerance, Timestamp::UNIX_EPOCH);
        let why = "failed to get cpu utilization: no pods returned by selector while calculating replica count";
        assert_eq!(answer.unwrap_err(), ("FailedGetResourceMetric", why.to_owned()));
        let pods: MetricSpec = serde_json::from_value(json!({"type": "Pods"})).unwrap();
        assert_eq!(question(&pods).err().unwrap().0, "FailedGetPodsMetric");
    }

    #[test]
    fn durations_are_read_as_they_are_printed() {
        assert_eq!(seconds("1h2m3s"), Some(Duration::from_secs(3723)));
        assert_eq!(seconds("20.5s"), Some(Duration::from_millis(20_500)));
        assert_eq!((seconds("20"), seconds("x")), (None, None));
    }
}
