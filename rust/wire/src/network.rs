//! Which hosts count as one, where each gets a share of something.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The host behind an address: an IPv6 host has a network of its own, /64, and as many addresses as it likes; an IPv4
/// address is the same host on a socket of IPv6.
pub fn host(address: IpAddr) -> IpAddr {
    prefix(address, 32, 64)
}

/// The network that a host is in: /24, of IPv6 /48, which is what one site gets.
pub fn site(address: IpAddr) -> IpAddr {
    prefix(address, 24, 48)
}

fn prefix(address: IpAddr, four: u32, six: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << (32 - four))).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - six))).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_host_of_ipv6_is_a_network() {
        assert_eq!(host(address("fd00:1::1")), host(address("fd00:1::2")));
        assert_ne!(host(address("fd00:1::1")), host(address("fd00:1:0:1::1")));
        assert_ne!(host(address("10.0.0.1")), host(address("10.0.0.2")));
        assert_eq!(host(address("::ffff:10.0.0.1")), address("10.0.0.1"));
    }

    #[test]
    fn a_site_has_many_hosts() {
        assert_eq!(site(address("10.0.0.1")), site(address("10.0.0.200")));
        assert_ne!(site(address("10.0.0.1")), site(address("10.0.1.1")));
        assert_eq!(site(address("fd00:1:2:3::1")), site(address("fd00:1:2:4::1")));
        assert_ne!(site(address("fd00:1:2::1")), site(address("fd00:1:3::1")));
    }
}
