//! Which objects a quota is about.

use minato_meta::GroupResource;
use serde_json::Value;

use super::text;
use crate::quota::pod;

/// Whether the quota's scopes include the object. One without scopes is about all.
pub fn selects(quota: &Value, resource: &GroupResource, object: &Value) -> bool {
    let scopes = quota.pointer("/spec/scopes").and_then(Value::as_array);
    let by_name = scopes.into_iter().flatten().filter_map(Value::as_str);
    let expressions = quota
        .pointer("/spec/scopeSelector/matchExpressions")
        .and_then(Value::as_array);
    let is_pod = resource.group.is_empty() && resource.resource == "pods";
    // Other kinds have no scopes, so a quota with any is not about them.
    let fits = |scope: &str, operator: &str, values: &[Value]| is_pod && matches(object, scope, operator, values);
    let none = Vec::new();
    by_name.into_iter().all(|scope| fits(scope, "Exists", &[]))
        && expressions.into_iter().flatten().all(|expression| {
            let values = expression.get("values").and_then(Value::as_array).unwrap_or(&none);
            fits(text(expression, "/scopeName"), text(expression, "/operator"), values)
        })
}

fn matches(pod: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    let terminating = pod
        .pointer("/spec/activeDeadlineSeconds")
        .and_then(Value::as_i64)
        .is_some_and(|s| s >= 0);
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        "PriorityClass" => {
            let class = text(pod, "/spec/priorityClassName");
            let listed = values.iter().any(|value| value.as_str() == Some(class));
            match operator {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => !class.is_empty(),
                "DoesNotExist" => class.is_empty(),
                _ => false,
            }
        }
        _ => false,
    }
}

/// No container asks for, or is limited in, processor or memory.
fn is_best_effort(object: &Value) -> bool {
    let usage = pod::usage(object);
    let names = ["requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
    names
        .iter()
        .all(|name| usage.get(*name).is_none_or(|amount| amount.signum() == 0))
}

fn crosses_namespaces(pod: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let list = |name: &str| {
            let terms = pod
                .pointer(&format!("/spec/affinity/{kind}/{name}"))
                .and_then(Value::as_array);
            terms.into_iter().flatten()
        };
        let required = list("requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = list("preferredDuringSchedulingIgnoredDuringExecution");
        required
            .chain(preferred.filter_map(|weighted| weighted.get("podAffinityTerm")))
            .any(|term| {
                let named = term
                    .get("namespaces")
                    .and_then(Value::as_array)
                    .is_some_and(|names| !names.is_empty());
                named
                    || term
                        .get("namespaceSelector")
                        .is_some_and(|selector| !selector.is_null())
            })
    })
}
