//! Values of a pod's own fields and resources, for environment variables and files (the downward API). Pure.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/pods/downward-api/>.

use std::collections::BTreeMap;

use minato_api::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use minato_api::k8s::core::v1::{Pod, ResourceFieldSelector};

use crate::node::Capacity;
use crate::pods::{container, spec};
use crate::resources::milli;

/// What is known of the pod only here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    pub(crate) node_name: String,
    pub(crate) host_ips: Vec<String>,
    pub(crate) pod_ips: Vec<String>,
}

/// `key="value"` lines with Go's escapes, in order of keys.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let line = |(key, value): (&String, &String)| format!("{key}={}", quoted(value));
    let lines: Vec<String> = map.into_iter().flatten().map(line).collect();
    lines.join("\n")
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A field by its path; an error text for a path that is not supported.
pub(crate) fn field(pod: &Pod, place: &Place, path: &str) -> Result<String, String> {
    let meta = &pod.metadata;
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => &meta.labels,
            "metadata.annotations" => &meta.annotations,
            _ => return Err(format!("fieldPath \"{path}\" does not support subscript")),
        };
        return Ok(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let first = |list: &[String]| list.first().cloned().unwrap_or_default();
    Ok(match path {
        "metadata.name" => text(&meta.name),
        "metadata.namespace" => text(&meta.namespace),
        "metadata.uid" => text(&meta.uid),
        "metadata.labels" => lines(meta.labels.as_ref()),
        "metadata.annotations" => lines(meta.annotations.as_ref()),
        "spec.nodeName" => place.node_name.clone(),
        "spec.serviceAccountName" => text(&spec(pod).service_account_name),
        "status.hostIP" => first(&place.host_ips),
        "status.hostIPs" => place.host_ips.join(","),
        "status.podIP" => first(&place.pod_ips),
        "status.podIPs" => place.pod_ips.join(","),
        other => return Err(format!("unsupported fieldPath: {other}")),
    })
}

fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

/// A container's request or limit; where it has no limit, what the node has.
pub(crate) fn resource(
    pod: &Pod,
    selector: &ResourceFieldSelector,
    own: &str,
    capacity: &Capacity,
) -> Result<String, String> {
    let name = selector
        .container_name
        .as_deref()
        .filter(|name| !name.is_empty())
        .unwrap_or(own);
    let (container, _) = container(pod, name).ok_or_else(|| format!("container {name} not found"))?;
    let (kind, resource) = selector
        .resource
        .split_once('.')
        .ok_or_else(|| format!("unsupported container resource : {}", selector.resource))?;
    let resources = container.resources.as_ref();
    let limit = || resources.and_then(|r| r.limits.as_ref()).and_then(|l| l.get(resource));
    let request = || {
        resources
            .and_then(|r| r.requests.as_ref())
            .and_then(|l| l.get(resource))
    };
    let of_node = match resource {
        "cpu" => capacity.milli_cpu,
        "memory" => capacity.memory.saturating_mul(1000),
        "ephemeral-storage" => capacity.storage.saturating_mul(1000),
        other if other.starts_with("hugepages-") => 0,
        _ => return Err(format!("unsupported container resource : {}", selector.resource)),
    };
    let amount = match kind {
        "limits" => limit().map_or(of_node, milli),
        "requests" => request().or_else(limit).map_or(0, milli),
        _ => return Err(format!("unsupported container resource : {}", selector.resource)),
    };
    let one = ApiQuantity("1".to_owned());
    let divisor = milli(selector.divisor.as_ref().filter(|d| milli(d) > 0).unwrap_or(&one)).max(1);
    // Rounded up, as upstream does.
    Ok((amount / divisor + i64::from(amount % divisor != 0)).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"b": "two \"2\"", "a": "1"}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "10Mi"}}}]},
        }))
        .unwrap()
    }

    #[test]
    fn fields_are_found() {
        let place = Place {
            pod_ips: vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()],
            ..Place::default()
        };
        let get = |path| field(&sample(), &place, path);
        assert_eq!(get("metadata.name").unwrap(), "p");
        assert_eq!(get("metadata.labels").unwrap(), "a=\"1\"\nb=\"two \\\"2\\\"\"");
        assert_eq!(get("metadata.labels['a']").unwrap(), "1");
        assert_eq!(get("metadata.annotations['none']").unwrap(), "");
        assert_eq!(get("status.podIPs").unwrap(), "10.0.0.1,fd00::1");
        assert!(get("spec.containers").is_err());
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let capacity = Capacity {
            milli_cpu: 4000,
            memory: 1 << 30,
            storage: 1000,
            pods: 1,
        };
        let get = |resource: &str, divisor: &str| {
            let selector = ResourceFieldSelector {
                container_name: None,
                divisor: (!divisor.is_empty()).then(|| ApiQuantity(divisor.to_owned())),
                resource: resource.to_owned(),
            };
            super::resource(&sample(), &selector, "c", &capacity)
        };
        assert_eq!(get("limits.cpu", "").unwrap(), "2");
        assert_eq!(get("limits.cpu", "1m").unwrap(), "1500");
        assert_eq!(get("requests.memory", "1Mi").unwrap(), "10");
        assert_eq!(get("limits.ephemeral-storage", "").unwrap(), "1000");
        assert!(get("cpu", "").is_err());
    }
}
