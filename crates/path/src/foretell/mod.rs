//! What would become of a packet: [`decide()`](crate::decide()), and what the stages behind it would
//! do, without doing it. Nothing is sent, counted or remembered.
//!
//! What the stages conclude from a packet and the tables alone is concluded here by the same
//! functions. What depends on what passed before (rate limits, full queues, a datagram's first
//! fragment, replay windows) is not known here. The law (`tests/law`) holds what is foretold against
//! what the worker does.

mod opening;
mod words;

use std::net::IpAddr;

use packet::{DropReason, Time};
use tables::{NextHop, NextHopId, NextHopState, Port, Sa, Tables, Template};
use wire::common::Facts;
use wire::{
    FragmentClass, Headers, Origin, PacketFields, PortId, Protocol, SaSlot, Upper, VrfId, fragment,
    headers, icmpv6, ipv4, ipv6, mld, tcp,
};

use crate::batch::{ANY_SEQUENCE, AS_QUOTED, Arrival, Known};
use crate::decide::features::Queues;
use crate::decide::trace::{Exit, Step, Trace};
use crate::decide::{
    FrameEnd, Locality, LookedUp, Made, Seen, decide_by, has_broadcast, source_of_error,
};
use crate::decision::{Decision, Refusal, Verdict};
use crate::encapsulation::{Inner, inner_limit, outer_length};
use crate::host::errors::{self, IcmpError};
use crate::host::{Delivery, answer_to, delivery, echo, error_about, nd};
use crate::mss::tunnel_limit;
use crate::outputs::Objects;
use crate::stage::apply::{is_judged_again, is_own, is_source_routed};
use crate::stage::confirm::{TRIES, goes_no_further};
use crate::stage::oversize::Fit;
use crate::stage::parse;

pub use opening::Opened;
use opening::Opening;

/// A packet that might come.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'p> {
    /// The VRF that it would enter.
    pub vrf: VrfId,
    /// From where.
    pub origin: Origin,
    /// The IP packet.
    pub packet: &'p [u8],
    /// The optional fields that are known: others are zero in its key.
    pub said: PacketFields,
    /// Whether an ICMP error stands for one whose quoted sequence number is on its way, whatever is
    /// quoted.
    pub quotes_any_sequence: bool,
    /// When. Connections are dead from their deadlines on.
    pub now: Time,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It leaves in clear, whole or in fragments.
    SentInClear,
    /// It leaves in ESP.
    SentEncrypted,
    /// Its frame leaves as it came.
    SentUnchanged,
    /// It waits for the next hop's Ethernet address, and leaves then.
    SentOnceResolved,
    /// The gateway answers it.
    Answered,
    /// The gateway takes it: neighbour discovery.
    Delivered,
    /// Left to the system's own stack, which has the address too, or to a key daemon there. The
    /// gateway itself drops it for this reason.
    LeftToSystem(DropReason),
    /// Decrypted; the packet inside is handled anew.
    Decrypted,
    /// Kept until all fragments are there.
    Reassembled,
    /// Dropped. Of what the gateway would answer: the answer is.
    Dropped(DropReason),
}

impl Fate {
    /// One word, stable for scripts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::SentInClear => "sent-in-clear",
            Self::SentEncrypted => "sent-encrypted",
            Self::SentUnchanged => "sent-unchanged",
            Self::SentOnceResolved => "sent-once-resolved",
            Self::Answered => "answered",
            Self::Delivered => "delivered",
            Self::LeftToSystem(_) => "left-to-system",
            Self::Decrypted => "decrypted",
            Self::Reassembled => "reassembled",
            Self::Dropped(_) => "dropped",
        }
    }

    /// Why it ends at the gateway.
    pub const fn reason(self) -> Option<DropReason> {
        match self {
            Self::LeftToSystem(reason) | Self::Dropped(reason) => Some(reason),
            _ => None,
        }
    }

    fn is_dropped(self) -> bool {
        matches!(self, Self::Dropped(_))
    }
}

