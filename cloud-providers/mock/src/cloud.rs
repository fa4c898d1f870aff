//! The shared handle of one mock cloud: state, persistence, call log, and the signal that makes local mode act.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use ipnet::Ipv4Net;
use minato_provider_interface::{CloudError, CloudErrorKind, ClusterId, MachineState};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::call::{Call, Endpoint, Reply};
use crate::state::{CloudState, Instance};

/// How a mock cloud is set up.
#[derive(Debug, Clone)]
pub struct CloudConfig {
    /// Network of the instances and load balancers.
    pub network: Ipv4Net,
    /// Zones, used in turn.
    pub zones: Vec<String>,
    /// Region.
    pub region: String,
    /// Where the state is kept between runs; `None` keeps it in memory.
    pub state_file: Option<PathBuf>,
    /// Whether a local host carries transitions out. Without one, instances change state at once.
    pub local: bool,
}

struct Inner {
    state: Mutex<CloudState>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    changed: watch::Sender<u64>,
    config: CloudConfig,
}

/// One mock cloud. Clones share it.
#[derive(Clone)]
pub struct MockCloud {
    inner: Arc<Inner>,
}

impl MockCloud {
    /// Opens the cloud, with the state of its last run when there is a state file.
    ///
    /// # Errors
    /// The state file cannot be read or written, or is not a state file.
    pub fn open(config: CloudConfig) -> Result<Self, CloudError> {
        let stored = match &config.state_file {
            Some(path) if path.exists() => {
                let bytes = std::fs::read(path).map_err(|e| storage(path, &e))?;
                Some(serde_json::from_slice::<CloudState>(&bytes).map_err(|e| storage(path, &e))?)
            }
            _ => None,
        };
        let state = match stored {
            Some(state) => state,
            None => CloudState::new(config.network, config.zones.clone(), config.region.clone())?,
        };
        let inner = Inner {
            state: Mutex::new(state),
            calls: Mutex::default(),
            changed: watch::Sender::new(0),
            config,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A copy of the whole state.
    pub fn snapshot(&self) -> CloudState {
        self.inner.state.lock().clone()
    }

    /// Number of calls so far, by name.
    pub fn call_counts(&self) -> BTreeMap<&'static str, u64> {
        self.inner.calls.lock().clone()
    }

    /// Changes whenever the state does.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// Reports that the instance has carried out the transition it was in.
    ///
    /// # Errors
    /// The state file cannot be written.
    pub fn settle(&self, instance: &str) -> Result<(), CloudError> {
        self.change(|state| {
            state.settle(instance);
            Ok(Reply::Done)
        })
        .map(|_| ())
    }

    /// Reports that a running instance has ended by itself, as a crash of a virtual machine would show.
    ///
    /// # Errors
    /// The state file cannot be written.
    pub fn instance_died(&self, instance: &str) -> Result<(), CloudError> {
        self.change(|state| {
            let lives = |i: &&mut Instance| matches!(i.state, MachineState::Running | MachineState::Pending);
            if let Some(i) = state.instances.get_mut(instance).filter(lives) {
                i.state = MachineState::Stopped;
            }
            Ok(Reply::Done)
        })
        .map(|_| ())
    }

    /// Applies a change to a copy, makes it durable, then makes it visible: a crash in between loses or keeps all of it.
    fn change(&self, f: impl FnOnce(&mut CloudState) -> Result<Reply, CloudError>) -> Result<Reply, CloudError> {
        let mut state = self.inner.state.lock();
        let mut next = state.clone();
        let reply = f(&mut next)?;
        if let Some(path) = &self.inner.config.state_file {
            write_durably(path, &next)?;
        }
        *state = next;
        drop(state);
        self.inner.changed.send_modify(|n| *n += 1);
        Ok(reply)
    }
}

fn storage(path: &std::path::Path, error: &dyn std::fmt::Display) -> CloudError {
    CloudError::new(
        CloudErrorKind::Transient,
        format!("mock cloud state {}: {error}", path.display()),
    )
}

fn write_durably(path: &std::path::Path, state: &CloudState) -> Result<(), CloudError> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let write = || -> std::io::Result<()> {
        let temporary = path.with_extension("tmp");
        // User data holds join credentials: for the owner's eyes only.
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&serde_json::to_vec(state)?)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        if let Some(dir) = path.parent() {
            std::fs::File::open(dir)?.sync_all()?;
        }
        Ok(())
    };
    write().map_err(|e| storage(path, &e))
}

#[async_trait]
impl Endpoint for MockCloud {
    async fn call(&self, cluster: &ClusterId, call: Call) -> Result<Reply, CloudError> {
        *self.inner.calls.lock().entry(call.name()).or_default() += 1;
        let reads = matches!(
            call,
            Call::Existence { .. }
                | Call::IsShutdown { .. }
                | Call::Metadata { .. }
                | Call::ListRoutes
                | Call::GetLoadBalancer { .. }
                | Call::ListMachines { .. }
                | Call::OwnedResources
        );
        if reads {
            return self.inner.state.lock().apply(cluster, &call);
        }
        tracing::debug!(%cluster, call = call.name(), "cloud call");
        let local = self.inner.config.local;
        self.change(|state| {
            let reply = state.apply(cluster, &call)?;
            if !local {
                let ids: Vec<String> = state.instances.keys().cloned().collect();
                ids.iter().for_each(|id| state.settle(id));
            }
            Ok(reply)
        })
    }
}
