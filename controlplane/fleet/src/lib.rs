//! Cluster and NodePool objects reconciled into running control planes and nodes.
