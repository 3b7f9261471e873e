//! The security association database (RFC 4301 section 4.4.2).

use core::fmt;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use esp::{InboundSa, OutboundSa};
use types::IfId;
use wire::{SaSlot, Spi, VrfId};

use crate::counters::FlowCounters;
use crate::map::{Map, MapKey};
use crate::policy::{Scope, Template};
use crate::slots::Slots;

/// What successive SAs of one tunnel have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SaIdentity {
    /// The VRF of the outer packets.
    pub vrf: VrfId,
    /// The VRF of the packets inside, and of the policies that they meet. With an `if_id`, these are
    /// the link's, and this says nothing.
    pub inner: VrfId,
    /// The xfrm link that packets inside leave and enter by, if they do by one.
    pub if_id: Option<IfId>,
    /// The tunnel's source.
    pub source: IpAddr,
    /// The tunnel's destination.
    pub destination: IpAddr,
    /// Links SAs and policies.
    pub reqid: u32,
}

impl SaIdentity {
    /// Whose packets are inside.
    #[inline]
    pub fn scope(&self) -> Scope {
        Scope::of(self.inner, self.if_id)
    }

    /// The same, said in the one way in which the tables have it.
    pub(crate) fn canonical(self) -> Self {
        let inner = if self.if_id.is_some() { self.vrf } else { self.inner };
        Self { inner, ..self }
    }
}

/// What an SA is configured to be, without its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaSpec {
    /// Which tunnel it belongs to.
    pub identity: SaIdentity,
    /// Its security parameters index, unique with the VRF and the destination.
    pub spi: Spi,
    /// Do not copy the inner ECN field out, nor the outer one in (iproute2's `flag noecn`).
    pub no_ecn: bool,
    /// Never set DF on the outer IPv4 header (iproute2's `flag nopmtudisc`).
    pub no_pmtu_discovery: bool,
}

/// An SA in the SAD. Linux's states have no direction, so it can do both; which half is used
/// follows from which end is ours.
#[derive(Debug)]
pub struct Sa {
    /// As configured.
    pub spec: SaSpec,
    /// The slot that it is in.
    pub slot: SaSlot,
    /// Counts additions: of two SAs, the one with the greater number is newer.
    pub serial: u64,
    /// Encrypts.
    pub outbound: OutboundSa,
    /// Decrypts.
    pub inbound: InboundSa,
    /// Packets and bytes (of inner packets) that it encrypted or decrypted.
    pub counters: FlowCounters,
    /// Packets that it refused: bad ICV, replays, and so on.
    pub errors: FlowCounters,
}

/// One place in the SAD.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Whose place it is.
    pub identity: SaIdentity,
    /// The SAs in it, the newest last. Outbound packets use the newest.
    pub sas: Vec<Arc<Sa>>,
}

/// How many other slots are given up before the number of one that was is given out again, to
/// another tunnel. Until then a number names one tunnel, or none.
const QUARANTINE: usize = 65_536;

/// All SAs.
///
/// A slot keeps its number while it has an SA. When the last SA is removed the slot is given up,
/// and its number waits until 65,536 other slots have been given up before it names another tunnel.
#[derive(Clone)]
pub struct Sad {
    slots: Slots<Arc<Slot>>,
    inbound: Map<InboundKey, Arc<Sa>>,
    identities: Map<SaIdentity, SaSlot>,
    /// How many SAs there are whose packets inside are in a VRF.
    insides: Map<VrfId, u32>,
    /// For each template without a source or without a reqid that an SA serves: those SAs' slots.
    wildcards: Map<Wildcard, Arc<Candidates>>,
    given_up: VecDeque<SaSlot>,
    /// Slot numbers given out so far.
    numbers: u32,
    /// SAs added so far.
    serial: u64,
}

impl Sad {
    pub(crate) fn new(secret: u64) -> Self {
        Self {
            slots: Slots::new(),
            inbound: Map::new(secret),
            identities: Map::new(secret),
            insides: Map::new(secret),
            wildcards: Map::new(secret),
            given_up: VecDeque::new(),
            numbers: 0,
            serial: 0,
        }
    }

