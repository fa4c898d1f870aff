//! What a request asks for, read from its method and path alone.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/>.

use http::Method;

use crate::request::Query;

/// The parsed path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether this names an API resource.
    pub is_resource: bool,
    /// The decoded path.
    pub path: String,
    /// API verb for resources (`get`, `list`, `deletecollection`, …), lower-case method otherwise.
    pub verb: String,
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace; for the namespaces resource itself, the object's own name.
    pub namespace: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource, empty for none.
    pub subresource: String,
    /// Object name; for list and watch, the name that a `metadata.name` field selector pins.
    pub name: String,
    /// Field selector of a list, watch or deletecollection, as text; empty for none.
    pub field_selector: String,
    /// Path segments after the subresource (`proxy`).
    pub rest: Vec<String>,
    /// Whether the name comes from the path and not from a field selector.
    pub name_in_path: bool,
}

/// Parts of a namespace that are subresources of it, not resources inside it.
const NAMESPACE_SUBRESOURCES: &[&str] = &["status", "finalize"];

impl RequestInfo {
    /// Parses method, path and query.
    pub fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let segments: Vec<String> = path.split('/').filter(|s| !s.is_empty()).map(percent_decode).collect();
        let mut info = Self {
            path: percent_decode(path),
            verb: method.as_str().to_ascii_lowercase(),
            ..Self::default()
        };
        let mut rest = match segments.first().map(String::as_str) {
            Some("api") if segments.len() >= 3 => {
                info.version.clone_from(&segments[1]);
                &segments[2..]
            }
            Some("apis") if segments.len() >= 4 => {
                info.group.clone_from(&segments[1]);
                info.version.clone_from(&segments[2]);
                &segments[3..]
            }
            _ => return info,
        };
        info.is_resource = true;
        info.verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            Method::GET | Method::HEAD => "get",
            _ => "",
        }
        .to_owned();
        if matches!(rest[0].as_str(), "watch" | "proxy") && rest.len() > 1 {
            info.verb.clone_from(&rest[0]);
            rest = &rest[1..];
        }
        if rest[0] == "namespaces" && rest.len() > 1 {
            info.namespace.clone_from(&rest[1]);
            if rest.len() > 2 && !NAMESPACE_SUBRESOURCES.contains(&rest[2].as_str()) {
                rest = &rest[2..];
            }
        }
        info.resource.clone_from(&rest[0]);
        if let Some(name) = rest.get(1) {
            info.name.clone_from(name);
            info.name_in_path = true;
        }
        if let Some(subresource) = rest.get(2) {
            info.subresource.clone_from(subresource);
        }
        info.rest = rest.get(3..).unwrap_or_default().to_vec();
        info.refine_collection_verb(query);
        info
    }

    fn refine_collection_verb(&mut self, query: &Query) {
        let watching = query.get("watch").is_some_and(is_true);
        match self.verb.as_str() {
            "get" if self.name.is_empty() => self.verb = if watching { "watch" } else { "list" }.to_owned(),
            // A watch of one object: the older form of a field selector on its name.
            "get" if watching && self.subresource.is_empty() => self.verb = "watch".to_owned(),
            "delete" if self.name.is_empty() => self.verb = "deletecollection".to_owned(),
            _ => {}
        }
        if matches!(self.verb.as_str(), "list" | "watch" | "deletecollection")
            && let Some(selector) = query.get("fieldSelector")
        {
            selector.clone_into(&mut self.field_selector);
            if self.name.is_empty()
                && let Some(name) = pinned_name(selector)
            {
                self.name = name;
            }
        }
    }

    /// Whether the response may outlive the ordinary deadline.
    pub fn is_long_running(&self) -> bool {
        matches!(self.verb.as_str(), "watch" | "proxy")
            || self.is_resource && matches!(self.subresource.as_str(), "proxy" | "exec" | "attach" | "portforward")
            || self.is_resource && self.resource == "pods" && self.subresource == "log"
    }

    /// Whether nothing is changed by the request.
    pub fn is_read_only(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list" | "watch" | "head" | "options")
    }
}

/// Whether a query value counts as true: present and not spelled false.
pub(crate) fn is_true(value: &str) -> bool {
    !matches!(value, "false" | "0" | "False" | "FALSE" | "f" | "F")
}

