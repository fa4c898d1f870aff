//! The built-in kinds as data: one line a kind.
//!
//! Facts of the API reference: <https://kubernetes.io/docs/reference/kubernetes-api/>.

use super::Behaviour;

/// One kind. Empty strings and slices where there is nothing to say.
pub(super) struct Row {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) short: &'static [&'static str],
    pub(super) categories: &'static [&'static str],
    pub(super) namespaced: bool,
    pub(super) subresources: &'static [&'static str],
    /// Package of the definition, such as `io.k8s.api.core.v1`.
    pub(super) package: &'static str,
    pub(super) behaviour: Behaviour,
}

const CLUSTER: bool = false;
const NAMESPACED: bool = true;
const NONE: &[&str] = &[];
const STATUS: &[&str] = &["status"];
const ALL: &[&str] = &["all"];

type Short = &'static [&'static str];

#[expect(clippy::too_many_arguments, reason = "one argument a column of the table")]
const fn row(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: Short,
    categories: Short,
    namespaced: bool,
    subresources: Short,
    package: &'static str,
    behaviour: Behaviour,
) -> Row {
    Row {
        group,
        version: "v1",
        kind,
        plural,
        short,
        categories,
        namespaced,
        subresources,
        package,
        behaviour,
    }
}

const CORE: &str = "io.k8s.api.core.v1";
const APPS: &str = "io.k8s.api.apps.v1";
const BATCH: &str = "io.k8s.api.batch.v1";
const RBAC: &str = "io.k8s.api.rbac.v1";
const STORAGE: &str = "io.k8s.api.storage.v1";
const NETWORKING: &str = "io.k8s.api.networking.v1";
const AUTHENTICATION: &str = "io.k8s.api.authentication.v1";
const AUTHORIZATION: &str = "io.k8s.api.authorization.v1";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const STORAGE_GROUP: &str = "storage.k8s.io";
const NETWORKING_GROUP: &str = "networking.k8s.io";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
const AUTHORIZATION_GROUP: &str = "authorization.k8s.io";

