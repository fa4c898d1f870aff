//! Cluster roles and their bindings.

use super::{Aggregate, ClusterBinding, ClusterRole};

/// Roles that gather the rules of others by label.
pub(super) const AGGREGATES: &[Aggregate] = &[("admin", ""), ("edit", "admin"), ("view", "edit")];

/// What kubelets do.
pub(super) const NODE: &[&str] = &[
    "create authentication.k8s.io tokenreviews",
    "create authorization.k8s.io localsubjectaccessreviews,subjectaccessreviews",
    "R core services",
    "create,get,list,watch core nodes",
    "patch,update core nodes/status",
    "patch,update core nodes",
    "create,patch,update core,events.k8s.io events",
    "R core pods",
    "create,delete core pods",
    "patch,update core pods/status",
    "create core pods/eviction",
    "R core configmaps,secrets",
    "get core persistentvolumeclaims,persistentvolumes",
    "get core endpoints",
    "create,get,list,watch certificates.k8s.io certificatesigningrequests",
    "create,delete,get,patch,update coordination.k8s.io leases",
    "get storage.k8s.io volumeattachments",
    "create core serviceaccounts/token",
    "get core serviceaccounts",
    "get,patch,update core persistentvolumeclaims/status",
    "R storage.k8s.io csidrivers",
    "create,delete,get,patch,update storage.k8s.io csinodes",
    "R node.k8s.io runtimeclasses",
    "get resource.k8s.io resourceclaims",
    "RW resource.k8s.io resourceslices",
    "R certificates.k8s.io clustertrustbundles",
    "create,get,list,watch certificates.k8s.io podcertificaterequests",
];