/// The name that a field selector requires, if it requires exactly one.
fn pinned_name(selector: &str) -> Option<String> {
    selector.split(',').find_map(|term| {
        let value = term.trim().strip_prefix("metadata.name=")?;
        let value = value.strip_prefix('=').unwrap_or(value);
        (!value.is_empty()).then(|| value.to_owned())
    })
}

/// Decodes `%XX`; malformed escapes and bytes that are not UTF-8 are kept or replaced, never refused here.
pub(crate) fn percent_decode(text: impl AsRef<str>) -> String {
    let bytes = text.as_ref().as_bytes();
    if !bytes.contains(&b'%') {
        return text.as_ref().to_owned();
    }
    let digit = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                // Two hexadecimal digits are at most 255.
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &str, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        RequestInfo::parse(
            &Method::from_bytes(method.as_bytes()).unwrap(),
            path,
            &Query::parse(query),
        )
    }

    #[test]
    fn paths_are_read_as_upstream_reads_them() {
        // (method, uri) -> verb, group, version, namespace, resource, subresource, name
        let table = [
            (
                "GET",
                "/api/v1/namespaces/a/pods",
                ["list", "", "v1", "a", "pods", "", ""],
            ),
            (
                "GET",
                "/api/v1/namespaces/a/pods/p",
                ["get", "", "v1", "a", "pods", "", "p"],
            ),
            (
                "GET",
                "/api/v1/namespaces/a/pods/p/log",
                ["get", "", "v1", "a", "pods", "log", "p"],
            ),
            (
                "GET",
                "/api/v1/namespaces/a",
                ["get", "", "v1", "a", "namespaces", "", "a"],
            ),
            (
                "PUT",
                "/api/v1/namespaces/a/finalize",
                ["update", "", "v1", "a", "namespaces", "finalize", "a"],
            ),
            (
                "PATCH",
                "/api/v1/namespaces/a/status",
                ["patch", "", "v1", "a", "namespaces", "status", "a"],
            ),
            (
                "GET",
                "/api/v1/namespaces",
                ["list", "", "v1", "", "namespaces", "", ""],
            ),
            (
                "DELETE",
                "/api/v1/namespaces/a/pods",
                ["deletecollection", "", "v1", "a", "pods", "", ""],
            ),
            ("GET", "/api/v1/pods?watch=1", ["watch", "", "v1", "", "pods", "", ""]),
            ("GET", "/api/v1/pods?watch=0", ["list", "", "v1", "", "pods", "", ""]),
            (
                "GET",
                "/api/v1/watch/namespaces/a/pods",
                ["watch", "", "v1", "a", "pods", "", ""],
            ),
            (
                "GET",
                "/api/v1/pods?fieldSelector=metadata.name%3Dx",
                ["list", "", "v1", "", "pods", "", "x"],
            ),
            (
                "POST",
                "/apis/apps/v1/namespaces/a/deployments",
                ["create", "apps", "v1", "a", "deployments", "", ""],
            ),
            (
                "GET",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                [
                    "get",
                    "rbac.authorization.k8s.io",
                    "v1",
                    "",
                    "clusterroles",
                    "",
                    "system:node",
                ],
            ),
        ];
        for (method, uri, [verb, group, version, namespace, resource, subresource, name]) in table {
            let info = parse(method, uri);
            assert!(info.is_resource, "{uri}");
            assert_eq!(
                [
                    &info.verb,
                    &info.group,
                    &info.version,
                    &info.namespace,
                    &info.resource,
                    &info.subresource,
                    &info.name
                ],
                [verb, group, version, namespace, resource, subresource, name],
                "{method} {uri}"
            );
        }
    }

    #[test]
    fn everything_else_is_a_path() {
        for uri in [
            "/healthz",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/",
            "//",
        ] {
            let info = parse("GET", uri);
            assert!(!info.is_resource, "{uri}");
            assert_eq!(info.verb, "get");
        }
    }

    #[test]
    fn proxied_paths_keep_their_rest() {
        let info = parse("GET", "/api/v1/namespaces/a/services/https:s:x/proxy/b/c");
        assert_eq!(info.subresource, "proxy");
        assert_eq!(info.rest, ["b", "c"]);
        assert!(info.is_long_running());
    }
}