    /// How many SAs there are.
    pub fn len(&self) -> usize {
        self.inbound.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the packets inside of an SA are in this VRF.
    pub(crate) fn are_inside(&self, vrf: VrfId) -> bool {
        self.insides.get(&vrf).is_some()
    }

    /// The SA that an ESP packet to `destination` with `spi` is for.
    #[inline]
    pub fn inbound(&self, vrf: VrfId, destination: IpAddr, spi: Spi) -> Option<&Arc<Sa>> {
        self.inbound.get(&InboundKey { vrf, destination, spi })
    }

    /// A slot, while it has an SA.
    #[inline]
    pub fn slot(&self, slot: SaSlot) -> Option<&Slot> {
        self.slots.get(slot.0).map(|slot| &**slot)
    }

    /// The SA that outbound packets of `slot` use now: the newest.
    #[inline]
    pub fn outbound(&self, slot: SaSlot) -> Option<&Arc<Sa>> {
        self.slot(slot)?.sas.last()
    }

    /// Every SA, by slot, then oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Sa>> {
        self.slots.iter().flat_map(|slot| &slot.sas)
    }

    /// See [`crate::Tables::resolve`].
    #[inline]
    pub(crate) fn resolve(&self, scope: Scope, template: &Template) -> Option<SaSlot> {
        let Template { source, destination, reqid, spi, .. } = *template;
        let vrf = template.outer_vrf(scope);
        if spi.is_some() {
            let sa = self.outbound_sa(scope, template)?;
            return self
                .outbound(sa.slot)
                .is_some_and(|newest| Arc::ptr_eq(newest, sa))
                .then_some(sa.slot);
        }
        match source {
            Some(source) if reqid != 0 => {
                let (inner, if_id) = match scope {
                    Scope::Vrf(inner) => (inner, None),
                    Scope::Link(if_id) => (vrf, Some(if_id)),
                };
                let identity = SaIdentity { vrf, inner, if_id, source, destination, reqid };
                self.identities.get(&identity).copied()
            }
            _ => self.wildcards.get(&Wildcard { vrf, scope, source, destination, reqid })?.newest(),
        }
    }

    /// See [`crate::Tables::outbound_sa`].
    #[inline]
    pub(crate) fn outbound_sa(&self, scope: Scope, template: &Template) -> Option<&Arc<Sa>> {
        match template.spi {
            None => self.outbound(self.resolve(scope, template)?),
            Some(spi) => self
                .inbound(template.outer_vrf(scope), template.destination, spi)
                .filter(|sa| template.admits(scope, &sa.spec.identity)),
        }
    }

    /// Adds an SA. Its VRF has none with its SPI and destination.
    pub(crate) fn add(
        &mut self,
        spec: SaSpec,
        outbound: OutboundSa,
        inbound: InboundSa,
        workers: usize,
    ) -> Arc<Sa> {
        let identity = spec.identity;
        let slot =
            self.identities.get(&identity).copied().unwrap_or_else(|| self.open_slot(identity));
        self.serial += 1;
        let sa = Arc::new(Sa {
            spec,
            slot,
            serial: self.serial,
            outbound,
            inbound,
            counters: FlowCounters::new(workers),
            errors: FlowCounters::new(workers),
        });
        if let Some(place) = self.slots.get_mut(slot.0) {
            Arc::make_mut(place).sas.push(Arc::clone(&sa));
        }
        self.inbound.insert(InboundKey::of(&spec), Arc::clone(&sa));
        let inside = self.insides.get(&identity.inner).copied().unwrap_or(0);
        self.insides.insert(identity.inner, inside + 1);
        for wildcard in Wildcard::of(&identity) {
            match self.wildcards.get_mut(&wildcard) {
                Some(candidates) => Arc::make_mut(candidates).push(self.serial, slot),
                None => {
                    let mut candidates = Candidates::default();
                    candidates.push(self.serial, slot);
                    self.wildcards.insert(wildcard, Arc::new(candidates));
                }
            }
        }
        sa
    }

    /// Removes an SA, and its slot with the last one.
    pub(crate) fn remove(&mut self, vrf: VrfId, destination: IpAddr, spi: Spi) -> Option<Arc<Sa>> {
        let sa = self.inbound.remove(&InboundKey { vrf, destination, spi })?;
        let inner = sa.spec.identity.inner;
        match self.insides.get_mut(&inner) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = self.insides.remove(&inner),
        }
        if let Some(place) = self.slots.get_mut(sa.slot.0) {
            let sas = &mut Arc::make_mut(place).sas;
            if let Ok(at) = sas.binary_search_by_key(&sa.serial, |sa| sa.serial) {
                sas.remove(at);
            }
            if sas.is_empty() {
                self.close_slot(sa.slot);
                self.identities.remove(&sa.spec.identity);
            }
        }
        for wildcard in Wildcard::of(&sa.spec.identity) {
            if let Some(candidates) = self.wildcards.get_mut(&wildcard) {
                let candidates = Arc::make_mut(candidates);
                candidates.remove(sa.serial);
                if candidates.newest().is_none() {
                    self.wildcards.remove(&wildcard);
                }
            }
        }
        Some(sa)
    }

    fn open_slot(&mut self, identity: SaIdentity) -> SaSlot {
        let recycled =
            if self.given_up.len() > QUARANTINE { self.given_up.pop_front() } else { None };
        let slot = recycled.unwrap_or_else(|| {
            // At most as many as SAs and waiting numbers together.
            let slot = SaSlot(self.numbers);
            self.numbers += 1;
            slot
        });
        self.slots.set(slot.0, Arc::new(Slot { identity, sas: Vec::new() }));
        self.identities.insert(identity, slot);
        slot
    }

    fn close_slot(&mut self, slot: SaSlot) {
        self.slots.remove(slot.0);
        self.given_up.push_back(slot);
    }
}