pub(super) const ROLES: &[ClusterRole] = &[
    ("cluster-admin", "", &["* * *", "* url *"]),
    (
        "system:discovery",
        "",
        &["get url /api,/api/*,/apis,/apis/*,/healthz,/livez,/openapi,/openapi/*,/readyz,/version,/version/"],
    ),
    (
        "system:public-info-viewer",
        "",
        &["get url /healthz,/livez,/readyz,/version,/version/"],
    ),
    (
        "system:monitoring",
        "",
        &["get url /healthz,/healthz/*,/livez,/livez/*,/metrics,/metrics/slis,/readyz,/readyz/*"],
    ),
    (
        "system:service-account-issuer-discovery",
        "",
        &["get url /.well-known/openid-configuration,/openid/v1/jwks"],
    ),
    (
        "system:basic-user",
        "",
        &[
            "create authorization.k8s.io selfsubjectaccessreviews,selfsubjectrulesreviews",
            "create authentication.k8s.io selfsubjectreviews",
        ],
    ),
    (
        "system:aggregate-to-admin",
        "admin",
        &[
            "create authorization.k8s.io localsubjectaccessreviews",
            "RW rbac.authorization.k8s.io rolebindings,roles",
        ],
    ),
    (
        "system:aggregate-to-edit",
        "edit",
        &[
            "R core pods/attach,pods/exec,pods/portforward,pods/proxy,secrets,services/proxy",
            "impersonate core serviceaccounts",
            "W core pods,pods/attach,pods/exec,pods/portforward,pods/proxy",
            "create core pods/eviction",
            "W core configmaps,events,persistentvolumeclaims,replicationcontrollers,replicationcontrollers/scale,secrets,serviceaccounts,services,services/proxy",
            "create core serviceaccounts/token",
            "W apps daemonsets,deployments,deployments/rollback,deployments/scale,replicasets,replicasets/scale,statefulsets,statefulsets/scale",
            "W autoscaling horizontalpodautoscalers",
            "W batch cronjobs,jobs",
            "W extensions daemonsets,deployments,deployments/rollback,deployments/scale,ingresses,networkpolicies,replicasets,replicasets/scale,replicationcontrollers/scale",
            "W policy poddisruptionbudgets",
            "W networking.k8s.io ingresses,networkpolicies",
            "RW coordination.k8s.io leases",
            "W resource.k8s.io resourceclaims,resourceclaimtemplates",
        ],
    ),
    (
        "system:aggregate-to-view",
        "view",
        &[
            "R core configmaps,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,pods,replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/status",
            "R core bindings,events,limitranges,namespaces/status,pods/log,pods/status,replicationcontrollers/status,resourcequotas,resourcequotas/status",
            "R core namespaces",
            "R discovery.k8s.io endpointslices",
            "R apps controllerrevisions,daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,replicasets,replicasets/scale,replicasets/status,statefulsets,statefulsets/scale,statefulsets/status",
            "R autoscaling horizontalpodautoscalers,horizontalpodautoscalers/status",
            "R batch cronjobs,cronjobs/status,jobs,jobs/status",
            "R extensions daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,ingresses,ingresses/status,networkpolicies,replicasets,replicasets/scale,replicasets/status,replicationcontrollers/scale",
            "R policy poddisruptionbudgets,poddisruptionbudgets/status",
            "R networking.k8s.io ingresses,ingresses/status,networkpolicies",
            "R resource.k8s.io resourceclaims,resourceclaims/status,resourceclaimtemplates",
        ],
    ),
    (
        "system:heapster",
        "",
        &["R core events,namespaces,nodes,pods", "R extensions deployments"],
    ),
    ("system:node", "", NODE),
    (
        "system:node-problem-detector",
        "",
        &["get core nodes", "patch core nodes/status", "E"],
    ),
    (
        "system:kubelet-api-admin",
        "",
        &[
            "R core nodes",
            "proxy core nodes",
            "* core nodes/configz,nodes/healthz,nodes/log,nodes/metrics,nodes/pods,nodes/proxy,nodes/stats",
        ],
    ),
    (
        "system:node-bootstrapper",
        "",
        &["create,get,list,watch certificates.k8s.io certificatesigningrequests"],
    ),
    (
        "system:auth-delegator",
        "",
        &[
            "create authentication.k8s.io tokenreviews",
            "create authorization.k8s.io subjectaccessreviews",
        ],
    ),
    ("system:kube-aggregator", "", &["R core endpoints,services"]),
    (
        "system:kube-controller-manager",
        "",
        &[
            "E",
            "create coordination.k8s.io leases",
            "get,update coordination.k8s.io leases kube-controller-manager",
            "create core secrets,serviceaccounts",
            "delete core secrets",
            "get core configmaps,namespaces,secrets,serviceaccounts",
            "update core secrets,serviceaccounts",
            "create authentication.k8s.io tokenreviews",
            "create authorization.k8s.io subjectaccessreviews",
            "list,watch * *",
            "create core serviceaccounts/token",
        ],
    ),
    (
        "system:kube-scheduler",
        "",
        &[
            "E",
            "create coordination.k8s.io leases",
            "get,update coordination.k8s.io leases kube-scheduler",
            "R core nodes",
            "delete,get,list,watch core pods",
            "create core bindings,pods/binding",
            "patch,update core pods/status",
            "R core replicationcontrollers,services",
            "R apps,extensions replicasets",
            "R apps statefulsets",
            "R policy poddisruptionbudgets",
            "R core persistentvolumeclaims,persistentvolumes",
            "create authentication.k8s.io tokenreviews",
            "create authorization.k8s.io subjectaccessreviews",
            "R storage.k8s.io csinodes",
            "R core namespaces",
            "R storage.k8s.io csidrivers",
            "R storage.k8s.io csistoragecapacities",
            "R storage.k8s.io volumeattachments",
            "R resource.k8s.io deviceclasses",
            "get,list,patch,update,watch resource.k8s.io resourceclaims",
            "get,list,patch,update,watch resource.k8s.io resourceclaims/status",
            "R resource.k8s.io resourceslices",
            "update core pods/finalizers",
        ],
    ),
    ("system:kube-dns", "", &["list,watch core endpoints,services"]),
    (
        "system:node-proxier",
        "",
        &[
            "list,watch core endpoints,services",
            "R core nodes",
            "E",
            "list,watch discovery.k8s.io endpointslices",
            "list,watch networking.k8s.io servicecidrs",
        ],
    ),
    (
        "system:persistent-volume-provisioner",
        "",
        &[
            "create,delete,get,list,watch core persistentvolumes",
            "get,list,update,watch core persistentvolumeclaims",
            "R storage.k8s.io storageclasses",
            "watch core events",
            "E",
        ],
    ),
    (
        "system:volume-scheduler",
        "",
        &[
            "get,list,patch,update,watch core persistentvolumes",
            "R storage.k8s.io storageclasses",
            "get,list,patch,update,watch core persistentvolumeclaims",
        ],
    ),
    (
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "",
        &["create certificates.k8s.io certificatesigningrequests/nodeclient"],
    ),
    (
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "",
        &["create certificates.k8s.io certificatesigningrequests/selfnodeclient"],
    ),
    (
        "system:certificates.k8s.io:legacy-unknown-approver",
        "",
        &["approve certificates.k8s.io signers kubernetes.io/legacy-unknown"],
    ),
    (
        "system:certificates.k8s.io:kubelet-serving-approver",
        "",
        &["approve certificates.k8s.io signers kubernetes.io/kubelet-serving"],
    ),
    (
        "system:certificates.k8s.io:kube-apiserver-client-approver",
        "",
        &["approve certificates.k8s.io signers kubernetes.io/kube-apiserver-client"],
    ),
    (
        "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
        "",
        &["approve certificates.k8s.io signers kubernetes.io/kube-apiserver-client-kubelet"],
    ),
    // Not upstream's: a cloud controller manager brings its role along there.
    (
        "system:cloud-controller-manager",
        "",
        &[
            "E",
            "delete,get,list,patch,update,watch core nodes",
            "patch,update core nodes/status",
            "get,list,patch,update,watch core services",
            "patch,update core services/status",
            "create,get,list,update,watch coordination.k8s.io leases",
            "create,get core serviceaccounts",
            "create core serviceaccounts/token",
            "create authentication.k8s.io tokenreviews",
            "create authorization.k8s.io subjectaccessreviews",
        ],
    ),
];

