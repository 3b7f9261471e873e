//! ICMP errors in VRFs with flows that no policy lets pass as themselves.
//!
//! Flows and connections see the error, whose connection is that of the packet that it quotes. Policies
//! alone judge it as an answer to that packet (RFC 4301 section 6.2).

use conntrack::{Named, Reference, Translation};
use tables::Tables;
use wire::{FlowKey, quoted};

use super::flows::{Seen, Turn};
use crate::connection;
use crate::extension::Rewrite;

/// The flow that an ICMP error is about, the other way round.
#[derive(Clone, Copy, Debug)]
pub(super) struct AsQuoted {
    /// As it quotes that when it comes: for inbound policies.
    pub(super) received: FlowKey,
    /// As it quotes that when it leaves: for outbound ones.
    pub(super) leaving: FlowKey,
}

impl AsQuoted {
    /// Of an error that goes so, and is of these connections. `None` if it quotes nothing that it can be
    /// judged by.
    pub(super) fn read(
        key: &FlowKey,
        tables: &Tables,
        seen: &Seen<'_>,
        (turn, reference): (&Turn, Reference),
    ) -> Option<Self> {
        let headers = wire::headers::parse(seen.packet).ok()?;
        let (addresses, protocol, upper) = quoted::reversed(seen.packet, &headers)?;
        let received = FlowKey { addresses, protocol, upper, ..*key };
        let mut leaving = received;
        // Of a single connection, the turn says it.
        let is_by_one = turn.further.is_none() && turn.is_translated;
        let all = turn.further.all(reference);
        for (reference, _) in all.filter(|(_, is_translated)| is_by_one || *is_translated) {
            let Named::Related(handle, direction, _) = reference.named() else { return None };
            let translation = tables.connections()?.translation(handle, direction)?;
            leaving = connection::translated(&leaving, &translation.tuple);
        }
        match (turn.rewrite, turn.after) {
            (Some(Rewrite { ends: Some(_), .. }), Some(after)) => {
                Some(Self { received, leaving: rewritten(leaving, key, &after) })
            }
            _ => Some(Self { received, leaving }),
        }
    }
}

/// What an error quotes that flows write so: prefixes that are translated without a connection are
/// translated there, too.
fn rewritten(quoted: FlowKey, before: &FlowKey, after: &FlowKey) -> FlowKey {
    let [was, is] = [before, after].map(connection::addresses);
    if !was.addresses.is_v6() || !Translation::between(&was, &is).is_neutral() {
        return quoted;
    }
    let mut tuple = connection::addresses(&quoted);
    if tuple.addresses.source() == was.addresses.source() {
        tuple = tuple.with_source(is.addresses.source(), 0).unwrap_or(tuple);
    }
    if tuple.addresses.destination() == was.addresses.destination() {
        tuple = tuple.with_destination(is.addresses.destination(), 0).unwrap_or(tuple);
    }
    FlowKey { addresses: tuple.addresses, ..quoted }
}
