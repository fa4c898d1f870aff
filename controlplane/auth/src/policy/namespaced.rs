//! Roles in `kube-system` and `kube-public`, and their bindings.

use super::{Binding, Role};

const LOCKING: &[&str] = &[
    "create,get,list,update,watch coordination.k8s.io leases",
    "create,get,list,update,watch coordination.k8s.io leasecandidates",
];

pub(super) const ROLES: &[Role] = &[
    (
        "kube-public",
        "system:controller:bootstrap-signer",
        &["R core configmaps", "update core configmaps cluster-info", "E"],
    ),
    (
        "kube-system",
        "extension-apiserver-authentication-reader",
        &["R core configmaps extension-apiserver-authentication"],
    ),
    ("kube-system", "system::leader-locking-kube-controller-manager", LOCKING),
    ("kube-system", "system::leader-locking-kube-scheduler", LOCKING),
    ("kube-system", "system:controller:bootstrap-signer", &["R core secrets"]),
    (
        "kube-system",
        "system:controller:cloud-provider",
        &["create,get,list,watch core configmaps"],
    ),
    (
        "kube-system",
        "system:controller:token-cleaner",
        &["delete,get,list,watch core secrets", "E"],
    ),
];

pub(super) const BINDINGS: &[Binding] = &[
    (
        "kube-public",
        "system:controller:bootstrap-signer",
        "system:controller:bootstrap-signer",
        &["account kube-system/bootstrap-signer"],
    ),
    (
        "kube-system",
        "system::extension-apiserver-authentication-reader",
        "extension-apiserver-authentication-reader",
        &["user system:kube-controller-manager", "user system:kube-scheduler"],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        "system::leader-locking-kube-controller-manager",
        &[
            "user system:kube-controller-manager",
            "account kube-system/kube-controller-manager",
            "account kube-system/leader-election-controller",
        ],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-scheduler",
        "system::leader-locking-kube-scheduler",
        &["user system:kube-scheduler", "account kube-system/kube-scheduler"],
    ),
    (
        "kube-system",
        "system:controller:bootstrap-signer",
        "system:controller:bootstrap-signer",
        &["account kube-system/bootstrap-signer"],
    ),
    (
        "kube-system",
        "system:controller:cloud-provider",
        "system:controller:cloud-provider",
        &["account kube-system/cloud-provider"],
    ),
    (
        "kube-system",
        "system:controller:token-cleaner",
        "system:controller:token-cleaner",
        &["account kube-system/token-cleaner"],
    ),
];
