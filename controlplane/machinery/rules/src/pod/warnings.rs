//! What works in a pod spec but is probably not meant.

use serde_json::Value;

use crate::check::{Path, quantity};
use crate::tree::Tree as _;

/// Node labels that have other names by now.
const OLD_LABELS: &[(&str, &str)] = &[
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
];

/// Warnings of a pod spec at this path.
pub(crate) fn spec(at: &Path<'_>, spec: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let selector = at.field("nodeSelector");
    for (label, why) in OLD_LABELS {
        if spec.sub("nodeSelector").has(label) {
            warnings.push(format!("{}: {why}", selector.key(label)));
        }
    }
    let list = at.field("volumes");
    for (index, volume) in spec.list("volumes").iter().enumerate() {
        for (kind, why) in [
            ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
            ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
            ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
            ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ] {
            if volume.has(kind) {
                warnings.push(format!("{}: {why}", list.index(index).field(kind)));
            }
        }
    }
    let list = at.field("imagePullSecrets");
    for (index, secret) in spec.list("imagePullSecrets").iter().enumerate() {
        if secret.text("name").is_empty() {
            warnings.push(format!("{}: invalid empty name \"\"", list.index(index).field("name")));
        }
    }
    if spec.count("terminationGracePeriodSeconds") < 0 {
        warnings.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            at.field("terminationGracePeriodSeconds")
        ));
    }
    for field in ["initContainers", "containers"] {
        let list = at.field(field);
        for (index, container) in spec.list(field).iter().enumerate() {
            self::container(&mut warnings, &list.index(index), container);
        }
    }
    warnings
}

fn container(warnings: &mut Vec<String>, at: &Path<'_>, container: &Value) {
    let resources_at = at.field("resources");
    for part in ["limits", "requests"] {
        let list = resources_at.field(part);
        for name in ["memory", "ephemeral-storage"] {
            let amount = quantity(container.sub("resources").sub(part).sub(name));
            if let Some(amount) = amount.filter(|q| !q.is_integer()) {
                warnings.push(format!(
                    "{}: fractional byte value \"{amount}\" is invalid, must be an integer",
                    list.key(name)
                ));
            }
        }
    }
    let (list, variables) = (at.field("env"), container.list("env"));
    for (index, variable) in variables.iter().enumerate() {
        let name = variable.text("name");
        let hidden = variables.iter().take(index).any(|v| v.text("name") == name);
        // A variable that is made of its former self hides nothing.
        if hidden && !variable.text("value").contains(&format!("$({name})")) {
            warnings.push(format!(
                "{}: hides previous definition of \"{name}\", which may be dropped when using apply",
                list.index(index)
            ));
        }
    }
    let (list, ports) = (at.field("ports"), container.list("ports"));
    for (index, port) in ports.iter().enumerate() {
        let same = |other: &Value| {
            ["containerPort", "protocol", "hostPort", "hostIP"]
                .iter()
                .all(|f| other.sub(f) == port.sub(f))
        };
        if let Some(before) = ports.iter().take(index).position(same) {
            warnings.push(format!(
                "{}: duplicate port definition with {}",
                list.index(index),
                list.index(before)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::check::SPEC;

    #[test]
    fn what_is_probably_not_meant() {
        let at = &SPEC;
        let spec = json!({
            "nodeSelector": {"beta.kubernetes.io/os": "linux"},
            "containers": [{
                "resources": {"limits": {"memory": "100m"}},
                "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "A", "value": "$(A):3"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}],
            }],
        });
        assert_eq!(
            super::spec(at, &spec),
            [
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
                "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
                "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
            ]
        );
    }
}
