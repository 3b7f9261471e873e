//! The only code that consults policy.
//!
//! [`decide()`] asks the tables a few questions ([`question`]) and concludes from the answers.
//! Whatever else must know what a decision depends on uses the same questions: the batched lookup
//! ([`batch`]), what `explain` prints ([`trace`]), and the validity of what the cache holds.

mod batch;
pub(crate) mod features;
mod filters;
mod flows;
mod links;
mod locality;
mod megaflow;
mod members;
mod mss;
mod plain;
pub(crate) mod question;
mod quoted;
mod source;
pub(crate) mod trace;
mod tracking;
mod way;

use std::net::IpAddr;
use std::sync::Arc;

use conntrack::Connections;
use packet::{DropReason, Time};
use tables::{Direction, NatPool, Policy, PoolId, Tables, Vrf};
use wire::{FlowKey, FragmentClass, Origin, Protocol, Spi, Upper, VrfId};

pub(crate) use self::batch::LookUp;
pub(crate) use self::flows::FrameEnd;
pub(crate) use self::flows::Looked;
pub use self::flows::Seen;
pub(crate) use self::links::{entry as entry_link, exit as exit_link};
pub(crate) use self::locality::Locality;
pub(crate) use self::megaflow::Megaflows;
pub(crate) use self::plain::IKE;
pub(crate) use self::source::{has_broadcast, source_of_error, source_to};
use crate::connection::{Change, NewSource};
use crate::decision::Decision;
use crate::extension::{Copied, Extension};
use plain::{Admission, Deciding, Mark, Translated, is_link_local_v6};
use question::Question;
use trace::{Exit, Step, Trace};

/// Decides what happens to the packets of the flow that `key` names. Reads the tables and changes
/// nothing.
///
/// The order is: filters before routing, source, match-action tables with the connection, destination,
/// rules and route, inbound policy, outbound policy, SA, next hop, filters after routing. What filters want is in the extension, which the
/// decision says that it has.
///
/// Each direction of the boundary is enforced by itself (RFC 4301 section 5):
///
/// - What came by a port that is not on the protected side, or was decrypted, is held against `in`
///   or `fwd` policies. A clear packet that such a policy protects is dropped; a decrypted one must
///   match one whose template admits the SA that decrypted it (RFC 4301 section 5.2, step 4).
/// - What leaves by a port that is not on the protected side, or has no route, is held against `out`
///   policies.
/// - What none matches meets the direction's default action. Where nobody says on which side a port
///   is, two defaults do not apply: a packet that came by it may match no inbound policy if an
///   outbound one protects it, and a decrypted packet may leave by it without an outbound one.
/// - What leaves by an xfrm link is held against the `out` policies of its `if_id` and must be
///   protected by one; what an SA with that `if_id` decrypted is held against its `in` or `fwd`
///   policies, and has then come by a port of the protected side.
/// - A VRF without policies is left alone, unless it is said to need them, or had some: then nothing
///   crosses its boundary.
///
/// What flows say of a connection depends on the packet, which is `seen`. Of one that is not seen, it
/// is said as of the first packet of a connection.
pub fn decide(
    key: &FlowKey,
    tables: &Tables,
    seen: Option<Seen<'_>>,
    trace: &mut impl Trace,
) -> (Decision, Extension) {
    let mut made = Made::NOTHING;
    trace.step(|| Step::Key(key));
    made.beside.seen = seen;
    decide_by(*key, tables, &LookedUp::NOTHING, trace, &mut made.decision, &mut made.beside);
    (made.decision, made.beside.extension)
}

/// A decision, and what belongs to it.
pub(crate) struct Made<'p> {
    pub decision: Decision,
    pub beside: Beside<'p>,
}

/// What belongs to a decision beside it.
pub(crate) struct Beside<'p> {
    /// The packet, if flows may ask for more than its key.
    pub seen: Option<Seen<'p>>,
    pub extension: Extension,
    /// What it asks of connections.
    pub change: Option<Change>,
    /// What becomes of copies of its packet.
    pub copies: Vec<Copied>,
}

impl Made<'_> {
    pub(crate) const NOTHING: Self = Self { decision: Decision::NONE, beside: Beside::NOTHING };
}

impl Beside<'_> {
    const NOTHING: Self =
        Self { seen: None, extension: Extension::NONE, change: None, copies: Vec::new() };
}

/// A flow's key, as decide reads it. The cache's words are one, so that what is not read need not be
/// unpacked.
pub(crate) trait KeyView: Copy {
    fn vrf(self) -> VrfId;
    fn origin(self) -> Origin;
    fn source(self) -> IpAddr;
    fn destination(self) -> IpAddr;
    fn fragment(self) -> FragmentClass;
    /// The SPI of ESP.
    fn esp(self) -> Option<Spi>;
    fn flow(self) -> FlowKey;
}

impl KeyView for FlowKey {
    fn vrf(self) -> VrfId {
        self.vrf
    }

    fn origin(self) -> Origin {
        self.origin
    }

    fn source(self) -> IpAddr {
        self.addresses.source()
    }

    fn destination(self) -> IpAddr {
        self.addresses.destination()
    }

