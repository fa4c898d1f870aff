//! `minato_node_pool`.

use std::time::Duration;

use async_trait::async_trait;
use minato_api::fleet::{MachinePhase, NodePool, NodePoolSpec};
use minato_api::k8s::core::v1::Taint;
use minato_api::meta_v1::ObjectMeta;
use minato_meta::names;
use minato_terraform_protocol::{
    Attribute, Diagnostic, Diagnostics, Object, OnUpdate, Path, Schema, Step, Type, Value,
};

use crate::checks;
use crate::connection::Session;
use crate::errors::Fields;
use crate::managed::Kind;
use crate::wait::{Progress, of_pool};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(crate) struct NodePools;

#[async_trait]
impl Kind for NodePools {
    type Object = NodePool;
    const NOUN: &'static str = "node pool";
    const FIELDS: Fields = &[
        ("metadata.name", "name"),
        ("metadata.namespace", "namespace"),
        ("spec.clusterName", "cluster"),
        ("spec.replicas", "replicas"),
        ("spec.instanceType", "instance_type"),
        ("spec.zone", "zone"),
        ("spec.image", "image"),
        ("spec.labels", "labels"),
        ("spec.taints", "taints"),
    ];
    const GIVEN: &'static [&'static str] = &["name", "cluster", "replicas", "zone", "image", "labels", "taints"];
    const PATIENCE: Duration = Duration::from_secs(20 * 60);

    fn schema() -> Schema {
        let text = || Type::String;
        let taint = vec![
            Attribute::required("key", text(), "Key."),
            Attribute::optional("value", text(), "Value."),
            Attribute::required("effect", text(), "NoSchedule, PreferNoSchedule or NoExecute."),
        ];
        let attributes = vec![
            Attribute::computed("id", text(), "Namespace and name, as namespace/name."),
            Attribute::computed("uid", text(), "Id that no other pool ever has."),
            Attribute::required("name", text(), "Name of the pool.").replaces(),
            Attribute::either("namespace", text(), "Namespace of the pool, which is its cluster's.").replaces(),
            Attribute::required("cluster", text(), "Name of the cluster that the nodes belong to.").replaces(),
            Attribute::required("replicas", Type::Number, "Number of nodes."),
            Attribute::either("instance_type", text(), "Instance type or flavor; for new machines."),
            Attribute::optional("zone", text(), "Zone; any if not set. For new machines."),
            Attribute::optional(
                "image",
                text(),
                "Image; the provider's default if not set. For new machines.",
            ),
            Attribute::default(
                "labels",
                Type::map(text()),
                Value::empty_map(),
                "Labels of the nodes; changes reach nodes that exist.",
            ),
            Attribute::list("taints", taint, "Taints that new nodes register with."),
            checks::timeouts(),
            Attribute::computed("ready", Type::Bool, "Whether all nodes are ready.")
                .on_update(OnUpdate::Becomes(true.into())),
            Attribute::computed("ready_replicas", Type::Number, "Number of nodes that are ready.")
                .on_update(OnUpdate::Unknown),
            Attribute::computed("nodes", Type::list(text()), "Names of the nodes.").on_update(OnUpdate::Unknown),
        ];
        Schema::new("A group of alike worker nodes of one cluster.", attributes)
    }

    fn validate(config: &Object, diagnostics: &mut Diagnostics) {
        checks::text(config, "cluster", diagnostics, names::dns1123_label);
        let replicas = config.get("replicas");
        let is_count = |value: &Value| {
            value
                .as_i64()
                .is_some_and(|count| i32::try_from(count).is_ok_and(|c| c >= 0))
        };
        if !(replicas.is_null() || replicas.is_unknown() || is_count(replicas)) {
            let text = "The number of nodes is a whole number, zero or more.";
            diagnostics.refuse(Path::attribute("replicas"), "Invalid value", text);
        }
        for (index, taint) in config.get("taints").as_list().into_iter().flatten().enumerate() {
            let field = |name: &str| {
                taint
                    .as_map()
                    .and_then(|fields| fields.get(name))
                    .and_then(Value::as_str)
            };
            let at = |name: &str| {
                let path = Path::attribute("taints").then(Step::Index(index));
                path.then(Step::Attribute(name.to_owned()))
            };
            for why in field("key").map(names::qualified_name).unwrap_or_default() {
                diagnostics.refuse(at("key"), "Invalid taint", format!("{why}."));
            }
            for why in field("value").map(names::label_value).unwrap_or_default() {
                diagnostics.refuse(at("value"), "Invalid taint", format!("{why}."));
            }
            if let Some(effect) = field("effect")
                && !EFFECTS.contains(&effect)
            {
                let text = format!("{effect:?} is none of {}.", EFFECTS.join(", "));
                diagnostics.refuse(at("effect"), "Invalid taint", text);
            }
        }
    }

    fn wanted(planned: &Object) -> NodePool {
        let text = |name: &str| planned.str(name).unwrap_or_default().to_owned();
        let labels = planned.get("labels").as_map().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let taints = planned.get("taints").as_list().unwrap_or_default();
        let replicas = planned.get("replicas").as_i64().unwrap_or_default();
        let spec = NodePoolSpec {
            cluster_name: text("cluster"),
            // Validated to fit.
            replicas: i32::try_from(replicas).unwrap_or(i32::MAX),
            instance_type: text("instance_type"),
            zone: text("zone"),
            image: text("image"),
            labels: labels.collect(),
            taints: taints.iter().filter_map(taint).collect(),
        };
        NodePool::new(ObjectMeta::default(), spec)
    }

    async fn observed(_: &Session, pool: &NodePool) -> Result<Object, Diagnostics> {
        let (spec, status) = (&pool.spec, pool.status.clone().unwrap_or_default());
        let labels = spec.labels.iter();
        let labels: Value = labels
            .map(|(key, value)| (key.clone(), value.as_str().into()))
            .collect();
        let taints = spec.taints.iter().map(|taint| {
            Object::from([
                ("key", taint.key.as_str().into()),
                ("value", set(taint.value.as_deref().unwrap_or_default())),
                ("effect", taint.effect.as_str().into()),
            ])
        });
        let nodes = status
            .machines
            .iter()
            .filter(|machine| machine.phase == MachinePhase::Created);
        Ok(Object::from([
            ("cluster", spec.cluster_name.as_str().into()),
            ("replicas", i64::from(spec.replicas).into()),
            ("instance_type", spec.instance_type.as_str().into()),
            ("zone", set(&spec.zone)),
            ("image", set(&spec.image)),
            ("labels", labels),
            ("taints", taints.collect()),
            ("ready", of_pool(pool).ready.into()),
            ("ready_replicas", i64::from(status.ready_replicas).into()),
            ("nodes", nodes.map(|machine| machine.name.as_str()).collect()),
        ]))
    }

    fn progress(pool: &NodePool) -> Progress {
        of_pool(pool)
    }

    fn protected(_: &Object) -> Option<Diagnostic> {
        None
    }
}

