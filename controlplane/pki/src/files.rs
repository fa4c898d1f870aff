//! Files that only their owner may read, written as a whole or not at all.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::PkiError;

fn failed(path: &Path) -> impl Fn(std::io::Error) -> PkiError {
    let path = path.to_owned();
    move |source| PkiError::File {
        path: path.clone(),
        source,
    }
}

/// Makes a directory, and those above it, for the owner alone.
pub(crate) fn private_directory(path: &Path) -> Result<(), PkiError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path).map_err(failed(path))
}

/// The file's text, or `None` when there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path)(error)),
    }
}

/// A private temporary file beside its final place, with its text on disk.
fn temporary(path: &Path, text: &str) -> Result<tempfile::NamedTempFile, PkiError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    // Temporary files are mode 0600 from their creation on.
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed(path))?;
    file.write_all(text.as_bytes()).map_err(failed(path))?;
    file.as_file().sync_all().map_err(failed(path))?;
    Ok(file)
}

fn sync_directory(path: &Path) -> Result<(), PkiError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::File::open(directory)
        .and_then(|d| d.sync_all())
        .map_err(failed(path))
}

/// Writes a file atomically and durably, for the owner's eyes only.
///
/// # Errors
/// [`PkiError::File`]; an earlier file is then untouched.
pub fn write_private(path: &Path, text: &str) -> Result<(), PkiError> {
    let file = temporary(path, text)?;
    file.persist(path).map_err(|e| failed(path)(e.error))?;
    sync_directory(path)
}

/// The file's text; made and written durably, for the owner's eyes only, when it is not there. Of several processes
/// that do this at once, one wins, and all get what it made.
///
/// # Errors
/// [`PkiError::File`], or what `make` says.
pub fn keep_private(path: &Path, make: impl FnOnce() -> Result<String, PkiError>) -> Result<String, PkiError> {
    if let Some(text) = read(path)? {
        return Ok(text);
    }
    let text = make()?;
    match temporary(path, &text)?.persist_noclobber(path) {
        Ok(_) => {
            sync_directory(path)?;
            Ok(text)
        }
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
            read(path)?.ok_or_else(|| failed(path)(ErrorKind::NotFound.into()))
        }
        Err(error) => Err(failed(path)(error.error)),
    }
}
