//! The environment of a container.
//!
//! Source: <https://kubernetes.io/docs/tasks/inject-data-application/>.

use std::collections::{BTreeMap, HashMap};

use minato_api::k8s::core::v1::{ConfigMap, Container, EnvVar, Pod, Secret, Service};

use crate::context::Context;
use crate::fields::{self, Place};
use crate::objects::ObjectError;
use crate::pods::{PodId, spec};

/// Replaces `$(NAME)` by known values; `$$` is a dollar sign; what is not known stays as it is.
pub(crate) fn expand(text: &str, known: &HashMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, tail) = rest.split_at(at);
        out.push_str(before);
        let tail = &tail[1..];
        if let Some(after) = tail.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = tail.strip_prefix('(').and_then(|t| t.split_once(')')) {
            match known.get(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
            rest = tail;
        }
    }
    out.push_str(rest);
    out
}

/// Variables that tell of a Service: `NAME_SERVICE_HOST`, `NAME_SERVICE_PORT`, and those of Docker links.
fn of_service(service: &Service, out: &mut BTreeMap<String, String>) {
    let Some(spec) = &service.spec else { return };
    let Some(ip) = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None") else {
        return;
    };
    let ports = spec.ports.as_deref().unwrap_or_default();
    let Some(first) = ports.first() else { return };
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let prefix = name.to_uppercase().replace('-', "_");
    out.insert(format!("{prefix}_SERVICE_HOST"), ip.to_owned());
    out.insert(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let name = name.to_uppercase().replace('-', "_");
            out.insert(format!("{prefix}_SERVICE_PORT_{name}"), port.port.to_string());
        }
    }
    let host = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip.to_owned()
    };
    for (index, port) in ports.iter().enumerate() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
        if index == 0 {
            out.insert(format!("{prefix}_PORT"), url.clone());
        }
        let base = format!("{prefix}_PORT_{}_{protocol}", port.port);
        out.insert(format!("{base}_PROTO"), protocol.to_lowercase());
        out.insert(format!("{base}_PORT"), port.port.to_string());
        out.insert(format!("{base}_ADDR"), ip.to_owned());
        out.insert(base, url);
    }
}

/// Variables of the services that a pod in `namespace` sees.
fn of_services(context: &Context, namespace: &str, links: bool) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    if let Some(api) = context.services.get_in("default", "kubernetes") {
        of_service(&api, &mut out);
    }
    if links {
        for service in context.services.list_in(namespace) {
            of_service(&service, &mut out);
        }
    }
    out
}

/// Text of a value; bytes that are not text are replaced.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn optional<T>(found: Result<T, ObjectError>, optional: Option<bool>) -> Result<Option<T>, String> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(ObjectError::NotFound { .. }) if optional == Some(true) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads what the environment needs.
struct Reader<'a> {
    context: &'a Context,
    pod: &'a Pod,
    id: PodId,
    container: &'a Container,
    place: &'a Place,
}

impl Reader<'_> {
    async fn config_map(
        &self,
        name: &str,
        is_optional: Option<bool>,
    ) -> Result<Option<BTreeMap<String, String>>, String> {
        let found = self
            .context
            .objects
            .get::<ConfigMap>(&self.id.uid, &self.id.namespace, name)
            .await;
        Ok(optional(found, is_optional)?.map(|map| map.data.clone().unwrap_or_default()))
    }

    async fn secret(&self, name: &str, is_optional: Option<bool>) -> Result<Option<BTreeMap<String, String>>, String> {
        let found = self
            .context
            .objects
            .get::<Secret>(&self.id.uid, &self.id.namespace, name)
            .await;
        let values = |secret: &Secret| {
            let data = secret.data.iter().flatten();
            data.map(|(key, value)| (key.clone(), text(&value.0))).collect()
        };
        Ok(optional(found, is_optional)?.map(|secret| values(&secret)))
    }

    /// Whole objects as variables; names that no variable can have are left out.
    async fn add_objects(&self, out: &mut Vec<(String, String)>) -> Result<(), String> {
        for source in self.container.env_from.iter().flatten() {
            let values = if let Some(reference) = &source.config_map_ref {
                self.config_map(&reference.name, reference.optional).await?
            } else if let Some(reference) = &source.secret_ref {
                self.secret(&reference.name, reference.optional).await?
            } else {
                None
            };
            let prefix = source.prefix.as_deref().unwrap_or_default();
            for (key, value) in values.into_iter().flatten() {
                let name = format!("{prefix}{key}");
                if is_name(&name) {
                    out.push((name, value));
                }
            }
        }
        Ok(())
    }

    async fn value_from(&self, variable: &EnvVar) -> Result<Option<String>, String> {
        let Some(source) = &variable.value_from else {
            return Ok(Some(String::new()));
        };
        if let Some(selector) = &source.field_ref {
            return fields::field(self.pod, self.place, &selector.field_path).map(Some);
        }
        if let Some(selector) = &source.resource_field_ref {
            let capacity = &self.context.facts.capacity;
            return fields::resource(self.pod, selector, &self.container.name, capacity).map(Some);
        }
        let (values, key, is_optional, kind, name) = if let Some(selector) = &source.config_map_key_ref {
            let values = self.config_map(&selector.name, selector.optional).await?;
            (values, &selector.key, selector.optional, "ConfigMap", &selector.name)
        } else if let Some(selector) = &source.secret_key_ref {
            let values = self.secret(&selector.name, selector.optional).await?;
            (values, &selector.key, selector.optional, "Secret", &selector.name)
        } else {
            return Err(format!("the source of variable {} is not supported", variable.name));
        };
        match values.and_then(|mut values| values.remove(key)) {
            None if is_optional != Some(true) => Err(format!(
                "couldn't find key {key} in {kind} {}/{name}",
                self.id.namespace
            )),
            value => Ok(value),
        }
    }
}

