//! Load balancers: a listener on the balancer's address, members with health checks, bytes copied between.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use minato_provider_interface::{HealthCheck, LoadBalancerPort, LoadBalancerSpec, MachineState};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::netns::NetnsRuntime;
use super::network::Network;
use super::{LocalError, io};
use crate::state::{CloudState, LoadBalancer};

const CHECK_INTERVAL: Duration = Duration::from_millis(500);
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// A member leaves after this many failed checks in a row, and comes back with the first good one.
const UNHEALTHY_AFTER: u32 = 2;

/// All load balancers of the network.
pub(super) struct Balancers {
    vpc: Arc<NetnsRuntime>,
    network: Network,
    running: BTreeMap<String, Running>,
}

struct Running {
    vip: Ipv4Addr,
    ports: Vec<LoadBalancerPort>,
    settings: watch::Sender<Settings>,
    stop: CancellationToken,
}

/// What may change while a balancer runs.
#[derive(Clone, PartialEq)]
struct Settings {
    spec: LoadBalancerSpec,
    members: Vec<Ipv4Addr>,
}

impl Balancers {
    pub(super) fn new(vpc: Arc<NetnsRuntime>, network: Network) -> Self {
        Self {
            vpc,
            network,
            running: BTreeMap::new(),
        }
    }

