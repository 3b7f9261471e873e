//! What a helper makes of a packet of its connection.

use core::net::IpAddr;
use core::ops::{Range, RangeInclusive};
use core::time::Duration;
use std::hash::BuildHasher;

use packet::Time;
use types::Protocol;

use super::ftp::{self, Announced};
use super::state::{Followed, FtpState};
use super::{FTP, TFTP, tftp};
use crate::connection::Connection;
use crate::ct_state::{Direction, Handle};
use crate::expectation::{Expectation, NotExpected};
use crate::nat::SequenceShift;
use crate::packet::{Packet, Segment};
use crate::sync::Ordering;
use crate::table::Connections;
use crate::tuple::Tuple;
use types::TcpFlags;

/// How long a data connection is expected, as in nf_conntrack.
const EXPECTED_FOR: Duration = Duration::from_secs(300);

/// Data connections that a control connection may expect at once: FTP and TFTP announce one after
/// the other (nf_conntrack_ftp and nf_conntrack_tftp allow one, too).
const EXPECTED_AT_ONCE: usize = 1;

/// Ports that are tried for an announcement that has to be translated.
const TRIES: u32 = 32;

/// A packet of a connection that has a helper.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'p> {
    /// The connection.
    pub handle: Handle,
    /// The packet's direction.
    pub direction: Direction,
    /// What the trackers have seen of it, as it came.
    pub packet: &'p Packet,
    /// What is behind the upper-layer header.
    pub payload: &'p [u8],
    /// Whether the packet is translated as its connection says.
    pub is_translated: bool,
}

/// What is to be done with the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Help {
    /// Nothing.
    Pass,
    /// It is to be changed.
    Change {
        /// What is written into the payload.
        splice: Option<Splice>,
        /// The sequence number that it leaves with.
        sequence: u32,
        /// What turns the acknowledgments of the packet, SACK included, into what the other side
        /// has sent.
        acknowledgments: SequenceShift,
    },
    /// It announces a connection to an address that means nothing where it goes, and there is no
    /// port to stand for it.
    NoPort,
    /// The connection is another one by now.
    Gone,
}

/// Bytes to put in place of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    /// The bytes that go.
    pub place: Range<usize>,
    /// Those that come.
    pub text: String,
}

/// What helpers have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelperCounts {
    /// Announcements that were followed.
    pub followed: u64,
    /// Announcements that were not: of another host, a well-known port, or malformed.
    pub distrusted: u64,
    /// Announcements, and connections, for which there was no place or no port.
    pub refused: u64,
}

/// The ends of a data connection, seen from where its control connection is.
struct Ends {
    /// Who listens, by its own address.
    listener: IpAddr,
    /// The same as the other side knows it: where the data connection goes to.
    known_as: IpAddr,
    /// Who will connect, as it arrives.
    caller: IpAddr,
    /// The same as the listener knows it.
    caller_known_as: IpAddr,
}

impl Ends {
    /// `direction` is that of the announcement.
    fn of(master: &Connection, direction: Direction) -> Self {
        let (own, other) = match direction {
            Direction::Original => (&master.original, &master.reply),
            Direction::Reply => (&master.reply, &master.original),
        };
        Self {
            listener: own.addresses.source(),
            known_as: other.addresses.destination(),
            caller: other.addresses.source(),
            caller_known_as: own.addresses.destination(),
        }
    }
}

impl Connections {
    /// Reads a packet of a connection that has a helper, and expects what it announces. `ports` are
    /// those that an announcement may be translated to.
    pub fn help(
        &self,
        heard: &Heard<'_>,
        ports: impl FnOnce(&Connection) -> RangeInclusive<u16>,
        now: Time,
    ) -> Help {
        let Some(master) = self.named(heard.handle, now) else { return Help::Gone };
        match (master.helper, heard.packet) {
            (FTP, Packet::Tcp(segment)) => self.help_ftp(heard, segment, &master, ports, now),
            (TFTP, Packet::Datagram) => self.help_tftp(heard, &master, now),
            _ => Help::Pass,
        }
    }

