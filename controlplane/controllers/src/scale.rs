//! The `scale` of any kind, as owner references and autoscalers name it.

use minato_api::kube::{Client, core::ApiResource};

use crate::error::{Error, Result, is_not_found};

/// A kind as the API server serves it.
pub(crate) struct Found {
    resource: ApiResource,
    scales: bool,
}

impl Found {
    /// The resource, if its objects are of a namespace and have a scale.
    ///
    /// # Errors
    /// [`Error::Invalid`], in the words that users find in conditions.
    pub(crate) fn with_scale(self) -> Result<ApiResource> {
        if self.scales {
            return Ok(self.resource);
        }
        let (plural, group) = (&self.resource.plural, &self.resource.group);
        let name = if group.is_empty() {
            plural.clone()
        } else {
            format!("{plural}.{group}")
        };
        Err(Error::Invalid(format!(
            "{name} does not implement the scale subresource"
        )))
    }
}

/// Asks the API server for a kind; nothing when it does not serve it.
pub(crate) async fn find(client: &Client, api_version: &str, kind: &str) -> Result<Option<Found>> {
    let served = match api_version.contains('/') {
        true => client.list_api_group_resources(api_version).await,
        false => client.list_core_api_resources(api_version).await,
    };
    let served = match served {
        Ok(list) => list.resources,
        Err(error) if is_not_found(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut whole = served.iter().filter(|resource| !resource.name.contains('/'));
    let Some(resource) = whole.find(|resource| resource.kind == kind) else {
        return Ok(None);
    };
    let scale = format!("{}/scale", resource.name);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Ok(Some(Found {
        scales: resource.namespaced && served.iter().any(|part| part.name == scale),
        resource: ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: resource.name.clone(),
        },
    }))
}