pub(super) const BINDINGS: &[ClusterBinding] = &[
    ("cluster-admin", "cluster-admin", &["group system:masters"]),
    ("system:discovery", "system:discovery", &["group system:authenticated"]),
    (
        "system:basic-user",
        "system:basic-user",
        &["group system:authenticated"],
    ),
    (
        "system:public-info-viewer",
        "system:public-info-viewer",
        &["group system:authenticated", "group system:unauthenticated"],
    ),
    ("system:monitoring", "system:monitoring", &["group system:monitoring"]),
    (
        "system:service-account-issuer-discovery",
        "system:service-account-issuer-discovery",
        &["group system:serviceaccounts"],
    ),
    ("system:node", "system:node", &[]),
    (
        "system:node-proxier",
        "system:node-proxier",
        &["user system:kube-proxy"],
    ),
    (
        "system:kube-controller-manager",
        "system:kube-controller-manager",
        &["user system:kube-controller-manager"],
    ),
    ("system:kube-dns", "system:kube-dns", &["account kube-system/kube-dns"]),
    (
        "system:kube-scheduler",
        "system:kube-scheduler",
        &["user system:kube-scheduler"],
    ),
    (
        "system:volume-scheduler",
        "system:volume-scheduler",
        &["user system:kube-scheduler"],
    ),
    // From here on not upstream's; its installers make the like.
    (
        "system:cloud-controller-manager",
        "system:cloud-controller-manager",
        &[
            "user system:cloud-controller-manager",
            "account kube-system/cloud-controller-manager",
        ],
    ),
    (
        "minato:node-bootstrap",
        "system:node-bootstrapper",
        &["group system:bootstrappers"],
    ),
    (
        "minato:node-approve-bootstrap",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &["group system:bootstrappers"],
    ),
    (
        "minato:node-approve-renewal",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &["group system:nodes"],
    ),
    // The agents of a node share its identity.
    ("minato:node-proxier", "system:node-proxier", &["group system:nodes"]),
    (
        "minato:apiserver-to-kubelet",
        "system:kubelet-api-admin",
        &["user kube-apiserver-kubelet-client"],
    ),
];
