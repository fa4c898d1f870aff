//! Leader election by a Lease: of several replicas one runs the components. The holder renews; who cannot renew in
//! time stops before another may begin.

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::coordination::v1::{Lease, LeaseSpec};
use minato_api::kube::api::PostParams;
use minato_api::kube::{Api, Client, Error as KubeError};
use minato_api::meta_v1::{MicroTime, ObjectMeta};
use thiserror::Error;
use tokio::time::Instant;

use crate::Tasks;

/// How to elect. The defaults are upstream's.
#[derive(Debug, Clone)]
pub struct LeaderConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who we are; unique per replica and start.
    pub identity: String,
    /// How long others wait after the last renewal that they saw.
    pub lease_duration: Duration,
    /// How long the holder tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// Pause between attempts.
    pub retry_period: Duration,
}

impl LeaderConfig {
    /// Upstream's timing for a Lease in `kube-system`.
    pub fn new(name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Why leadership ended.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LeaderError {
    /// The lease was not renewed in time, or somebody else holds it.
    #[error("the lease {0} was lost")]
    Lost(String),
    /// What ran under the lease panicked.
    #[error("stopped: {0}")]
    Failed(String),
}

/// What was last seen of the lease, and when by our own clock: other clocks are not trusted.
struct Seen {
    lease: Option<Lease>,
    at: Instant,
}

/// A candidate.
pub struct LeaderElector {
    api: Api<Lease>,
    config: LeaderConfig,
    seen: Seen,
}

impl LeaderElector {
    /// A candidate for the lease of `config`.
    pub fn new(client: Client, config: LeaderConfig) -> Self {
        Self {
            api: Api::namespaced(client, &config.namespace),
            config,
            seen: Seen {
                lease: None,
                at: Instant::now(),
            },
        }
    }

    /// Waits to be elected, runs `lead` with a task group of its own, and stops that group when the lease is lost or
    /// `tasks` stops; on an orderly stop the lease is released, so that a successor need not wait.
    ///
    /// # Errors
    /// [`LeaderError`] when leadership was lost or what ran under it failed; the caller decides whether to stand again.
    pub async fn run<F, R>(mut self, tasks: &Tasks, lead: F) -> Result<(), LeaderError>
    where
        F: FnOnce(Tasks) -> R,
        R: Future<Output = ()> + Send + 'static,
    {
        let stop = tasks.token().clone();
        if stop.run_until_cancelled(self.acquire()).await.is_none() {
            return Ok(());
        }
        tracing::info!(
            lease = self.config.name,
            identity = self.config.identity,
            "became leader"
        );
        let group = tasks.child();
        group.spawn("lead", lead(group.clone()));
        let lost = tokio::select! {
            () = self.renew_until_lost() => true,
            () = group.token().cancelled() => false,
        };
        group.stop().await;
        if lost {
            tracing::error!(lease = self.config.name, "lost leadership");
            return Err(LeaderError::Lost(self.config.name));
        }
        self.release().await;
        match group.failure() {
            Some(failure) => Err(LeaderError::Failed(failure)),
            None => Ok(()),
        }
    }

    async fn acquire(&mut self) {
        loop {
            match self.try_hold().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::debug!(lease = self.config.name, %error, "could not take the lease"),
            }
            let spread = rand::random_range(1.0..1.2);
            tokio::time::sleep(self.config.retry_period.mul_f64(spread)).await;
        }
    }

    async fn renew_until_lost(&mut self) {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.config.retry_period).await;
            let deadline = renewed + self.config.renew_deadline;
            match tokio::time::timeout_at(deadline, self.try_hold()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::warn!(lease = self.config.name, %error, "could not renew the lease"),
                Err(_) => return,
            }
        }
    }

    /// One attempt to take or renew. `Ok(false)`: somebody else holds it.
    async fn try_hold(&mut self) -> Result<bool, KubeError> {
        let current = self.api.get_opt(&self.config.name).await?;
        if self.seen.lease.as_ref().map(|lease| &lease.spec) != current.as_ref().map(|lease| &lease.spec) {
            self.seen = Seen {
                lease: current.clone(),
                at: Instant::now(),
            };
        }
        let held = match current {
            None => self.api.create(&PostParams::default(), &self.fresh()).await,
            Some(lease) => {
                let holder = lease
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.holder_identity.as_deref())
                    .unwrap_or("");
                let ours = holder == self.config.identity;
                let seconds = lease
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.lease_duration_seconds)
                    .unwrap_or(0);
                let valid = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
                if !ours && !holder.is_empty() && self.seen.at + valid > Instant::now() {
                    return Ok(false);
                }
                let next = self.renewed(lease, ours);
                self.api.replace(&self.config.name, &PostParams::default(), &next).await
            }
        };
        match held {
            Ok(lease) => {
                self.seen = Seen {
                    lease: Some(lease),
                    at: Instant::now(),
                };
                Ok(true)
            }
            Err(KubeError::Api(status)) if status.code == 409 => Ok(self.holds_by_last_sight()),
            Err(error) => Err(error),
        }
    }

    /// A conflict means that the lease changed under us: if it was ours, somebody touched it without taking it, and the
    /// next attempt will tell.
    fn holds_by_last_sight(&self) -> bool {
        let spec = self.seen.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        spec.and_then(|spec| spec.holder_identity.as_deref()) == Some(self.config.identity.as_str())
    }

    fn fresh(&self) -> Lease {
        let now = MicroTime(Timestamp::now());
        Lease {
            metadata: ObjectMeta {
                name: Some(self.config.name.clone()),
                namespace: Some(self.config.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.config.identity.clone()),
                lease_duration_seconds: i32::try_from(self.config.lease_duration.as_secs()).ok(),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        }
    }

    fn renewed(&self, mut lease: Lease, ours: bool) -> Lease {
        let fresh = self.fresh().spec.unwrap_or_default();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = fresh.holder_identity;
        spec.lease_duration_seconds = fresh.lease_duration_seconds;
        spec.renew_time = fresh.renew_time;
        if !ours {
            spec.acquire_time = fresh.acquire_time;
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        lease
    }

    async fn release(&mut self) {
        let Some(mut lease) = self.seen.lease.take() else {
            return;
        };
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        let name = self.config.name.clone();
        // Best effort: without it the successor waits for the lease to run out.
        let params = PostParams::default();
        let release = self.api.replace(&name, &params, &lease);
        if !matches!(tokio::time::timeout(Duration::from_secs(1), release).await, Ok(Ok(_))) {
            tracing::debug!(lease = name, "the lease was not released");
        }
    }
}