    /// Makes the balancers those of the state.
    pub(super) async fn apply(&mut self, state: &CloudState) -> Result<(), LocalError> {
        let gone: Vec<String> = self
            .running
            .iter()
            .filter(|(id, r)| {
                state
                    .load_balancers
                    .get(*id)
                    .is_none_or(|lb| lb.vip != r.vip || lb.spec.ports != r.ports)
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            self.stop(&id).await?;
        }
        for lb in state.load_balancers.values() {
            let settings = Settings {
                spec: lb.spec.clone(),
                members: members(state, lb),
            };
            match self.running.get(&lb.id) {
                Some(running) => {
                    running.settings.send_if_modified(|current| {
                        let differs = *current != settings;
                        *current = settings;
                        differs
                    });
                }
                None => self.start(lb, settings).await?,
            }
        }
        Ok(())
    }

    async fn start(&mut self, lb: &LoadBalancer, settings: Settings) -> Result<(), LocalError> {
        let address = format!("{}/32", lb.vip);
        self.network
            .inside(&["addr", "replace", &address, "dev", "br0"])
            .await?;
        let settings = watch::Sender::new(settings);
        let stop = CancellationToken::new();
        for port in &lb.spec.ports {
            let Some(node_port) = port.node_port else { continue };
            let listen = SocketAddr::from((lb.vip, port.port));
            let listener = self
                .vpc
                .spawn(TcpListener::bind(listen))
                .await
                .map_err(|e| LocalError::Unsupported(e.to_string()))?
                .map_err(io(format!("listening on {listen}")))?;
            let healthy = watch::Sender::new(Vec::new());
            let seen = healthy.subscribe();
            let (checks, accepts) = (settings.subscribe(), settings.subscribe());
            let (stop_checks, stop_accepts) = (stop.clone(), stop.clone());
            self.vpc
                .spawn(async move { stop_checks.run_until_cancelled(check(checks, node_port, healthy)).await });
            self.vpc.spawn(async move {
                stop_accepts
                    .run_until_cancelled(accept(listener, accepts, node_port, seen))
                    .await
            });
        }
        tracing::info!(load_balancer = lb.id, vip = %lb.vip, service = lb.spec.owner.owner_name, "load balancer up");
        self.running.insert(
            lb.id.clone(),
            Running {
                vip: lb.vip,
                ports: lb.spec.ports.clone(),
                settings,
                stop,
            },
        );
        Ok(())
    }

    async fn stop(&mut self, id: &str) -> Result<(), LocalError> {
        if let Some(running) = self.running.remove(id) {
            running.stop.cancel();
            let address = format!("{}/32", running.vip);
            self.network.inside(&["addr", "del", &address, "dev", "br0"]).await?;
        }
        Ok(())
    }

    /// Closes all listeners; the addresses stay for the next run.
    pub(super) async fn stop_all(&mut self) {
        for running in std::mem::take(&mut self.running).into_values() {
            running.stop.cancel();
        }
    }
}

fn members(state: &CloudState, lb: &LoadBalancer) -> Vec<Ipv4Addr> {
    let mut members: Vec<Ipv4Addr> = lb
        .spec
        .nodes
        .iter()
        .filter_map(|node| {
            let by_id = node
                .provider_id
                .as_ref()
                .and_then(|id| state.instances.get(id.as_str().rsplit('/').next()?));
            by_id.filter(|i| i.state == MachineState::Running).map(|i| i.ip)
        })
        .collect();
    members.sort_unstable();
    members.dedup();
    members
}

/// Keeps the list of healthy members.
async fn check(mut settings: watch::Receiver<Settings>, node_port: u16, healthy: watch::Sender<Vec<Ipv4Addr>>) {
    let mut failures: BTreeMap<Ipv4Addr, u32> = BTreeMap::new();
    loop {
        let now = settings.borrow_and_update().clone();
        let probes = now.members.iter().map(|ip| {
            let health_check = now.spec.health_check.clone();
            async move {
                (
                    *ip,
                    tokio::time::timeout(CHECK_TIMEOUT, probe(*ip, node_port, &health_check))
                        .await
                        .unwrap_or(false),
                )
            }
        });
        for (ip, good) in futures::future::join_all(probes).await {
            let count = failures.entry(ip).or_insert(UNHEALTHY_AFTER);
            *count = if good { 0 } else { count.saturating_add(1) };
        }
        failures.retain(|ip, _| now.members.contains(ip));
        let list: Vec<Ipv4Addr> = now
            .members
            .iter()
            .copied()
            .filter(|ip| failures.get(ip).is_some_and(|n| *n < UNHEALTHY_AFTER))
            .collect();
        healthy.send_if_modified(|current| {
            let differs = *current != list;
            *current = list;
            differs
        });
        tokio::select! {
            changed = settings.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
}

async fn probe(ip: Ipv4Addr, node_port: u16, check: &HealthCheck) -> bool {
    match check {
        HealthCheck::NodePort => TcpStream::connect((ip, node_port)).await.is_ok(),
        HealthCheck::LocalEndpoints { port } => {
            let Ok(mut stream) = TcpStream::connect((ip, *port)).await else {
                return false;
            };
            let request = format!("GET /healthz HTTP/1.1\r\nHost: {ip}\r\nConnection: close\r\n\r\n");
            if stream.write_all(request.as_bytes()).await.is_err() {
                return false;
            }
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.is_ok() && answer.ends_with(b" 200")
        }
    }
}

async fn accept(
    listener: TcpListener,
    settings: watch::Receiver<Settings>,
    node_port: u16,
    healthy: watch::Receiver<Vec<Ipv4Addr>>,
) {
    let turn = AtomicUsize::new(0);
    loop {
        let (client, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accepting for a load balancer failed");
                tokio::task::yield_now().await;
                continue;
            }
        };
        let (allowed, affinity) = {
            let now = settings.borrow();
            let ranges = &now.spec.source_ranges;
            (
                ranges.is_empty() || ranges.iter().any(|r| r.contains(&from.ip())),
                now.spec.client_ip_affinity,
            )
        };
        let members = healthy.borrow().clone();
        if !allowed || members.is_empty() {
            continue;
        }
        let first = if affinity {
            hash(from.ip())
        } else {
            turn.fetch_add(1, Ordering::Relaxed)
        } % members.len();
        let mut membership = settings.clone();
        tokio::spawn(async move {
            let mut client = client;
            // A member that refuses is passed over: its health check will take it out.
            for offset in 0..members.len() {
                let member = members[(first + offset) % members.len()];
                let dial = tokio::time::timeout(CHECK_TIMEOUT, TcpStream::connect((member, node_port)));
                if let Ok(Ok(mut server)) = dial.await {
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    // A member that is taken out may be gone without a word: its connections are cut.
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = membership.wait_for(|now| !now.members.contains(&member)) => {}
                    }
                    return;
                }
            }
        });
    }
}

fn hash(ip: IpAddr) -> usize {
    let mut hasher = std::hash::DefaultHasher::new();
    ip.hash(&mut hasher);
    usize::try_from(hasher.finish() >> 32).unwrap_or(0)
}
