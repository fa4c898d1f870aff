//! What a new machine is told: where its cluster is, and a join token of its own that is good for an hour.
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/>.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use minato_api::fleet::{Cluster, MachineRecord, NodePool, POOL_LABEL};
use minato_api::k8s::core::v1::Secret;
use minato_api::kube::Api;
use minato_api::kube::api::PostParams;
use minato_api::meta_v1::ObjectMeta;
use minato_api::node::NodeConfig;
use minato_provider_interface::{MachineSpec, OwnerTags};

use super::{Pools, name};
use crate::cluster;
use crate::error::{Error, Result, api};
use crate::tenants::TenantApi;

const TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(1);
const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The cluster DNS has the tenth address of the Service range, as users of kubeadm expect.
const DNS_HOST: usize = 9;

/// The machine to ask the cloud for; makes its join token.
pub(super) async fn machine(
    pool: &NodePool,
    cluster: &Cluster,
    owner: &OwnerTags,
    tenant: &TenantApi,
    record: &MachineRecord,
    pools: &Pools,
) -> Result<MachineSpec> {
    let config = NodeConfig {
        bootstrap_token: new_token(tenant, &record.name).await?,
        certificate_authority: pools.authority(cluster)?,
        ..node_config(pool, cluster)?
    };
    let encoding = |source| Error::Encoding {
        what: "writing the machine's user data",
        source,
    };
    Ok(MachineSpec {
        owner: owner.clone(),
        name: record.name.clone(),
        client_token: record.name.clone(),
        instance_type: pool.spec.instance_type.clone(),
        image: pool.spec.image.clone(),
        zone: pool.spec.zone.clone(),
        user_data: serde_json::to_string_pretty(&config).map_err(encoding)?,
        tags: BTreeMap::new(),
    })
}

/// All but the credentials.
fn node_config(pool: &NodePool, cluster: &Cluster) -> Result<NodeConfig> {
    let endpoint = cluster.status.as_ref().and_then(|status| status.endpoint.as_ref());
    let endpoint = endpoint.ok_or_else(|| Error::Invalid("the cluster has no endpoint yet".to_owned()))?;
    let network = &cluster.spec.network;
    let mut labels = pool.spec.labels.clone();
    labels.insert(POOL_LABEL.to_owned(), name(pool).to_owned());
    Ok(NodeConfig {
        api_version: NodeConfig::API_VERSION.to_owned(),
        cluster_name: cluster::name(cluster).to_owned(),
        api_server: format!("https://{}:{}", endpoint.node_host, endpoint.node_port),
        certificate_authority: String::new(),
        bootstrap_token: String::new(),
        cluster_dns: vec![dns_address(&network.service_cidr)?],
        cluster_domain: network.dns_domain.clone(),
        cluster_cidr: network.pod_cidr.clone(),
        service_cidr: network.service_cidr.clone(),
        cloud_provider: cluster.spec.cloud.provider.clone(),
        labels,
        taints: pool.spec.taints.clone(),
    })
}

fn dns_address(service_cidr: &str) -> Result<IpAddr> {
    let range: ipnet::IpNet = service_cidr
        .parse()
        .map_err(|_| Error::Invalid(format!("{service_cidr:?} is not a range of addresses")))?;
    range
        .hosts()
        .nth(DNS_HOST)
        .ok_or_else(|| Error::Invalid(format!("the range {range} is too small")))
}

async fn new_token(tenant: &TenantApi, machine: &str) -> Result<String> {
    let (id, secret) = (random(6), random(16));
    let expiration = Timestamp::now().saturating_add(TOKEN_LIFE).unwrap_or(Timestamp::MAX);
    let data = [
        ("token-id", id.clone()),
        ("token-secret", secret.clone()),
        ("usage-bootstrap-authentication", "true".to_owned()),
        ("expiration", expiration.to_string()),
        ("description", format!("joins machine {machine}")),
    ];
    let token = Secret {
        metadata: ObjectMeta {
            name: Some(format!("bootstrap-token-{id}")),
            namespace: Some("kube-system".to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(TOKEN_TYPE.to_owned()),
        string_data: Some(data.map(|(key, value)| (key.to_owned(), value)).into()),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(tenant.client.clone(), "kube-system");
    secrets
        .create(&PostParams::default(), &token)
        .await
        .map_err(api("making a join token"))?;
    Ok(format!("{id}.{secret}"))
}

/// Characters of a bootstrap token, from the operating system's generator by way of `rand`'s seeded one.
fn random(length: usize) -> String {
    const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    (0..length)
        .map(|_| char::from(ALPHABET[rand::random_range(0..ALPHABET.len())]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dns_address_is_the_tenth() {
        assert_eq!(dns_address("10.96.0.0/16").ok(), "10.96.0.10".parse().ok());
        assert!(dns_address("10.96.0.0/30").is_err());
        assert!(dns_address("x").is_err());
    }
}
