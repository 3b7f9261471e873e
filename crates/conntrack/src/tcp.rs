//! TCP as a middlebox sees it (RFC 9293), with window checks after van Rooij ("Real Stateful TCP
//! Packet Filtering in IP Filter", 2001), and with nothing that a blind sender could end (RFC
//! 5961).

use types::TcpFlags;

use crate::ct_state::Direction;
use crate::entry::{Control, Flags, Outcome, Side, mark};
use crate::packet::Segment;
use crate::timeout::State;

/// What a segment is by its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Syn,
    SynAck,
    Ack,
    Fin,
    Rst,
}

impl Kind {
    /// `None` for flags that no TCP sends together: none at all, SYN and FIN, FIN without ACK (so
    /// XMAS as well), and the like.
    #[inline(always)]
    fn of(flags: TcpFlags) -> Option<Self> {
        const FIN: u8 = TcpFlags::FIN.0;
        const SYN: u8 = TcpFlags::SYN.0;
        const RST: u8 = TcpFlags::RST.0;
        const ACK: u8 = TcpFlags::ACK.0;
        const URG: u8 = TcpFlags::URG.0;
        let looked_at = FIN | SYN | RST | ACK | URG;
        Some(match flags.0 & looked_at {
            ACK => Self::Ack,
            flags if flags == ACK | URG => Self::Ack,
            flags if flags == FIN | ACK || flags == FIN | ACK | URG => Self::Fin,
            flags if flags == SYN || flags == SYN | URG => Self::Syn,
            flags if flags == SYN | ACK => Self::SynAck,
            RST => Self::Rst,
            flags if flags == RST | ACK => Self::Rst,
            _ => return None,
        })
    }
}

/// Whether `a` is before `b` in the circle of sequence numbers.
#[inline(always)]
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Acknowledgments that are older than this, or than the sender's largest window, are wrong.
const OLDEST_ACKNOWLEDGMENT: u32 = 66_000;

impl Segment {
    /// The sequence number behind the segment.
    #[inline(always)]
    fn end(&self) -> u32 {
        let bit = |flag: TcpFlags| u32::from(self.flags.0 & flag.0 != 0);
        self.sequence
            .wrapping_add(self.length)
            .wrapping_add(bit(TcpFlags::SYN) + bit(TcpFlags::FIN))
    }

    fn is_acknowledging(&self) -> bool {
        self.flags.contains(TcpFlags::ACK)
    }
}

/// A segment without a connection: the state and the sender's words, if it may open one.
/// `pick_up` allows connections that were there before.
pub(crate) fn open(segment: &Segment, pick_up: bool) -> Option<(State, Flags, Side)> {
    match Kind::of(segment.flags)? {
        Kind::Syn => Some((State::SynSent, Flags::default(), offer(segment))),
        Kind::Ack if pick_up => {
            let own = sent::<false>(Side::default(), Side::default(), segment, false);
            Some((State::Established, Flags::LIBERAL, own))
        }
        _ => None,
    }
}

/// What becomes of a connection by a segment.
#[inline]
pub(crate) fn judge(
    control: Control,
    own: Side,
    peer: Side,
    direction: Direction,
    segment: &Segment,
) -> Outcome {
    match Kind::of(segment.flags) {
        Some(Kind::Ack) => data(control, own, peer, direction, segment, false),
        Some(Kind::Fin) => data(control, own, peer, direction, segment, true),
        Some(Kind::Syn) => syn(control, own, direction, segment),
        Some(Kind::SynAck) => syn_ack(control, own, peer, direction, segment),
        Some(Kind::Rst) => reset(control, own, peer, direction, segment),
        None => Outcome::Invalid,
    }
}

/// What a SYN, with or without ACK, says of its sender.
fn offer(segment: &Segment) -> Side {
    let data = u64::from(segment.length.min(u16::MAX.into())) << 16;
    let scale = segment.scale.map_or(0, |scale| u64::from(scale) | mark::SCALES);
    let acknowledged = match segment.is_acknowledging() {
        true => mark::ACKNOWLEDGED,
        false => 0,
    };
    // The window of a SYN is not scaled (RFC 7323 section 2.2).
    let window = u64::from(segment.window.max(1));
    let acknowledgment = if acknowledged == 0 { 0 } else { segment.acknowledgment };
    Side {
        seen: data | scale | mark::SENT | acknowledged,
        sent: u64::from(segment.end()) << 32 | u64::from(acknowledgment),
        window: window << 32 | window,
    }
}

/// Whether an acknowledgment covers the SYN of a side that has sent nothing but its SYN, and
/// perhaps data with it (RFC 7413), and no more than that.
fn covers_syn(side: &Side, acknowledgment: u32) -> bool {
    let first = side.end().wrapping_sub(side.syn_data());
    side.has(mark::SENT) && acknowledgment.wrapping_sub(first) <= side.syn_data()
}

