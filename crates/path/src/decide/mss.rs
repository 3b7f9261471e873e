//! What a SYN needs so that the MSS that it announces can be lowered: where the way back leads.

use tables::{SaIdentity, Tables, Vrf};
use wire::{FlowKey, FragmentClass, Origin, Protocol};

use super::question::Question;
use super::trace::{Exit, Step, Trace};
use super::{Deciding, LookedUp};
use crate::decision::{Decision, Verdict};
use crate::extension::MssWay;
use crate::mss::{self, SynWay};
use crate::outputs::Objects;

/// Whether a key is that of a SYN. A later fragment has its datagram's flags and no header.
pub(super) fn is_syn(key: &FlowKey) -> bool {
    key.protocol == Protocol::TCP
        && key.fragment != FragmentClass::Later
        && key.fields.tcp_flags().contains(wire::TcpFlags::SYN)
}

/// The ends of the tunnel by which answers go to what was decrypted.
pub(super) fn tunnel_back(key: &FlowKey, tables: &Tables) -> Option<SaIdentity> {
    let Origin::Sa(slot) = key.origin else { return None };
    let there = tables.sad().slot(slot)?.identity;
    Some(SaIdentity { source: there.destination, destination: there.source, ..there })
}

/// Of a packet that is sent on in a VRF where SYNs may be clamped.
pub(super) fn way<'a>(
    (key, tables, vrf): (&FlowKey, &'a Tables, &'a Vrf),
    decision: &Decision,
    trace: &mut impl Trace,
) -> Option<MssWay> {
    if !is_syn(key) || !decision.is_sent_on() {
        return None;
    }
    let back = tunnel_back(key, tables).and_then(|tunnel| {
        let looked_up = &LookedUp::NOTHING;
        let trace = &mut Asking(trace);
        // Outer packets have no mark.
        let mut deciding = Deciding { key: *key, tables, vrf, looked_up, trace, mark: 0 };
        deciding.outer_way(&tunnel).ok()
    });
    let mss = MssWay { back };
    trace.step_if(|| {
        let exit = Exit::of(decision, tables)?;
        let slot = match decision.verdict() {
            Verdict::Protect(slot, _) => Some(slot),
            _ => None,
        };
        let port = tables.next_hop(decision.next_hop()?)?.port;
        let (origin, is_v6, limit) = (key.origin, key.addresses.is_v6(), exit.limit);
        let way = SynWay { origin, is_v6, exit: port, slot, limit, mss };
        Some(Step::Mss { most: mss::most(&way, Objects::new(tables, 0))? })
    });
    Some(mss)
}

/// Hands on what the tables are asked, and not the steps, which are not those of the packet.
struct Asking<'t, T>(&'t mut T);

impl<T: Trace> Trace for Asking<'_, T> {
    fn step<'a>(&mut self, _: impl FnOnce() -> Step<'a>) {}

    fn step_if<'a>(&mut self, _: impl FnOnce() -> Option<Step<'a>>) {}

    fn asks(&mut self, question: impl FnOnce() -> Question) {
        self.0.asks(question);
    }
}
