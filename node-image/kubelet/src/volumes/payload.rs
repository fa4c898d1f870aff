//! The files of configMap, secret, downwardAPI and projected volumes.

use std::collections::BTreeMap;

use minato_api::k8s::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, Volume};

use super::atomic::{File, is_safe};
use super::tokens::Tokens;
use crate::context::Context;
use crate::fields::{self, Place};
use crate::objects::ObjectError;
use crate::pods::{PodId, spec};

type Files = BTreeMap<String, File>;

struct Collector<'a> {
    context: &'a Context,
    pod: &'a Pod,
    id: PodId,
    place: &'a Place,
    files: Files,
}

/// The files of a volume.
pub(super) async fn collect(
    context: &Context,
    pod: &Pod,
    place: &Place,
    tokens: &mut Tokens,
    volume: &Volume,
) -> Result<Files, String> {
    let mut collector = Collector {
        context,
        pod,
        id: PodId::of(pod),
        place,
        files: Files::new(),
    };
    if let Some(source) = &volume.config_map {
        let mode = mode(source.default_mode, 0o644);
        collector
            .config_map(&source.name, source.items.as_deref(), source.optional, mode)
            .await?;
    } else if let Some(source) = &volume.secret {
        let mode = mode(source.default_mode, 0o644);
        let name = source.secret_name.as_deref().unwrap_or_default();
        collector
            .secret(name, source.items.as_deref(), source.optional, mode)
            .await?;
    } else if let Some(source) = &volume.downward_api {
        collector.downward(source.items.as_deref(), mode(source.default_mode, 0o644))?;
    } else if let Some(source) = &volume.projected {
        let mode = mode(source.default_mode, 0o644);
        for projection in source.sources.iter().flatten() {
            if let Some(source) = &projection.config_map {
                collector
                    .config_map(&source.name, source.items.as_deref(), source.optional, mode)
                    .await?;
            } else if let Some(source) = &projection.secret {
                collector
                    .secret(&source.name, source.items.as_deref(), source.optional, mode)
                    .await?;
            } else if let Some(source) = &projection.downward_api {
                collector.downward(source.items.as_deref(), mode)?;
            } else if let Some(source) = &projection.service_account_token {
                let token = tokens.get(context, pod, &volume.name, source).await?;
                collector.put_token(&source.path, token, mode)?;
            } else {
                return Err("the type of a projection is not supported by this node".to_owned());
            }
        }
    }
    Ok(collector.files)
}

fn mode(mode: Option<i32>, default: u32) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(default) & 0o777
}

impl Collector<'_> {
    fn put(&mut self, path: &str, content: Vec<u8>, mode: u32) -> Result<(), String> {
        if !is_safe(path) {
            return Err(format!("{path:?} is not a path within the volume"));
        }
        let file = File {
            content,
            mode,
            user: None,
        };
        self.files.insert(path.to_owned(), file);
        Ok(())
    }

    /// A token is for the containers' user alone, if they have one user; else for all, as the mode says.
    fn put_token(&mut self, path: &str, token: String, default: u32) -> Result<(), String> {
        let security = spec(self.pod).security_context.as_ref();
        let pod_user = security.and_then(|s| s.run_as_user);
        let user = |c: &minato_api::k8s::core::v1::Container| {
            c.security_context.as_ref().and_then(|s| s.run_as_user).or(pod_user)
        };
        let mut users = spec(self.pod).containers.iter().map(user);
        let first = users
            .next()
            .flatten()
            .filter(|first| users.all(|other| other == Some(*first)));
        let has_group = security.is_some_and(|s| s.fs_group.is_some());
        let (mode, owner) = match first.and_then(|user| u32::try_from(user).ok()) {
            _ if has_group => (0o600, None),
            Some(user) => (0o600, Some(user)),
            None => (default, None),
        };
        self.put(path, token.into_bytes(), mode)?;
        if let Some(file) = self.files.get_mut(path) {
            file.user = owner;
        }
        Ok(())
    }

    async fn config_map(
        &mut self,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
        mode: u32,
    ) -> Result<(), String> {
        let found = self
            .context
            .objects
            .get::<ConfigMap>(&self.id.uid, &self.id.namespace, name)
            .await;
        let data = match found {
            Ok(map) => {
                let text = map
                    .data
                    .iter()
                    .flatten()
                    .map(|(key, value)| (key.clone(), value.clone().into_bytes()));
                let binary = map
                    .binary_data
                    .iter()
                    .flatten()
                    .map(|(key, value)| (key.clone(), value.0.clone()));
                text.chain(binary).collect()
            }
            Err(ObjectError::NotFound { .. }) if optional == Some(true) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        self.keys(&data, items, optional, mode)
    }

    async fn secret(
        &mut self,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
        mode: u32,
    ) -> Result<(), String> {
        let found = self
            .context
            .objects
            .get::<Secret>(&self.id.uid, &self.id.namespace, name)
            .await;
        let data = match found {
            Ok(secret) => {
                let data = secret.data.iter().flatten();
                data.map(|(key, value)| (key.clone(), value.0.clone())).collect()
            }
            Err(ObjectError::NotFound { .. }) if optional == Some(true) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        self.keys(&data, items, optional, mode)
    }

    fn keys(
        &mut self,
        data: &BTreeMap<String, Vec<u8>>,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
        default: u32,
    ) -> Result<(), String> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            for (key, value) in data {
                self.put(key, value.clone(), default)?;
            }
            return Ok(());
        };
        for item in items {
            match data.get(&item.key) {
                Some(value) => self.put(&item.path, value.clone(), mode(item.mode, default))?,
                None if optional == Some(true) => {}
                None => return Err(format!("references non-existent config key: {}", item.key)),
            }
        }
        Ok(())
    }

    fn downward(&mut self, items: Option<&[DownwardAPIVolumeFile]>, default: u32) -> Result<(), String> {
        for item in items.unwrap_or_default() {
            let value = if let Some(selector) = &item.field_ref {
                fields::field(self.pod, self.place, &selector.field_path)?
            } else if let Some(selector) = &item.resource_field_ref {
                fields::resource(self.pod, selector, "", &self.context.facts.capacity)?
            } else {
                return Err(format!("{} has no source", item.path));
            };
            self.put(&item.path, value.into_bytes(), mode(item.mode, default))?;
        }
        Ok(())
    }
}
