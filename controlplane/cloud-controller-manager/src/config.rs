//! What an embedder decides about the cloud controllers.

use std::collections::BTreeSet;
use std::time::Duration;

use ipnet::IpNet;

/// Settings of one cloud controller manager.
#[derive(Debug, Clone)]
pub struct CloudControllerManagerConfig {
    /// Controllers that do not run, by name; see [`crate::CloudControllerManager::names`].
    pub disabled: BTreeSet<String>,
    /// The ranges of pod addresses. Empty: no routes are made, and none is touched.
    pub cluster_cidrs: Vec<IpNet>,
    /// The `loadBalancerClass` that is served; none: Services without a class.
    pub load_balancer_class: Option<String>,
    /// How often nodes that are not ready are looked up in the cloud.
    pub node_monitor_period: Duration,
    /// How often the addresses of all nodes are read anew.
    pub address_refresh: Duration,
    /// A Node younger than this is not deleted on a single answer: its instance may not be visible everywhere yet.
    pub young_node: Duration,
    /// A Node without provider id whose name no instance has is deleted no sooner than this after its creation.
    pub unknown_node: Duration,
    /// How far two answers must lie apart to count as two.
    pub second_look: Duration,
    /// When more than this share of all nodes, and more than three, seem to be gone at once, they are only deleted when
    /// that is still so after [`CloudControllerManagerConfig::mass_deletion_wait`]: rather a wrong project or credential.
    pub mass_deletion_share: f64,
    /// See [`CloudControllerManagerConfig::mass_deletion_share`].
    pub mass_deletion_wait: Duration,
    /// Passes over the routes are at least this far apart.
    pub route_period: Duration,
    /// Changes of nodes are gathered for this long before load balancers hear of them.
    pub node_batch: Duration,
    /// How often what did not change is compared with the cloud all the same; routes at half of it.
    pub resync: Duration,
    /// A call that takes longer has failed; what it did is found the next time.
    pub call_timeout: Duration,
    /// Pause after a first failure; it doubles.
    pub first_retry: Duration,
    /// Longest pause after failures.
    pub last_retry: Duration,
    /// How often the cloud is searched for load balancers that no Service has.
    pub sweep_period: Duration,
    /// Whether the sweep deletes what it finds; otherwise it only says so.
    pub delete_orphans: bool,
}

impl Default for CloudControllerManagerConfig {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            disabled: BTreeSet::new(),
            cluster_cidrs: Vec::new(),
            load_balancer_class: None,
            node_monitor_period: seconds(5),
            address_refresh: seconds(300),
            young_node: seconds(120),
            unknown_node: seconds(300),
            second_look: seconds(30),
            mass_deletion_share: 0.3,
            mass_deletion_wait: seconds(300),
            route_period: seconds(2),
            node_batch: Duration::from_millis(500),
            resync: seconds(3600),
            call_timeout: seconds(120),
            first_retry: seconds(5),
            last_retry: seconds(300),
            sweep_period: seconds(600),
            delete_orphans: false,
        }
    }
}
