//! Paths of the machine itself, checked to be of the kind that the pod expects.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use minato_api::k8s::core::v1::HostPathVolumeSource;

/// The path, made if its type says so.
pub(super) fn check(source: &HostPathVolumeSource) -> Result<PathBuf, String> {
    let path = PathBuf::from(&source.path);
    if path.components().any(|part| part == Component::ParentDir) {
        return Err("the path must not contain '..'".to_owned());
    }
    let kind = source.type_.as_deref().unwrap_or_default();
    let wrong = |what: &str| Err(format!("hostPath type check failed: {} is not a {what}", source.path));
    let found = std::fs::metadata(&path).ok().map(|meta| meta.file_type());
    match (kind, found) {
        ("", _) => {}
        ("DirectoryOrCreate", None) => make(&path, true)?,
        ("FileOrCreate", None) => make(&path, false)?,
        ("DirectoryOrCreate" | "Directory", found) if found.is_none_or(|f| !f.is_dir()) => return wrong("directory"),
        ("FileOrCreate" | "File", found) if found.is_none_or(|f| !f.is_file()) => return wrong("file"),
        ("Socket", found) if found.is_none_or(|f| !f.is_socket()) => return wrong("socket file"),
        ("CharDevice", found) if found.is_none_or(|f| !f.is_char_device()) => return wrong("character device"),
        ("BlockDevice", found) if found.is_none_or(|f| !f.is_block_device()) => return wrong("block device"),
        ("DirectoryOrCreate" | "Directory" | "FileOrCreate" | "File" | "Socket" | "CharDevice" | "BlockDevice", _) => {}
        (other, _) => return Err(format!("{other} is an invalid volume type")),
    }
    Ok(path)
}

fn make(path: &Path, directory: bool) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("making {}: {error}", path.display());
    let mode = if directory {
        std::fs::create_dir_all(path).map_err(failed)?;
        0o755
    } else {
        std::fs::File::create_new(path).map_err(failed)?;
        0o644
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_checked() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        let of = |path: String, type_: &str| {
            check(&HostPathVolumeSource {
                path,
                type_: Some(type_.to_owned()),
            })
        };
        assert!(of(at("none"), "Directory").is_err());
        assert!(of(at("d"), "DirectoryOrCreate").is_ok());
        assert!(of(at("d"), "File").is_err());
        assert!(of(at("f"), "FileOrCreate").is_ok());
        assert!(of(at("f"), "Socket").is_err());
        assert!(of("/dev/null".to_owned(), "CharDevice").is_ok());
        assert!(of(at("none"), "").is_ok());
        assert!(of(at("../x"), "").is_err());
        assert!(of(at("d"), "Else").is_err());
    }
}