fn syn(control: Control, own: Side, direction: Direction, segment: &Segment) -> Outcome {
    let flags = control.flags();
    match (control.state(), direction) {
        // The port is used again (RFC 9293 section 3.6.1). In LAST-ACK the last segment was
        // perhaps lost on its way to us.
        (State::TimeWait | State::Close | State::LastAck, _) => Outcome::Renew,
        // Sent again, perhaps by a host that has begun anew: nobody has replied yet. The connection
        // and its translation must not last as long as somebody tries.
        (State::SynSent, Direction::Original) => {
            let first = own.end().wrapping_sub(own.syn_data());
            // Without its data (RFC 7413 section 4.1.3): the answer may be to the one with it.
            let is_shorter = segment.sequence.wrapping_add(1) == first
                && segment.end().wrapping_sub(first) < own.syn_data();
            Outcome::Unrenewed(if is_shorter { own } else { offer(segment) })
        }
        (State::SynSent, Direction::Reply) => {
            let flags = flags.with(Flags::CROSSED).with(Flags::REPLIED);
            Outcome::Update(control.with(flags, State::SynSent2), offer(segment))
        }
        (State::SynSent2, _) if segment.end() == own.end() => Outcome::Update(control, own),
        // The receiver answers with a challenge ACK, and resets the connection if that is what the
        // sender wants (RFC 5961 section 4).
        (State::SynSent2, _) | (_, Direction::Original) => Outcome::Pass,
        (_, Direction::Reply) if flags.has(Flags::CROSSED) => Outcome::Pass,
        (_, Direction::Reply) => Outcome::Invalid,
    }
}

fn syn_ack(
    control: Control,
    own: Side,
    peer: Side,
    direction: Direction,
    segment: &Segment,
) -> Outcome {
    let flags = control.flags();
    let is_crossed = flags.has(Flags::CROSSED);
    match (control.state(), direction) {
        (State::SynSent, Direction::Reply) | (State::SynSent2, _) => {
            match covers_syn(&peer, segment.acknowledgment) {
                true => {
                    let flags = match direction {
                        Direction::Reply => flags.with(Flags::REPLIED),
                        Direction::Original => flags,
                    };
                    Outcome::Update(control.with(flags, State::SynRecv), offer(segment))
                }
                false => Outcome::Invalid,
            }
        }
        // The second one of SYNs that have crossed: both are acknowledged now.
        (State::SynRecv, _) if is_crossed && !own.has(mark::ACKNOWLEDGED) => {
            match covers_syn(&peer, segment.acknowledgment) {
                true => {
                    let flags = flags.with(Flags::ASSURED);
                    Outcome::Update(control.with(flags, State::Established), offer(segment))
                }
                false => Outcome::Invalid,
            }
        }
        // Sent again, perhaps after data behind it; or anew by a host that has forgotten the first one.
        (State::SynRecv, Direction::Reply) => {
            if !covers_syn(&peer, segment.acknowledgment) {
                return Outcome::Invalid;
            }
            match own.end().wrapping_sub(segment.end()) <= u16::MAX.into() {
                true => Outcome::Update(control, own),
                false => Outcome::Update(control, offer(segment)),
            }
        }
        (State::SynSent, Direction::Original) => Outcome::Invalid,
        // The acknowledgment was lost behind us: the receiver sends it again.
        (_, Direction::Reply) => Outcome::Pass,
        (_, Direction::Original) if is_crossed => Outcome::Pass,
        (_, Direction::Original) => Outcome::Invalid,
    }
}

fn reset(
    control: Control,
    own: Side,
    peer: Side,
    direction: Direction,
    segment: &Segment,
) -> Outcome {
    let closed = || Outcome::Update(control.with(control.flags(), State::Close), own);
    let first = || own.end().wrapping_sub(own.syn_data()).wrapping_sub(1);
    match (control.state(), direction) {
        (State::SynSent, Direction::Original) => {
            match segment.sequence.wrapping_sub(first()) <= own.syn_data() + 1 {
                true => closed(),
                // The answer to a challenge ACK: it resets what the other side still has of an
                // older connection.
                false => Outcome::Pass,
            }
        }
        // Refused (RFC 9293 section 3.10.7.3): the acknowledgment must be of the SYN.
        (State::SynSent, Direction::Reply) | (State::SynSent2, _) => {
            match segment.is_acknowledging() && covers_syn(&peer, segment.acknowledgment) {
                true => closed(),
                false => Outcome::Invalid,
            }
        }
        (State::TimeWait | State::Close, _) => Outcome::Pass,
        _ => {
            // RFC 5961 section 3.2: only a reset at the very next sequence number counts, which is
            // what the receiver has acknowledged, or the end of what the sender has sent. Another
            // one within the window is answered by a challenge ACK.
            let expected = peer.acknowledged();
            let is_exact = own.has(mark::SENT) && segment.sequence == own.end()
                || peer.has(mark::ACKNOWLEDGED) && segment.sequence == expected;
            let is_near = peer.has(mark::ACKNOWLEDGED)
                && !before(segment.sequence, expected)
                && !before(peer.edge(), segment.sequence);
            match (is_exact, is_near) {
                (true, _) => closed(),
                (false, true) => Outcome::Pass,
                (false, false) => Outcome::Invalid,
            }
        }
    }
}