/// The SAs, by slot.
impl fmt::Debug for Sad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// SAs that serve one template, by age: serial numbers with slots, ascending. All SAs to one of our
/// addresses may be in one list, so it is in chunks, of which none is empty, and a change copies
/// one.
#[derive(Clone, Default)]
struct Candidates(Vec<Arc<Vec<(u64, SaSlot)>>>);

impl Candidates {
    /// How many are copied together.
    const CHUNK: usize = 256;

    #[inline]
    fn newest(&self) -> Option<SaSlot> {
        self.0.last()?.last().map(|(_, slot)| *slot)
    }

    /// Adds one that is newer than all.
    fn push(&mut self, serial: u64, slot: SaSlot) {
        match self.0.last_mut() {
            Some(last) if last.len() < Self::CHUNK => Arc::make_mut(last).push((serial, slot)),
            _ => self.0.push(Arc::new(vec![(serial, slot)])),
        }
    }

    fn remove(&mut self, serial: u64) {
        let at = self
            .0
            .partition_point(|chunk| chunk.first().is_some_and(|(first, _)| *first <= serial));
        let Some(at) = at.checked_sub(1) else { return };
        let chunk = Arc::make_mut(&mut self.0[at]);
        if let Ok(place) = chunk.binary_search_by_key(&serial, |(serial, _)| *serial) {
            chunk.remove(place);
        }
        if chunk.is_empty() {
            self.0.remove(at);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct InboundKey {
    vrf: VrfId,
    destination: IpAddr,
    spi: Spi,
}

impl InboundKey {
    fn of(spec: &SaSpec) -> Self {
        Self { vrf: spec.identity.vrf, destination: spec.identity.destination, spi: spec.spi }
    }
}

/// A template that more than one slot may serve.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wildcard {
    vrf: VrfId,
    scope: Scope,
    source: Option<IpAddr>,
    destination: IpAddr,
    reqid: u32,
}

impl Wildcard {
    /// Those that SAs of `identity` serve.
    fn of(identity: &SaIdentity) -> impl Iterator<Item = Self> {
        let SaIdentity { vrf, source, destination, reqid, .. } = *identity;
        let scope = identity.scope();
        let any_source =
            (reqid != 0).then_some(Self { vrf, scope, source: None, destination, reqid });
        let any_reqid =
            [Some(source), None].map(|source| Self { vrf, scope, source, destination, reqid: 0 });
        any_reqid.into_iter().chain(any_source)
    }
}

fn outer(vrf: VrfId, reqid: u32) -> u64 {
    u64::from(vrf.0) << 32 | u64::from(reqid)
}

impl MapKey for InboundKey {
    type Words = [u64; 3];

    #[inline]
    fn to_words(&self) -> [u64; 3] {
        let [a, b] = self.destination.to_words();
        [a, b, u64::from(self.vrf.0) << 32 | u64::from(self.spi.0)]
    }
}

impl MapKey for SaIdentity {
    type Words = [u64; 6];

    #[inline]
    fn to_words(&self) -> [u64; 6] {
        let ([a, b], [c, d]) = (self.source.to_words(), self.destination.to_words());
        [a, b, c, d, outer(self.vrf, self.reqid), self.scope().to_word()]
    }
}

impl MapKey for Wildcard {
    type Words = [u64; 6];

    #[inline]
    fn to_words(&self) -> [u64; 6] {
        let [a, b] = self.source.map_or([0; 2], |source| source.to_words());
        let [c, d] = self.destination.to_words();
        [a, b, c, d, outer(self.vrf, self.reqid), self.scope.to_word()]
    }
}
