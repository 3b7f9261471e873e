//! ICMP errors: which connection the packet belongs to that they quote, and their translation.

use packet::Time;
use types::{Addresses, Protocol};
use wire::checksum;

use crate::ct_state::{CtState, Direction, Handle};
use crate::entry::Flags;
use crate::rewrite::{NotTranslated, Translation, difference};
use crate::table::Connections;
use crate::tcp;
use crate::tuple::Tuple;

/// What connection tracking says of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Related {
    /// Related to a connection, or invalid.
    pub ct_state: CtState,
    /// The connection, and the direction in which the error goes: against that of the packet that
    /// it quotes.
    pub connection: Option<(Handle, Direction)>,
}

impl Related {
    const INVALID: Self = Self { ct_state: CtState::INVALID, connection: None };
}

/// The sequence number that an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotedSequence {
    /// Of TCP. Nothing else has one.
    Is(u32),
    /// The quoted packet is no TCP, or less of it is quoted.
    Missing,
    /// Nobody has said which: one that is on its way.
    OnItsWay,
}

impl From<Option<u32>> for QuotedSequence {
    fn from(sequence: Option<u32>) -> Self {
        sequence.map_or(Self::Missing, Self::Is)
    }
}

impl Connections {
    /// Which connection an ICMP error is about. `quoted` is the tuple of the packet that it quotes,
    /// as that says, and `sequence` its sequence number. Changes nothing. Decisions about errors are
    /// not kept, as the quoted packet is in no key.
    ///
    /// An error that quotes no packet of a connection is invalid, and so is one that goes to
    /// somebody else than that packet's source, that quotes a packet of a direction that has sent
    /// none, or a sequence number that is not on its way (RFC 5927).
    pub fn related(
        &self,
        zone: u16,
        outer: &Addresses,
        quoted: &Tuple,
        sequence: QuotedSequence,
        now: Time,
    ) -> Related {
        if outer.destination() != quoted.addresses.source() {
            return Related::INVALID;
        }
        // A packet of the error's direction looks like the quoted one, reversed.
        let Some((handle, direction)) = self.lookup(zone, &quoted.reversed(), now) else {
            return Related::INVALID;
        };
        let entry = &self.entries[handle.index as usize];
        let (control, own, peer) = Self::view(entry, direction.opposite());
        let is_same = self.is_named(handle, control);
        let has_sent = direction == Direction::Reply || control.flags().has(Flags::REPLIED);
        let is_on_its_way = match sequence {
            _ if quoted.protocol != Protocol::TCP => true,
            QuotedSequence::Is(quoted) => {
                let sequence = self.as_sent(handle.index, direction.opposite(), quoted);
                tcp::is_on_its_way(&own, &peer, sequence.unwrap_or(quoted))
            }
            QuotedSequence::OnItsWay => tcp::is_on_its_way(&own, &peer, own.end()),
            QuotedSequence::Missing => false,
        };
        if !(is_same && has_sent && is_on_its_way) {
            return Related::INVALID;
        }
        let of_direction = control.ct_state(direction);
        let kept = CtState::RPL | CtState::TRK | CtState::SNAT | CtState::DNAT;
        let ct_state = CtState(of_direction.0 & kept.0) | CtState::REL;
        Related { ct_state, connection: Some((handle, direction)) }
    }
}

impl Translation {
    /// Translates an ICMP error that goes in the translation's direction: its own destination, its
    /// source if that of the direction is translated, and the packet that it quotes, which becomes
    /// what its sender has sent. `icmp`, `quoted` and `quoted_upper` say where the ICMP header, the
    /// quoted IP header and the header behind that begin; `sequence` is the number that the sender has
    /// sent it with, if a helper has shifted it ([`Connections::as_sent`]).
    ///
    /// # Errors
    /// The packet is not what the connection has; it is left as it was.
    pub fn apply_to_error(
        &self,
        packet: &mut [u8],
        icmp: usize,
        quoted: usize,
        quoted_upper: usize,
        sequence: Option<u32>,
    ) -> Result<(), NotTranslated> {
        let is_v6 = self.tuple.addresses.is_v6();
        let (version, least) = if is_v6 { (6, 40) } else { (4, 20) };
        let is_of_version = |at: usize| packet.get(at).is_some_and(|first| first >> 4 == version);
        let is_whole = icmp >= least
            && quoted >= icmp + 8
            && quoted_upper >= quoted + least
            && packet.len() >= quoted_upper;
        if !is_whole {
            return Err(NotTranslated::Short);
        }
        if !is_of_version(0) || !is_of_version(quoted) {
            return Err(NotTranslated::Version);
        }
        let before = checksum::sum(&packet[icmp..]);
        let places = if is_v6 { 8..40 } else { 12..20 };
        let addresses_before = checksum::sum(&packet[places.clone()]);

        if let Some(sequence) = sequence {
            renumber(&mut packet[quoted_upper..], sequence);
        }
        let inner = self.tuple.reversed();
        self.write_quoted(&mut packet[quoted..], quoted_upper - quoted, &inner);
        // Its own addresses: the destination always, as it goes to the one who has sent the packet.
        let (source, destination) = match is_v6 {
            true => (8..24, 24..40),
            false => (12..16, 16..20),
        };
        write_address(&mut packet[destination], self.tuple.addresses.destination());
        if self.is_source {
            write_address(&mut packet[source], self.tuple.addresses.source());
        }
        let addresses = difference(checksum::sum(&packet[places]).into(), addresses_before.into());
        let body = difference(checksum::sum(&packet[icmp..]).into(), before.into());
        let total = match is_v6 {
            true => checksum::combine(&[body, addresses]),
            false => body,
        };
        crate::rewrite::update(&mut packet[icmp + 2..icmp + 4], total);
        if !is_v6 {
            crate::rewrite::update(&mut packet[10..12], addresses);
        }
        Ok(())
    }

    /// Writes the tuple of the quoted packet, and its checksums as far as it has them.
    fn write_quoted(&self, quoted: &mut [u8], upper: usize, tuple: &Tuple) {
        let is_v6 = tuple.addresses.is_v6();
        let (source, destination) = match is_v6 {
            true => (8..24, 24..40),
            false => (12..16, 16..20),
        };
        write_address(&mut quoted[source], tuple.addresses.source());
        write_address(&mut quoted[destination], tuple.addresses.destination());
        if !is_v6 {
            crate::rewrite::update(&mut quoted[10..12], self.addresses_delta);
        }
        self.write_upper(&mut quoted[upper..], tuple);
    }
}

/// Writes the sequence number of a quoted TCP segment, and its checksum if that is there.
fn renumber(segment: &mut [u8], sequence: u32) {
    let Some(place) = segment.get_mut(4..8) else { return };
    let before = checksum::sum(place);
    place.copy_from_slice(&sequence.to_be_bytes());
    let delta = difference(checksum::sum(place).into(), before.into());
    if let Some(field) = segment.get_mut(16..18) {
        crate::rewrite::update(field, delta);
    }
}

fn write_address(place: &mut [u8], address: core::net::IpAddr) {
    match address {
        core::net::IpAddr::V4(address) => place.copy_from_slice(&address.octets()),
        core::net::IpAddr::V6(address) => place.copy_from_slice(&address.octets()),
    }
}
