//! Static pods: manifests in a directory of the node, which run without being in the API; a mirror there shows them.
//!
//! Source: <https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/>.

use std::collections::BTreeMap;
use std::io::Result;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use minato_api::k8s::core::v1::{Pod, Toleration};
use rustix::fs::inotify;
use sha2::{Digest, Sha256};
use tokio::io::unix::AsyncFd;

use crate::pods::keys;
use crate::worker::{Desired, Workers};

/// The directory is read this often even if the kernel tells of nothing.
const REREAD: Duration = Duration::from_secs(20);
/// Largest manifest.
const LARGEST: u64 = 1024 * 1024;

/// Whether the pod comes from a file.
pub(crate) fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.as_ref().and_then(|a| a.get(keys::SOURCE));
    source.map(String::as_str) == Some("file") && !crate::pods::is_mirror(pod)
}

/// A manifest as the pod that runs here: named after the node, with an identity made of its content.
fn read_manifest(text: &str, path: &Path, node: &str) -> std::result::Result<Pod, String> {
    let mut pod: Pod = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
    let name = pod
        .metadata
        .name
        .clone()
        .filter(|name| !name.is_empty())
        .ok_or("the pod has no name")?;
    let spec = pod
        .spec
        .as_mut()
        .filter(|spec| !spec.containers.is_empty())
        .ok_or("the pod has no containers")?;
    let refers = |volume: &minato_api::k8s::core::v1::Volume| {
        volume.config_map.is_some() || volume.secret.is_some() || volume.projected.is_some()
    };
    if spec.volumes.iter().flatten().any(refers) {
        return Err("a static pod must not refer to objects of the API".to_owned());
    }
    spec.node_name = Some(node.to_owned());
    spec.enable_service_links.get_or_insert(true);
    // It is here, whatever befalls the node.
    spec.tolerations.get_or_insert_default().push(Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    });
    let mut hash = Sha256::new();
    for part in [node, &path.display().to_string(), text] {
        hash.update(part);
        hash.update([0]);
    }
    let hash: String = hash
        .finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let meta = &mut pod.metadata;
    meta.name = Some(format!("{name}-{node}"));
    meta.namespace.get_or_insert_with(|| "default".to_owned());
    meta.uid = Some(hash.clone());
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(keys::CONFIG_HASH.to_owned(), hash);
    annotations.insert(keys::SOURCE.to_owned(), "file".to_owned());
    pod.status = None;
    Ok(pod)
}

/// All manifests of the directory, by uid; files that are no good are told of and left out.
fn read_directory(directory: &Path, node: &str) -> Result<BTreeMap<String, Arc<Pod>>> {
    let mut pods = BTreeMap::new();
    for entry in std::fs::read_dir(directory)?.flatten() {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let known = path
            .extension()
            .is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        let fits = entry
            .metadata()
            .is_ok_and(|meta| meta.is_file() && meta.len() <= LARGEST);
        if hidden || !known || !fits {
            continue;
        }
        let pod = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        match pod.and_then(|text| read_manifest(&text, &path, node)) {
            Ok(pod) => {
                pods.insert(pod.metadata.uid.clone().unwrap_or_default(), Arc::new(pod));
            }
            Err(error) => tracing::warn!(path = %path.display(), error, "a static pod's manifest is no good"),
        }
    }
    Ok(pods)
}

#[expect(unsafe_code, reason = "registering a file descriptor with the reactor")]
fn watch_directory(directory: &Path) -> Result<AsyncFd<OwnedFd>> {
    let fd = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
    let events = inotify::WatchFlags::CLOSE_WRITE
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::MOVED_FROM
        | inotify::WatchFlags::DELETE;
    inotify::add_watch(&fd, directory, events)?;
    // SAFETY: the descriptor is owned by the `AsyncFd` and stays open until that is dropped.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

async fn event(fd: &AsyncFd<OwnedFd>) -> Result<()> {
    let mut ready = fd.readable().await?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(fd.get_ref(), &mut buffer);
    while events.next().is_ok() {}
    ready.clear_ready();
    Ok(())
}

/// Reads the directory once: before it was, its pods would look unwanted.
pub(crate) fn start(directory: &Path, node: &str, workers: &Workers) -> BTreeMap<String, Arc<Pod>> {
    let pods = read_directory(directory, node).unwrap_or_else(|error| {
        tracing::warn!(path = %directory.display(), %error, "reading the static pods failed");
        BTreeMap::new()
    });
    for pod in pods.values() {
        workers.put(Desired {
            pod: pod.clone(),
            gone: false,
        });
    }
    pods
}

/// Follows the directory.
pub(crate) async fn follow(
    directory: PathBuf,
    node: String,
    workers: Workers,
    mut present: BTreeMap<String, Arc<Pod>>,
) {
    let events = match watch_directory(&directory) {
        Ok(events) => Some(events),
        Err(error) => {
            tracing::warn!(path = %directory.display(), %error, "the static pods' directory cannot be watched");
            None
        }
    };
    loop {
        let changed = async {
            match &events {
                Some(events) => event(events).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = changed => if let Err(error) = result {
                tracing::warn!(%error, "watching the static pods failed");
            },
            () = tokio::time::sleep(REREAD) => {}
        }
        let Ok(wanted) = read_directory(&directory, &node) else {
            continue;
        };
        let old: Vec<Arc<Pod>> = present
            .iter()
            .filter(|(uid, _)| !wanted.contains_key(*uid))
            .map(|(_, pod)| pod.clone())
            .collect();
        for pod in &old {
            workers.put(Desired {
                pod: pod.clone(),
                gone: true,
            });
        }
        // A changed manifest is another pod of the same name: it starts when the old one has ended.
        for pod in &old {
            workers
                .until_removed(pod.metadata.uid.as_deref().unwrap_or_default())
                .await;
        }
        for pod in wanted
            .iter()
            .filter(|(uid, _)| !present.contains_key(*uid))
            .map(|(_, pod)| pod)
        {
            workers.put(Desired {
                pod: pod.clone(),
                gone: false,
            });
        }
        present = wanted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: c, image: i}]\n";

    #[test]
    fn a_manifest_becomes_a_pod_of_this_node() {
        let pod = read_manifest(MANIFEST, Path::new("/m/web.yaml"), "n1").unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("web-n1"));
        assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
        assert!(is_static(&pod));
        let same = read_manifest(MANIFEST, Path::new("/m/web.yaml"), "n1").unwrap();
        assert_eq!(pod.metadata.uid, same.metadata.uid);
        let changed = read_manifest(
            &MANIFEST.replace("image: i", "image: j"),
            Path::new("/m/web.yaml"),
            "n1",
        )
        .unwrap();
        assert_ne!(pod.metadata.uid, changed.metadata.uid);
    }

    #[test]
    fn bad_manifests_are_refused() {
        for bad in [
            "",
            "kind: Pod\n",
            "metadata: {name: a}\nspec: {containers: []}\n",
            "- 1\n",
        ] {
            assert!(read_manifest(bad, Path::new("/m/x.yaml"), "n1").is_err(), "{bad:?}");
        }
        let secret = format!("{MANIFEST}  volumes: [{{name: s, secret: {{secretName: s}}}}]\n");
        assert!(read_manifest(&secret, Path::new("/m/x.yaml"), "n1").is_err());
    }
}
