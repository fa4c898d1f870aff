//! Which resources the API server serves, for the controllers that work on all of them.

use minato_api::kube::{Client, core::ApiResource};
use minato_api::meta_v1::APIResourceList;

use crate::error::Result;

/// A resource in its preferred version, and what can be done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
}

impl Served {
    pub(crate) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

/// What discovery told, and the groups that it failed for (an aggregated API that is down, say).
#[derive(Debug, Default)]
pub(crate) struct Discovered {
    pub(crate) resources: Vec<Served>,
    pub(crate) failed: Vec<(String, String)>,
}

/// Asks for all resources in their preferred versions.
pub(crate) async fn discover(client: &Client) -> Result<Discovered> {
    let mut discovered = Discovered::default();
    let core = client.list_core_api_resources("v1").await?;
    collect(&mut discovered.resources, &core, "", "v1");
    let groups = client.list_api_groups().await?;
    for group in groups.groups {
        let preferred = group.preferred_version.as_ref().or(group.versions.first());
        let Some(preferred) = preferred.cloned() else { continue };
        // A resource may be missing from the preferred version: the others are looked through as well.
        let others = group
            .versions
            .iter()
            .filter(|version| version.version != preferred.version);
        for version in std::iter::once(&preferred).chain(others) {
            match client.list_api_group_resources(&version.group_version).await {
                Ok(list) => collect(&mut discovered.resources, &list, &group.name, &version.version),
                Err(error) => discovered
                    .failed
                    .push((version.group_version.clone(), error.to_string())),
            }
        }
    }
    Ok(discovered)
}

fn collect(into: &mut Vec<Served>, list: &APIResourceList, group: &str, version: &str) {
    for resource in &list.resources {
        let known = into
            .iter()
            .any(|served| served.resource.group == group && served.resource.plural == resource.name);
        if known || resource.name.contains('/') {
            continue;
        }
        into.push(Served {
            resource: ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                api_version: if group.is_empty() {
                    version.to_owned()
                } else {
                    format!("{group}/{version}")
                },
                kind: resource.kind.clone(),
                plural: resource.name.clone(),
            },
            namespaced: resource.namespaced,
            verbs: resource.verbs.clone(),
        });
    }
}
