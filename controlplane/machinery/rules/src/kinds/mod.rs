//! The built-in kinds: a table of facts, and the behaviour of those that have any of their own.

mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod classes;
mod coordination;
pub(crate) mod core;
mod definition;
mod extension;
mod networking;
mod plain;
mod policy;
mod rbac;
mod storage;
mod table;
#[cfg(test)]
mod tests;
mod workload;

pub use batch::Schedule;
use minato_meta::{GroupResource, GroupVersionKind, GroupVersionResource};

use crate::resource::{ResourceInfo, Subresource, Verb};
use table::{ROWS, Row};

/// All built-in kinds.
pub fn builtin() -> Vec<ResourceInfo> {
    ROWS.iter().map(info).collect()
}

fn info(row: &Row) -> ResourceInfo {
    let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let (group, version) = row.stored.unwrap_or((row.group, row.version));
    ResourceInfo {
        gvr: GroupVersionResource::new(row.group, row.version, row.plural),
        gvk: GroupVersionKind::new(row.group, row.version, row.kind),
        list_kind: format!("{}List", row.kind),
        singular: row.kind.to_lowercase(),
        short_names: owned(row.short),
        categories: owned(row.categories),
        namespaced: row.namespaced,
        verbs: row.verbs,
        subresources: row.subresources.iter().map(|name| subresource(name)).collect(),
        definition: format!("{}.{}.{}", row.package, row.version, row.kind),
        storage: GroupResource::new(group, row.plural),
        storage_version: version.to_owned(),
        strategy: (row.strategy)(),
    }
}

fn subresource(name: &'static str) -> Subresource {
    let gvk = |group: &str, version: &str, kind: &str| Some(GroupVersionKind::new(group, version, kind));
    let (kind, verbs): (_, &'static [Verb]) = match name {
        "scale" => (
            gvk("autoscaling", "v1", "Scale"),
            &[Verb::Get, Verb::Patch, Verb::Update],
        ),
        "eviction" => (gvk("policy", "v1", "Eviction"), &[Verb::Create]),
        "token" => (gvk("authentication.k8s.io", "v1", "TokenRequest"), &[Verb::Create]),
        "binding" => (gvk("", "v1", "Binding"), &[Verb::Create]),
        "attach" => (gvk("", "v1", "PodAttachOptions"), &[Verb::Create, Verb::Get]),
        "exec" => (gvk("", "v1", "PodExecOptions"), &[Verb::Create, Verb::Get]),
        "portforward" => (gvk("", "v1", "PodPortForwardOptions"), &[Verb::Create, Verb::Get]),
        "proxy" => (
            None,
            &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
        ),
        "log" => (None, &[Verb::Get]),
        "finalize" => (None, &[Verb::Update]),
        _ => (None, &[Verb::Get, Verb::Patch, Verb::Update]),
    };
    Subresource { name, kind, verbs }
}
