//! Rendering and atomic application of nftables rule sets.
