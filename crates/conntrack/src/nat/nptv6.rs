//! IPv6-to-IPv6 network prefix translation (RFC 6296): stateless, and neutral to checksums.

use core::net::Ipv6Addr;

use thiserror::Error;

/// Two prefixes of one length that stand for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nptv6 {
    inside: u128,
    outside: u128,
    length: u8,
    /// What is added to a word when a packet goes out.
    adjustment: u16,
}

/// Prefixes that cannot be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Nptv6Error {
    /// Longer than a subnet.
    #[error("a prefix of length {0}: NPTv6 needs 64 at most (RFC 6296 section 3.5)")]
    Length(u8),
    /// Bits behind the prefix.
    #[error("{0}/{1} has bits behind its length")]
    HostBits(Ipv6Addr, u8),
}

fn sum(address: u128) -> u16 {
    let words = (0..8).map(|at| (address >> (16 * at)) as u16);
    words.fold(0, add)
}

/// Ones' complement.
fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

impl Nptv6 {
    /// Translates between prefixes of `length`.
    ///
    /// # Errors
    /// The length is over 64, or a prefix has bits behind it.
    pub fn new(inside: Ipv6Addr, outside: Ipv6Addr, length: u8) -> Result<Self, Nptv6Error> {
        if length > 64 {
            return Err(Nptv6Error::Length(length));
        }
        let behind = u128::MAX.checked_shr(length.into()).unwrap_or(0);
        for prefix in [inside, outside] {
            if prefix.to_bits() & behind != 0 {
                return Err(Nptv6Error::HostBits(prefix, length));
            }
        }
        let (inside, outside) = (inside.to_bits(), outside.to_bits());
        Ok(Self { inside, outside, length, adjustment: add(sum(inside), !sum(outside)) })
    }

    /// The outside address of an inside one. `None` if it is of another prefix, or has no word that
    /// could be adjusted: such packets are dropped (RFC 6296 section 3.4).
    pub fn outward(&self, address: Ipv6Addr) -> Option<Ipv6Addr> {
        self.translate(address, self.inside, self.outside, self.adjustment)
    }

    /// The inside address of an outside one, as [`Nptv6::outward`].
    pub fn inward(&self, address: Ipv6Addr) -> Option<Ipv6Addr> {
        self.translate(address, self.outside, self.inside, !self.adjustment)
    }

    fn translate(&self, address: Ipv6Addr, from: u128, to: u128, add_up: u16) -> Option<Ipv6Addr> {
        let address = address.to_bits();
        let behind = u128::MAX.checked_shr(self.length.into()).unwrap_or(0);
        if address & !behind != from {
            return None;
        }
        let translated = address & behind | to;
        // Section 3.4 for prefixes up to 48, section 3.5 for longer ones: the first word of the
        // interface identifier that is not 0xffff.
        let places = if self.length <= 48 { 3..4 } else { 4..8 };
        let word = |at: u32| (translated >> (112 - 16 * at)) as u16;
        let at = places.into_iter().find(|at| word(*at) != 0xffff)?;
        let adjusted = match add(word(at), add_up) {
            0xffff => 0,
            adjusted => adjusted,
        };
        let shift = 112 - 16 * at;
        let translated = translated & !(0xffff << shift) | u128::from(adjusted) << shift;
        Some(Ipv6Addr::from_bits(translated))
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        let prefix = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        let map = Nptv6::new(prefix("fd01:203:405::"), prefix("2001:db8:1::"), 48).unwrap();
        let (inside, outside) = (prefix("fd01:203:405:1::1234"), prefix("2001:db8:1:d550::1234"));
        assert_eq!(map.outward(inside), Some(outside));
        assert_eq!(map.inward(outside), Some(inside));
        assert_eq!(map.outward(outside), None);
        assert_eq!(map.outward(prefix("fd01:203:405:ffff::1")), None);
        assert_eq!(Nptv6::new(inside, outside, 65), Err(Nptv6Error::Length(65)));
        assert_eq!(Nptv6::new(inside, outside, 48), Err(Nptv6Error::HostBits(inside, 48)));
    }

    proptest! {
        #[test]
        fn there_and_back_with_one_sum(
            inside: u128,
            outside: u128,
            host: u128,
            length in 1u8..=64,
        ) {
            let behind = u128::MAX >> length;
            let of = |prefix: u128| Ipv6Addr::from_bits(prefix & !behind);
            let map = Nptv6::new(of(inside), of(outside), length).unwrap();
            let address = Ipv6Addr::from_bits(inside & !behind | host & behind);
            if let Some(translated) = map.outward(address) {
                prop_assert_eq!(translated.to_bits() & !behind, outside & !behind);
                let same = |a: u16, b: u16| a == b || a.min(b) == 0 && a.max(b) == 0xffff;
                prop_assert!(same(sum(translated.to_bits()), sum(address.to_bits())));
                prop_assert_eq!(map.inward(translated), Some(address));
            }
        }
    }
}
