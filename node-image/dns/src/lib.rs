//! Cluster DNS on every node.
