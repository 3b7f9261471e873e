//! Another station has one of our own addresses (RFC 5227 section 2.4, RFC 4862 section 5.4.4). The
//! gateway is a router, which others have to find where it always was: it keeps the address,
//! defends it and tells the control thread.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use flow::RateLimiter;
use packet::{LinkKind, Time};
use tables::{Event, Port};
use wire::{Mac, PortId};

use crate::outputs::Outputs;

/// How long an address is not defended again (RFC 5227 section 1.1, DEFEND_INTERVAL).
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// Conflicts that are acted on by a queue of a port: so many a second, and so many at once.
/// Somebody may claim all addresses of a port and of its VLANs.
const RATE: u64 = 16;
const BURST: u64 = 16;

/// The addresses that were defended lately on a port and its VLANs. Only addresses of the gateway
/// get here, and no more than [`RATE`] and [`BURST`] permit: strangers cannot fill it.
pub(crate) struct Conflicts {
    defended: BTreeMap<(PortId, IpAddr), Time>,
    all: RateLimiter,
}

impl Default for Conflicts {
    fn default() -> Self {
        Self { defended: BTreeMap::new(), all: RateLimiter::new(RATE, BURST) }
    }
}

impl Conflicts {
    /// Whether an address is to be defended now; if so, that is noted.
    fn allow(&mut self, now: Time, port: PortId, own: IpAddr) -> bool {
        let is_recent = |defended: &Time| now.since(*defended) < DEFEND_INTERVAL;
        let key = (port, own);
        if self.defended.get(&key).is_some_and(is_recent) || !self.all.allow(now) {
            return false;
        }
        self.defended.retain(|_, defended| is_recent(defended));
        self.defended.insert(key, now);
        true
    }
}

/// Whether a message that says that `address` is at `from` comes from another station which has an
/// address of the port. `None` stands for a sender that is not known, and is not the port. What the
/// port itself has sent may come back to it.
pub(crate) fn is_conflict(port: &Port, address: IpAddr, from: Option<Mac>) -> bool {
    port.spec.link == LinkKind::Ethernet && from != Some(port.spec.mac) && port.owns(address)
}

/// Tells the control thread that the station at `mac` has the port's address `own`. Returns whether
/// the address is to be defended. Both at most once in [`DEFEND_INTERVAL`], by each worker: two
/// stations that defend one address for ever do not flood the link (RFC 5227 section 2.4 (c)).
pub(crate) fn tell(outputs: &mut Outputs<'_>, port: &Port, own: IpAddr, mac: Mac) -> bool {
    let now = outputs.now;
    let queue = outputs.ports.get_mut(usize::from(port.queue().0)).and_then(Option::as_mut);
    let is_due = queue.is_some_and(|queue| queue.conflicts.allow(now, port.id, own));
    if is_due {
        let event = Event::AddressConflict { port: port.id, since: port.since, address: own, mac };
        outputs.tell(port.spec.vrf, event);
    }
    is_due
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time(milliseconds * 1_000_000)
    }

    #[test]
    fn an_address_is_defended_once_in_ten_seconds() {
        let mut conflicts = Conflicts::default();
        let own = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        let (lan, wan) = (PortId(1), PortId(2));
        assert!(conflicts.allow(at(1000), lan, own(1)));
        assert!(!conflicts.allow(at(1000), lan, own(1)));
        assert!(conflicts.allow(at(1000), lan, own(2)), "another address is another conflict");
        assert!(conflicts.allow(at(1000), wan, own(1)));
        assert!(!conflicts.allow(at(10_999), lan, own(1)));
        assert!(conflicts.allow(at(11_000), lan, own(1)));
        assert!(!conflicts.allow(at(11_001), lan, own(1)));
    }

    #[test]
    fn who_claims_all_addresses_is_limited_too() {
        let mut conflicts = Conflicts::default();
        let own = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
        let mut allowed = 0;
        for millisecond in 0..60_000 {
            allowed +=
                u64::from(conflicts.allow(at(millisecond), PortId(1), own(millisecond as u32)));
            assert!(
                conflicts.defended.len() as u64 <= BURST + RATE * DEFEND_INTERVAL.as_secs() + 1
            );
        }
        assert!((60 * RATE..=60 * RATE + BURST).contains(&allowed), "{allowed}");
    }
}