/// Upstream allows any printable ASCII name without an equals sign.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| (' '..='~').contains(&c) && c != '=')
}

/// The container's variables, in the order of upstream: services' first where nothing else names them, then those of
/// whole objects, then the container's own, which may refer to all before them.
pub(crate) async fn environment(
    context: &Context,
    pod: &Pod,
    container: &Container,
    place: &Place,
) -> Result<Vec<(String, String)>, String> {
    let reader = Reader {
        context,
        pod,
        id: PodId::of(pod),
        container,
        place,
    };
    let mut result = Vec::new();
    reader.add_objects(&mut result).await?;
    let links = spec(pod).enable_service_links != Some(false);
    let services = of_services(context, &reader.id.namespace, links);
    let mut known: HashMap<String, String> = services.clone().into_iter().collect();
    known.extend(result.iter().cloned());
    for variable in container.env.iter().flatten() {
        let value = match &variable.value {
            Some(value) if !value.is_empty() => Some(expand(value, &known)),
            _ => reader.value_from(variable).await?,
        };
        if let Some(value) = value {
            known.insert(variable.name.clone(), value.clone());
            result.push((variable.name.clone(), value));
        }
    }
    // The last of equal names wins, and services' variables never hide the container's.
    let mut last: Vec<(String, String)> = Vec::new();
    for (name, value) in services.into_iter().chain(result) {
        last.retain(|(other, _)| *other != name);
        last.push((name, value));
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_expanded_and_dollars_escaped() {
        let known = HashMap::from([("A".to_owned(), "1".to_owned()), ("E".to_owned(), String::new())]);
        for (text, expected) in [
            ("x$(A)y", "x1y"),
            ("$$(A)", "$(A)"),
            ("$(B)", "$(B)"),
            ("$(E)|", "|"),
            ("$", "$"),
            ("$A $(", "$A $("),
            ("$$$(A)", "$1"),
            ("é$(A)é", "é1é"),
        ] {
            assert_eq!(expand(text, &known), expected, "{text}");
        }
    }

    #[test]
    fn services_are_told_as_upstream_tells_them() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "my-db"},
            "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 5432, "name": "pg"}, {"port": 53, "protocol": "UDP", "name": "d"}]},
        }))
        .unwrap();
        let mut got = BTreeMap::new();
        of_service(&service, &mut got);
        assert_eq!(got["MY_DB_SERVICE_HOST"], "10.96.0.7");
        assert_eq!(got["MY_DB_SERVICE_PORT"], "5432");
        assert_eq!(got["MY_DB_SERVICE_PORT_PG"], "5432");
        assert_eq!(got["MY_DB_PORT"], "tcp://10.96.0.7:5432");
        assert_eq!(got["MY_DB_PORT_53_UDP"], "udp://10.96.0.7:53");
        assert_eq!(got["MY_DB_PORT_53_UDP_PROTO"], "udp");
        assert_eq!(got.len(), 13);
    }
}
