//! Images: whether they are there, pulling them, and backing off when that fails.

use std::collections::HashMap;

use base64::Engine;
use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::core::v1::{Container, Secret};
use minato_cri::v1::{AuthConfig, Image, PodSandboxConfig};
use minato_cri::{Cri, CriError};
use minato_runtime::EventKind;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::context::Context;
use crate::pods::{PodId, spec};
use minato_api::k8s::core::v1::Pod;

/// First and longest back-off of a failing pull.
const BACKOFF: (SignedDuration, SignedDuration) = (SignedDuration::from_secs(10), SignedDuration::from_secs(300));
/// Pulls at once.
const PULLS: usize = 4;

/// Why a container has no image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageError {
    /// As a waiting container's reason.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// When it is worth another try.
    pub(crate) until: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
struct Failure {
    delay: SignedDuration,
    at: Timestamp,
}

/// The images of this node.
pub(crate) struct Images {
    cri: Cri,
    pulls: Semaphore,
    failures: Mutex<HashMap<String, Failure>>,
}

/// The name with the tag that an untagged name means.
fn normalized(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') || last.contains('@') {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}

fn policy(container: &Container, image: &str) -> &'static str {
    match container.image_pull_policy.as_deref() {
        Some("Always") => "Always",
        Some("Never") => "Never",
        Some("IfNotPresent") => "IfNotPresent",
        _ if image.ends_with(":latest") => "Always",
        _ => "IfNotPresent",
    }
}

/// Whether the name can be one of an image.
fn is_valid(image: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    let name = image.split('@').next().unwrap_or_default();
    let path = name
        .rsplit_once(':')
        .map_or(name, |(path, tag)| if tag.contains('/') { name } else { path });
    let registry = path.split('/').next().unwrap_or_default();
    let path = path
        .strip_prefix(registry)
        .filter(|rest| !rest.is_empty())
        .unwrap_or(path);
    !image.is_empty()
        && image.chars().all(fine)
        && !path.chars().any(|c| c.is_ascii_uppercase())
        && !image.ends_with(['/', ':', '@'])
}

impl Images {
    pub(crate) fn new(cri: Cri) -> Self {
        Self {
            cri,
            pulls: Semaphore::new(PULLS),
            failures: Mutex::default(),
        }
    }

    /// Makes sure that the container's image is there, as its pull policy says.
    pub(crate) async fn ensure(
        &self,
        context: &Context,
        pod: &Pod,
        container: &Container,
        sandbox: &PodSandboxConfig,
    ) -> Result<Image, ImageError> {
        let wanted = container.image.clone().unwrap_or_default();
        let event = |kind, reason, message: String| context.event(pod, Some(&container.name), kind, reason, message);
        if !is_valid(&wanted) {
            let message =
                format!("Failed to apply default image tag \"{wanted}\": couldn't parse image name \"{wanted}\"");
            event(EventKind::Warning, "InspectFailed", message.clone());
            return Err(failure("InvalidImageName", message, None));
        }
        let image = normalized(&wanted);
        let inspect = |error: &CriError| failure("ImageInspectError", error.to_string(), None);
        let present = self.cri.image_status(&image).await.map_err(|e| inspect(&e))?;
        let policy = policy(container, &image);
        if let (Some(present), "IfNotPresent" | "Never") = (&present, policy) {
            let message =
                format!("Container image \"{wanted}\" already present on machine and can be accessed by the pod");
            event(EventKind::Normal, "Pulled", message);
            return Ok(present.clone());
        }
        if policy == "Never" {
            let message = format!("Container image \"{wanted}\" is not present with pull policy of Never");
            event(EventKind::Warning, "ErrImageNeverPull", message.clone());
            return Err(failure("ErrImageNeverPull", message, None));
        }
        let now = Timestamp::now();
        let key = format!("{}/{image}", PodId::of(pod).uid);
        let before = self.failures.lock().get(&key).copied();
        if let Some(before) = before.filter(|failure| now < failure.at + failure.delay) {
            let message = format!("Back-off pulling image \"{wanted}\"");
            event(EventKind::Normal, "BackOff", message.clone());
            return Err(failure("ImagePullBackOff", message, Some(before.at + before.delay)));
        }
        event(EventKind::Normal, "Pulling", format!("Pulling image \"{wanted}\""));
        let started = std::time::Instant::now();
        match self.pull(context, pod, &image, sandbox).await {
            Ok(reference) => {
                self.failures.lock().remove(&key);
                let found = self.cri.image_status(&reference).await.map_err(|e| inspect(&e))?;
                let found = found.ok_or_else(|| failure("ImageInspectError", format!("{reference} is gone"), None))?;
                let seconds = started.elapsed().as_secs_f64();
                let message = format!(
                    "Successfully pulled image \"{wanted}\" in {seconds:.3}s. Image size: {} bytes.",
                    found.size
                );
                event(EventKind::Normal, "Pulled", message);
                Ok(found)
            }
            Err(error) => {
                let message = format!("Failed to pull image \"{wanted}\": {}", error.message);
                event(EventKind::Warning, "Failed", message.clone());
                event(EventKind::Warning, "Failed", "Error: ErrImagePull".to_owned());
                let delay = before.map_or(BACKOFF.0, |failure| (failure.delay * 2).min(BACKOFF.1));
                let at = Timestamp::now();
                self.failures.lock().insert(key, Failure { delay, at });
                Err(failure("ErrImagePull", message, None))
            }
        }
    }

