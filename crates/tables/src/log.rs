//! What changed lately.
//!
//! A cached decision is kept with the generation that it was made from. The log lists what changed
//! since then, so that a change costs only the flows that it concerns a new decision. The log has
//! a fixed length. For a generation older than its first entry it says that the changes are not
//! known.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use pipeline::FlowPackets;
use wire::{IpPrefix, PortId, SaSlot, Spi, VrfId};

use crate::filter::{FilterPlace, FilterTarget};
use crate::next_hop::NextHopId;
use crate::policy::{Scope, Selector};
use crate::routing_table::TableRef;
use crate::rule::Rule;
use crate::sad::SaIdentity;

/// One change of the tables, as far as decisions are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A policy came, went or became another: packets of the VRF, or those by the link, that the
    /// selector matches.
    Policy {
        /// Whose packets it is for.
        scope: Scope,
        /// Of the policy as it was or as it is.
        selector: Selector,
    },
    /// A rule of a filter came, went or became another: packets of the VRF that the selector matches
    /// and that meet the filter.
    Filter {
        /// Whose packets.
        vrf: VrfId,
        /// Which filter.
        place: FilterPlace,
        /// Of the rule as it was or as it is, for one address family.
        selector: Selector,
    },
    /// A flow of a VRF's match-action tables came, went or became another, or connections are
    /// tracked now.
    Flows {
        /// Whose packets.
        vrf: VrfId,
        /// Those that the flow may match, as they came in. `None` stands for all of the VRF: more flows
        /// than are told one by one, or flows that rewrite packets for each other.
        packets: Option<FlowPackets>,
    },
    /// A tap came or went: packets that come or leave by the port, or are routed in the VRF.
    Tap(FilterTarget),
    /// A route came, went or became another: packets and tunnels to these destinations.
    Route {
        /// In which table.
        table: TableRef,
        /// Its destinations.
        prefix: IpPrefix,
    },
    /// A next hop came or went: packets and tunnels to this very address that leave by a connected
    /// route. [`crate::Tables::on_link_next_hop`] returns another one for it now. Compare the
    /// address, not the id in a cached decision: that id may name another next hop by now.
    ///
    /// That a next hop became another (its neighbour was resolved, moved or failed; its port got
    /// another MTU or Ethernet address, or went up or down) concerns no decision and is not here.
    /// Next hops that go with their port are not here either.
    NextHop {
        /// On whose link.
        port: PortId,
        /// Its address.
        address: IpAddr,
    },
    /// A next hop of a multipath route went down or came up, with its port: of packets and tunnels
    /// to these destinations, if it went down, those that take it, since no other's member changes;
    /// if it came up, all.
    Member {
        /// In which table its route is.
        table: TableRef,
        /// Its destinations.
        prefix: IpPrefix,
        /// The next hop. As this says something of a route that is there, whoever has left by it
        /// by this route names the same; whoever names what had the id before is concerned by the
        /// change that took that away.
        next_hop: NextHopId,
        /// Whether it came up.
        up: bool,
    },
    /// A policy rule came, went or became another, or has another place or target: packets that it
    /// matches, as it was or as it is.
    Rule(Rule),
    /// An SA came or went.
    Sa {
        /// Of which tunnel.
        identity: SaIdentity,
        /// Its security parameters index.
        spi: Spi,
        /// Where it is or was.
        slot: SaSlot,
        /// Whether the slot came or went with it.
        is_slot: bool,
    },
    /// A port came, went, moved to another VRF, got another kind of link, listens to other addresses
    /// than before, or holds packets' sources against the routes otherwise: packets that come in by
    /// it. Those that leave by it are concerned by
    /// the [`Change::Vrf`] that comes with this.
    ///
    /// Its MTU, its Ethernet address and whether it is up are in its next hops, and concern no
    /// decision. (Where the IPv6 link-local address follows from the Ethernet address, the port
    /// listens to other addresses with it.)
    Port(PortId),
    /// Everything about a VRF, its routes and what is on the links of its ports included; also that
    /// its policies read other optional fields than before, so that keys mean something else, that
    /// one of its ports is on another side of the IPsec boundary, that one of its xfrm links went
    /// down or came up, and that it is an IPsec gateway
    /// now or no longer. Comes with [`Change::Port`], once for each VRF that the port is or was in,
    /// unless only IPv6 link-local addresses or the check of sources have changed.
    Vrf(VrfId),
    /// Whether IKE for a VRF's own addresses is asked policies: packets of IKE.
    Ike(VrfId),
}

/// Records that are copied together when one is added.
const BLOCK: usize = 64;
/// How many blocks are kept.
const BLOCKS: usize = 16;

/// The latest changes, by generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeLog {
    /// The latest last. None is empty.
    blocks: VecDeque<Arc<Vec<Record>>>,
    /// The log is complete for changes after this generation.
    floor: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    generation: u64,
    change: Change,
}

impl ChangeLog {
    /// Notes a change that is published as `generation`, which is not smaller than that of any
    /// earlier record.
    pub(crate) fn record(&mut self, generation: u64, change: Change) {
        let record = Record { generation, change };
        match self.blocks.back_mut() {
            Some(last) if last.len() < BLOCK => Arc::make_mut(last).push(record),
            _ => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(record);
                self.blocks.push_back(Arc::new(block));
                if self.blocks.len() > BLOCKS
                    && let Some(forgotten) = self.blocks.pop_front()
                {
                    self.floor = forgotten.last().map_or(self.floor, |last| last.generation);
                }
            }
        }
    }

    /// Forgets everything up to `generation`, and that too.
    pub(crate) fn forget(&mut self, generation: u64) {
        self.blocks.clear();
        self.floor = generation;
    }

    /// All that is known, with the generations, the latest first.
    pub(crate) fn latest(&self) -> impl Iterator<Item = (u64, &Change)> {
        self.blocks
            .iter()
            .rev()
            .flat_map(|block| block.iter().rev())
            .map(|record| (record.generation, &record.change))
    }

    /// The generation after which nothing is forgotten.
    pub(crate) fn known_since(&self) -> u64 {
        self.floor
    }

    /// The changes after `generation`, the latest first; `None` where some of them are forgotten.
    #[inline]
    pub(crate) fn since(&self, generation: u64) -> Option<impl Iterator<Item = &Change>> {
        let latest_first = self.blocks.iter().rev().flat_map(|block| block.iter().rev());
        let newer = latest_first.take_while(move |record| record.generation > generation);
        (generation >= self.floor).then(|| newer.map(|record| &record.change))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a plain list of all that ever happened.
        #[test]
        fn it_tells_all_or_says_that_it_cannot(counts in proptest::collection::vec(0u16..200, 1..30)) {
            let mut log = ChangeLog::default();
            let mut all = Vec::new();
            for (generation, count) in (1..).zip(counts) {
                for number in 0..count {
                    let change = Change::Port(PortId(number));
                    log.record(generation, change);
                    all.push((generation, change));
                }
                for asked in 0..=generation {
                    let wanted: Vec<_> =
                        all.iter().rev().filter(|(made, _)| *made > asked).map(|(_, change)| change).collect();
                    match log.since(asked) {
                        Some(told) => prop_assert_eq!(told.collect::<Vec<_>>(), wanted),
                        None => prop_assert!(wanted.len() > BLOCK * (BLOCKS - 1)),
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_forgotten_is_not_told() {
        let mut log = ChangeLog::default();
        log.record(1, Change::Port(PortId(1)));
        log.forget(1);
        assert!(log.since(0).is_none());
        assert_eq!(log.since(1).unwrap().count(), 0);
    }
}