use Behaviour as B;

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("", "Binding", "bindings", NONE, NONE, NAMESPACED, NONE, CORE, B::Review),
    row("", "ConfigMap", "configmaps", &["cm"], NONE, NAMESPACED, NONE, CORE, B::ConfigMap),
    row("", "Endpoints", "endpoints", &["ep"], NONE, NAMESPACED, NONE, CORE, B::Plain),
    row("", "Event", "events", &["ev"], NONE, NAMESPACED, NONE, CORE, B::Event),
    row("", "LimitRange", "limitranges", &["limits"], NONE, NAMESPACED, NONE, CORE, B::Plain),
    row("", "Namespace", "namespaces", &["ns"], NONE, CLUSTER, &["finalize", "status"], CORE, B::Namespace),
    row("", "Node", "nodes", &["no"], NONE, CLUSTER, &["proxy", "status"], CORE, B::Plain),
    row("", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"], NONE, NAMESPACED, STATUS, CORE, B::Plain),
    row("", "PersistentVolume", "persistentvolumes", &["pv"], NONE, CLUSTER, STATUS, CORE, B::Plain),
    row("", "Pod", "pods", &["po"], ALL, NAMESPACED,
        &["attach", "binding", "ephemeralcontainers", "eviction", "exec", "log", "portforward", "proxy", "resize", "status"], CORE, B::Pod),
    row("", "PodTemplate", "podtemplates", NONE, NONE, NAMESPACED, NONE, CORE, B::Plain),
    row("", "ReplicationController", "replicationcontrollers", &["rc"], ALL, NAMESPACED, &["scale", "status"], CORE, B::Plain),
    row("", "ResourceQuota", "resourcequotas", &["quota"], NONE, NAMESPACED, STATUS, CORE, B::Plain),
    row("", "Secret", "secrets", NONE, NONE, NAMESPACED, NONE, CORE, B::Secret),
    row("", "ServiceAccount", "serviceaccounts", &["sa"], NONE, NAMESPACED, &["token"], CORE, B::Plain),
    row("", "Service", "services", &["svc"], ALL, NAMESPACED, &["proxy", "status"], CORE, B::Service),
    row("apps", "ControllerRevision", "controllerrevisions", NONE, NONE, NAMESPACED, NONE, APPS, B::Plain),
    row("apps", "DaemonSet", "daemonsets", &["ds"], ALL, NAMESPACED, STATUS, APPS, B::Plain),
    row("apps", "Deployment", "deployments", &["deploy"], ALL, NAMESPACED, &["scale", "status"], APPS, B::Plain),
    row("apps", "ReplicaSet", "replicasets", &["rs"], ALL, NAMESPACED, &["scale", "status"], APPS, B::Plain),
    row("apps", "StatefulSet", "statefulsets", &["sts"], ALL, NAMESPACED, &["scale", "status"], APPS, B::Plain),
    row("batch", "CronJob", "cronjobs", &["cj"], ALL, NAMESPACED, STATUS, BATCH, B::Plain),
    row("batch", "Job", "jobs", NONE, ALL, NAMESPACED, STATUS, BATCH, B::Plain),
    row("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", &["csr"], NONE, CLUSTER,
        &["approval", "status"], "io.k8s.api.certificates.v1", B::Plain),
    row("coordination.k8s.io", "Lease", "leases", NONE, NONE, NAMESPACED, NONE, "io.k8s.api.coordination.v1", B::Lease),
    row("discovery.k8s.io", "EndpointSlice", "endpointslices", NONE, NONE, NAMESPACED, NONE, "io.k8s.api.discovery.v1", B::Plain),
    row(NETWORKING_GROUP, "Ingress", "ingresses", &["ing"], NONE, NAMESPACED, STATUS, NETWORKING, B::Plain),
    row(NETWORKING_GROUP, "IngressClass", "ingressclasses", NONE, NONE, CLUSTER, NONE, NETWORKING, B::Plain),
    row(NETWORKING_GROUP, "NetworkPolicy", "networkpolicies", &["netpol"], NONE, NAMESPACED, NONE, NETWORKING, B::Plain),
    row("node.k8s.io", "RuntimeClass", "runtimeclasses", NONE, NONE, CLUSTER, NONE, "io.k8s.api.node.v1", B::Plain),
    row("policy", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"], NONE, NAMESPACED, STATUS, "io.k8s.api.policy.v1", B::Plain),
    row(RBAC_GROUP, "ClusterRoleBinding", "clusterrolebindings", NONE, NONE, CLUSTER, NONE, RBAC, B::Rbac),
    row(RBAC_GROUP, "ClusterRole", "clusterroles", NONE, NONE, CLUSTER, NONE, RBAC, B::Rbac),
    row(RBAC_GROUP, "RoleBinding", "rolebindings", NONE, NONE, NAMESPACED, NONE, RBAC, B::Rbac),
    row(RBAC_GROUP, "Role", "roles", NONE, NONE, NAMESPACED, NONE, RBAC, B::Rbac),
    row("scheduling.k8s.io", "PriorityClass", "priorityclasses", &["pc"], NONE, CLUSTER, NONE, "io.k8s.api.scheduling.v1", B::Plain),
    row(STORAGE_GROUP, "CSIDriver", "csidrivers", NONE, NONE, CLUSTER, NONE, STORAGE, B::Plain),
    row(STORAGE_GROUP, "CSINode", "csinodes", NONE, NONE, CLUSTER, NONE, STORAGE, B::Plain),
    row(STORAGE_GROUP, "CSIStorageCapacity", "csistoragecapacities", NONE, NONE, NAMESPACED, NONE, STORAGE, B::Plain),
    row(STORAGE_GROUP, "StorageClass", "storageclasses", &["sc"], NONE, CLUSTER, NONE, STORAGE, B::Plain),
    row(STORAGE_GROUP, "VolumeAttachment", "volumeattachments", NONE, NONE, CLUSTER, STATUS, STORAGE, B::Plain),
    row(AUTHENTICATION_GROUP, "SelfSubjectReview", "selfsubjectreviews", NONE, NONE, CLUSTER, NONE, AUTHENTICATION, B::Review),
    row(AUTHENTICATION_GROUP, "TokenReview", "tokenreviews", NONE, NONE, CLUSTER, NONE, AUTHENTICATION, B::Review),
    row(AUTHORIZATION_GROUP, "LocalSubjectAccessReview", "localsubjectaccessreviews", NONE, NONE, NAMESPACED, NONE, AUTHORIZATION, B::Review),
    row(AUTHORIZATION_GROUP, "SelfSubjectAccessReview", "selfsubjectaccessreviews", NONE, NONE, CLUSTER, NONE, AUTHORIZATION, B::Review),
    row(AUTHORIZATION_GROUP, "SelfSubjectRulesReview", "selfsubjectrulesreviews", NONE, NONE, CLUSTER, NONE, AUTHORIZATION, B::Review),
    row(AUTHORIZATION_GROUP, "SubjectAccessReview", "subjectaccessreviews", NONE, NONE, CLUSTER, NONE, AUTHORIZATION, B::Review),
];