/// Why a packet ends in parse, or what it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// It is wrong.
    Malformed(headers::Malformed),
    /// Neighbour discovery for the gateway: its ICMPv6 type, and whether the gateway takes it.
    NeighbourDiscovery(u8, bool),
    /// Multicast listener discovery of a link.
    ListenerDiscovery,
    /// A later fragment, of whose datagram the first is not known.
    FirstUnknown,
    /// It comes by a port that is down.
    PortDown,
}

/// How a packet fits its way.
#[derive(Clone, Copy, Debug)]
pub struct Size<'a> {
    /// Its length in bytes.
    pub length: u16,
    /// The most bytes that may go this way, before they are encrypted.
    pub limit: u16,
    /// The name of the port that it leaves by.
    pub port: &'a str,
    /// The MTU of that port.
    pub mtu: u16,
    /// Name and MTU of the xfrm link that it leaves by, if it does.
    pub link: Option<(&'a str, u16)>,
    /// The SA that encrypts it, if one does.
    pub sa: Option<&'a Sa>,
    /// What is done.
    pub fit: Fit,
    /// The lengths of its fragments; nothing of a packet that is not cut. Of one that is cut once
    /// encrypted, those of ESP's.
    pub pieces: &'a [u16],
}

impl Size<'_> {
    /// The length of its ESP packet with outer header, if it is encrypted whole.
    pub fn encrypted(&self) -> Option<usize> {
        Some(outer_length(self.sa?, self.length.into()))
    }

    /// What the tunnel takes of the MTU; nothing of a packet that leaves in clear.
    pub fn overhead(&self) -> u16 {
        self.sa.map_or(0, |sa| self.mtu - inner_limit(sa, self.mtu))
    }
}

/// What a packet waits for, or does not wait for though somebody may think so.
#[derive(Clone, Copy, Debug)]
pub enum Wait<'a> {
    /// For a station to say which Ethernet address it has.
    Neighbour {
        /// On the link of this port.
        port: &'a str,
        /// The station.
        address: IpAddr,
        /// Whether it is asked: the port has an address of its family to ask from.
        is_asked: bool,
        /// Whether the sender is told if it does not answer.
        is_told: bool,
        /// What becomes of the answer, if flows keep it from the gateway.
        unheard: Option<Unheard<'a>>,
    },
    /// For the other fragments of its datagram, up to so many seconds.
    Fragments(u64),
    /// No packet waits for an SA.
    Sa(&'a Template),
}

/// Why ARP does not come to the gateway: what the flows of a port's VRF do with it.
#[derive(Clone, Copy, Debug)]
pub struct Unheard<'a> {
    /// The name of the VRF.
    pub vrf: &'a str,
    /// Why they drop it, if they do. Otherwise they send it elsewhere.
    pub reason: Option<DropReason>,
}

/// What the sender is told.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// What there is to tell.
    pub error: IcmpError,
    /// Whether about an IPv6 packet.
    pub is_v6: bool,
    /// From which address, or why the sender is told nothing.
    pub from: Result<IpAddr, Untold>,
}

/// Why a sender is told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untold {
    /// About packets of its kind nobody is told.
    Kind,
    /// It is from or to a broadcast address.
    Broadcast,
    /// The gateway has no address to tell it from.
    NoSource,
}

/// Tells what would become of a packet, and every step to there.
pub fn foretell(arriving: &Arriving<'_>, tables: &Tables, trace: &mut impl Trace) -> Fate {
    let mut teller = Foretelling { tables, trace, neighbour: None, unserved: None };
    teller.packet(arriving, false)
}

/// Foretells one packet, and what the gateway sends because of it.
struct Foretelling<'a, 't, T> {
    tables: &'a Tables,
    trace: &'t mut T,
    /// Of the decision made last: the station that the packet goes to.
    neighbour: Option<IpAddr>,
    /// The template that no SA serves.
    unserved: Option<Template>,
}

