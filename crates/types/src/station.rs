//! What addresses may be used for.

use core::net::{IpAddr, Ipv4Addr};

use thiserror::Error;

use crate::address::{IpPrefix, Mac};

/// Why an IP address is not that of one station.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotAStation {
    /// 0.0.0.0 or ::.
    #[error("unspecified")]
    Unspecified,
    /// RFC 1112 section 4, RFC 4291 section 2.7.
    #[error("a multicast group")]
    Multicast,
    /// RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.3.
    #[error("a loopback address")]
    Loopback,
    /// 255.255.255.255.
    #[error("the broadcast address")]
    Broadcast,
    /// "This network" (RFC 1122 section 3.2.1.3).
    #[error("of 0.0.0.0/8, which is no station's")]
    ThisNetwork,
    /// RFC 1112 section 4.
    #[error("of 240.0.0.0/4, which is reserved")]
    Reserved,
    /// RFC 4291 section 2.5.5.2.
    #[error("IPv4-mapped")]
    Mapped,
}

/// Why an Ethernet address is not that of one station.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotAStationMac {
    /// ff:ff:ff:ff:ff:ff.
    #[error("the broadcast address")]
    Broadcast,
    /// The group bit is set.
    #[error("a group address")]
    Group,
    /// 00:00:00:00:00:00.
    #[error("all zeros")]
    Zeros,
}

/// Why no port can have an address with this prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotAPortAddress {
    /// The address is not that of one station.
    #[error(transparent)]
    Station(#[from] NotAStation),
    /// It is the last of an IPv4 prefix (RFC 1122 section 3.2.1.3).
    #[error("its prefix's broadcast address")]
    Broadcast,
    /// It is the first of an IPv4 prefix (RFC 1122 section 3.2.1.3).
    #[error("its prefix's network address")]
    Network,
    /// The prefix is larger than fe80::/10.
    #[error("link-local, and its prefix is not")]
    LinkLocal,
    /// The prefix is 0.0.0.0/0 or ::/0.
    #[error("on a prefix of length 0, which is every address there is")]
    Everything,
}

/// Why no route can lead to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotRoutable {
    /// IPv6 link-local.
    #[error("link-local, which is on every link")]
    LinkLocal,
    /// Multicast, or the IPv4 broadcast address.
    #[error("multicast")]
    Multicast,
}

/// Whether `address` can be that of one station.
///
/// # Errors
/// What it is instead.
pub fn check_station(address: IpAddr) -> Result<(), NotAStation> {
    Err(match address {
        _ if address.is_unspecified() => NotAStation::Unspecified,
        _ if address.is_multicast() => NotAStation::Multicast,
        _ if address.is_loopback() => NotAStation::Loopback,
        IpAddr::V4(address) if address.is_broadcast() => NotAStation::Broadcast,
        IpAddr::V4(address) if address.octets()[0] == 0 => NotAStation::ThisNetwork,
        IpAddr::V4(address) if address.octets()[0] >= 240 => NotAStation::Reserved,
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => NotAStation::Mapped,
        _ => return Ok(()),
    })
}

/// Whether `mac` can be that of one station.
///
/// # Errors
/// What it is instead.
pub const fn check_station_mac(mac: Mac) -> Result<(), NotAStationMac> {
    match mac.0 {
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Err(NotAStationMac::Broadcast),
        [0, 0, 0, 0, 0, 0] => Err(NotAStationMac::Zeros),
        _ if mac.is_group() => Err(NotAStationMac::Group),
        _ => Ok(()),
    }
}

/// Whether a port can have the address of `own`, with its prefix on the link.
///
/// # Errors
/// What it is instead.
pub fn check_port_address(own: IpPrefix) -> Result<(), NotAPortAddress> {
    check_station(own.address())?;
    match own.address() {
        IpAddr::V4(address) if broadcast_of(own) == Some(address) => {
            Err(NotAPortAddress::Broadcast)
        }
        // Links of two stations have neither (RFC 3021 section 2).
        IpAddr::V4(_) if own.length() < 31 && own.network().address() == own.address() => {
            Err(NotAPortAddress::Network)
        }
        IpAddr::V6(address) if address.is_unicast_link_local() && own.length() < 10 => {
            Err(NotAPortAddress::LinkLocal)
        }
        _ if own.length() == 0 => Err(NotAPortAddress::Everything),
        _ => Ok(()),
    }
}

/// Whether a route can lead to `prefix`.
///
/// # Errors
/// What it is instead.
pub fn check_routable(prefix: IpPrefix) -> Result<(), NotRoutable> {
    let address = prefix.address();
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    match prefix.length() {
        0 => Ok(()),
        _ if address.is_multicast() || is_broadcast => Err(NotRoutable::Multicast),
        length if length >= 10 && is_v6_link_local(address) => Err(NotRoutable::LinkLocal),
        _ => Ok(()),
    }
}

/// The broadcast address of a link's prefix: none for /31 and /32 (RFC 3021 section 2.1).
pub fn broadcast_of(own: IpPrefix) -> Option<Ipv4Addr> {
    match own.range().last() {
        IpAddr::V4(last) if own.length() < 31 => Some(last),
        _ => None,
    }
}

/// Whether `address` is an IPv6 address that is on every link (RFC 4291 section 2.5.6).
pub const fn is_v6_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses() {
        let check = |text: &str| check_port_address(text.parse().unwrap());
        for good in ["192.0.2.1/24", "192.0.2.0/31", "192.0.2.1/32", "2001:db8::/64", "fe80::1/64"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("192.0.2.0/24", NotAPortAddress::Network),
            ("192.0.2.255/24", NotAPortAddress::Broadcast),
            ("0.0.0.0/0", NotAStation::Unspecified.into()),
            ("127.0.0.1/8", NotAStation::Loopback.into()),
            ("224.0.0.1/24", NotAStation::Multicast.into()),
            ("ff02::1/64", NotAStation::Multicast.into()),
            ("::/0", NotAStation::Unspecified.into()),
            ("10.0.0.1/0", NotAPortAddress::Everything),
            ("240.0.0.1/8", NotAStation::Reserved.into()),
            ("fe80::1/9", NotAPortAddress::LinkLocal),
        ] {
            assert_eq!(check(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn destinations() {
        let check = |text: &str| check_routable(text.parse().unwrap());
        for good in ["0.0.0.0/0", "::/0", "10.0.0.0/8", "fe80::/9", "169.254.0.0/16"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("224.0.0.0/4", NotRoutable::Multicast),
            ("255.255.255.255/32", NotRoutable::Multicast),
            ("ff02::/16", NotRoutable::Multicast),
            ("fe80::/64", NotRoutable::LinkLocal),
        ] {
            assert_eq!(check(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn macs() {
        assert_eq!(check_station_mac(Mac([2, 0, 0, 0, 0, 1])), Ok(()));
        assert_eq!(check_station_mac(Mac([3, 0, 0, 0, 0, 1])), Err(NotAStationMac::Group));
        assert_eq!(check_station_mac(Mac::BROADCAST), Err(NotAStationMac::Broadcast));
        assert_eq!(check_station_mac(Mac::default()), Err(NotAStationMac::Zeros));
    }
}
