use minato_auth::UserInfo;
use minato_meta::{GroupVersionKind, GroupVersionResource, MemoryReader};
use serde_json::json;

use super::*;

fn restricted(version: policy::Version) -> LevelVersion {
    LevelVersion {
        level: Level::Restricted,
        version,
    }
}

fn found(level: LevelVersion, spec: Value) -> String {
    evaluate(level, &Subject::new(&json!({"spec": spec}))).details()
}

#[test]
fn a_plain_pod_lacks_four_things() {
    let plain = json!({"containers": [{"name": "c"}]});
    assert_eq!(
        found(restricted(None), plain.clone()),
        "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
         unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != \
         true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" \
         must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
    );
    // Before 1.8 only what root is was looked at.
    assert!(found(restricted(Some(7)), plain.clone()).starts_with("runAsNonRoot"));
    let baseline = LevelVersion {
        level: Level::Baseline,
        version: None,
    };
    assert_eq!(found(baseline, plain), "");
}

#[test]
fn a_good_pod_is_found_good() {
    let good = json!({
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "i", "image": {}}],
        "containers": [{"name": "c", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}}],
    });
    assert_eq!(found(restricted(None), good.clone()), "");
    let mut root = good;
    root["securityContext"] = json!({"seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 0});
    root["hostUsers"] = json!(false);
    assert_eq!(found(restricted(None), root.clone()), "");
    assert!(found(restricted(Some(34)), root).contains("runAsUser=0 (pod must not set runAsUser=0)"));
}

#[test]
fn baseline_in_the_words_that_users_know() {
    let level = LevelVersion {
        level: Level::Baseline,
        version: None,
    };
    let spec = json!({
        "hostNetwork": true, "hostPID": true,
        "securityContext": {"sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_rmem"}],
            "seccompProfile": {"type": "Unconfined"}, "seLinuxOptions": {"type": "spc_t", "user": "u"}},
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "hostPath": {"path": "/"}}],
        "initContainers": [{"name": "i", "ports": [{"hostPort": 80}]}],
        "containers": [
            {"name": "a", "ports": [{"hostPort": 443}], "securityContext": {"privileged": true, "procMount": "Unmasked",
                "capabilities": {"add": ["SYS_ADMIN", "KILL"]}, "appArmorProfile": {"type": "Unconfined"}}},
            {"name": "b", "livenessProbe": {"httpGet": {"host": "h"}}, "lifecycle": {"preStop": {"tcpSocket": {"host": "g"}}}},
        ],
    });
    let parts = [
        "forbidden AppArmor profile (container \"a\" must not set AppArmor profile type to \"Unconfined\")",
        "non-default capabilities (container \"a\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add)",
        "host namespaces (hostNetwork=true, hostPID=true)",
        "hostPath volumes (volumes \"v\", \"w\")",
        "hostPort (containers \"i\", \"a\" use hostPorts 443, 80)",
        "probe or lifecycle host (container \"b\" uses probe or lifecycle hosts \"g\", \"h\")",
        "privileged (container \"a\" must not set securityContext.privileged=true)",
        "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
        "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may not be set)",
        "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
        "forbidden sysctls (kernel.msgmax)",
    ];
    assert_eq!(found(level, spec.clone()), parts.join(", "));
    let mut own_users = spec.clone();
    own_users["hostUsers"] = json!(false);
    assert!(!found(level, own_users).contains("procMount"));
    let old = LevelVersion {
        version: Some(31),
        ..level
    };
    let said = found(old, spec.clone());
    assert!(said.contains("forbidden sysctls (kernel.msgmax, net.ipv4.tcp_rmem)") && !said.contains("probe"));
    let said = found(restricted(None), spec);
    assert!(!said.contains("hostPath volumes ("));
    assert!(
        said.contains("restricted volume types (volumes \"v\", \"w\" use restricted volume type \"hostPath\")"),
        "{said}"
    );
}

fn labelled(labels: Value) -> Value {
    let all = labels.as_object().unwrap().iter();
    let labels: serde_json::Map<String, Value> = all
        .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), value.clone()))
        .collect();
    json!({"metadata": {"name": "d", "labels": labels}})
}

