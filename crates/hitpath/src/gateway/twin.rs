//! A configured port's twin in memory: what it says of itself without any system.

use control::PortSettings;
use io::memory::MemoryOptions;
use wire::{Mac, PortId};

/// A memory port that looks like what `settings` ask for.
pub(crate) fn options(settings: &PortSettings, id: PortId) -> MemoryOptions {
    MemoryOptions {
        name: settings.name.clone(),
        id,
        link: settings.kind.link(),
        mac: mac(settings),
        mtu: settings.mtu.unwrap_or(1500),
    }
}

/// The configured Ethernet address, or a locally administered one made from the name, so that it is
/// the same each time.
pub(crate) fn mac(settings: &PortSettings) -> Mac {
    settings.mac.unwrap_or_else(|| {
        let [.., a, b, c, d, e] = fnv1a(settings.name.as_bytes()).to_be_bytes();
        Mac([0x02, a, b, c, d, e])
    })
}

/// The hash FNV-1a with 64 bits: not for secrets, the same on every machine.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use control::PortKind;
    use packet::LinkKind;

    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // Test vectors of the algorithm's authors.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn an_address_made_from_a_name_is_a_stations_own() {
        for name in ["lan", "wan", "port-with-a-long-name"] {
            let settings = PortSettings {
                name: name.into(),
                kind: PortKind::Memory { link: LinkKind::Ethernet },
                vrf: "main".into(),
                mac: None,
                mtu: None,
                addresses: Vec::new(),
                up: true,
                side: api::Side::Unset,
                reverse_path: api::ReversePath::Off,
                mss: api::MssClamp::Off,
            };
            let mac = mac(&settings);
            assert!(!mac.is_group() && mac.0[0] & 2 == 2, "{name}: {mac}");
        }
    }
}
