//! What the runtime has of one pod, as read through CRI.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use minato_cri::v1::{self, ContainerState, PodSandboxState};
use minato_cri::{Cri, CriError};

use crate::pods::keys;

/// Bytes of a termination message.
const LONGEST_MESSAGE: u64 = 4096;
/// What of a log becomes a message: so many bytes and lines, of so many bytes read.
const LOG_MESSAGE: usize = 2048;
const LOG_LINES: usize = 80;
const LOG_READ: u64 = 64 * 1024;

/// State of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Created,
    Running,
    Exited,
    Unknown,
}

/// One container, of any attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ContainerView {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) sandbox: String,
    pub(crate) restart_count: u32,
    pub(crate) hash: String,
    pub(crate) state: State,
    pub(crate) created: Timestamp,
    pub(crate) started: Option<Timestamp>,
    pub(crate) finished: Option<Timestamp>,
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) image: String,
    pub(crate) image_ref: String,
    pub(crate) log: PathBuf,
}

/// How long after a container was killed the runtime may still learn that memory was the reason.
const SETTLES: SignedDuration = SignedDuration::from_secs(3);

impl ContainerView {
    /// Whether the runtime may yet change its mind: word of the kernel's out-of-memory killer can come after that of
    /// the process's end.
    pub(crate) fn is_unsettled(&self, now: Timestamp) -> bool {
        let killed =
            self.state == State::Exited && self.exit_code == 137 && matches!(self.reason.as_str(), "" | "Error");
        killed && self.finished.is_some_and(|at| now.duration_since(at) < SETTLES)
    }
}

/// One sandbox, of any attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SandboxView {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) ready: bool,
    pub(crate) created: Timestamp,
    pub(crate) ips: Vec<String>,
}

/// All of one pod; newest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PodView {
    pub(crate) sandboxes: Vec<SandboxView>,
    pub(crate) containers: Vec<Arc<ContainerView>>,
}

/// Containers that have ended, which are not asked about again.
pub(crate) type Ended = HashMap<String, Arc<ContainerView>>;

impl PodView {
    /// The sandbox in which the pod runs, if it is up.
    pub(crate) fn sandbox(&self) -> Option<&SandboxView> {
        self.sandboxes.first().filter(|sandbox| sandbox.ready)
    }

