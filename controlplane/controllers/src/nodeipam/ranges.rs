//! Which parts of one range are taken.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Never more parts than this, as upstream: a /64 out of a /32 would be four thousand million.
const MAX_BITS: u8 = 16;

/// A range in equal parts. Parts are given in turn, so that one that was given back is not given again at once.
pub(super) struct Ranges {
    whole: IpNet,
    part: u8,
    taken: BTreeSet<u64>,
    /// Parts that overlap ranges of others; never given.
    reserved: BTreeSet<u64>,
    next: u64,
}

impl Ranges {
    pub(super) fn new(whole: IpNet, part: u8, reserved: &[IpNet]) -> Self {
        let whole = whole.trunc();
        let part = part
            .clamp(whole.prefix_len(), whole.max_prefix_len())
            .min(whole.prefix_len() + MAX_BITS);
        let mut this = Self {
            whole,
            part,
            taken: BTreeSet::new(),
            reserved: BTreeSet::new(),
            next: 0,
        };
        for other in reserved {
            this.reserved.extend(this.overlapping(other));
        }
        this
    }

    fn count(&self) -> u64 {
        1 << (self.part - self.whole.prefix_len())
    }

    /// The parts that `cidr` touches.
    fn overlapping(&self, cidr: &IpNet) -> std::ops::Range<u64> {
        if !self.whole.contains(cidr) {
            return if cidr.contains(&self.whole) {
                0..self.count()
            } else {
                0..0
            };
        }
        let shift = self.whole.max_prefix_len() - self.part;
        let offset = bits(cidr.network()) - bits(self.whole.network());
        let last = bits(cidr.broadcast()) - bits(self.whole.network());
        // Within `count`, which fits.
        let index = |offset: u128| u64::try_from(offset >> shift).unwrap_or(u64::MAX);
        index(offset)..index(last) + 1
    }

    /// Marks what the cidr touches as taken.
    pub(super) fn occupy(&mut self, cidr: &IpNet) {
        let parts = self.overlapping(cidr);
        self.taken.extend(parts);
    }

    /// Gives it back.
    pub(super) fn release(&mut self, cidr: &IpNet) {
        for part in self.overlapping(cidr) {
            self.taken.remove(&part);
        }
    }

    /// Takes a free part.
    pub(super) fn take(&mut self) -> Option<IpNet> {
        let count = self.count();
        let free = |index: &u64| !self.taken.contains(index) && !self.reserved.contains(index);
        let index = (0..count).map(|step| (self.next + step) % count).find(free)?;
        self.taken.insert(index);
        self.next = (index + 1) % count;
        Some(self.cidr(index))
    }

    fn cidr(&self, index: u64) -> IpNet {
        let shift = self.whole.max_prefix_len() - self.part;
        let address = bits(self.whole.network()) + (u128::from(index) << shift);
        let address = match self.whole {
            // Only the low 32 bits are ever set for this family.
            IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(address).unwrap_or(u32::MAX))),
            IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from(address)),
        };
        IpNet::new(address, self.part).unwrap_or(self.whole)
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap_or_default()
    }

    #[test]
    fn parts_are_given_in_turn_and_once() {
        let mut ranges = Ranges::new(net("10.244.0.0/22"), 24, &[]);
        ranges.occupy(&net("10.244.1.0/24"));
        let given: Vec<String> = std::iter::from_fn(|| ranges.take())
            .map(|cidr| cidr.to_string())
            .collect();
        assert_eq!(given, ["10.244.0.0/24", "10.244.2.0/24", "10.244.3.0/24"]);
        ranges.release(&net("10.244.2.0/24"));
        assert_eq!(ranges.take(), Some(net("10.244.2.0/24")));
        assert_eq!(ranges.take(), None);
    }

    #[test]
    fn ranges_of_services_are_left_out() {
        let mut ranges = Ranges::new(net("10.0.0.0/22"), 24, &[net("10.0.1.0/25"), net("192.168.0.0/16")]);
        ranges.occupy(&net("10.0.2.128/25"));
        let given: Vec<String> = std::iter::from_fn(|| ranges.take())
            .map(|cidr| cidr.to_string())
            .collect();
        assert_eq!(given, ["10.0.0.0/24", "10.0.3.0/24"]);
    }

    #[test]
    fn ipv6_works_too() {
        let mut ranges = Ranges::new(net("fd00::/48"), 64, &[]);
        assert_eq!(ranges.take(), Some(net("fd00::/64")));
        assert_eq!(ranges.take(), Some(net("fd00:0:0:1::/64")));
    }
}
