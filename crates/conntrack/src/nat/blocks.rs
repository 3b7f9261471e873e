//! Deterministic port blocks (RFC 7422): which ports a subscriber has follows from its address, so
//! that no connection needs to be logged.

use core::net::IpAddr;
use core::ops::RangeInclusive;

use thiserror::Error;

/// Subscribers side by side, and as many ports for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortBlocks {
    first: IpAddr,
    subscribers: u32,
    first_port: u16,
    ports: u16,
    /// Blocks of an address.
    each: u32,
}

/// Blocks that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadBlocks {
    /// A block of no ports, or larger than the range.
    #[error("a block of {0} ports: the range of ports has {1}")]
    Size(u16, u32),
    /// More subscribers than blocks.
    #[error(
        "{subscribers} subscribers need {needed} addresses of {each} blocks: there are {there}"
    )]
    Addresses {
        /// Subscribers.
        subscribers: u32,
        /// Addresses that they need.
        needed: u32,
        /// Blocks of an address.
        each: u32,
        /// Addresses of the pool.
        there: u32,
    },
}

impl PortBlocks {
    /// Blocks of `ports` ports out of `range` for subscribers from `first` on.
    ///
    /// # Errors
    /// The blocks do not fit into the range, or the subscribers not into the addresses.
    pub fn new(
        first: IpAddr,
        subscribers: u32,
        range: &RangeInclusive<u16>,
        ports: u16,
        addresses: u32,
    ) -> Result<Self, BadBlocks> {
        let there = u32::from(*range.end()).saturating_sub(u32::from(*range.start())) + 1;
        if ports == 0 || u32::from(ports) > there {
            return Err(BadBlocks::Size(ports, there));
        }
        let each = there / u32::from(ports);
        let needed = subscribers.div_ceil(each);
        if needed > addresses {
            return Err(BadBlocks::Addresses { subscribers, needed, each, there: addresses });
        }
        Ok(Self { first, subscribers, first_port: *range.start(), ports, each })
    }

    /// The number of the address that a subscriber has, and its ports. `None` if it is no
    /// subscriber.
    pub fn of(&self, subscriber: IpAddr) -> Option<(u32, RangeInclusive<u16>)> {
        let number = match (subscriber, self.first) {
            (IpAddr::V4(address), IpAddr::V4(first)) => {
                address.to_bits().checked_sub(first.to_bits())?.into()
            }
            (IpAddr::V6(address), IpAddr::V6(first)) => {
                address.to_bits().checked_sub(first.to_bits())?
            }
            _ => return None,
        };
        let number = u32::try_from(number).ok().filter(|number| *number < self.subscribers)?;
        let first = self.first_port + (number % self.each) as u16 * self.ports;
        Some((number / self.each, first..=first + (self.ports - 1)))
    }

    /// Who has a port of the address with this number: what a complaint asks for.
    pub fn subscriber(&self, address: u32, port: u16) -> Option<IpAddr> {
        let block = u32::from(port.checked_sub(self.first_port)? / self.ports);
        let number = address.checked_mul(self.each)?.checked_add(block)?;
        if block >= self.each || number >= self.subscribers {
            return None;
        }
        Some(match self.first {
            IpAddr::V4(first) => IpAddr::V4(first.to_bits().checked_add(number)?.into()),
            IpAddr::V6(first) => IpAddr::V6(first.to_bits().checked_add(number.into())?.into()),
        })
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_subscriber_has_ports_of_its_own_and_is_found_by_them() {
        let first: IpAddr = "100.64.0.0".parse().unwrap();
        let blocks = PortBlocks::new(first, 1000, &(1024..=65_535), 500, 8).unwrap();
        let mut taken = BTreeSet::new();
        for number in 0..1000u32 {
            let subscriber = IpAddr::V4((0x6440_0000 + number).into());
            let (address, ports) = blocks.of(subscriber).unwrap();
            assert!(address < 8 && ports.len() == 500);
            for port in ports {
                assert!(taken.insert((address, port)));
                assert_eq!(blocks.subscriber(address, port), Some(subscriber));
            }
        }
        assert_eq!(blocks.of("100.64.3.232".parse().unwrap()), None);
        assert_eq!(blocks.of("100.63.255.255".parse().unwrap()), None);
        assert_eq!(blocks.subscriber(0, 1023), None);
        assert_eq!(blocks.subscriber(0, 65_535), None);
        let range = 1024..=65_535;
        assert_eq!(PortBlocks::new(first, 1, &range, 0, 1), Err(BadBlocks::Size(0, 64_512)));
        assert!(PortBlocks::new(first, 1000, &range, 500, 7).is_err());
    }
}
