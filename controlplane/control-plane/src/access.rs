//! Who may come in and what they may do: the authenticators and authorizers of a tenant's API server, in order.

use std::sync::Arc;

use minato_admission::{
    AdmissionPlugin, CertificateApproval, CertificateSigning, CertificateSubjectRestriction, DefaultIngressClass,
    DefaultStorageClass, DefaultTolerationSeconds, LimitRanger, NamespaceLifecycle, NodeRestriction,
    PersistentVolumeClaimResize, PodSecurity, PodTopologyLabels, Priority, RoleEscalation, RuntimeClass,
    ServiceAccount, StorageObjectInUseProtection, TaintNodesByCondition,
};
use minato_apiserver::{Deps, KubeletAccess};
use minato_auth::{
    Authorizer, BootstrapTokenAuthenticator, KeyError, MastersAuthorizer, NodeAuthorizer, RbacAuthorizer,
    ServiceAccountAuthenticator, ServiceAccountKeys, UnionAuthenticator, UnionAuthorizer, X509Authenticator,
    bootstrap_objects,
};
use minato_meta::ClusterReader;
use minato_pki::{ClusterPki, PkiError};
use minato_streams::{Egress, NodeListener};
use minato_tunnel::TunnelServer;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::StartError;
use crate::config::{Role, Workloads};

/// The user that the API server is to kubelets; a default role binding lets it use their API.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// The keys of service-account tokens.
pub(crate) fn service_account_keys(pki: &ClusterPki) -> Result<Arc<ServiceAccountKeys>, KeyError> {
    let verifying = pki.service_account_public_keys();
    ServiceAccountKeys::new(Vec::new(), Vec::new(), pki.service_account_key(), verifying).map(Arc::new)
}

/// The way to the nodes.
pub(crate) struct Nodes {
    tunnel: Arc<TunnelServer>,
    kubelet: Arc<KubeletAccess>,
}

impl Nodes {
    /// Without tunnels yet: nodes open them.
    pub(crate) fn new(pki: &ClusterPki) -> Result<Self, StartError> {
        let (chain, key) = pki.issue_client(KUBELET_CLIENT, &[])?.to_tls()?;
        let authorities = CertificateDer::pem_slice_iter(pki.ca_certificate().as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| PkiError::Malformed("not PEM"))?;
        let kubelet = KubeletAccess::new(chain, key, &authorities).map_err(|e| StartError::Tls(e.to_string()))?;
        Ok(Self {
            tunnel: Arc::new(TunnelServer::new()),
            kubelet,
        })
    }
}

/// What the API server is given.
pub(crate) fn deps(
    reader: Arc<dyn ClusterReader>,
    keys: Arc<ServiceAccountKeys>,
    nodes: Option<&Nodes>,
    role: &Role,
) -> Deps {
    let egress = nodes.map(|n| n.tunnel.clone() as Arc<dyn Egress>);
    let node_listener = nodes.map(|n| n.tunnel.clone() as Arc<dyn NodeListener>);
    let kubelet = nodes.map(|n| n.kubelet.clone());
    let rbac = Arc::new(RbacAuthorizer::new(reader.clone()));
    let authorizer: Arc<dyn Authorizer> = Arc::new(UnionAuthorizer::new(vec![
        Arc::new(MastersAuthorizer),
        Arc::new(NodeAuthorizer::new(reader.clone())),
        rbac.clone(),
    ]));
    let mut admission = admission(&reader, rbac, authorizer.clone(), role);
    let mut extra_resources = Vec::new();
    if let Role::Management(management) = role {
        admission.extend(management.admission.iter().cloned());
        let own = management.resources.iter().cloned();
        extra_resources.extend(own.map(|(resource, schema)| (resource, Some(schema))));
    }
    let mut bootstrap_objects = bootstrap_objects();
    if let Role::Workloads(workloads) = role {
        bootstrap_objects.extend(dns_service(workloads));
    }
    Deps {
        authenticator: Arc::new(UnionAuthenticator::new(vec![
            Arc::new(X509Authenticator),
            Arc::new(ServiceAccountAuthenticator::new(keys.clone(), reader.clone())),
            Arc::new(BootstrapTokenAuthenticator::new(reader)),
        ])),
        authorizer,
        admission,
        egress,
        kubelet,
        node_listener,
        token_issuer: Some(keys),
        extra_resources,
        bootstrap_objects,
    }
}

/// The plug-ins, in upstream's order. A cluster without nodes has no use for those about pods.
fn admission(
    reader: &Arc<dyn ClusterReader>,
    rbac: Arc<RbacAuthorizer>,
    authorizer: Arc<dyn Authorizer>,
    role: &Role,
) -> Vec<Arc<dyn AdmissionPlugin>> {
    let mut chain: Vec<Arc<dyn AdmissionPlugin>> = vec![Arc::new(NamespaceLifecycle::new(reader.clone()))];
    if let Role::Workloads(_) = role {
        chain.extend::<[Arc<dyn AdmissionPlugin>; 12]>([
            Arc::new(LimitRanger::new(reader.clone())),
            Arc::new(ServiceAccount::new(reader.clone())),
            Arc::new(NodeRestriction::new(reader.clone())),
            Arc::new(TaintNodesByCondition),
            Arc::new(PodSecurity::new(reader.clone())),
            Arc::new(Priority::new(reader.clone())),
            Arc::new(DefaultTolerationSeconds),
            Arc::new(DefaultStorageClass::new(reader.clone())),
            Arc::new(StorageObjectInUseProtection),
            Arc::new(PersistentVolumeClaimResize::new(reader.clone())),
            Arc::new(RuntimeClass::new(reader.clone())),
            Arc::new(PodTopologyLabels::new(reader.clone())),
        ]);
    }
    chain.push(Arc::new(CertificateApproval::new(authorizer.clone())));
    chain.push(Arc::new(CertificateSigning::new(authorizer.clone())));
    chain.push(Arc::new(CertificateSubjectRestriction));
    if let Role::Workloads(_) = role {
        chain.push(Arc::new(DefaultIngressClass::new(reader.clone())));
    }
    chain.push(Arc::new(RoleEscalation::new(rbac, authorizer)));
    chain
}

/// The Service by whose address pods find their resolver: the tenth, as users of kubeadm expect. Every node answers there
/// itself, so it has no endpoints; the object keeps the address from anybody else.
fn dns_service(workloads: &Workloads) -> Option<Value> {
    let address = workloads.service_cidr.hosts().nth(9)?.to_string();
    Some(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"k8s-app": "kube-dns", "kubernetes.io/name": "kube-dns"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilyPolicy": "SingleStack",
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
            ],
            "sessionAffinity": "None",
        },
    }))
}
