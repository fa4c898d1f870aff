//! The user number and port that a tenant's control plane keeps for life.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::HostingError;

/// User numbers of tenants: above those of people and system users, below those of container runtimes' sub-ranges.
const USERS: std::ops::Range<u32> = 61_200..64_000;

/// Kept in a file that the tenant cannot write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// User and group number.
    pub(super) user: u32,
    /// Loopback port of the API server.
    pub(super) port: u16,
}

const FILE: &str = "identity.json";

/// The tenant's identity, made and recorded if there is none. `root` holds one directory per tenant.
pub(super) fn ensure(root: &Path, id: &str) -> Result<Identity, HostingError> {
    let path = root.join(id).join(FILE);
    if let Some(identity) = read(&path) {
        return Ok(identity);
    }
    let taken = all(root);
    let users: BTreeSet<u32> = taken.iter().map(|identity| identity.user).collect();
    let user = USERS
        .clone()
        .find(|user| !users.contains(user))
        .ok_or(HostingError::Exhausted("user number"))?;
    let identity = Identity {
        user,
        port: free_port(&taken)?,
    };
    let text = serde_json::to_string(&identity).map_err(|e| failed(&path)(e.into()))?;
    minato_pki::write_private(&path, &text)?;
    Ok(identity)
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> HostingError {
    move |source| HostingError::Io {
        what: format!("keeping {}", path.display()),
        source,
    }
}

fn read(path: &PathBuf) -> Option<Identity> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn all(root: &Path) -> Vec<Identity> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    entries.filter_map(|entry| read(&entry.path().join(FILE))).collect()
}

/// A port that nobody listens on now and no other tenant owns.
fn free_port(taken: &[Identity]) -> Result<u16, HostingError> {
    for _ in 0..100 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let port = listener.map_err(failed(Path::new("a port")))?.port();
        if taken.iter().all(|identity| identity.port != port) {
            return Ok(port);
        }
    }
    Err(HostingError::Exhausted("port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_kept_and_never_shared() -> Result<(), Box<dyn std::error::Error>> {
        let root = tempfile::tempdir()?;
        for id in ["a", "b"] {
            std::fs::create_dir(root.path().join(id))?;
        }
        let a = ensure(root.path(), "a")?;
        let b = ensure(root.path(), "b")?;
        assert_eq!((a.user, b.user), (USERS.start, USERS.start + 1));
        assert_ne!(a.port, b.port);
        assert_eq!(ensure(root.path(), "a")?, a);
        Ok(())
    }
}