/// A segment with ACK and perhaps data or FIN.
#[inline]
fn data(
    control: Control,
    own: Side,
    peer: Side,
    direction: Direction,
    segment: &Segment,
    is_fin: bool,
) -> Outcome {
    let (state, mut flags) = (control.state(), control.flags());
    if matches!(state, State::SynSent | State::SynSent2) {
        // A challenge ACK of a host that still has an older connection; the sender of the SYN
        // resets that. It tells us nothing of this one.
        return match (state, direction, is_fin) {
            (State::SynSent2, _, false) | (State::SynSent, Direction::Reply, false) => {
                Outcome::Pass
            }
            _ => Outcome::Invalid,
        };
    }
    if !flags.has(Flags::LIBERAL) && !is_in_window::<false>(&own, &peer, segment) {
        return match !is_fin && is_sent_again(&own, &peer, segment) {
            true => Outcome::Pass,
            false => Outcome::Invalid,
        };
    }
    // Nothing follows a FIN: one before the end of what was sent is not its sender's.
    if is_fin && own.has(mark::SENT) && before(segment.end(), own.end()) {
        return Outcome::Invalid;
    }
    let next = sent::<false>(own, peer, segment, state == State::SynRecv);
    if state == State::Established && !is_fin && flags.has(Flags::ASSURED) {
        // The usual case.
        return Outcome::Update(control, next);
    }
    if direction == Direction::Reply {
        flags = flags.with(Flags::REPLIED);
    }
    if is_fin {
        flags = flags.with(Flags::fin(direction));
    }
    let fins = [Flags::fin(direction), Flags::fin(direction.opposite())].map(|fin| flags.has(fin));
    let covers = |by: &Side, of: &Side| by.has(mark::ACKNOWLEDGED) && by.acknowledged() == of.end();
    let state = match (state, fins) {
        (State::Close | State::TimeWait, _) => state,
        (_, [true, true]) => match covers(&peer, &next) && covers(&next, &peer) {
            true => State::TimeWait,
            false => State::LastAck,
        },
        (_, [true, false]) if covers(&peer, &next) => State::CloseWait,
        (_, [false, true]) if covers(&next, &peer) => State::CloseWait,
        (_, [true, false] | [false, true]) => State::FinWait,
        (State::SynRecv, _) => {
            match next.has(mark::ACKNOWLEDGED) && is_handshake(direction, flags, &next, &peer) {
                true => {
                    flags = flags.with(Flags::ASSURED);
                    State::Established
                }
                false => State::SynRecv,
            }
        }
        (state, _) => {
            // Picked up: both directions were seen.
            if flags.has(Flags::REPLIED) {
                flags = flags.with(Flags::ASSURED);
            }
            state
        }
    };
    Outcome::Update(control.with(flags, state), next)
}

/// Whether a segment in SYN-RECEIVED completes the handshake: both SYNs are acknowledged.
fn is_handshake(direction: Direction, flags: Flags, own: &Side, peer: &Side) -> bool {
    let first = peer.end().wrapping_sub(peer.syn_data());
    let is_covered = !before(own.acknowledged(), first);
    let is_answered = peer.has(mark::ACKNOWLEDGED);
    is_covered && is_answered && (direction == Direction::Original || flags.has(Flags::CROSSED))
}

/// What [`judge`] says in the usual case, if it is that: an established connection of which both sides
/// have been heard, and a segment within the window that neither opens nor ends anything. The
/// connection stays in its state, and these are the sender's words then.
#[inline(always)]
pub(crate) fn usual(own: Side, peer: Side, segment: &Segment) -> Option<Side> {
    const KIND: u8 = TcpFlags::FIN.0 | TcpFlags::SYN.0 | TcpFlags::RST.0 | TcpFlags::ACK.0;
    let is_known = own.seen & peer.seen & HEARD == HEARD;
    let is_ack = segment.flags.0 & KIND == TcpFlags::ACK.0;
    (is_known & is_ack && is_in_window::<true>(&own, &peer, segment))
        .then(|| sent::<true>(own, peer, segment, false))
}

/// The marks of a side that has sent and acknowledged something.
const HEARD: u64 = mark::SENT | mark::ACKNOWLEDGED;

