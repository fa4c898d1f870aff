//! The built-in kinds as data: one line a kind.
//!
//! Facts of the API reference: <https://kubernetes.io/docs/reference/kubernetes-api/>.

use std::sync::Arc;

use super::definition::CustomResourceDefinition;
use super::plain::Review;
use super::{
    apps, autoscaling, batch, certificates, classes, coordination, core, extension, networking, policy, rbac, storage,
};
use crate::resource::{Strategy, Verb};

/// One kind. Empty strings and slices where there is nothing to say.
pub(super) struct Row {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) short: &'static [&'static str],
    pub(super) categories: &'static [&'static str],
    pub(super) namespaced: bool,
    pub(super) verbs: &'static [Verb],
    pub(super) subresources: &'static [&'static str],
    /// Package of the definition without its version, such as `io.k8s.api.core`.
    pub(super) package: &'static str,
    /// Group and version in which objects are stored, when other than these.
    pub(super) stored: Option<(&'static str, &'static str)>,
    pub(super) strategy: Make,
}

type Make = fn() -> Arc<dyn Strategy>;
type Names = &'static [&'static str];

fn of<S: Strategy + Default>() -> Arc<dyn Strategy> {
    Arc::new(<S as Default>::default())
}

const NONE: Names = &[];
const STATUS: Names = &["status"];
const SCALED: Names = &["scale", "status"];
const ALL: Names = &["all"];
const EXTENSIONS: Names = &["api-extensions"];
const POD_PARTS: Names = &[
    "attach",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "exec",
    "log",
    "portforward",
    "proxy",
    "resize",
    "status",
];

/// Group and package of the definitions.
#[derive(Clone, Copy)]
struct Group(&'static str, &'static str);

const ADMISSION: Group = Group("admissionregistration.k8s.io", "io.k8s.api.admissionregistration");
const FLOW_CONTROL: Group = Group("flowcontrol.apiserver.k8s.io", "io.k8s.api.flowcontrol");
const CORE: Group = Group("", "io.k8s.api.core");
const APPS: Group = Group("apps", "io.k8s.api.apps");
const AUTHENTICATION: Group = Group("authentication.k8s.io", "io.k8s.api.authentication");
const AUTHORIZATION: Group = Group("authorization.k8s.io", "io.k8s.api.authorization");
const AUTOSCALING: Group = Group("autoscaling", "io.k8s.api.autoscaling");
const BATCH: Group = Group("batch", "io.k8s.api.batch");
const CERTIFICATES: Group = Group("certificates.k8s.io", "io.k8s.api.certificates");
const COORDINATION: Group = Group("coordination.k8s.io", "io.k8s.api.coordination");
const DISCOVERY: Group = Group("discovery.k8s.io", "io.k8s.api.discovery");
const EVENTS: Group = Group("events.k8s.io", "io.k8s.api.events");
const APIEXTENSIONS: Group = Group(
    "apiextensions.k8s.io",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
);
const NETWORKING: Group = Group("networking.k8s.io", "io.k8s.api.networking");
const NODE: Group = Group("node.k8s.io", "io.k8s.api.node");
const POLICY: Group = Group("policy", "io.k8s.api.policy");
const RBAC: Group = Group("rbac.authorization.k8s.io", "io.k8s.api.rbac");
const SCHEDULING: Group = Group("scheduling.k8s.io", "io.k8s.api.scheduling");
const STORAGE: Group = Group("storage.k8s.io", "io.k8s.api.storage");

impl Group {
    const fn namespaced(self, kind: &'static str, plural: &'static str, strategy: Make) -> Row {
        Row {
            group: self.0,
            version: "v1",
            kind,
            plural,
            short: NONE,
            categories: NONE,
            namespaced: true,
            verbs: Verb::ALL,
            subresources: NONE,
            package: self.1,
            stored: None,
            strategy,
        }
    }
    const fn cluster(self, kind: &'static str, plural: &'static str, strategy: Make) -> Row {
        Row {
            namespaced: false,
            ..self.namespaced(kind, plural, strategy)
        }
    }
}

