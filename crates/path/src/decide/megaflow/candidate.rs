//! A packet that may have a megaflow, and the key of that.

use std::net::Ipv4Addr;

use conntrack::{Direction, New, Plain, Tuple};
use pipeline::EndReads;
use tables::Tables;
use wire::{Addresses, Protocol, VrfId};

use super::ingress::{ANY_WAY, Ingress, is_of_link};
use super::{Megaflow, Megaflows, PLACES};
use crate::cache::key;
use crate::connection::{self, Change};
use crate::decide::KeyView;
use crate::decide::flows::{Looked, Seen};
use crate::decide::way::judge_source;
use crate::extension::Asked;

/// Words of a megaflow's key: behind those of a flow, what was said of the connection, and the way that the
/// packet may go.
const STATE: usize = key::V6;
pub(super) const WAY: usize = STATE + 1;
const SHORT: usize = WAY + 1;
/// Words behind these, of a connection that has them: its label, the addresses and ports that it makes of
/// the packet, and the way that this may go then. A bit of the state says whether there are any.
const LABEL: usize = SHORT;
const TRANSLATED: usize = LABEL + 2;
const WAY_THEN: usize = TRANSLATED + 5;
pub(super) const KEY: usize = WAY_THEN + 1;
const IS_LONG: u64 = 1 << 12;

/// A packet that may have a megaflow. It is written in place: it is large, and there is one for each packet
/// that opens a connection.
pub(in crate::decide) struct Candidate {
    pub(super) key: [u64; KEY],
    pub(super) hash: u64,
    pub(super) vrf: VrfId,
    /// Whether its source is held against the routes. It is right.
    pub(super) is_judged: bool,
    tuple: Tuple,
    pub(super) plain: Plain,
    pub(super) looked: Looked,
}

impl Candidate {
    /// Of no packet yet.
    pub(in crate::decide) fn nothing() -> Self {
        let (source, destination) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED);
        let tuple = Tuple::new(Addresses::V4 { source, destination }, Protocol(0), 0, 0);
        Self {
            key: [0; KEY],
            hash: 0,
            vrf: VrfId::MAIN,
            is_judged: false,
            tuple,
            plain: Plain::default(),
            looked: Looked::NOTHING,
        }
    }

    /// Becomes a packet with this key. `None` if it can have no megaflow, and then nothing here is about any:
    /// if its source is the gateway's own or means something on one link alone, if the routes say that it is
    /// wrong, or if its connection has a helper, was announced or has ended.
    #[inline(never)]
    pub(in crate::decide) fn assign<const WORDS: usize>(
        &mut self,
        ingress: &Ingress<'_>,
        (words, view): (&[u64; WORDS], impl KeyView),
        seen: &Seen<'_>,
        megaflows: &Megaflows,
    ) -> Option<()> {
        let &Ingress { port, vrf, connections, tables, judges_sources, .. } = ingress;
        let source = view.source();
        if (vrf.may_be_local(source) && vrf.is_local(source)) || is_of_link(source) {
            return None;
        }
        if judges_sources && judge_source(port, source, vrf, tables, &mut ()).is_some() {
            return None;
        }
        self.tuple = connection::tuple_of_ports(words, view);
        match &seen.looked {
            Some(looked) => self.looked = *looked,
            None => {
                let (tuple, looked) = (&self.tuple, &mut self.looked);
                looked.hash = seen.hash.unwrap_or_else(|| connections.hash_of(vrf.id.0, tuple));
                let addresses = key::address_sum(words);
                looked.packet =
                    connection::read_words(seen.packet, seen.facts, addresses, tuple.protocol);
                let (hash, packet) = (looked.hash, &looked.packet);
                looked.say(connections.track_by(hash, vrf.id.0, tuple, packet, seen.now))?;
            }
        }
        match self.looked.connection {
            None => self.plain = Plain::default(),
            Some((handle, direction)) => {
                connections.read_plain(handle, direction, &mut self.plain)?;
            }
        }
        self.write_key(ingress, (words, view));
        let key = &self.key;
        self.hash = match (self.is_long(), key.first_chunk::<SHORT>()) {
            (false, Some(short)) => megaflows.hasher.hash(short),
            _ => megaflows.hasher.hash(key),
        };
        (self.vrf, self.is_judged) = (vrf.id, judges_sources);
        Some(())
    }

    /// What is read of the packet, what was said of its connection, and where it goes.
    #[inline(always)]
    fn write_key<const WORDS: usize>(
        &mut self,
        ingress: &Ingress<'_>,
        (words, view): (&[u64; WORDS], impl KeyView),
    ) {
        let (key, plain, reads) = (&mut self.key, &self.plain, ingress.reads);
        let [class, origin] = [words[WORDS - 2], words[WORDS - 1]];
        let way = ingress.way(view.destination());
        let read = Read::of(reads, way);
        key[..STATE].fill(0);
        key[..WORDS - 2].copy_from_slice(&read.of_key(words)[..WORDS - 2]);
        key[WORDS - 2] = class & (0xffff_ffff | u64::from(read.ports) << 32);
        key[WORDS - 1] = origin;

        let Looked { ct_state, connection, keep, .. } = self.looked;
        let is_reply = matches!(connection, Some((_, Direction::Reply)));
        let is_translated = plain.translated.is_some();
        let is_long = is_translated || plain.label != [0; 2];
        key[STATE] = u64::from(ct_state.0)
            | u64::from(keep) << 8
            | u64::from(connection.is_some()) << 9
            | u64::from(is_translated) << 10
            | u64::from(is_reply) << 11
            | (u64::from(is_long) * IS_LONG)
            | u64::from(plain.mark) << 32;
        key[WAY] = way;
        if !is_long {
            return;
        }
        key[LABEL..].fill(0);
        [key[LABEL], key[LABEL + 1]] = plain.label;
        if let Some(tuple) = &plain.translated {
            let way = ingress.way(tuple.addresses.destination());
            key[TRANSLATED..WAY_THEN].copy_from_slice(&Read::of(reads, way).of_tuple(tuple));
            key[WAY_THEN] = way;
        }
    }

    /// Whether its key has the words behind [`SHORT`].
    #[inline(always)]
    fn is_long(&self) -> bool {
        self.key[STATE] & IS_LONG != 0
    }

    pub(super) fn place(&self) -> usize {
        self.hash as usize % PLACES
    }

    /// Whether a megaflow is its own.
    #[inline(always)]
    pub(super) fn is_of(&self, megaflow: &Megaflow, validity: (u64, u64)) -> bool {
        let differs =
            megaflow.key[..SHORT].iter().zip(&self.key).fold(0, |all, (a, b)| all | (a ^ b));
        megaflow.validity == validity
            && differs == 0
            && (!self.is_long() || megaflow.key[SHORT..] == self.key[SHORT..])
    }

    /// Whether its connection is still as it was: it may have ended, or have changed before that could be
    /// seen of its generation.
    pub(super) fn is_as_it_was(&self, tables: &Tables) -> bool {
        self.looked.connection.is_none_or(|(handle, direction)| {
            let connections = tables.connections();
            connections.and_then(|it| it.plain(handle, direction)) == Some(self.plain)
        })
    }

    /// What a megaflow's packets ask of connections, as this one does. Where the last packet in its place was
    /// of the same one, what they have in common is there already.
    #[inline(always)]
    pub(super) fn ask(&self, megaflow: &Megaflow, asked: &mut Asked) {
        asked.packet = Some(self.looked.packet);
        let is_same = core::mem::replace(&mut asked.megaflow, megaflow.id) == megaflow.id;
        let Some(Change::Make { new, source, .. }) = asked.change.as_mut().filter(|_| is_same)
        else {
            return self.ask_all(megaflow.change.as_ref(), asked);
        };
        if let Some(source) = source {
            source.likely = None;
        }
        new.original = self.tuple;
        (new.hash, new.vacant) = (Some(self.looked.hash), self.looked.vacant);
    }

    #[inline(never)]
    fn ask_all(&self, change: Option<&Change>, asked: &mut Asked) {
        let Some(Change::Make { new, destination, source, .. }) = change else {
            asked.change = change.cloned();
            return;
        };
        let (hash, vacant) = (Some(self.looked.hash), self.looked.vacant);
        asked.change = Some(Change::Make {
            new: New { original: self.tuple, hash, vacant, ..*new },
            destination: destination.clone(),
            source: source.clone(),
            expected: None,
            instead_of: None,
            has_more: false,
        });
    }
}

