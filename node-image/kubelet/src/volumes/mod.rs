//! Volumes of pods: made before containers start, kept true while they run, removed with the pod.
//!
//! ```text
//! <root>/pods/<uid>/volumes/kubernetes.io~<kind>/<name>      what containers mount
//! <root>/pods/<uid>/volume-subpaths/<name>/<container>/<i>   a part of a volume, mounted here first
//! ```

mod atomic;
mod hostpath;
mod mounts;
mod payload;
mod subpath;
mod tokens;

use std::collections::HashMap;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use minato_api::k8s::core::v1::{EmptyDirVolumeSource, Pod, PodSpec, Volume};
use nix::mount::{MsFlags, mount};

use crate::context::Context;
use crate::fields::Place;
use crate::pods::{PodId, spec};
use crate::resources::units;

use atomic::write_payload;
use mounts::unmount_below;
pub(crate) use subpath::prepare as prepare_subpath;
pub(crate) use tokens::Tokens;

/// A volume that cannot be had, with what an event says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume \"{volume}\" : {message}")]
pub(crate) struct VolumeError {
    pub(crate) volume: String,
    pub(crate) message: String,
}

/// Where a pod's volumes are on this machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Volumes {
    pub(crate) paths: HashMap<String, PathBuf>,
    /// When a token among them is due for renewal.
    pub(crate) refresh: Option<Timestamp>,
}

fn directory(context: &Context, uid: &str, kind: &str, name: &str) -> PathBuf {
    let volumes = context.settings.pod_dir(uid).join("volumes");
    volumes.join(format!("kubernetes.io~{kind}")).join(name)
}

/// Makes all volumes of the pod, or brings them up to date; safe to repeat.
pub(crate) async fn ensure(
    context: &Context,
    pod: &Pod,
    place: &Place,
    tokens: &mut Tokens,
) -> Result<Volumes, VolumeError> {
    let mut volumes = Volumes::default();
    for volume in spec(pod).volumes.iter().flatten() {
        let path = one(context, pod, place, tokens, volume)
            .await
            .map_err(|message| VolumeError {
                volume: volume.name.clone(),
                message,
            })?;
        volumes.paths.insert(volume.name.clone(), path);
    }
    volumes.refresh = tokens.refresh_at();
    Ok(volumes)
}

async fn one(
    context: &Context,
    pod: &Pod,
    place: &Place,
    tokens: &mut Tokens,
    volume: &Volume,
) -> Result<PathBuf, String> {
    let id = PodId::of(pod);
    if let Some(source) = &volume.empty_dir {
        let path = directory(context, &id.uid, "empty-dir", &volume.name);
        let (spec, source, target) = (spec(pod).clone(), source.clone(), path.clone());
        blocking(move || empty_dir(&spec, &source, &target)).await?;
        return Ok(path);
    }
    if let Some(source) = &volume.host_path {
        let source = source.clone();
        return blocking(move || hostpath::check(&source)).await;
    }
    let kind = match volume {
        v if v.config_map.is_some() => "configmap",
        v if v.secret.is_some() => "secret",
        v if v.downward_api.is_some() => "downward-api",
        v if v.projected.is_some() => "projected",
        _ => return Err("the type of the volume is not supported by this node".to_owned()),
    };
    let files = payload::collect(context, pod, place, tokens, volume).await?;
    let path = directory(context, &id.uid, kind, &volume.name);
    let group = fs_group(spec(pod));
    let target = path.clone();
    blocking(move || {
        // Secrets never touch a disk.
        if matches!(kind, "secret" | "projected") {
            tmpfs(&target, None)?;
        }
        write_payload(&target, &files, group).map_err(|error| error.to_string())
    })
    .await?;
    Ok(path)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(error.to_string()),
    }
}

/// The group that shall own volumes.
fn fs_group(spec: &PodSpec) -> Option<u32> {
    let group = spec.security_context.as_ref().and_then(|security| security.fs_group);
    group.and_then(|group| u32::try_from(group).ok())
}

/// Mounts a tmpfs on `path`, unless something is mounted there.
fn tmpfs(path: &Path, size: Option<i64>) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("mounting tmpfs: {error}");
    std::fs::create_dir_all(path).map_err(|e| failed(&e))?;
    if mounts::is_mount_point(path).map_err(|e| failed(&e))? {
        return Ok(());
    }
    let options = size.map(|size| format!("size={size}"));
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), path, Some("tmpfs"), flags, options.as_deref()).map_err(|e| failed(&e))
}

fn empty_dir(spec: &PodSpec, source: &EmptyDirVolumeSource, path: &Path) -> Result<(), String> {
    let fresh = !path.exists();
    match source.medium.as_deref() {
        None | Some("") => std::fs::create_dir_all(path).map_err(|e| e.to_string())?,
        Some("Memory") => tmpfs(path, memory_size(spec, source))?,
        Some(other) => return Err(format!("unknown storage medium {other:?}")),
    }
    if !fresh && std::fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o777 == 0o777) {
        return Ok(());
    }
    let group = fs_group(spec);
    // With a group, new files belong to it too.
    let mode = if group.is_some() { 0o2777 } else { 0o777 };
    chown(path, None, group).map_err(|e| e.to_string())?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(|e| e.to_string())
}

/// The smaller of the volume's and the containers' own bounds.
fn memory_size(spec: &PodSpec, source: &EmptyDirVolumeSource) -> Option<i64> {
    let of_containers: Option<i64> = spec.containers.iter().try_fold(0_i64, |sum, container| {
        let limits = container.resources.as_ref()?.limits.as_ref()?;
        Some(sum.saturating_add(units(limits.get("memory")?)))
    });
    let own = source.size_limit.as_ref().map(units).filter(|size| *size > 0);
    own.into_iter().chain(of_containers.filter(|size| *size > 0)).min()
}

/// Unmounts and removes the files of the pod with that uid.
pub(crate) async fn remove_pod_dir(directory: PathBuf) -> Result<(), String> {
    blocking(move || {
        unmount_below(&directory).map_err(|error| format!("unmounting below {}: {error}", directory.display()))?;
        match std::fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("removing {}: {error}", directory.display()))
            }
            _ => Ok(()),
        }
    })
    .await
}