/// What the API leaves out when it is empty.
fn set(text: &str) -> Value {
    Some(text).filter(|text| !text.is_empty()).into()
}

fn taint(value: &Value) -> Option<Taint> {
    let fields = value.as_map()?;
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(Taint {
        key: text("key")?,
        value: text("value"),
        effect: text("effect")?,
        time_added: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn taint_of(key: &str, value: Value, effect: &str) -> Value {
        let fields = [("key", key.into()), ("value", value), ("effect", effect.into())];
        Object::from(fields).into()
    }

    #[test]
    fn what_is_asked_for_is_written() {
        let planned = Object::from([
            ("cluster", "c".into()),
            ("replicas", 3.into()),
            ("instance_type", Value::Unknown),
            ("zone", Value::Null),
            ("taints", Value::List(vec![taint_of("k", Value::Null, "NoSchedule")])),
        ]);
        let written = serde_json::to_value(NodePools::wanted(&planned)).unwrap();
        let spec = json!({
            "clusterName": "c", "replicas": 3, "instanceType": "",
            "taints": [{"key": "k", "effect": "NoSchedule"}],
        });
        assert_eq!(written["spec"], spec);
    }

    #[test]
    fn faults_are_told_with_their_place() {
        let taints = vec![
            taint_of("k", Value::Unknown, "NoSchedule"),
            taint_of("a b", "v".into(), "Sometimes"),
        ];
        let config = Object::from([
            ("cluster", "C".into()),
            ("replicas", Value::float(1.5).unwrap()),
            ("taints", Value::List(taints)),
        ]);
        let mut diagnostics = Diagnostics::default();
        NodePools::validate(&config, &mut diagnostics);
        let paths: Vec<String> = diagnostics.0.iter().map(|one| one.path.to_string()).collect();
        assert_eq!(paths, ["cluster", "replicas", "taints[1].key", "taints[1].effect"]);
        for fine in [Value::from(0), Value::Unknown] {
            let mut diagnostics = Diagnostics::default();
            NodePools::validate(&Object::from([("replicas", fine)]), &mut diagnostics);
            assert!(!diagnostics.has_errors());
        }
    }
}
