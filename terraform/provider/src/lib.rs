//! The Terraform provider for clusters and node pools.
