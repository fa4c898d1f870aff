//! Services into nftables.
