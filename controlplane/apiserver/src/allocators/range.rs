//! Ranges of addresses and ports as ranges of offsets, with the lower band kept for those who ask by number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use rand::Rng;

/// Offsets `0..size`, of which the first `band` are given to nobody who does not ask for them, while others are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offsets {
    pub(super) size: u64,
    pub(super) band: u64,
}

impl Offsets {
    /// Band of a size: a `divisor`-th, within bounds; none where the range is so small that it would be most of it.
    pub(super) fn new(size: u64, divisor: u64, least: u64, most: u64) -> Self {
        let band = if size <= least {
            0
        } else {
            (size / divisor).clamp(least, most)
        };
        Self { size, band }
    }

    /// A random offset above the band.
    pub(super) fn random(&self) -> Option<u64> {
        (self.band < self.size).then(|| rand::rng().random_range(self.band..self.size))
    }

    /// All offsets, those above the band first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = u64> {
        (self.band..self.size).chain(0..self.band)
    }
}

/// Usable addresses of a network: neither its own address nor, in IPv4, its broadcast address.
pub(super) struct Addresses {
    pub(super) network: IpNet,
    pub(super) offsets: Offsets,
}

/// Larger IPv6 networks are used up to here, as upstream does.
const LARGEST: u64 = 1 << 16;

impl Addresses {
    pub(super) fn new(network: IpNet) -> Self {
        let bits = u32::from(network.max_prefix_len() - network.prefix_len());
        let all = 1_u64.checked_shl(bits.min(63)).unwrap_or(u64::MAX);
        let usable = match network {
            IpNet::V4(_) => all.saturating_sub(2),
            IpNet::V6(_) => all.saturating_sub(1).min(LARGEST),
        };
        Self {
            network,
            offsets: Offsets::new(usable, 16, 16, 256),
        }
    }

    /// The address at an offset.
    pub(super) fn at(&self, offset: u64) -> IpAddr {
        match self.network.network() {
            // Offsets are less than the network's size, so neither sum overflows.
            IpAddr::V4(base) => {
                let step = u32::try_from(offset + 1).unwrap_or(u32::MAX);
                IpAddr::V4(Ipv4Addr::from(u32::from(base).wrapping_add(step)))
            }
            IpAddr::V6(base) => IpAddr::V6(Ipv6Addr::from(u128::from(base).wrapping_add(u128::from(offset) + 1))),
        }
    }

    /// Whether an address may be asked for.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        if !self.network.contains(&address) || address == self.network.network() {
            return false;
        }
        match self.network {
            IpNet::V4(network) => IpAddr::V4(network.broadcast()) != address,
            IpNet::V6(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_leave_out_both_ends() {
        let range = Addresses::new("10.0.0.0/29".parse().unwrap());
        let all: Vec<String> = range.offsets.in_order().map(|o| range.at(o).to_string()).collect();
        assert_eq!(
            all,
            ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
        );
        assert!(range.contains("10.0.0.6".parse().unwrap()));
        assert!(!range.contains("10.0.0.7".parse().unwrap()));
        assert!(!range.contains("10.0.0.0".parse().unwrap()));
        assert!(!range.contains("10.0.1.1".parse().unwrap()));
    }

    #[test]
    fn the_lower_band_is_kept_for_those_who_ask() {
        // A /24 has 254 addresses: a sixteenth is 15, so the least band of 16 holds.
        let range = Addresses::new("10.96.0.0/24".parse().unwrap());
        assert_eq!(range.offsets, Offsets { size: 254, band: 16 });
        for _ in 0..1000 {
            assert!(range.offsets.random().unwrap() >= 16);
        }
        assert_eq!(range.offsets.in_order().last(), Some(15));
        let wide = Addresses::new("10.96.0.0/12".parse().unwrap());
        assert_eq!(wide.offsets.band, 256);
        let six = Addresses::new("fd00::/108".parse().unwrap());
        assert_eq!((six.offsets.size, six.at(0).to_string().as_str()), (65536, "fd00::1"));
    }
}
