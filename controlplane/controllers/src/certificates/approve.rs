//! What a request is, and whether it may be approved: no await, no client.

use std::net::IpAddr;

use ipnet::IpNet;
use minato_api::k8s::certificates::v1::CertificateSigningRequestSpec;
use minato_api::k8s::core::v1::Node;
use minato_pki::{CertificateRequest, Signer, Usage};

use crate::ops;

const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";
/// The API server's names inside the cluster, which the same authority vouches for.
const API_SERVER_NAME: &str = "kubernetes";

/// What a kubelet asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A client certificate for the very node that asks: a renewal.
    SelfClient,
    /// A client certificate for a node, asked for by somebody else: a bootstrap token.
    Client,
    /// A serving certificate, asked for by this node.
    Serving(String),
}

impl Kind {
    /// The subresource that the requester must be allowed to create.
    pub(super) fn permission(&self) -> Option<&'static str> {
        match self {
            Self::SelfClient => Some("selfnodeclient"),
            Self::Client => Some("nodeclient"),
            Self::Serving(_) => None,
        }
    }

    pub(super) fn message(&self) -> &'static str {
        match self {
            Self::SelfClient => "Auto approving self kubelet client certificate after SubjectAccessReview.",
            Self::Client => "Auto approving kubelet client certificate after SubjectAccessReview.",
            Self::Serving(_) => "Auto approving kubelet serving certificate for the addresses of its node.",
        }
    }
}

/// The usages, if all are known.
pub(super) fn usages(spec: &CertificateSigningRequestSpec) -> Option<Vec<Usage>> {
    let texts = spec.usages.iter().flatten();
    texts.map(|text| text.parse().ok()).collect()
}

/// Recognizes the requests that may be approved without a human; all others are somebody else's.
pub(super) fn recognize(spec: &CertificateSigningRequestSpec, request: &CertificateRequest) -> Option<Kind> {
    let signer: Signer = spec.signer_name.parse().ok()?;
    signer.check(request, &usages(spec)?).ok()?;
    let username = spec.username.as_deref().unwrap_or_default();
    let itself = username == request.common_name();
    match signer {
        Signer::ApiServerClient => None,
        Signer::KubeletClient if itself => Some(Kind::SelfClient),
        Signer::KubeletClient => Some(Kind::Client),
        Signer::KubeletServing => {
            let is_node = spec.groups.iter().flatten().any(|group| group == NODES);
            let node = username.strip_prefix(NODE_PREFIX).filter(|node| !node.is_empty())?;
            (itself && is_node).then(|| Kind::Serving(node.to_owned()))
        }
    }
}

/// What no node may serve as.
pub(super) struct Reserved<'a> {
    pub(super) services: &'a [IpNet],
    pub(super) names: &'a [String],
    pub(super) addresses: &'a [IpAddr],
}

impl Reserved<'_> {
    fn has_name(&self, name: &str) -> bool {
        let inside = name
            .strip_prefix(API_SERVER_NAME)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        inside || name.contains('*') || self.names.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
    }

    fn has_address(&self, address: &IpAddr) -> bool {
        let unusable = address.is_loopback() || address.is_unspecified() || address.is_multicast();
        unusable || self.addresses.contains(address) || self.services.iter().any(|range| range.contains(address))
    }
}

/// Whether a node may serve as everything that it asks for: all of it must be among its own addresses, and nothing of
/// it another node's or the API server's. A node that could get a certificate for another's address could take its
/// place, which for the API server's would be the end of all secrets.
///
/// # Errors
/// What is in the way; a later change of the nodes may remove it.
pub(super) fn may_serve(
    request: &CertificateRequest,
    node: &Node,
    others: &[std::sync::Arc<Node>],
    reserved: &Reserved<'_>,
) -> Result<(), String> {
    for name in request.dns_names() {
        if reserved.has_name(name) {
            return Err(format!("the name {name} is not a node's"));
        }
        let claims = |node: &Node| names(node).any(|known| known.eq_ignore_ascii_case(name));
        check(node, others, &claims).map_err(|why| format!("{name} {why}"))?;
    }
    for address in request.ip_addresses() {
        if reserved.has_address(&address) {
            return Err(format!("the address {address} is not a node's"));
        }
        let claims = |node: &Node| addresses(node).any(|known| known == address);
        check(node, others, &claims).map_err(|why| format!("{address} {why}"))?;
    }
    Ok(())
}

/// The first name or address that is asked for and not among the cloud's.
pub(super) fn unknown_to_cloud(request: &CertificateRequest, known: &[String]) -> Option<String> {
    let has_name = |name: &&str| known.iter().any(|known| known.eq_ignore_ascii_case(name));
    let has_address = |address: &IpAddr| known.iter().any(|known| known.parse() == Ok(*address));
    let name = request.dns_names().find(|name| !has_name(name)).map(str::to_owned);
    name.or_else(|| {
        let mut addresses = request.ip_addresses();
        addresses
            .find(|address| !has_address(address))
            .map(|address| address.to_string())
    })
}

fn check(node: &Node, others: &[std::sync::Arc<Node>], claims: &dyn Fn(&Node) -> bool) -> Result<(), &'static str> {
    if !claims(node) {
        return Err("is not an address of the node");
    }
    let name = ops::name(&node.metadata);
    match others
        .iter()
        .any(|other| ops::name(&other.metadata) != name && claims(other))
    {
        true => Err("is also an address of another node"),
        false => Ok(()),
    }
}

fn of_types<'n>(node: &'n Node, types: &'static [&'static str]) -> impl Iterator<Item = &'n str> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses
        .filter(|address| types.contains(&address.type_.as_str()))
        .map(|address| address.address.as_str())
}

fn names(node: &Node) -> impl Iterator<Item = &str> {
    of_types(node, &["Hostname", "InternalDNS", "ExternalDNS"])
}

fn addresses(node: &Node) -> impl Iterator<Item = IpAddr> {
    of_types(node, &["InternalIP", "ExternalIP"]).filter_map(|text| text.parse().ok())
}