#[test]
fn labels_make_policies() {
    let of = |labels: Value| {
        let (policy, errors) = policy::of(&labelled(labels));
        let shown = [policy.enforce, policy.audit, policy.warn].map(|one| one.to_string());
        (shown, errors.0.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let (shown, errors) = of(json!({"enforce": "baseline", "enforce-version": "v1.30", "audit": "restricted"}));
    assert_eq!(shown, ["baseline:v1.30", "restricted:latest", "baseline:v1.30"]);
    assert!(errors.is_empty());
    let (shown, _) = of(json!({"enforce": "restricted", "warn": "baseline", "warn-version": "v1.5"}));
    assert_eq!(shown, ["restricted:latest", "privileged:latest", "baseline:v1.5"]);
    let (shown, errors) = of(json!({"enforce": "strict", "warn": "x", "audit-version": "1.2"}));
    assert_eq!(shown, ["restricted:latest", "privileged:latest", "privileged:latest"]);
    assert_eq!(
        errors,
        [
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, \
             baseline, restricted",
            "metadata.labels[pod-security.kubernetes.io/audit-version]: Invalid value: \"1.2\": must be \"latest\" or \"v1.x\"",
            "metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \"x\": must be one of privileged, baseline, \
             restricted",
        ]
    );
}

/// The verdict on a write in a namespace with these labels, and the warnings.
async fn admitted(
    labels: Value,
    operation: Operation,
    resource: (&str, &str),
    new: Value,
    old: Value,
) -> (String, Notes) {
    let reader = MemoryReader::new();
    reader.put(&GroupResource::new("", "namespaces"), labelled(labels));
    for (name, owner) in [("p2", "u"), ("p1", "u"), ("q", "v")] {
        let owners = json!([{"uid": owner, "controller": true}]);
        let pod = json!({"metadata": {"name": name, "namespace": "d", "ownerReferences": owners},
            "spec": {"hostPID": name != "q", "containers": [{"name": "c"}]}});
        reader.put(&GroupResource::new("", "pods"), pod);
    }
    let user = UserInfo::default();
    let request = AdmissionRequest {
        operation,
        kind: GroupVersionKind::new(resource.0, "v1", "Namespace"),
        resource: GroupVersionResource::new(resource.0, "v1", resource.1),
        subresource: "",
        namespace: "d",
        name: "d",
        user: &user,
        dry_run: false,
        object: new,
        old_object: &old,
        options: Value::Null,
        warnings: Vec::new(),
        audit_annotations: Vec::new(),
    };
    let plugin = PodSecurity::new(Arc::new(reader));
    assert!(plugin.handles(&request));
    let mut notes = Notes::default();
    let result = plugin.inspect(&request, &mut notes).await;
    (
        result.map_or_else(|e| e.message().to_owned(), |()| String::new()),
        notes,
    )
}

#[tokio::test]
async fn pods_are_refused_and_workloads_warned_about() {
    let bad = json!({"spec": {"hostPID": true, "containers": [{"name": "c", "image": "i"}]}});
    let labels = json!({"enforce": "baseline"});
    let (said, notes) = admitted(
        labels.clone(),
        Operation::Create,
        ("", "pods"),
        bad.clone(),
        Value::Null,
    )
    .await;
    assert_eq!(
        said,
        "pods \"d\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)"
    );
    assert!(notes.warnings.is_empty());
    assert_eq!(notes.audit_annotations[0].1, "baseline:latest");
    let mut labelled = bad.clone();
    labelled["metadata"] = json!({"labels": {"a": "b"}});
    let (said, _) = admitted(labels.clone(), Operation::Update, ("", "pods"), labelled, bad.clone()).await;
    assert_eq!(said, "");
    let workload = json!({"spec": {"template": bad}});
    let (said, notes) = admitted(
        labels,
        Operation::Create,
        ("apps", "deployments"),
        workload,
        Value::Null,
    )
    .await;
    assert_eq!(said, "");
    assert_eq!(
        notes.warnings,
        ["would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)"]
    );
}

#[tokio::test]
async fn a_stricter_namespace_tells_of_its_pods() {
    let change = |new: Value, old: Value| {
        admitted(
            json!({}),
            Operation::Update,
            ("", "namespaces"),
            labelled(new),
            labelled(old),
        )
    };
    let (said, notes) = change(json!({"enforce": "baseline"}), json!({})).await;
    assert_eq!(said, "");
    assert_eq!(
        notes.warnings,
        [
            "existing pods in namespace \"d\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "p1 (and 1 other pod): host namespaces",
        ]
    );
    let (said, notes) = change(json!({"enforce": "baseline"}), json!({"enforce": "restricted"})).await;
    assert!(said.is_empty() && notes.warnings.is_empty());
    let (said, _) = change(json!({"enforce": "x"}), json!({})).await;
    assert_eq!(
        said,
        "Namespace \"d\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"x\": must be one \
         of privileged, baseline, restricted"
    );
    let (said, _) = change(json!({"enforce": "x"}), json!({"enforce": "x"})).await;
    assert_eq!(said, "");
}
