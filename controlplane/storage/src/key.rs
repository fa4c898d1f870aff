//! Where objects live in the store.
//!
//! `/registry/<resource>[.<group>]/[<namespace>/]<name>`: the resource part ends with a slash, so that no prefix of one
//! resource is a prefix of another's, and a namespace's objects are one range.

use minato_meta::GroupResource;

/// Prefix of every API object.
pub const REGISTRY: &str = "/registry/";
/// Prefix of the records that the API server keeps beside its objects (allocated service addresses and ports).
pub const ALLOCATIONS: &str = "/allocations/";

/// Prefix of all objects of a resource; ends with a slash.
pub fn resource_prefix(resource: &GroupResource) -> String {
    if resource.group.is_empty() {
        format!("{REGISTRY}{}/", resource.resource)
    } else {
        format!("{REGISTRY}{}.{}/", resource.resource, resource.group)
    }
}

/// Prefix of a resource's objects in one namespace; ends with a slash.
pub fn namespace_prefix(resource: &GroupResource, namespace: &str) -> String {
    format!("{}{namespace}/", resource_prefix(resource))
}

/// Key of one object; `namespace` is `None` for cluster-scoped kinds.
pub fn object_key(resource: &GroupResource, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{}{namespace}/{name}", resource_prefix(resource)),
        None => format!("{}{name}", resource_prefix(resource)),
    }
}

/// Splits an object key below its resource's prefix into namespace and name. `None` when the key is not below it.
pub fn split_object_key<'k>(prefix: &str, key: &'k str) -> Option<(Option<&'k str>, &'k str)> {
    let rest = key.strip_prefix(prefix)?;
    Some(match rest.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, rest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ranges_by_resource_and_namespace() {
        let pods = GroupResource::new("", "pods");
        let deployments = GroupResource::new("apps", "deployments");
        assert_eq!(object_key(&pods, Some("a"), "b"), "/registry/pods/a/b");
        assert_eq!(
            object_key(&deployments, Some("a"), "b"),
            "/registry/deployments.apps/a/b"
        );
        assert_eq!(namespace_prefix(&pods, "a"), "/registry/pods/a/");
        let nodes = GroupResource::new("", "nodes");
        assert_eq!(object_key(&nodes, None, "n"), "/registry/nodes/n");
        assert_eq!(
            split_object_key("/registry/pods/", "/registry/pods/a/b"),
            Some((Some("a"), "b"))
        );
        assert_eq!(
            split_object_key("/registry/nodes/", "/registry/nodes/n"),
            Some((None, "n"))
        );
        assert_eq!(split_object_key("/registry/nodes/", "/registry/pods/n"), None);
    }
}
