//! What the database's errors mean to callers.

use std::io::ErrorKind;

use crate::store::StoreError;

/// Data that should be there and is not, or is not what it should be.
pub(super) fn corrupt(what: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(what.to_string())
}

/// A failure of the database: only what it calls corruption is corruption.
pub(super) fn failed(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::Corrupted(why) => StoreError::Corrupt(why),
        redb::Error::Io(error) => io(&error),
        redb::Error::ValueTooLarge(bytes) => StoreError::TooLarge(format!("{bytes} bytes")),
        error @ (redb::Error::TableTypeMismatch { .. }
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::UpgradeRequired(_)) => StoreError::Corrupt(error.to_string()),
        error => StoreError::Unavailable(error.to_string()),
    }
}

/// A commit that failed: it may have reached the disk, unless the database says why it cannot have.
pub(super) fn commit_failed(error: impl Into<redb::Error>) -> StoreError {
    match failed(error) {
        error @ StoreError::NoSpace(_) => error,
        error => StoreError::Unknown(error.to_string()),
    }
}

fn io(error: &std::io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            StoreError::NoSpace(error.to_string())
        }
        _ => StoreError::Unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_corruption() {
        let full = redb::StorageError::Io(ErrorKind::StorageFull.into());
        assert!(matches!(failed(full), StoreError::NoSpace(_)));
        let broken = redb::StorageError::Io(ErrorKind::Other.into());
        assert!(matches!(failed(broken), StoreError::Unavailable(_)));
        let unsure = redb::CommitError::Storage(redb::StorageError::Io(ErrorKind::Other.into()));
        assert!(matches!(commit_failed(unsure), StoreError::Unknown(_)));
        let torn = redb::StorageError::Corrupted("x".into());
        assert!(matches!(failed(torn), StoreError::Corrupt(_)));
    }
}