    /// The newest container of that name.
    pub(crate) fn container(&self, name: &str) -> Option<&Arc<ContainerView>> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// Containers of that name, newest first.
    pub(crate) fn attempts<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Arc<ContainerView>> {
        self.containers.iter().filter(move |c| c.name == name)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Arc<ContainerView>> {
        self.containers.iter().filter(|c| c.state == State::Running)
    }

    /// Reads a pod's sandboxes and containers.
    pub(crate) async fn read(cri: &Cri, uid: &str, ended: &mut Ended) -> Result<Self, CriError> {
        let labels = HashMap::from([(keys::POD_UID.to_owned(), uid.to_owned())]);
        let sandboxes = cri.list_pod_sandboxes(labels.clone()).await?;
        let containers = cri.list_containers(labels).await?;
        let mut view = Self::default();
        for sandbox in sandboxes {
            let ready = sandbox.state() == PodSandboxState::SandboxReady;
            let ips = if ready {
                addresses(cri, &sandbox.id).await?
            } else {
                Vec::new()
            };
            view.sandboxes.push(SandboxView {
                attempt: sandbox.metadata.map_or(0, |m| m.attempt),
                ready,
                created: nanos(sandbox.created_at).unwrap_or_default(),
                ips,
                id: sandbox.id,
            });
        }
        let known: HashMap<&str, &v1::Container> = containers.iter().map(|c| (c.id.as_str(), c)).collect();
        ended.retain(|id, _| known.contains_key(id.as_str()));
        let ended_before: &Ended = ended;
        let views = containers.iter().map(|container| async move {
            match ended_before.get(&container.id) {
                Some(view) => Ok(Some(view.clone())),
                None => read_container(cri, container).await,
            }
        });
        view.containers = try_join_all(views).await?.into_iter().flatten().collect();
        let now = Timestamp::now();
        for container in view
            .containers
            .iter()
            .filter(|c| c.state == State::Exited && !c.is_unsettled(now))
        {
            ended.insert(container.id.clone(), container.clone());
        }
        view.sandboxes
            .sort_by(|a, b| b.created.cmp(&a.created).then(b.attempt.cmp(&a.attempt)));
        view.containers
            .sort_by(|a, b| b.restart_count.cmp(&a.restart_count).then(b.created.cmp(&a.created)));
        Ok(view)
    }
}

/// Addresses of a sandbox; a sandbox that vanished meanwhile has none.
async fn addresses(cri: &Cri, id: &str) -> Result<Vec<String>, CriError> {
    let status = match cri.pod_sandbox_status(id).await {
        Ok(status) => status,
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let network = status.network.unwrap_or_default();
    let first = (!network.ip.is_empty()).then_some(network.ip);
    Ok(first
        .into_iter()
        .chain(network.additional_ips.into_iter().map(|ip| ip.ip))
        .collect())
}

async fn read_container(cri: &Cri, container: &v1::Container) -> Result<Option<Arc<ContainerView>>, CriError> {
    let status = match cri.container_status(&container.id).await {
        Ok(status) => status,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let state = match status.state() {
        ContainerState::ContainerCreated => State::Created,
        ContainerState::ContainerRunning => State::Running,
        ContainerState::ContainerExited => State::Exited,
        ContainerState::ContainerUnknown => State::Unknown,
    };
    let annotation = |key: &str| container.annotations.get(key).cloned().unwrap_or_default();
    let path = annotation(keys::TERMINATION_PATH);
    let mount = status
        .mounts
        .iter()
        .find(|m| !path.is_empty() && m.container_path == path);
    let log = PathBuf::from(&status.log_path);
    let message = match state {
        State::Exited => {
            let file = mount.map(|m| PathBuf::from(&m.host_path));
            let from_logs = annotation(keys::TERMINATION_POLICY) == "FallbackToLogsOnError" && status.exit_code != 0;
            last_words(file, from_logs.then(|| log.clone()))
                .await
                .filter(|words| !words.is_empty())
        }
        _ => None,
    };
    Ok(Some(Arc::new(ContainerView {
        id: container.id.clone(),
        name: container.labels.get(keys::CONTAINER_NAME).cloned().unwrap_or_default(),
        sandbox: container.pod_sandbox_id.clone(),
        restart_count: annotation(keys::RESTART_COUNT).parse().unwrap_or(0),
        hash: annotation(keys::HASH),
        state,
        created: nanos(status.created_at).unwrap_or_default(),
        started: nanos(status.started_at),
        finished: nanos(status.finished_at),
        exit_code: status.exit_code,
        reason: status.reason,
        message: message.unwrap_or(status.message),
        image: status.image.map(|image| image.image).unwrap_or_default(),
        image_ref: status.image_ref,
        log,
    })))
}

/// What a container left as its message, or the end of its log.
async fn last_words(file: Option<PathBuf>, log: Option<PathBuf>) -> Option<String> {
    let read = move || {
        let words = file
            .and_then(|file| read_end(&file, LONGEST_MESSAGE, false))
            .unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        match log {
            Some(log) if words.is_empty() => {
                let bytes = read_end(&log, LOG_READ, true)?;
                let lines: Vec<String> = String::from_utf8_lossy(&bytes)
                    .lines()
                    .filter_map(|line| line.splitn(4, ' ').nth(3).map(str::to_owned))
                    .collect();
                let from = lines.len().saturating_sub(LOG_LINES);
                let mut text = lines.get(from..).unwrap_or_default().join("\n");
                let cut = text.len().saturating_sub(LOG_MESSAGE);
                let cut = (cut..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                Some(text.split_off(cut))
            }
            _ => Some(words),
        }
    };
    tokio::task::spawn_blocking(read).await.ok().flatten()
}

/// At most this many bytes of a file, from its start or its end.
fn read_end(path: &Path, most: u64, end: bool) -> Option<Vec<u8>> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(path).ok()?;
    if end {
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(most))).ok()?;
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// A time of CRI; zero is none.
fn nanos(at: i64) -> Option<Timestamp> {
    (at > 0).then(|| Timestamp::from_nanosecond(at.into()).ok()).flatten()
}
