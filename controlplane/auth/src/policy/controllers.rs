//! One cluster role per controller, `system:controller:NAME`, bound to the service account `kube-system/NAME`.
//!
//! They are upstream's but in one thing: where its controllers send a whole object (`update`), some of ours send the
//! change alone (`patch`), which takes no more power. Those lines have a comment.

pub(super) const ROLES: &[(&str, &[&str])] = &[
    (
        "attachdetach-controller",
        &[
            "list,watch core persistentvolumeclaims,persistentvolumes",
            "R core nodes",
            "patch,update core nodes/status",
            "list,watch core pods",
            "E",
            "create,delete,get,list,watch storage.k8s.io volumeattachments",
            "R storage.k8s.io csidrivers",
            "R storage.k8s.io csinodes",
        ],
    ),
    (
        "certificate-controller",
        &[
            "delete,get,list,watch certificates.k8s.io certificatesigningrequests",
            "update certificates.k8s.io certificatesigningrequests/approval,certificatesigningrequests/status",
            // Serving certificates, too: the approver knows the nodes' addresses.
            "approve certificates.k8s.io signers kubernetes.io/kube-apiserver-client-kubelet,kubernetes.io/kubelet-serving",
            "sign certificates.k8s.io signers kubernetes.io/kube-apiserver-client,kubernetes.io/kube-apiserver-client-kubelet,kubernetes.io/kubelet-serving,kubernetes.io/legacy-unknown",
            "create authorization.k8s.io subjectaccessreviews",
            "E",
        ],
    ),
    (
        "clusterrole-aggregation-controller",
        &["escalate,get,list,patch,update,watch rbac.authorization.k8s.io clusterroles"],
    ),
    (
        "cronjob-controller",
        &[
            "get,list,update,watch batch cronjobs",
            "create,delete,get,list,patch,update,watch batch jobs",
            "update batch cronjobs/status",
            "update batch cronjobs/finalizers",
            "delete,list,watch core pods",
            "E",
        ],
    ),
    (
        "daemon-set-controller",
        &[
            "R apps,extensions daemonsets",
            "update apps,extensions daemonsets/status",
            "update apps,extensions daemonsets/finalizers",
            "list,watch core nodes",
            "create,delete,list,patch,watch core pods",
            "create core pods/binding",
            "create,delete,get,list,patch,update,watch apps controllerrevisions",
            "E",
        ],
    ),
    (
        "deployment-controller",
        &[
            // Patches the revision number.
            "get,list,patch,update,watch apps,extensions deployments",
            "update apps,extensions deployments/status",
            "update apps,extensions deployments/finalizers",
            "create,delete,get,list,patch,update,watch apps,extensions replicasets",
            "get,list,update,watch core pods",
            "E",
        ],
    ),
    (
        "device-taint-eviction-controller",
        &[
            "delete,get,list,watch core pods",
            "patch,update core pods/status",
            "R resource.k8s.io resourceclaims",
            "R resource.k8s.io resourceslices",
            "R resource.k8s.io deviceclasses",
            "E",
        ],
    ),
    (
        "disruption-controller",
        &[
            "R apps,extensions deployments",
            "R apps,extensions replicasets",
            "R core replicationcontrollers",
            "R policy poddisruptionbudgets",
            "R apps statefulsets",
            "update policy poddisruptionbudgets/status",
            "patch,update core pods/status",
            "get * */scale",
            "E",
        ],
    ),
    (
        "endpoint-controller",
        &[
            "R core pods,services",
            "create,delete,get,list,update,watch core endpoints",
            "create core endpoints/restricted",
            "E",
        ],
    ),
    (
        "endpointslice-controller",
        &[
            "R core nodes,pods,services",
            "update core services/finalizers",
            "create,delete,get,list,update,watch discovery.k8s.io endpointslices",
            "E",
        ],
    ),
    (
        "endpointslicemirroring-controller",
        &[
            "R core endpoints,services",
            "update core services/finalizers",
            "update core endpoints/finalizers",
            "create,delete,get,list,update,watch discovery.k8s.io endpointslices",
            "E",
        ],
    ),
    (
        "ephemeral-volume-controller",
        &[
            "R core pods",
            "update core pods/finalizers",
            "create,get,list,watch core persistentvolumeclaims",
            "E",
        ],
    ),
    (
        "expand-controller",
        &[
            "get,list,patch,update,watch core persistentvolumes",
            "patch,update core persistentvolumeclaims/status",
            "R core persistentvolumeclaims",
            "E",
        ],
    ),
    (
        "generic-garbage-collector",
        &["delete,get,list,patch,update,watch * *", "E"],
    ),
    (
        "horizontal-pod-autoscaler",
        &[
            "R autoscaling horizontalpodautoscalers",
            "update autoscaling horizontalpodautoscalers/status",
            "get,update * */scale",
            "list,watch core pods",
            "list,watch metrics.k8s.io pods",
            "R custom.metrics.k8s.io *",
            "R external.metrics.k8s.io *",
            "E",
        ],
    ),
    (
        "job-controller",
        &[
            "get,list,patch,update,watch batch jobs",
            "update batch jobs/status",
            "update batch jobs/finalizers",
            "create,delete,list,patch,watch core pods",
            "E",
        ],
    ),
    (
        "legacy-service-account-token-cleaner",
        &[
            "get core configmaps kube-apiserver-legacy-service-account-token-tracking",
            "delete,patch core secrets",
        ],
    ),
    (
        "namespace-controller",
        &[
            "delete,get,list,watch core namespaces",
            "update core namespaces/finalize,namespaces/status",
            "delete,deletecollection,get,list,watch * *",
        ],
    ),
    (
        "node-controller",
        &[
            "delete,get,list,patch,update,watch core nodes",
            "patch,update core nodes/status",
            "patch,update core pods/status",
            "delete,get,list,watch core pods",
            "E",
        ],
    ),
    (
        "persistent-volume-binder",
        &[
            "create,delete,get,list,update,watch core persistentvolumes",
            "update core persistentvolumes/status",
            "get,list,update,watch core persistentvolumeclaims",
            "update core persistentvolumeclaims/status",
            "create,delete,get,list,watch core pods",
            "R storage.k8s.io storageclasses",
            "list,watch core nodes",
            "E",
            "watch core events",
        ],
    ),
    (
        "pod-garbage-collector",
        &["delete,list,watch core pods", "R core nodes", "patch core pods/status"],
    ),
    (
        "pv-protection-controller",
        // Patches the finalizers.
        &["get,list,patch,update,watch core persistentvolumes", "E"],
    ),
    (
        "pvc-protection-controller",
        &[
            // Patches the finalizers.
            "get,list,patch,update,watch core persistentvolumeclaims",
            "update core persistentvolumeclaims/status",
            "R core pods",
            "E",
        ],
    ),
    (
        "replicaset-controller",
        &[
            "get,list,update,watch apps,extensions replicasets",
            "update apps,extensions replicasets/status",
            "update apps,extensions replicasets/finalizers",
            "create,delete,list,patch,watch core pods",
            "E",
        ],
    ),
    (
        "replication-controller",
        &[
            "get,list,update,watch core replicationcontrollers",
            "update core replicationcontrollers/status",
            "update core replicationcontrollers/finalizers",
            "create,delete,list,patch,watch core pods",
            "E",
        ],
    ),
    (
        "resource-claim-controller",
        &[
            "R core pods",
            "update core pods/finalizers",
            "create,delete,get,list,watch resource.k8s.io resourceclaims",
            "patch,update resource.k8s.io resourceclaims,resourceclaims/status",
            "patch,update core pods/status",
            "E",
            "patch,update resource.k8s.io resourceclaims/binding",
        ],
    ),
    (
        "resourcequota-controller",
        &["list,watch * *", "update core resourcequotas/status", "E"],
    ),
    // Patches the certificates.
    ("root-ca-cert-publisher", &["create,patch,update core configmaps", "E"]),
    (
        "route-controller",
        &["list,watch core nodes", "patch core nodes/status", "E"],
    ),
    (
        "selinux-warning-controller",
        &[
            "E",
            "R core persistentvolumes",
            "R core persistentvolumeclaims",
            "R core pods",
            "R storage.k8s.io csidrivers",
        ],
    ),
    ("service-account-controller", &["create core serviceaccounts", "E"]),
    (
        "service-cidrs-controller",
        &[
            "get,list,patch,update,watch networking.k8s.io servicecidrs",
            "patch,update networking.k8s.io servicecidrs/finalizers",
            "patch,update networking.k8s.io servicecidrs/status",
            "R networking.k8s.io ipaddresses",
            "E",
        ],
    ),
    (
        "service-controller",
        &[
            "R core services",
            "patch,update core services/status",
            "list,watch core nodes",
            "E",
        ],
    ),
    (
        "statefulset-controller",
        &[
            "list,watch core pods",
            "R apps statefulsets",
            "update apps statefulsets/status",
            "update apps statefulsets/finalizers",
            "create,delete,get,patch,update core pods",
            "create,delete,get,list,patch,update,watch apps controllerrevisions",
            "create,get,list,watch core persistentvolumeclaims",
            // Patches the owners.
            "delete,patch,update core persistentvolumeclaims",
            "update core pods/finalizers",
            "E",
        ],
    ),
    (
        "ttl-after-finished-controller",
        &["delete,get,list,watch batch jobs", "E"],
    ),
    ("ttl-controller", &["list,patch,update,watch core nodes", "E"]),
    (
        "validatingadmissionpolicy-status-controller",
        &[
            "R admissionregistration.k8s.io validatingadmissionpolicies",
            "get,patch,update admissionregistration.k8s.io validatingadmissionpolicies/status",
            "E",
        ],
    ),
    (
        "volumeattributesclass-protection-controller",
        &[
            "R core persistentvolumeclaims",
            "R core persistentvolumes",
            "get,list,update,watch storage.k8s.io volumeattributesclasses",
            "E",
        ],
    ),
];
