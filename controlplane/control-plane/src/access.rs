//! Who may come in and what they may do: the authenticators and authorizers of a tenant's API server, in order.

use std::sync::Arc;

use minato_admission::{
    AdmissionPlugin, DefaultTolerationSeconds, NamespaceLifecycle, NodeRestriction, Priority, RoleEscalation,
    ServiceAccount, TaintNodesByCondition,
};
use minato_apiserver::Deps;
use minato_auth::{
    Authorizer, BootstrapTokenAuthenticator, KeyError, MastersAuthorizer, NodeAuthorizer, RbacAuthorizer,
    ServiceAccountAuthenticator, ServiceAccountKeys, UnionAuthenticator, UnionAuthorizer, X509Authenticator,
    bootstrap_objects,
};
use minato_meta::ClusterReader;
use minato_pki::ClusterPki;

use crate::config::Role;

/// The keys of service-account tokens.
pub(crate) fn service_account_keys(pki: &ClusterPki) -> Result<Arc<ServiceAccountKeys>, KeyError> {
    let verifying = pki.service_account_public_keys();
    ServiceAccountKeys::new(Vec::new(), Vec::new(), pki.service_account_key(), verifying).map(Arc::new)
}

/// What the API server is given.
pub(crate) fn deps(reader: Arc<dyn ClusterReader>, keys: Arc<ServiceAccountKeys>, role: &Role) -> Deps {
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
    Deps {
        authenticator: Arc::new(UnionAuthenticator::new(vec![
            Arc::new(X509Authenticator),
            Arc::new(ServiceAccountAuthenticator::new(keys.clone(), reader.clone())),
            Arc::new(BootstrapTokenAuthenticator::new(reader)),
        ])),
        authorizer,
        admission,
        egress: None,
        token_issuer: Some(keys),
        extra_resources,
        bootstrap_objects: bootstrap_objects(),
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
        chain.extend::<[Arc<dyn AdmissionPlugin>; 5]>([
            Arc::new(ServiceAccount::new(reader.clone())),
            Arc::new(NodeRestriction::new(reader.clone())),
            Arc::new(TaintNodesByCondition),
            Arc::new(Priority::new(reader.clone())),
            Arc::new(DefaultTolerationSeconds),
        ]);
    }
    chain.push(Arc::new(RoleEscalation::new(rbac, authorizer)));
    chain
}