impl<T: Trace> Trace for Foretelling<'_, '_, T> {
    fn step<'s>(&mut self, step: impl FnOnce() -> Step<'s>) {
        let step = step();
        match step {
            Step::Neighbour { next_hop, .. } => self.neighbour = Some(next_hop),
            Step::Sa { template: Some(template), sa: None } => self.unserved = Some(*template),
            _ => {}
        }
        self.trace.step(|| step);
    }

    /// It is told once it is known whether the packet is decided again.
    fn verdict<'s>(&mut self, _: impl FnOnce() -> Step<'s>) {}
}

/// By which way a packet leaves.
#[derive(Clone, Copy)]
struct Leaving {
    slot: Option<SaSlot>,
    next_hop: NextHopId,
}

/// What becomes of a packet that has a next hop.
enum Emitted {
    Sent,
    /// Until the next hop's Ethernet address is known.
    Waits,
}

impl<'a, T: Trace> Foretelling<'a, '_, T> {
    /// As the stage that parses, and what is behind it.
    fn packet(&mut self, arriving: &Arriving<'_>, as_quoted: bool) -> Fate {
        let Arriving { vrf, origin, packet, said, now, .. } = *arriving;
        let tables = self.tables;
        if let Origin::Port(port) = origin
            && tables.port(port).is_some_and(|port| !port.spec.up)
        {
            return self.ends(Parsed::PortDown, DropReason::PortDown);
        }
        let mut headers = match headers::parse(packet) {
            Ok(headers) => headers,
            Err(why) => return self.ends(Parsed::Malformed(why), why.into()),
        };
        let packet = packet.get(..usize::from(headers.total_length)).unwrap_or(packet);
        let (locality, destination) = (Locality::new(tables), headers.addresses.destination());
        if let Origin::Port(port) = origin {
            if parse::is_neighbour_discovery(&headers) && locality.is_local(vrf, port, destination)
            {
                return self.neighbour_discovery(port, packet, &headers);
            }
            if mld::is_of_link(packet, &headers) {
                return self.ends(Parsed::ListenerDiscovery, DropReason::MldIgnored);
            }
        }
        let lacks_first = headers.fragment.class == FragmentClass::Later
            && locality.reads_upper(vrf)
            && !locality.is_of_vrf(vrf, destination)
            && !locality.has_flows(vrf);
        if lacks_first {
            return self.ends(Parsed::FirstUnknown, DropReason::FragmentUnknown);
        }
        let as_received = headers;
        match origin {
            _ if as_quoted => {
                parse::judge_as_quoted(locality, packet, &mut headers, (vrf, origin));
            }
            Origin::Port(port) => parse::note_own_esp(locality, packet, &mut headers, (vrf, port)),
            _ => {}
        }
        let own = if is_own(origin) { Facts::OWN } else { 0 };
        let quoted = if as_quoted { AS_QUOTED } else { 0 };
        let any_sequence = if arriving.quotes_any_sequence { ANY_SEQUENCE } else { 0 };
        let facts = Facts(Facts::of(&headers).0 | own | quoted | any_sequence);
        let key = headers.key(vrf, origin, locality.parsing(vrf).reads & said);
        let mut imagined = Vec::new();
        let (known, beside) = loop {
            let mut made = Made::NOTHING;
            made.beside.seen = Some(Seen::new(packet, facts, now).having_opened(&imagined));
            (self.neighbour, self.unserved) = (None, None);
            if imagined.is_empty() {
                self.trace.step(|| Step::Key(&key));
            }
            decide_by(key, tables, &LookedUp::NOTHING, self, &mut made.decision, &mut made.beside);
            let Made { decision, beside } = made;
            let written = beside.extension.rewrite.and_then(|rewrite| rewrite.hop_limit);
            let facts = written.map_or(facts, |hop_limit| facts.with_hop_limit(hop_limit));
            let known = Known { facts, decision, key, inner: Inner::of(packet) };
            // Without a quoted packet, it would be judged as before.
            if is_judged_again(&known) && wire::quoted::reversed(packet, &as_received).is_some() {
                self.trace.step(|| Step::AsQuoted);
                return self.packet(arriving, true);
            }
            if goes_no_further(&decision, Some(&beside.extension), facts) {
                self.tell_verdict(&decision);
                break (known, beside);
            }
            // As confirm has a packet decided again that has opened a connection.
            match self.opens(beside.change.as_ref(), &decision, now) {
                Opening::Nothing => break (known, beside),
                Opening::Refused(reason) => return self.dropped(reason),
                Opening::Again(_) if imagined.len() >= TRIES => {
                    return self.dropped(DropReason::ConnectionGone);
                }
                Opening::Again(opened) => imagined.push(opened),
            }
        };
        if !beside.copies.is_empty() {
            let copies = beside.copies.len();
            self.trace.step(|| Step::Copies(copies));
        }
        self.apply(&known, packet, &headers, arriving)
    }

    /// As [`nd::receive`](crate::host::nd::receive).
    fn neighbour_discovery(&mut self, port: PortId, packet: &[u8], headers: &Headers) -> Fate {
        let Upper::Icmp { kind, .. } = headers.upper else {
            return self.dropped(DropReason::NdMalformed);
        };
        let port = self.tables.port(port).ok_or(DropReason::NdMalformed);
        let taken =
            port.and_then(|port| nd::judge(port, headers, packet, None).map_err(DropReason::from));
        self.trace.step(|| Step::Parse(Parsed::NeighbourDiscovery(kind, taken.is_ok())));
        match taken {
            Ok(_) => Fate::Delivered,
            Err(reason) => self.dropped(reason),
        }
    }

    /// In parse.
    fn ends(&mut self, what: Parsed, reason: DropReason) -> Fate {
        self.trace.step(|| Step::Parse(what));
        self.dropped(reason)
    }

    /// Before it is applied.
    fn dropped(&mut self, reason: DropReason) -> Fate {
        self.unserved = None;
        self.tell_verdict(&Decision::drop(reason));
        Fate::Dropped(reason)
    }

    fn tell_verdict(&mut self, decision: &Decision) {
        let exit = Exit::of(decision, self.tables);
        self.trace.step(|| Step::Verdict { decision, exit });
        if let Some(template) = self.unserved {
            self.trace.step(|| Step::Wait(Wait::Sa(&template)));
        }
    }

    /// As the stage that applies.
    fn apply(
        &mut self,
        known: &Known,
        packet: &[u8],
        headers: &Headers,
        arriving: &Arriving<'_>,
    ) -> Fate {
        match known.decision.verdict() {
            Verdict::Drop(reason) => Fate::Dropped(reason),
            Verdict::Refuse(reason, refusal) => {
                self.tell(known, packet, IcmpError::Unreachable(refusal), arriving.now);
                Fate::Dropped(reason)
            }
            Verdict::Forward(next_hop) => {
                let leaving = Leaving { slot: None, next_hop };
                self.send_on(known, packet, leaving, arriving.now)
            }
            Verdict::Protect(slot, next_hop) => {
                let leaving = Leaving { slot: Some(slot), next_hop };
                self.send_on(known, packet, leaving, arriving.now)
            }
            Verdict::Decrypt(_) => Fate::Decrypted,
            Verdict::Reassemble => {
                let seconds = flow::Reassembly::lifetime(known.is_v6()).as_secs();
                self.trace.step(|| Step::Wait(Wait::Fragments(seconds)));
                Fate::Reassembled
            }
            Verdict::Deliver => self.deliver(known, packet, headers, arriving.now),
            Verdict::Output(port) => self.output(known, port),
            Verdict::Flood => self.flood(known),
        }
    }

    /// As [`deliver`](crate::host::deliver).
    fn deliver(&mut self, known: &Known, packet: &[u8], headers: &Headers, now: Time) -> Fate {
        match delivery(&known.key, |address| self.tables.is_systems(address)) {
            Delivery::Echo => self.reply(known, packet, headers, now),
            Delivery::Ends(reason @ (DropReason::LocalIke | DropReason::LocalLeftToSystem)) => {
                Fate::LeftToSystem(reason)
            }
            Delivery::Ends(reason) => Fate::Dropped(reason),
            Delivery::Refused(error) => {
                self.tell(known, packet, error, now);
                Fate::Dropped(DropReason::LocalNoListener)
            }
        }
    }

    /// As [`echo::reply`].
    fn reply(&mut self, known: &Known, packet: &[u8], headers: &Headers, now: Time) -> Fate {
        if !echo::is_intact(packet, headers) {
            return Fate::Dropped(DropReason::LocalChecksum);
        }
        let mut reply = packet.to_vec();
        let extra = echo::plain_header(&mut reply, headers);
        reply.drain(..extra);
        let port = self.port_of(known.key.origin).and_then(|id| self.tables.port(id));
        if !echo::turn(&mut reply, headers, port) {
            return Fate::Dropped(DropReason::LocalIcmp);
        }
        let by = self.port_of(known.key.origin);
        let sent = self.own(&reply, (by, headers.addresses.source()), answer_to(&known.key), now);
        if sent.is_dropped() { sent } else { Fate::Answered }
    }

    /// As [`Applier::send_own`](crate::stage::apply::Applier::send_own), of what was built because of
    /// a packet that came by a port.
    fn own(
        &mut self,
        packet: &[u8],
        (by, peer): (Option<PortId>, IpAddr),
        Arrival { vrf, origin, .. }: Arrival,
        now: Time,
    ) -> Fate {
        let (length, tables) = (packet.len(), self.tables);
        let name = tables.vrf_name(vrf).unwrap_or("?");
        self.trace.step(|| Step::Generated { length, vrf: name });
        let is_of_link = matches!(peer, IpAddr::V6(peer) if peer.is_unicast_link_local());
        if !is_of_link {
            let said = PacketFields::ALL;
            let quotes_any_sequence = false;
            let built = Arriving { vrf, origin, packet, said, quotes_any_sequence, now };
            return self.packet(&built, false);
        }
        let next_hop = by.and_then(|port| tables.on_link_next_hop(port, peer));
        let Some(next_hop) = next_hop else { return Fate::Dropped(DropReason::PortDown) };
        self.trace.step_if(|| Step::neighbour(next_hop, Some(peer), tables));
        if let (Ok(headers), Some(hop)) = (headers::parse(packet), tables.next_hop(next_hop)) {
            let facts = Facts(Facts::of(&headers).0 | Facts::OWN);
            let key = headers.key(vrf, origin, PacketFields::NONE);
            let decision = Decision::new(Verdict::Forward(next_hop), None, None);
            let known = Known { facts, decision, key, inner: Inner::of(packet) };
            self.size(&known, packet, Leaving { slot: None, next_hop }, (hop.mtu, hop));
        }
        match self.emit(next_hop, Some(peer), false) {
            Ok(Emitted::Waits) => Fate::SentOnceResolved,
            Ok(Emitted::Sent) => Fate::SentInClear,
            Err(reason) => Fate::Dropped(reason),
        }
    }

    /// As [`Applier::tell_sender`](crate::stage::apply::Applier::tell_sender).
    fn tell(&mut self, known: &Known, packet: &[u8], error: IcmpError, now: Time) {
        if is_own(known.key.origin) {
            return;
        }
        // As what is no TCP is told of a filter that says reset.
        let error = match error {
            IcmpError::Unreachable(Refusal::TcpReset) if known.key.protocol != Protocol::TCP => {
                IcmpError::Unreachable(Refusal::Prohibited)
            }
            error => error,
        };
        let message = self.message(known, packet, error);
        let is_v6 = known.is_v6();
        let source = |message: &Vec<u8>| Some(headers::parse(message).ok()?.addresses.source());
        let from = match &message {
            Ok(message) => source(message).ok_or(Untold::NoSource),
            Err(untold) => Err(*untold),
        };
        self.trace.step(|| Step::Told(Told { error, is_v6, from }));
        if let Ok(message) = message {
            let by = (self.port_of(known.key.origin), known.key.addresses.source());
            self.own(&message, by, error_about(&known.key), now);
        }
    }

    fn message(&self, known: &Known, packet: &[u8], error: IcmpError) -> Result<Vec<u8>, Untold> {
        let headers = known.headers_of(packet);
        let to_many = || has_broadcast(known.key.vrf, &headers.addresses, self.tables);
        let mut room = vec![0; icmpv6::MAX_ERROR_PACKET];
        let length = match error {
            IcmpError::Unreachable(Refusal::TcpReset) => {
                let length = tcp::write_reset(&headers, packet, &mut room);
                let length = length.ok_or(Untold::Kind)?;
                if to_many() {
                    return Err(Untold::Broadcast);
                }
                length
            }
            _ => {
                if !errors::may_answer(error, &headers) {
                    return Err(Untold::Kind);
                }
                if to_many() {
                    return Err(Untold::Broadcast);
                }
                let port = self.port_of(known.key.origin).ok_or(Untold::NoSource)?;
                let from = source_of_error(&known.key, &known.decision, port, self.tables);
                let from = from.ok_or(Untold::NoSource)?;
                errors::write(error, &headers, from, packet, &mut room)
            }
        };
        room.truncate(length);
        Ok(room)
    }

    /// Whether a sender is told that its packet's next hop did not answer, as
    /// [`errors::unanswered`] has it.
    fn is_told_unanswered(&self, known: &Known, packet: &[u8]) -> bool {
        let (headers, vrf) = (known.headers_of(packet), known.key.vrf);
        let source = headers.addresses.source();
        let Some(port) = self.port_of(known.key.origin) else { return false };
        let is_own = Locality::new(self.tables).is_of_vrf(vrf, source)
            || self.tables.port(port).is_some_and(|port| port.owns(source));
        let error = IcmpError::Unreachable(Refusal::HostUnreachable);
        !is_own
            && errors::may_answer(error, &headers)
            && self.tables.source_in(vrf, port, source).is_some()
    }

    /// The port that a packet came by. Of one that was decrypted it is that of its xfrm link, or the
    /// one that leads to the tunnel's other end.
    fn port_of(&self, origin: Origin) -> Option<PortId> {
        match origin {
            Origin::Port(port) | Origin::HostError(port) => Some(port),
            Origin::Sa(slot) => {
                let identity = &self.tables.sad().slot(slot)?.identity;
                match identity.if_id {
                    Some(if_id) => Some(self.tables.xfrm_link(if_id)?.id),
                    None => {
                        let vrf = self.tables.vrf(identity.vrf)?;
                        self.tables.ports_to(vrf, identity.source).next()
                    }
                }
            }
            Origin::Host | Origin::HostProtected => None,
        }
    }

    /// As [`Applier::send_on`](crate::stage::apply::Applier::send_on).
    fn send_on(&mut self, known: &Known, packet: &[u8], leaving: Leaving, now: Time) -> Fate {
        let Some(next_hop) = self.tables.next_hop(leaving.next_hop) else {
            return Fate::Dropped(DropReason::PortDown);
        };
        if next_hop.state == NextHopState::Down {
            return Fate::Dropped(DropReason::PortDown);
        }
        if !known.facts.is(Facts::OWN) {
            if known.facts.hop_limit() <= 1 {
                let hop_limit = known.facts.hop_limit();
                self.trace.step(|| Step::HopLimit(hop_limit));
                self.tell(known, packet, IcmpError::HopLimit, now);
                return Fate::Dropped(DropReason::HopLimit);
            }
            if known.facts.is(Facts::OPTIONS) && is_source_routed(packet) {
                return Fate::Dropped(DropReason::SourceRoute);
            }
        }
        let limit = match leaving.slot {
            None => next_hop.mtu,
            Some(slot) => tunnel_limit(Objects::new(self.tables, 0), slot, next_hop.mtu),
        };
        let fit = self.size(known, packet, leaving, (limit, next_hop));
        if fit == Fit::TooBig {
            self.tell(known, packet, IcmpError::TooBig(limit), now);
            return Fate::Dropped(DropReason::TooBig);
        }
        let (to, is_own) = (known.key.addresses.destination(), known.facts.is(Facts::OWN));
        let Some(slot) = leaving.slot else {
            let to = self.neighbour.unwrap_or(to);
            let is_told = !is_own && self.is_told_unanswered(known, packet);
            return match self.emit(leaving.next_hop, Some(to), is_told) {
                Ok(Emitted::Waits) => Fate::SentOnceResolved,
                Ok(Emitted::Sent) => Fate::SentInClear,
                Err(reason) => Fate::Dropped(reason),
            };
        };
        let Some(sa) = self.tables.sad().outbound(slot) else {
            return Fate::Dropped(DropReason::EspNoOutboundSa);
        };
        if sa.outbound.sequence() == u32::MAX {
            return Fate::Dropped(DropReason::EspSequenceExhausted);
        }
        match self.emit(leaving.next_hop, Some(sa.spec.identity.destination), false) {
            Ok(Emitted::Waits) => Fate::SentOnceResolved,
            Ok(Emitted::Sent) => Fate::SentEncrypted,
            Err(reason) => Fate::Dropped(reason),
        }
    }

    /// How a packet fits its way, as [`Applier::oversize`](crate::stage::apply::Applier::oversize) has
    /// it.
    fn size(
        &mut self,
        known: &Known,
        packet: &[u8],
        leaving: Leaving,
        (limit, next_hop): (u16, &NextHop),
    ) -> Fit {
        let length = known.facts.total_length();
        let tables = self.tables;
        let sa = leaving.slot.and_then(|slot| tables.sad().outbound(slot)).map(|sa| &**sa);
        let mut fit = match length > limit {
            false => Fit::Whole,
            true => Fit::of(known, limit, leaving.slot.is_some()),
        };
        let mut pieces = Vec::new();
        match fit {
            Fit::Cut(limit) => {
                let plan = match known.is_v6() {
                    true => fragment::plan_v6(packet, limit),
                    false => fragment::plan(packet, limit),
                };
                match plan {
                    Ok(plan) => pieces.extend(plan.map(|piece| piece.total_length() as u16)),
                    Err(_) => fit = Fit::TooBig,
                }
            }
            Fit::CutOutside => pieces.extend(sa.into_iter().flat_map(|sa| {
                let is_v6 = sa.spec.identity.destination.is_ipv6();
                pieces_outside(outer_length(sa, length.into()), is_v6, next_hop.mtu)
            })),
            Fit::Whole | Fit::TooBig => {}
        }
        let link = sa.and_then(|sa| tables.xfrm_link(sa.spec.identity.if_id?));
        let size = Size {
            length,
            limit,
            port: tables.port(next_hop.port).map_or("?", |port| &port.spec.name),
            mtu: next_hop.mtu,
            link: link.map(|link| (&*link.spec.name, link.spec.mtu)),
            sa,
            fit,
            pieces: &pieces,
        };
        self.trace.step(|| Step::Size(size));
        fit
    }

    /// As [`Neighbours::emit`](crate::outputs::Neighbours::emit), to a next hop that stands for `to` if
    /// it has no address of its own. A packet that waits in vain is dropped in the end.
    fn emit(
        &mut self,
        id: NextHopId,
        to: Option<IpAddr>,
        is_told: bool,
    ) -> Result<Emitted, DropReason> {
        let next_hop = self.tables.next_hop(id).ok_or(DropReason::PortDown)?;
        match next_hop.state {
            NextHopState::Resolved => Ok(Emitted::Sent),
            NextHopState::Queued => {
                self.queues(next_hop.port);
                Ok(Emitted::Sent)
            }
            NextHopState::Down => Err(DropReason::PortDown),
            NextHopState::Pending | NextHopState::OnLink => {
                let address = next_hop.address.or(to).ok_or(DropReason::NeighbourUnresolved)?;
                let port = self.tables.port(next_hop.port).ok_or(DropReason::PortDown)?;
                let is_asked = port.source_for(address).is_some();
                // Neighbour discovery for the gateway meets no flows.
                let unheard = if address.is_ipv4() { self.unheard(port) } else { None };
                let port = &*port.spec.name;
                let wait = Wait::Neighbour { port, address, is_asked, is_told, unheard };
                self.trace.step(|| Step::Wait(wait));
                match unheard {
                    None => Ok(Emitted::Waits),
                    Some(_) => Err(DropReason::NeighbourUnresolved),
                }
            }
        }
    }

    /// Why ARP that comes by a port does not come to the gateway, if it does not.
    fn unheard(&self, port: &Port) -> Option<Unheard<'a>> {
        let reason = match Locality::new(self.tables).arp(port, |_| {}) {
            Ok(ends) if ends.contains(&FrameEnd::Normal) => return None,
            Ok(_) => None,
            Err(reason) => Some(reason),
        };
        let vrf = self.tables.vrf_name(port.spec.vrf).unwrap_or("?");
        Some(Unheard { vrf, reason })
    }

    /// As [`Applier::output`](crate::stage::apply::Applier::output).
    fn output(&mut self, known: &Known, port: PortId) -> Fate {
        match self.tables.port(port).filter(|port| port.spec.up) {
            None => Fate::Dropped(DropReason::PortDown),
            Some(port) if known.facts.total_length() > port.spec.mtu => {
                Fate::Dropped(DropReason::TooBig)
            }
            Some(_) => {
                self.queues(port);
                Fate::SentUnchanged
            }
        }
    }

    /// Says in which queueing disciplines a frame waits that leaves by a port.
    fn queues(&mut self, port: PortId) {
        let queues = Queues { port, tables: self.tables };
        if !queues.is_empty() {
            self.trace.step(|| Step::Queues(queues));
        }
    }

    /// As [`Outputs::flood`](crate::outputs::Outputs::flood).
    fn flood(&mut self, known: &Known) -> Fate {
        let Origin::Port(by) = known.key.origin else {
            return Fate::Dropped(DropReason::FlowUnsupported);
        };
        match self.tables.joined(known.key.vrf).iter().any(|port| *port != by) {
            true => Fate::SentUnchanged,
            false => Fate::Dropped(DropReason::FlowMiss),
        }
    }
}

/// The lengths of the fragments of an ESP packet.
fn pieces_outside(length: usize, is_v6: bool, mtu: u16) -> Vec<u16> {
    let mut packet = vec![0; length];
    let payload = length.saturating_sub(ipv6::HEADER_LENGTH);
    let plan = match is_v6 {
        true => {
            let header = ipv6::Header {
                payload_length: payload as u16,
                next_header: Protocol::ESP,
                ..ipv6::Header::default()
            };
            packet.splice(..ipv6::HEADER_LENGTH.min(length), header.to_bytes());
            fragment::plan_v6(&packet, mtu)
        }
        false => {
            let header = ipv4::Header {
                total_length: length as u16,
                protocol: Protocol::ESP,
                ..ipv4::Header::default()
            };
            packet.splice(..ipv4::HEADER_LENGTH.min(length), header.to_bytes());
            fragment::plan(&packet, mtu)
        }
    };
    plan.into_iter().flatten().map(|piece| piece.total_length() as u16).collect()
}
