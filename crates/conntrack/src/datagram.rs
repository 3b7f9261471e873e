//! UDP, UDP-Lite, ICMP queries, and protocols without states.

use types::Protocol;

use crate::ct_state::Direction;
use crate::entry::{Control, Flags, Outcome, Side};
use crate::timeout::{State, TICK_BITS};

/// UDP that has gone both ways for so long is a stream: two seconds, in ticks.
const STREAM: u32 = (2_000_000_000u64 >> TICK_BITS) as u32 + 1;

/// Whether UDP that goes both ways is a stream. `original` is the original direction's line, which has
/// the tick in which the connection began.
#[inline(always)]
pub(crate) fn is_stream(original: &Side, tick: u32) -> bool {
    tick.wrapping_sub(original.sent as u32) >= STREAM
}

/// The state that a connection of this protocol begins in. TCP and SCTP say it themselves.
pub(crate) fn first(protocol: Protocol) -> State {
    match protocol {
        Protocol::UDP | Protocol::UDP_LITE => State::UdpUnreplied,
        Protocol::ICMP => State::Icmp,
        Protocol::ICMPV6 => State::Icmpv6,
        _ => State::Generic,
    }
}

/// What becomes of a connection by a packet. `original` is as [`is_stream`] takes it.
#[inline]
pub(crate) fn judge(
    control: Control,
    own: Side,
    original: &Side,
    direction: Direction,
    tick: u32,
) -> Outcome {
    let (state, mut flags) = (control.state(), control.flags());
    if direction == Direction::Reply {
        flags = flags.with(Flags::REPLIED);
    }
    let has_replied = flags.has(Flags::REPLIED);
    // The first answer alone, however late, makes no stream.
    let is_answered = control.flags().has(Flags::REPLIED);
    let state = match state {
        State::UdpUnreplied | State::UdpReplied if is_answered && is_stream(original, tick) => {
            flags = flags.with(Flags::ASSURED);
            State::UdpStream
        }
        State::UdpUnreplied if has_replied => State::UdpReplied,
        State::Generic if has_replied => {
            flags = flags.with(Flags::ASSURED);
            State::Generic
        }
        state => state,
    };
    Outcome::Update(control.with(flags, state), own)
}
