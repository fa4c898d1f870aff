//! Files of a volume that change all at once, or not at all: a new directory is filled, then one symbolic link is swapped.
//!
//! ```text
//! volume/key -> ..data/key      volume/..data -> ..2026_07_01.123      volume/..2026_07_01.123/key
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Component, Path};

const DATA: &str = "..data";

/// Content and permissions of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) content: Vec<u8>,
    pub(crate) mode: u32,
    /// The owner, where it is not root.
    pub(crate) user: Option<u32>,
}

/// Whether a path may be one of a file in a volume: relative, and staying inside.
pub(super) fn is_safe(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    !path.is_empty() && !path.starts_with("..") && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Makes `directory` hold exactly these files, by relative path.
pub(crate) fn write_payload(directory: &Path, files: &BTreeMap<String, File>, group: Option<u32>) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))?;
    let data = directory.join(DATA);
    let old = std::fs::read_link(&data).ok();
    let wanted: BTreeSet<&str> = files.keys().filter_map(|path| path.split('/').next()).collect();
    if old.is_none() || !is_same(&data, files) {
        let name = format!("..{}", jiff::Zoned::now().strftime("%Y_%m_%d_%H_%M_%S.%N"));
        let fresh = directory.join(&name);
        fill(&fresh, files, group)?;
        let link = directory.join("..data_tmp");
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        symlink(&name, &link)?;
        std::fs::rename(&link, &data)?;
        if let Some(old) = old {
            let _ = std::fs::remove_dir_all(directory.join(old));
        }
    }
    for name in &wanted {
        match symlink(Path::new(DATA).join(name), directory.join(name)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    for entry in std::fs::read_dir(directory)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !wanted.contains(name.as_str()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn is_same(data: &Path, files: &BTreeMap<String, File>) -> bool {
    let same = |(path, file): (&String, &File)| {
        let path = data.join(path);
        let mode = std::fs::metadata(&path).map(|m| m.permissions().mode() & 0o7777);
        mode.is_ok_and(|mode| mode & 0o777 & file.mode == file.mode & 0o777)
            && std::fs::read(&path).is_ok_and(|content| content == file.content)
    };
    files.iter().all(same) && count(data) == files.len()
}

fn count(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => count(&entry.path()),
        _ => 1,
    };
    entries.map(size).sum()
}

fn fill(directory: &Path, files: &BTreeMap<String, File>, group: Option<u32>) -> Result<()> {
    let directory_mode = std::fs::Permissions::from_mode(if group.is_some() { 0o2755 } else { 0o755 });
    std::fs::create_dir_all(directory)?;
    std::fs::set_permissions(directory, directory_mode)?;
    for (name, file) in files {
        let path = directory.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, &file.content)?;
        if group.is_some() || file.user.is_some() {
            chown(&path, file.user, group)?;
        }
        // The group may read what it owns.
        let mode = if group.is_some() { file.mode | 0o040 } else { file.mode };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> BTreeMap<String, File> {
        let file = |content: &str| File {
            content: content.as_bytes().to_vec(),
            mode: 0o644,
            user: None,
        };
        list.iter()
            .map(|(name, content)| ((*name).to_owned(), file(content)))
            .collect()
    }

    #[test]
    fn files_change_by_one_link_and_old_ones_go() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        write_payload(at, &files(&[("a", "1"), ("d/b", "2")]), None).unwrap();
        let first = std::fs::read_link(at.join("..data")).unwrap();
        assert_eq!(std::fs::read_link(at.join("a")).unwrap(), Path::new("..data/a"));
        assert_eq!(std::fs::read_to_string(at.join("d/b")).unwrap(), "2");
        write_payload(at, &files(&[("a", "1"), ("d/b", "2")]), None).unwrap();
        assert_eq!(std::fs::read_link(at.join("..data")).unwrap(), first, "nothing changed");
        write_payload(at, &files(&[("a", "3")]), None).unwrap();
        assert_eq!(std::fs::read_to_string(at.join("a")).unwrap(), "3");
        assert!(!at.join("d").exists() && !at.join(&first).exists());
        assert_ne!(std::fs::read_link(at.join("..data")).unwrap(), first);
    }

    #[test]
    fn paths_stay_inside() {
        assert!(is_safe("a") && is_safe("a/b.c"));
        for bad in ["", "/a", "../a", "a/../b", "..data"] {
            assert!(!is_safe(bad), "{bad}");
        }
    }
}