    async fn pull(
        &self,
        context: &Context,
        pod: &Pod,
        image: &str,
        sandbox: &PodSandboxConfig,
    ) -> Result<String, CriError> {
        // The semaphore is never closed.
        let _permit = self.pulls.acquire().await;
        let credentials = credentials(context, pod, image).await;
        let attempts = credentials.into_iter().map(Some).chain([None]);
        let mut last = None;
        for auth in attempts {
            match self.cri.pull_image(image, auth, sandbox.clone()).await {
                Ok(reference) => return Ok(reference),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| CriError {
            call: "PullImage",
            message: "not tried".to_owned(),
            code: minato_cri::Code::Internal,
        }))
    }

    /// The pod with that uid is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.failures.lock().retain(|key, _| !key.starts_with(uid));
    }
}

fn failure(reason: &'static str, message: String, until: Option<Timestamp>) -> ImageError {
    ImageError { reason, message, until }
}

/// Credentials of the pod's pull secrets for the image's registry.
async fn credentials(context: &Context, pod: &Pod, image: &str) -> Vec<AuthConfig> {
    let id = PodId::of(pod);
    let registry = match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => "docker.io",
    };
    let mut found = Vec::new();
    for reference in spec(pod).image_pull_secrets.iter().flatten() {
        let secret = context
            .objects
            .get::<Secret>(&id.uid, &id.namespace, &reference.name)
            .await;
        let Ok(secret) = secret else { continue };
        let data = secret.data.as_ref().and_then(|data| data.get(".dockerconfigjson"));
        let Some(config) = data.and_then(|bytes| serde_json::from_slice::<Value>(&bytes.0).ok()) else {
            continue;
        };
        let entries = config["auths"].as_object();
        for (server, entry) in entries.into_iter().flatten() {
            let host = server.trim_start_matches("https://").trim_start_matches("http://");
            let host = host.split('/').next().unwrap_or_default();
            let host = if matches!(host, "index.docker.io" | "registry-1.docker.io") {
                "docker.io"
            } else {
                host
            };
            if host == registry {
                found.extend(auth(entry));
            }
        }
    }
    found
}

fn auth(entry: &Value) -> Option<AuthConfig> {
    let text = |name: &str| entry[name].as_str().map(str::to_owned);
    if let (Some(username), Some(password)) = (text("username"), text("password")) {
        return Some(AuthConfig {
            username,
            password,
            ..AuthConfig::default()
        });
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(text("auth")?).ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    let (username, password) = decoded.split_once(':')?;
    Some(AuthConfig {
        username: username.to_owned(),
        password: password.to_owned(),
        ..AuthConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_and_checked() {
        assert_eq!(normalized("a/b"), "a/b:latest");
        assert_eq!(normalized("host:5000/b"), "host:5000/b:latest");
        assert_eq!(normalized("a@sha256:00"), "a@sha256:00");
        for good in ["busybox", "a.b:5000/c/d:e", "minato.test/busybox:1", "a@sha256:0f"] {
            assert!(is_valid(good), "{good}");
        }
        for bad in ["", "Bad/Name", "a b", "a:", "a/"] {
            assert!(!is_valid(bad), "{bad}");
        }
    }

    #[test]
    fn the_latest_tag_is_always_pulled() {
        let container = Container::default();
        assert_eq!(policy(&container, "a:latest"), "Always");
        assert_eq!(policy(&container, "a:1"), "IfNotPresent");
    }
}