/// Whether a segment is one that its sender may send: within the window that the receiver has
/// offered, no older than a window, and acknowledging nothing that was not sent. With `HEARD`, both
/// sides have that mark.
#[inline(always)]
fn is_in_window<const HEARD: bool>(own: &Side, peer: &Side, segment: &Segment) -> bool {
    let has = |side: &Side, mark| HEARD || side.has(mark);
    let is_sent_allowed = !has(peer, mark::ACKNOWLEDGED) | !before(peer.edge(), segment.sequence);
    let oldest = own.end().wrapping_sub(peer.most_window());
    let is_both = has(own, mark::SENT) & has(peer, mark::SENT);
    let is_recent = !is_both | !before(segment.end(), oldest);
    let newest = segment.acknowledgment.wrapping_add(segment.sacked);
    let is_of_something = !has(peer, mark::SENT) | !before(peer.end(), newest);
    let reach = oldest_acknowledged(own);
    let is_acknowledging_recent =
        !has(peer, mark::SENT) | !before(segment.acknowledgment, peer.end().wrapping_sub(reach));
    is_sent_allowed & is_recent & is_of_something & is_acknowledging_recent
}

/// Whether a segment is older than a window, but not much. Its acknowledgments were perhaps lost
/// behind us, and it is sent again until the receiver says once more what it has.
#[cold]
fn is_sent_again(own: &Side, peer: &Side, segment: &Segment) -> bool {
    let reach = peer.most_window().saturating_add(OLDEST_ACKNOWLEDGMENT);
    let is_both = own.has(mark::SENT) && peer.has(mark::SENT);
    is_both
        && !before(own.end(), segment.end())
        && !before(segment.end(), own.end().wrapping_sub(reach))
        && !before(peer.end(), segment.acknowledgment.wrapping_add(segment.sacked))
        && !before(segment.acknowledgment, peer.end().wrapping_sub(oldest_acknowledged(own)))
}

/// By how much an acknowledgment of this side may be older than what the other has sent.
#[inline(always)]
fn oldest_acknowledged(own: &Side) -> u32 {
    own.most_window().max(OLDEST_ACKNOWLEDGMENT)
}

/// The sender's words after a segment with ACK. While the connection opens, data is counted to what
/// came with the SYN. With `HEARD`, both sides have that mark.
#[inline(always)]
fn sent<const HEARD: bool>(own: Side, peer: Side, segment: &Segment, is_opening: bool) -> Side {
    let scales = own.has(mark::SCALES) & peer.has(mark::SCALES);
    let scale = if scales { own.scale() } else { 0 };
    let window = u32::from(segment.window) << scale;
    let (end, acknowledgment) = (segment.end(), segment.acknowledgment);
    let latest = |known: bool, old: u32, new: u32| match known & before(new, old) {
        true => old,
        false => new,
    };
    let new_end = latest(HEARD || own.has(mark::SENT), own.end(), end);
    let known = HEARD || own.has(mark::ACKNOWLEDGED);
    let acknowledged = latest(known, own.acknowledged(), acknowledgment);
    // A closed window may be probed by one byte (RFC 9293 section 3.8.6.1).
    let edge = acknowledgment.wrapping_add(window.max(1));
    let edge = latest(known, own.edge(), edge);
    let most = own.most_window().max(window).max(1);
    let mut seen = own.seen | mark::SENT | mark::ACKNOWLEDGED;
    if is_opening && own.has(mark::SENT) {
        let more = new_end.wrapping_sub(own.end());
        let syn_data = own.syn_data().saturating_add(more).min(u16::MAX.into());
        seen = seen & !0xffff_0000 | u64::from(syn_data) << 16;
    }
    Side {
        seen,
        sent: u64::from(new_end) << 32 | u64::from(acknowledged),
        window: u64::from(edge.wrapping_sub(acknowledged)) << 32 | u64::from(most),
    }
}

/// Whether one side has sent what the other has not acknowledged.
pub(crate) fn is_unacknowledged(sides: &[Side; 2]) -> bool {
    let waits = |own: &Side, peer: &Side| {
        own.has(mark::SENT) && peer.has(mark::ACKNOWLEDGED) && own.end() != peer.acknowledged()
    };
    waits(&sides[0], &sides[1]) || waits(&sides[1], &sides[0])
}

/// Whether a sequence number that an ICMP error quotes is of data on its way (RFC 5927 section
/// 4.1).
pub(crate) fn is_on_its_way(own: &Side, peer: &Side, sequence: u32) -> bool {
    let oldest = own.end().wrapping_sub(peer.most_window().max(OLDEST_ACKNOWLEDGMENT));
    own.has(mark::SENT) && !before(sequence, oldest) && !before(own.end(), sequence)
}
