//! What is mounted, from the kernel's own list.

use std::io::Result;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};

/// Undoes the octal escapes of mountinfo.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    std::ffi::OsString::from_vec(out).into()
}

fn mount_points() -> Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape)
        .collect())
}

/// Whether something is mounted on `path` itself.
pub(super) fn is_mount_point(path: &Path) -> Result<bool> {
    Ok(mount_points()?.iter().any(|point| point == path))
}

/// Mount points at or below `path`, the last mounted first.
pub(crate) fn mounts_below(path: &Path) -> Result<Vec<PathBuf>> {
    let mut points: Vec<PathBuf> = mount_points()?
        .into_iter()
        .filter(|point| point.starts_with(path))
        .collect();
    points.reverse();
    Ok(points)
}

/// Unmounts everything at or below `path`.
pub(crate) fn unmount_below(path: &Path) -> Result<()> {
    for point in mounts_below(path)? {
        // A process that still holds a file keeps only its own view of it.
        umount2(&point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(r"/a\040b\134c"), Path::new("/a b\\c"));
        assert_eq!(unescape(r"/x\"), Path::new("/x\\"));
    }
}