impl Row {
    const fn short(self, short: Names) -> Self {
        Self { short, ..self }
    }
    const fn categories(self, categories: Names) -> Self {
        Self { categories, ..self }
    }
    const fn in_all(self) -> Self {
        self.categories(ALL)
    }
    const fn with(self, subresources: Names) -> Self {
        Self { subresources, ..self }
    }
    const fn verbs(self, verbs: &'static [Verb]) -> Self {
        Self { verbs, ..self }
    }
    const fn version(self, version: &'static str) -> Self {
        Self { version, ..self }
    }
    const fn stored(self, group: &'static str, version: &'static str) -> Self {
        Self {
            stored: Some((group, version)),
            ..self
        }
    }
    const fn created_only(self) -> Self {
        self.verbs(Verb::CREATE_ONLY)
    }
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    CORE.namespaced("Binding", "bindings", of::<Review>).created_only(),
    CORE.cluster("ComponentStatus", "componentstatuses", of::<core::ComponentStatus>).short(&["cs"]).verbs(Verb::READ_ONLY),
    CORE.namespaced("ConfigMap", "configmaps", of::<core::ConfigMap>).short(&["cm"]),
    CORE.namespaced("Endpoints", "endpoints", of::<core::Endpoints>).short(&["ep"]),
    CORE.namespaced("Event", "events", of::<core::Event>).short(&["ev"]),
    CORE.namespaced("LimitRange", "limitranges", of::<core::LimitRange>).short(&["limits"]),
    CORE.cluster("Namespace", "namespaces", of::<core::Namespace>).short(&["ns"]).with(&["finalize", "status"]).verbs(Verb::NO_COLLECTION),
    CORE.cluster("Node", "nodes", of::<core::Node>).short(&["no"]).with(&["proxy", "status"]),
    CORE.namespaced("PersistentVolumeClaim", "persistentvolumeclaims", of::<core::PersistentVolumeClaim>).short(&["pvc"]).with(STATUS),
    CORE.cluster("PersistentVolume", "persistentvolumes", of::<core::PersistentVolume>).short(&["pv"]).with(STATUS),
    CORE.namespaced("Pod", "pods", of::<core::Pod>).short(&["po"]).in_all().with(POD_PARTS),
    CORE.namespaced("PodTemplate", "podtemplates", of::<core::PodTemplate>),
    CORE.namespaced("ReplicationController", "replicationcontrollers", of::<core::ReplicationController>).short(&["rc"]).in_all().with(SCALED),
    CORE.namespaced("ResourceQuota", "resourcequotas", of::<core::ResourceQuota>).short(&["quota"]).with(STATUS),
    CORE.namespaced("Secret", "secrets", of::<core::Secret>),
    CORE.namespaced("ServiceAccount", "serviceaccounts", of::<core::ServiceAccount>).short(&["sa"]).with(&["token"]),
    CORE.namespaced("Service", "services", of::<core::Service>).short(&["svc"]).in_all().with(&["proxy", "status"]),
    APPS.namespaced("ControllerRevision", "controllerrevisions", of::<apps::ControllerRevision>),
    APPS.namespaced("DaemonSet", "daemonsets", of::<apps::DaemonSet>).short(&["ds"]).in_all().with(STATUS),
    APPS.namespaced("Deployment", "deployments", of::<apps::Deployment>).short(&["deploy"]).in_all().with(SCALED),
    APPS.namespaced("ReplicaSet", "replicasets", of::<apps::ReplicaSet>).short(&["rs"]).in_all().with(SCALED),
    APPS.namespaced("StatefulSet", "statefulsets", of::<apps::StatefulSet>).short(&["sts"]).in_all().with(SCALED),
    AUTOSCALING.namespaced("HorizontalPodAutoscaler", "horizontalpodautoscalers", of::<autoscaling::HorizontalPodAutoscaler>).version("v2").short(&["hpa"]).in_all().with(STATUS),
    AUTOSCALING.namespaced("HorizontalPodAutoscaler", "horizontalpodautoscalers", of::<autoscaling::HorizontalPodAutoscalerV1>).short(&["hpa"]).in_all().with(STATUS).stored("autoscaling", "v2"),
    BATCH.namespaced("CronJob", "cronjobs", of::<batch::CronJob>).short(&["cj"]).in_all().with(STATUS),
    BATCH.namespaced("Job", "jobs", of::<batch::Job>).in_all().with(STATUS),
    CERTIFICATES.cluster("CertificateSigningRequest", "certificatesigningrequests", of::<certificates::CertificateSigningRequest>).short(&["csr"]).with(&["approval", "status"]),
    COORDINATION.namespaced("Lease", "leases", of::<coordination::Lease>),
    DISCOVERY.namespaced("EndpointSlice", "endpointslices", of::<networking::EndpointSlice>),
    EVENTS.namespaced("Event", "events", of::<core::Event>).short(&["ev"]).stored("", "v1"),
    NETWORKING.namespaced("Ingress", "ingresses", of::<networking::Ingress>).short(&["ing"]).with(STATUS),
    NETWORKING.cluster("IngressClass", "ingressclasses", of::<networking::IngressClass>),
    NETWORKING.cluster("IPAddress", "ipaddresses", of::<networking::IpAddress>).short(&["ip"]),
    NETWORKING.namespaced("NetworkPolicy", "networkpolicies", of::<networking::NetworkPolicy>).short(&["netpol"]),
    NETWORKING.cluster("ServiceCIDR", "servicecidrs", of::<networking::ServiceCidr>).with(STATUS),
    NODE.cluster("RuntimeClass", "runtimeclasses", of::<classes::RuntimeClass>),
    POLICY.namespaced("PodDisruptionBudget", "poddisruptionbudgets", of::<policy::PodDisruptionBudget>).short(&["pdb"]).with(STATUS),
    RBAC.cluster("ClusterRoleBinding", "clusterrolebindings", of::<rbac::ClusterRoleBinding>),
    RBAC.cluster("ClusterRole", "clusterroles", of::<rbac::ClusterRole>),
    RBAC.namespaced("RoleBinding", "rolebindings", of::<rbac::RoleBinding>),
    RBAC.namespaced("Role", "roles", of::<rbac::Role>),
    SCHEDULING.cluster("PriorityClass", "priorityclasses", of::<classes::PriorityClass>).short(&["pc"]),
    STORAGE.cluster("CSIDriver", "csidrivers", of::<storage::CsiDriver>),
    STORAGE.cluster("CSINode", "csinodes", of::<storage::CsiNode>),
    STORAGE.namespaced("CSIStorageCapacity", "csistoragecapacities", of::<storage::CsiStorageCapacity>),
    STORAGE.cluster("StorageClass", "storageclasses", of::<storage::StorageClass>).short(&["sc"]),
    STORAGE.cluster("VolumeAttachment", "volumeattachments", of::<storage::VolumeAttachment>).with(STATUS),
    STORAGE.cluster("VolumeAttributesClass", "volumeattributesclasses", of::<storage::VolumeAttributesClass>).short(&["vac"]),
    AUTHENTICATION.cluster("SelfSubjectReview", "selfsubjectreviews", of::<Review>).created_only(),
    AUTHENTICATION.cluster("TokenReview", "tokenreviews", of::<Review>).created_only(),
    AUTHORIZATION.namespaced("LocalSubjectAccessReview", "localsubjectaccessreviews", of::<Review>).created_only(),
    AUTHORIZATION.cluster("SelfSubjectAccessReview", "selfsubjectaccessreviews", of::<Review>).created_only(),
    AUTHORIZATION.cluster("SelfSubjectRulesReview", "selfsubjectrulesreviews", of::<Review>).created_only(),
    AUTHORIZATION.cluster("SubjectAccessReview", "subjectaccessreviews", of::<Review>).created_only(),
    ADMISSION.cluster("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", of::<extension::MutatingWebhooks>).categories(EXTENSIONS),
    ADMISSION.cluster("ValidatingAdmissionPolicy", "validatingadmissionpolicies", of::<extension::ValidatingPolicy>).categories(EXTENSIONS).with(STATUS),
    ADMISSION.cluster("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", of::<extension::PolicyBinding>).categories(EXTENSIONS),
    ADMISSION.cluster("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", of::<extension::ValidatingWebhooks>).categories(EXTENSIONS),
    FLOW_CONTROL.cluster("FlowSchema", "flowschemas", of::<extension::FlowSchema>).with(STATUS),
    FLOW_CONTROL.cluster("PriorityLevelConfiguration", "prioritylevelconfigurations", of::<extension::PriorityLevel>).with(STATUS),
    APIEXTENSIONS.cluster("CustomResourceDefinition", "customresourcedefinitions", of::<CustomResourceDefinition>).short(&["crd", "crds"]).categories(EXTENSIONS).with(STATUS),
];
