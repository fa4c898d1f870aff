//! Certificate authorities, issuance, rotation and kubeconfigs.
