//! Which addresses are public. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one of the open internet, whatever form it is written in.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        // This network, private, loopback, link-local, multicast and reserved.
        (0 | 10 | 127 | 224.., ..) | (169, 254, _) | (172, 16..=31, _) | (192, 168, _)
        // Shared by carriers; protocol assignments; relays; measuring; documentation.
        | (100, 64..=127, _) | (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _)
        | (198, 51, 100) | (203, 0, 113)
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let inner = |high: u16, low: u16| {
        let ([one, two], [three, four]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(one, two, three, four)
    };
    match address.segments() {
        // Mapped, translated and tunnelled: what is inside counts.
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => is_public_v4(inner(high, low)),
        // Teredo, benchmarking and documentation.
        [0x2001, 0 | 2 | 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => false,
        // Only the unicast space that is given out.
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_public() {
        for public in ["93.184.216.34", "1.1.1.1", "172.32.0.1", "192.0.1.1", "2606:4700::1111"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for public in ["::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for special in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "100::1",
            "5f00::1",
        ] {
            assert!(!is_public(special.parse().unwrap()), "{special}");
        }
    }
}