    fn fragment(self) -> FragmentClass {
        self.fragment
    }

    fn esp(self) -> Option<Spi> {
        match self.upper {
            Upper::Spi(spi) if self.protocol == Protocol::ESP => Some(spi),
            _ => None,
        }
    }

    fn flow(self) -> FlowKey {
        self
    }
}

/// The tables, for code that may have packets decided and must not consult policy itself.
#[derive(Clone, Copy)]
pub(crate) struct Decider<'t> {
    tables: &'t Tables,
    now: Time,
}

impl<'t> Decider<'t> {
    pub(crate) fn new(tables: &'t Tables, now: Time) -> Self {
        Self { tables, now }
    }

    /// The connection table, if packets of some VRF have flows that may ask it.
    #[inline(always)]
    pub(crate) fn connections(&self) -> Option<&'t Connections> {
        if !self.tables.has_flows() {
            return None;
        }
        self.tables.connections().map(|connections| &**connections)
    }

    /// The round's time.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// See [`Tables::connection_ended`].
    pub(crate) fn connection_ended(&self, ended: &[conntrack::Ended]) {
        self.tables.connection_ended(ended);
    }

    /// The pool that lends sources for a translation.
    pub(crate) fn nat_pool(&self, source: &NewSource) -> Option<(PoolId, &'t NatPool)> {
        let id = source.pool?;
        Some((id, self.tables.nat_pool(id)?))
    }

    /// The pool that has lent what a connection's binding says.
    pub(crate) fn nat_pool_of(&self, binding: u64) -> Option<(PoolId, &'t NatPool)> {
        let id = self.tables.nat_pool_of_binding(binding)?;
        Some((id, self.tables.nat_pool(id)?))
    }

    /// See [`Tables::generation`].
    pub(crate) fn generation(&self) -> u64 {
        self.tables.generation()
    }

    /// See [`Tables::policy_generation`].
    pub(crate) fn policy_generation(&self) -> u64 {
        self.tables.policy_generation()
    }

    /// See [`Tables::changes_since`].
    pub(crate) fn changes_since(
        &self,
        generation: u64,
    ) -> Option<impl Iterator<Item = &'t tables::Change> + use<'t>> {
        self.tables.changes_since(generation)
    }

    /// Tells the steps by which a flow is decided.
    pub(crate) fn explain(&self, key: &FlowKey, trace: &mut impl Trace) {
        decide(key, self.tables, None, trace);
    }

    /// What a decision about a flow was made from, to be held against changes.
    pub(crate) fn questions(&self, key: &FlowKey, decision: &Decision) -> question::Asked<'t> {
        question::Asked::new(key, decision, self.tables)
    }
}

/// The policies of a packet, as far as they were looked up before, together with those of other
/// packets.
#[derive(Clone, Copy)]
pub(crate) struct LookedUp<'t> {
    /// Of the packet's way in: `in` or `fwd`, and what was found.
    admission: Option<(Direction, Option<&'t Arc<Policy>>)>,
    /// Of its way out.
    outbound: Option<Option<&'t Arc<Policy>>>,
}

impl LookedUp<'_> {
    pub(crate) const NOTHING: Self = Self { admission: None, outbound: None };
}

/// The same as [`decide()`], where some of the policies were looked up before.
///
/// The decision is written where it will be read. A returned one would be written in parts to the
/// stack and copied from there in larger ones, which the processor waits for.
#[inline(always)]
pub(crate) fn decide_by<'t>(
    key: impl KeyView,
    tables: &'t Tables,
    looked_up: &LookedUp<'t>,
    trace: &mut impl Trace,
    decision: &mut Decision,
    beside: &mut Beside<'_>,
) {
    decide_in(tables.vrf(key.vrf()), (key, tables), looked_up, trace, decision, beside);
}

/// The same, where its VRF is known; `None` if that is not there.
#[inline(always)]
fn decide_in<'t>(
    vrf: Option<&'t Vrf>,
    (key, tables): (impl KeyView, &'t Tables),
    looked_up: &LookedUp<'t>,
    trace: &mut impl Trace,
    decision: &mut Decision,
    beside: &mut Beside<'_>,
) {
    trace.asks(|| Question::Vrf(key.vrf()));
    match vrf {
        Some(vrf) if vrf.features.any() | tables.may_be_tapped(vrf) => {
            filters::decide((key, tables, vrf), looked_up, trace, (&mut *decision, beside));
        }
        vrf => decide_plain(vrf, (key, tables), looked_up, trace, decision),
    }
    trace.verdict(|| Step::Verdict { decision, exit: Exit::of(decision, tables) });
}

/// The same of a packet whose VRF has no features.
#[inline(always)]
fn decide_plain<'t>(
    vrf: Option<&'t Vrf>,
    (key, tables): (impl KeyView, &'t Tables),
    looked_up: &LookedUp<'t>,
    trace: &mut impl Trace,
    decision: &mut Decision,
) {
    match vrf {
        Some(vrf) => Deciding { key, tables, vrf, looked_up, trace, mark: () }.decide(decision),
        None => *decision = Decision::drop(DropReason::PortDown),
    }
}
