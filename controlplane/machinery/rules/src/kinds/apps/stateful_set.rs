//! Stateful sets.

use jiff::Timestamp;
use minato_meta::FieldErrors;
use serde_json::{Value, json};

use crate::check::{Path, Report as _, SPEC, number_or_percent, same};
use crate::kinds::{core, workload};
use crate::pod;
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, CONTAINERS, Col, IMAGES, NAME};
use crate::tree::{Tree as _, drop_member, each, ensure, fill, fill_zero, sub_mut};

/// Old revisions that are kept to go back to.
const HISTORY: i64 = 10;
/// What may change; the rest is what the identities of the pods rest on.
const MUTABLE: [&str; 7] = [
    "minReadySeconds",
    "ordinals",
    "persistentVolumeClaimRetentionPolicy",
    "replicas",
    "revisionHistoryLimit",
    "template",
    "updateStrategy",
];
const FROZEN: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                      'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                      'minReadySeconds' are forbidden";

/// Pods with names and storage of their own.
#[derive(Default)]
pub(in crate::kinds) struct StatefulSet;

impl Strategy for StatefulSet {
    fn default(&self, object: &mut Value) {
        let Some(spec) = sub_mut(object, "spec") else { return };
        workload::default_template(spec);
        fill_zero(spec, "podManagementPolicy", "OrderedReady");
        if let Some(strategy) = ensure(spec, "updateStrategy") {
            fill_zero(strategy, "type", "RollingUpdate");
            if strategy.text("type") == "RollingUpdate"
                && let Some(rolling) = ensure(strategy, "rollingUpdate")
            {
                fill(rolling, "partition", 0);
            }
        }
        if let Some(policy) = ensure(spec, "persistentVolumeClaimRetentionPolicy") {
            fill_zero(policy, "whenDeleted", "Retain");
            fill_zero(policy, "whenScaled", "Retain");
        }
        workload::default_replicas(spec);
        fill(spec, "revisionHistoryLimit", HISTORY);
        for claim in each(spec, "volumeClaimTemplates") {
            fill_zero(claim, "apiVersion", "v1");
            fill_zero(claim, "kind", "PersistentVolumeClaim");
            if let Some(spec) = sub_mut(claim, "spec") {
                pod::volume_claim_spec(spec);
            }
            if let Some(status) = ensure(claim, "status") {
                fill_zero(status, "phase", "Pending");
            }
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let (at, spec) = (&SPEC, object.sub("spec"));
        errors.one_of_required(
            &at.field("podManagementPolicy"),
            spec.text("podManagementPolicy"),
            &["OrderedReady", "Parallel"],
        );
        strategy(&mut errors, &at.field("updateStrategy"), spec.sub("updateStrategy"));
        let policy_at = at.field("persistentVolumeClaimRetentionPolicy");
        for field in ["whenDeleted", "whenScaled"] {
            let word = spec.sub("persistentVolumeClaimRetentionPolicy").text(field);
            if spec.has("persistentVolumeClaimRetentionPolicy") {
                errors.one_of(&policy_at.field(field), word, &["Retain", "Delete"]);
            }
        }
        for field in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
            errors.not_negative(&at.field(field), spec.int(field));
        }
        errors.not_negative(&at.field("ordinals").field("start"), spec.sub("ordinals").int("start"));
        workload::needed_selector(&mut errors, at, spec, "statefulset");
        workload::lasting_template(&mut errors, at, spec, "StatefulSet");
        let service = spec.text("serviceName");
        if !service.is_empty() {
            errors.named(&at.field("serviceName"), service, minato_meta::names::dns1123_subdomain);
        }
        let list = at.field("volumeClaimTemplates");
        for (index, claim) in spec.list("volumeClaimTemplates").iter().enumerate() {
            core::claim_spec(&mut errors, &list.index(index).field("spec"), claim.sub("spec"));
        }
        without_claimed_mounts(&mut errors, spec);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(object);
        let rest = |object: &Value| {
            let mut filled = object.clone();
            self.default(&mut filled);
            let mut spec = filled.sub("spec").clone();
            for field in MUTABLE {
                drop_member(&mut spec, field);
            }
            spec
        };
        if !same(&rest(object), &rest(old)) {
            errors.forbidden(&SPEC, FROZEN);
        }
        errors
    }

    fn validate_status_update(&self, object: &Value, _: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        let parts = [
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ];
        workload::counts(
            &mut errors,
            object,
            &["replicas", "observedGeneration", "collisionCount"],
        );
        workload::counts(&mut errors, object, &parts);
        workload::parts(&mut errors, object, &parts, "replicas");
        workload::parts(&mut errors, object, &["availableReplicas"], "readyReplicas");
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        workload::template_warnings(object, old, "spec.template")
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Ready", "Pods that are ready, of those that there should be."),
            AGE,
            CONTAINERS,
            IMAGES,
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (spec, status) = (object.sub("spec"), object.sub("status"));
        let [names, images] = show::containers_and_images(spec.at("template.spec"));
        vec![
            show::name(object),
            json!(format!("{}/{}", status.count("readyReplicas"), spec.count("replicas"))),
            show::age(object, now),
            names,
            images,
        ]
    }
}

fn strategy(errors: &mut FieldErrors, at: &Path<'_>, strategy: &Value) {
    match strategy.text("type") {
        "" => errors.required(at, ""),
        "OnDelete" => {
            if strategy.has("rollingUpdate") {
                errors.invalid(
                    &at.field("rollingUpdate"),
                    strategy.sub("rollingUpdate").clone(),
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
            }
        }
        "RollingUpdate" => {
            let (at, rolling) = (at.field("rollingUpdate"), strategy.sub("rollingUpdate"));
            errors.not_negative(&at.field("partition"), rolling.int("partition"));
            number_or_percent(errors, &at.field("maxUnavailable"), rolling.sub("maxUnavailable"));
        }
        other => errors.invalid(at, other, "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

/// Mounts may name volumes that only the claims of each pod will bring.
fn without_claimed_mounts(errors: &mut FieldErrors, spec: &Value) {
    let claimed: Vec<&str> = spec
        .list("volumeClaimTemplates")
        .iter()
        .map(|c| c.sub("metadata").text("name"))
        .collect();
    errors.0.retain(|e| {
        let about_a_mount =
            e.class == minato_meta::FieldErrorClass::NotFound && e.field.starts_with("spec.template.spec.");
        !(about_a_mount && claimed.contains(&e.value.as_text()))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> Value {
        let mut object = json!({"metadata": {"name": "s"}, "spec": {
            "serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
                {"name": "c", "image": "i:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}],
        }});
        StatefulSet.default(&mut object);
        object
    }

    #[test]
    fn defaults_and_claims() {
        let object = set();
        let spec = &object["spec"];
        assert_eq!(spec["podManagementPolicy"], "OrderedReady");
        assert_eq!(
            spec["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
        );
        assert_eq!(
            spec["persistentVolumeClaimRetentionPolicy"],
            json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
        );
        assert_eq!(spec["volumeClaimTemplates"][0]["status"], json!({"phase": "Pending"}));
        let errors = StatefulSet.validate(&object);
        assert!(errors.is_empty(), "{:?}", errors.0);
    }

    #[test]
    fn identities_stay() {
        let (mut object, old) = (set(), set());
        object["spec"]["replicas"] = json!(3);
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("i:2");
        assert!(StatefulSet.validate_update(&object, &old).is_empty());
        object["spec"]["serviceName"] = json!("t");
        assert_eq!(
            StatefulSet.validate_update(&object, &old).0[0].to_string(),
            format!("spec: Forbidden: {FROZEN}")
        );
    }
}
