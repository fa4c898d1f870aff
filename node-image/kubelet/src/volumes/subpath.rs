//! A part of a volume for one mount of a container. What a pod wrote into the volume may be a link that leads elsewhere: the
//! kernel resolves the path within the volume, and what was resolved is mounted by its descriptor, so nothing can be
//! swapped in between.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::mount::{MsFlags, mount};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat2};

use super::mounts::is_mount_point;

fn resolve(volume: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(volume, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Opens the path within the volume; directories that are not there are made.
fn open_or_make(volume: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    match resolve(volume, path) {
        Err(rustix::io::Errno::NOENT) => {}
        other => return other,
    }
    let mut sofar = PathBuf::new();
    for part in path.components() {
        let parent = if sofar.as_os_str().is_empty() {
            resolve(volume, Path::new("."))?
        } else {
            resolve(volume, &sofar)?
        };
        match mkdirat(parent.as_fd(), part.as_os_str(), Mode::from_raw_mode(0o750)) {
            Ok(()) => {
                let mode = Mode::from_raw_mode(fstat(volume)?.st_mode & 0o777);
                rustix::fs::chmodat(parent.as_fd(), part.as_os_str(), mode, AtFlags::empty())?;
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        sofar.push(part);
    }
    resolve(volume, path)
}

/// Mounts `path` of `volume` on `target` and returns that; safe to repeat.
pub(crate) fn prepare(volume: &Path, path: &str, target: &Path) -> Result<PathBuf, String> {
    let failed = |error: &dyn std::fmt::Display| format!("failed to prepare subPath {path:?}: {error}");
    let relative = Path::new(path);
    if !relative
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    {
        return Err(failed(&"it must stay within the volume"));
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = open(volume, flags, Mode::empty()).map_err(|e| failed(&e))?;
    let part = open_or_make(&root, relative).map_err(|e| failed(&e))?;
    if is_mount_point(target).map_err(|e| failed(&e))? {
        // Of an earlier attempt of the container; what it shows may have been replaced since.
        nix::mount::umount2(target, nix::mount::MntFlags::MNT_DETACH).map_err(|e| failed(&e))?;
    }
    let parent = target.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent).map_err(|e| failed(&e))?;
    let kind = FileType::from_raw_mode(fstat(&part).map_err(|e| failed(&e))?.st_mode);
    if kind == FileType::Directory {
        std::fs::create_dir_all(target).map_err(|e| failed(&e))?;
    } else if !target.exists() {
        std::fs::File::create(target).map_err(|e| failed(&e))?;
    }
    let source = format!("/proc/self/fd/{}", part.as_raw_fd());
    let none: Option<&str> = None;
    mount(Some(source.as_str()), target, none, MsFlags::MS_BIND, none).map_err(|e| failed(&e))?;
    Ok(target.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let root = open(directory.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        std::os::unix::fs::symlink("/etc", directory.path().join("out")).unwrap();
        std::os::unix::fs::symlink("../..", directory.path().join("up")).unwrap();
        std::fs::create_dir(directory.path().join("in")).unwrap();
        std::os::unix::fs::symlink("in", directory.path().join("link")).unwrap();
        assert!(open_or_make(&root, Path::new("out/passwd")).is_err());
        assert!(open_or_make(&root, Path::new("up")).is_err());
        assert!(open_or_make(&root, Path::new("link")).is_ok());
        assert!(open_or_make(&root, Path::new("new/deep")).is_ok());
        assert!(directory.path().join("new/deep").is_dir());
    }
}