    /// A packet of a helped connection as its tracker is to see it, if that is not how it came.
    pub fn acknowledging(
        &self,
        index: u32,
        direction: Direction,
        packet: &Packet,
    ) -> Option<Packet> {
        self.helpers.acknowledging(index, direction, packet)
    }

    /// What its sender knows the sequence number of a packet of this direction as that an ICMP error
    /// quotes, if a helper has shifted it.
    pub fn as_sent(&self, index: u32, direction: Direction, sequence: u32) -> Option<u32> {
        self.helpers.as_sent(index, direction, sequence)
    }

    /// What helpers have done.
    pub fn helper_counts(&self) -> HelperCounts {
        let [followed, distrusted, refused] =
            self.helpers.counters.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        HelperCounts { followed, distrusted, refused }
    }

    fn count_help(&self, which: usize) {
        self.helpers.counters[which].fetch_add(1, Ordering::Relaxed);
    }

    fn help_ftp(
        &self,
        heard: &Heard<'_>,
        segment: &Segment,
        master: &Connection,
        ports: impl FnOnce(&Connection) -> RangeInclusive<u16>,
        now: Time,
    ) -> Help {
        let Heard { handle, direction, .. } = *heard;
        let is_there = || self.is_named(handle, self.control(handle.index));
        let work = |state: &mut FtpState| {
            let splice = self.read_ftp(state, heard, segment, master, ports, now)?;
            let [sequence, _] = state.as_received(direction, segment);
            if let Some(splice) = &splice {
                let more = splice.text.len() as i32 - splice.place.len() as i32;
                if more != 0 {
                    state.shifts[direction.at()].grow(segment.sequence, more);
                }
            }
            Ok(match splice.is_some() || state.is_shifted() {
                false => Help::Pass,
                true => Help::Change {
                    splice,
                    sequence,
                    acknowledgments: state.shifts[direction.opposite().at()],
                },
            })
        };
        match self.helpers.with(handle.index, is_there, work) {
            Some(Ok(help) | Err(help)) => help,
            None if is_there() => Help::Pass,
            None => Help::Gone,
        }
    }

    /// What is to be written into the payload.
    fn read_ftp(
        &self,
        state: &mut FtpState,
        heard: &Heard<'_>,
        segment: &Segment,
        master: &Connection,
        ports: impl FnOnce(&Connection) -> RangeInclusive<u16>,
        now: Time,
    ) -> Result<Option<Splice>, Help> {
        let at = heard.direction.at();
        if segment.flags.contains(TcpFlags::SYN) {
            // The first line of each side begins behind its SYN.
            state.lines[at] = Some(segment.sequence.wrapping_add(1));
            if segment.flags.contains(TcpFlags::ACK) {
                state.lines[heard.direction.opposite().at()] = Some(segment.acknowledgment);
            }
            return Ok(None);
        }
        if heard.payload.is_empty() {
            return Ok(None);
        }
        let ends = Ends::of(master, heard.direction);
        let from_client = heard.direction == Direction::Original;
        let lines = ftp::read(heard.payload, from_client, ends.listener);
        let before = state.followed.clone().filter(|before| {
            before.direction == heard.direction && before.sequence == segment.sequence
        });
        let is_line = state.lines[at] == Some(segment.sequence) || before.is_some();
        if lines.ends_line {
            let next = segment.sequence.wrapping_add(heard.payload.len() as u32);
            let is_later = |line: u32| next.wrapping_sub(line) as i32 > 0;
            if state.lines[at].is_none_or(is_later) {
                state.lines[at] = Some(next);
            }
        }
        let announced = match lines.announced.filter(|_| is_line) {
            None => return Ok(None),
            Some(Err(_)) => {
                self.count_help(1);
                return Ok(None);
            }
            Some(Ok(announced)) => announced,
        };
        let is_nat = master.is_snat || master.is_dnat;
        if is_nat && !heard.is_translated {
            self.count_help(1);
            return Ok(None);
        }
        let before = before.filter(|before| before.announced == announced);
        let before = before.map(|before| before.port);
        let expected = Expectation {
            zone: master.zone,
            master: master.handle,
            protocol: Protocol::TCP,
            source: Some(ends.caller),
            source_port: None,
            destination: ends.known_as,
            destination_port: before.unwrap_or(announced.port),
            translated: is_nat.then_some((ends.listener, announced.port)),
            translated_source: (ends.caller != ends.caller_known_as)
                .then_some(ends.caller_known_as),
            helper: 0,
            is_permanent: false,
            until: now + EXPECTED_FOR,
        };
        let is_moved = ends.known_as != ends.listener;
        let port = match (is_moved, before) {
            (true, None) => self.expect_somewhere(&expected, &ports(master), now),
            _ => self.expect(expected, EXPECTED_AT_ONCE, now).map(|()| expected.destination_port),
        };
        let Ok(port) = port else {
            self.count_help(2);
            // What is said stays right if nothing is to be written.
            return if is_moved { Err(Help::NoPort) } else { Ok(None) };
        };
        self.count_help(0);
        let splice = splice(&announced, ends.known_as, port);
        let (direction, sequence) = (heard.direction, segment.sequence);
        state.followed = Some(Followed { direction, sequence, announced, port });
        Ok(splice)
    }