/// The bits of addresses and ports that are read of a packet.
struct Read {
    source: u128,
    destination: u128,
    ports: u32,
}

impl Read {
    /// Of a packet that may go this way.
    #[inline(always)]
    fn of(reads: &EndReads, way: u64) -> Self {
        let &EndReads { source, destination, ports, .. } = reads;
        match way {
            ANY_WAY => Self { source, destination: u128::MAX, ports: ports | 0xffff },
            _ => Self { source, destination, ports },
        }
    }

    /// Of the addresses of a flow's key, which stand first in it.
    #[inline(always)]
    fn of_key<const WORDS: usize>(&self, words: &[u64; WORDS]) -> [u64; 4] {
        let [a, b, c, d] = core::array::from_fn(|at| words[at.min(WORDS - 3)]);
        match WORDS {
            key::V6 => {
                let [high, low] = halves(self.source);
                let [to_high, to_low] = halves(self.destination);
                [a & high, b & low, c & to_high, d & to_low]
            }
            _ => [
                a & (u64::from(self.source as u32) << 32 | u64::from(self.destination as u32)),
                0,
                0,
                0,
            ],
        }
    }

    /// Of a tuple, the ports last.
    fn of_tuple(&self, tuple: &Tuple) -> [u64; 5] {
        let ports = (u32::from(tuple.source) << 16 | u32::from(tuple.destination)) & self.ports;
        let (source, destination) = match tuple.addresses {
            Addresses::V4 { source, destination } => {
                (source.to_bits().into(), destination.to_bits().into())
            }
            Addresses::V6 { source, destination } => (source.to_bits(), destination.to_bits()),
        };
        let [a, b] = halves(source & self.source);
        let [c, d] = halves(destination & self.destination);
        [a, b, c, d, ports.into()]
    }
}

fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}