    /// Expects a connection at a port that nobody else expects one at: its own if that can be.
    fn expect_somewhere(
        &self,
        expected: &Expectation,
        range: &RangeInclusive<u16>,
        now: Time,
    ) -> Result<u16, NotExpected> {
        let own = expected.destination_port;
        let count = u64::from(*range.end()).saturating_sub((*range.start()).into()) + 1;
        let first = range.contains(&own).then_some(own);
        let others = (0..TRIES).map(|salt| {
            let place = (own, expected.master.index, expected.master.generation, salt, now.0);
            range.start() + (self.helpers.keyed.hash_one(place) % count) as u16
        });
        let mut last = NotExpected::Clash;
        for port in first.into_iter().chain(others) {
            match self.expect(
                Expectation { destination_port: port, ..*expected },
                EXPECTED_AT_ONCE,
                now,
            ) {
                Ok(()) => return Ok(port),
                Err(NotExpected::Clash | NotExpected::Full) => last = NotExpected::Full,
                Err(why) => return Err(why),
            }
        }
        Err(last)
    }

    fn help_tftp(&self, heard: &Heard<'_>, master: &Connection, now: Time) -> Help {
        let is_request =
            heard.direction == Direction::Original && tftp::request(heard.payload).is_some();
        if !is_request {
            return Help::Pass;
        }
        let is_nat = master.is_snat || master.is_dnat;
        if is_nat && !heard.is_translated {
            self.count_help(1);
            return Help::Pass;
        }
        // The server answers from a port of its own choosing.
        let ends = Ends::of(master, heard.direction);
        let Tuple { destination, .. } = master.reply;
        let expected = Expectation {
            zone: master.zone,
            master: master.handle,
            protocol: Protocol::UDP,
            source: Some(ends.caller),
            source_port: None,
            destination: ends.known_as,
            destination_port: destination,
            translated: is_nat.then_some((ends.listener, master.original.source)),
            translated_source: (ends.caller != ends.caller_known_as)
                .then_some(ends.caller_known_as),
            helper: 0,
            is_permanent: false,
            until: now + EXPECTED_FOR,
        };
        match self.expect(expected, EXPECTED_AT_ONCE, now) {
            Ok(()) => self.count_help(0),
            Err(NotExpected::NoMaster) => return Help::Gone,
            Err(_) => self.count_help(2),
        }
        Help::Pass
    }
}

/// What is written where an announcement is translated, if that is not what it says.
fn splice(announced: &Announced, address: IpAddr, port: u16) -> Option<Splice> {
    let is_same_address = announced.form == ftp::Form::Epsv || announced.address == address;
    if is_same_address && announced.port == port {
        return None;
    }
    let place = announced.place.clone();
    Some(Splice { place, text: announced.translated(address, port) })
}
