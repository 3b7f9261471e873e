//! SCTP (RFC 9260), with the states that nf_conntrack has for a middlebox.
//!
//! A packet must carry the tag that its receiver has chosen. `Side::sent` has the tag that a side
//! has chosen (lower half) and, where the other one was not seen to choose, the one that it uses
//! (upper half). Once it has chosen, the upper half is the tag of the INIT that its INIT ACK answered.
//! `Side::window` has the tag of an INIT or INIT ACK that is to restart the association, which
//! counts when the side has sent a cookie under it (lower half), and the tag to which it has sent a
//! cookie echo under its own (upper half). Anybody can send an INIT in the name of a side: what an
//! INIT ACK has answered, and a cookie echo was sent to, stands in spite of it.

use crate::ct_state::Direction;
use crate::entry::{Control, Flags, Outcome, Side};
use crate::packet::Chunks;
use crate::timeout::State;

impl Chunks {
    fn has(&self, kind: u16) -> bool {
        self.kinds & kind != 0
    }
}

impl Side {
    fn chosen(&self) -> u32 {
        self.sent as u32
    }

    fn used(&self) -> u32 {
        (self.sent >> 32) as u32
    }

    /// The tag that an INIT of the other one had which its INIT ACK has answered.
    fn answered(&self) -> Option<u32> {
        Some((self.sent >> 32) as u32).filter(|answered| self.chosen() != 0 && *answered != 0)
    }

    fn answering(self, tag: u32) -> Self {
        match self.chosen() != 0 {
            true => Self { sent: u64::from(tag) << 32 | u64::from(self.chosen()), ..self },
            false => self,
        }
    }

    fn restart(&self) -> u32 {
        self.window as u32
    }

    fn restarting(self, tag: u32) -> Self {
        Self { window: self.window & !u64::from(u32::MAX) | u64::from(tag), ..self }
    }

    fn echoed(&self) -> u32 {
        (self.window >> 32) as u32
    }

    fn choosing(self, tag: u32) -> Self {
        Self { sent: u64::from(tag), window: 0, ..self }
    }
}

/// A packet without an association: the state and the sender's words, if it may open one.
pub(crate) fn open(chunks: &Chunks) -> Option<(State, Side)> {
    let side = Side::default();
    match chunks.kinds {
        Chunks::INIT if chunks.tag == 0 && chunks.initiate != 0 => {
            Some((State::SctpCookieWait, side.choosing(chunks.initiate)))
        }
        // Another path of an association that was opened elsewhere.
        Chunks::HEARTBEAT if chunks.tag != 0 => {
            let side = Side { sent: u64::from(chunks.tag) << 32, ..side };
            Some((State::SctpHeartbeatSent, side))
        }
        _ => None,
    }
}

/// What becomes of an association by a packet.
pub(crate) fn judge(
    control: Control,
    own: Side,
    peer: Side,
    direction: Direction,
    chunks: &Chunks,
) -> Outcome {
    let state = control.state();
    if chunks.has(Chunks::INIT) {
        return init(control, own, direction, chunks);
    }
    let is_restart = peer.restart() != 0 && chunks.tag == peer.restart();
    let is_right = match (peer.chosen(), own.used()) {
        (0, 0) => chunks.tag != 0,
        (0, used) => chunks.tag == used,
        (chosen, _) => chunks.tag == chosen,
    };
    let ends = chunks.has(Chunks::ABORT | Chunks::SHUTDOWN_COMPLETE);
    // The T bit: the sender has no association, and reflects the tag of what it answers.
    let its_own = if own.chosen() != 0 { own.chosen() } else { peer.used() };
    let is_reflected = ends && chunks.reflected && its_own != 0 && chunks.tag == its_own;
    // The tag that it had before its peer began anew with it: it ends nothing of what is now.
    let is_former = is_reflected && peer.echoed() != 0 && peer.echoed() != chunks.tag;
    if is_former {
        return Outcome::Pass;
    }
    let is_cookie = chunks.has(Chunks::INIT_ACK | Chunks::COOKIE_ECHO | Chunks::COOKIE_ACK);
    // Of a restart, lost behind us and sent again.
    let is_echoed = own.echoed() != 0 && chunks.tag == own.echoed();
    let is_of_restart = is_cookie && (is_restart || is_echoed);
    if !(is_right && !(ends && chunks.reflected) || is_reflected || is_of_restart) {
        // An INIT that is refused is answered under its own tag, and a cookie under that of the INIT ACK,
        // which ends nothing else.
        let refused = match chunks.reflected {
            true => [own.restart(), peer.echoed()],
            false => [peer.restart(), 0],
        };
        let refuses = chunks.has(Chunks::ABORT) && chunks.tag != 0 && refused.contains(&chunks.tag);
        return if refuses { Outcome::Pass } else { Outcome::Invalid };
    }
    let mut next = own;
    if peer.chosen() == 0 && own.used() == 0 {
        next.sent |= u64::from(chunks.tag) << 32;
    }
    if chunks.has(Chunks::INIT_ACK) {
        let is_answer = state == State::SctpCookieWait && direction == Direction::Reply;
        if is_answer && is_right && own.chosen() == 0 {
            next = own.choosing(chunks.initiate);
        } else {
            // Another one may have answered before, and either may be the one that counts.
            next = next.answering(chunks.tag).restarting(chunks.initiate);
        }
    }
    // The tag of the INIT ACK that the cookie is of: one of an INIT that somebody forged since is another.
    let echoed = peer.echoed();
    let is_acknowledging =
        chunks.has(Chunks::COOKIE_ACK | Chunks::COOKIE_ECHO) && is_right && !is_echoed;
    let chosen = peer.answered().unwrap_or(own.restart());
    // It goes on under the tag that it has chosen, and has said no other one since.
    let is_chosen = is_right && own.chosen() != 0 && own.restart() == 0;
    let is_cookie_echo =
        chunks.has(Chunks::COOKIE_ECHO) && is_restart && !is_echoed && !is_chosen && chosen != 0;
    if is_cookie_echo {
        let window = u64::from(peer.restart()) << 32;
        next = Side { window, ..own.choosing(chosen) };
    } else if is_acknowledging && echoed != 0 && echoed != own.chosen() {
        next = own.choosing(echoed);
    }
    let mut flags = control.flags();
    if direction == Direction::Reply {
        flags = flags.with(Flags::REPLIED);
    }
    let state = match after(state, direction, chunks) {
        // The ends that were shutting down are gone, or what ended it was not heard. Or a heartbeat
        // stood before the first INIT.
        State::SctpHeartbeatSent
        | State::SctpShutdownSent
        | State::SctpShutdownReceived
        | State::SctpShutdownAckSent
        | State::SctpClosed
            if is_cookie_echo =>
        {
            State::SctpCookieEchoed
        }
        state => state,
    };
    if state == State::SctpEstablished && flags.has(Flags::REPLIED) {
        flags = flags.with(Flags::ASSURED);
    }
    Outcome::Update(control.with(flags, state), next)
}

fn init(control: Control, own: Side, direction: Direction, chunks: &Chunks) -> Outcome {
    if chunks.tag != 0 || chunks.initiate == 0 {
        return Outcome::Invalid;
    }
    match (control.state(), direction) {
        (State::SctpClosed, _) => Outcome::Renew,
        // Nobody has replied: sent again, perhaps by a host that has begun anew. The association and its
        // translation must not last as long as somebody tries.
        (State::SctpCookieWait, Direction::Original) if !control.flags().has(Flags::REPLIED) => {
            Outcome::Unrenewed(own.choosing(chunks.initiate))
        }
        // INITs that cross, and an association that restarts (RFC 9260 section 5.2). An end that awaits
        // the SHUTDOWN COMPLETE of its SHUTDOWN ACK sends that again (section 9.2).
        _ => Outcome::Unrenewed(own.restarting(chunks.initiate)),
    }
}

/// The state after a packet whose tag is right.
fn after(state: State, direction: Direction, chunks: &Chunks) -> State {
    use State::{
        SctpClosed, SctpCookieEchoed, SctpCookieWait, SctpEstablished, SctpHeartbeatSent,
        SctpShutdownAckSent, SctpShutdownReceived, SctpShutdownSent,
    };
    let has = |kind| chunks.has(kind);
    match state {
        _ if has(Chunks::ABORT) => SctpClosed,
        SctpShutdownAckSent if has(Chunks::SHUTDOWN_COMPLETE) => SctpClosed,
        SctpCookieWait if has(Chunks::COOKIE_ECHO) => SctpCookieEchoed,
        SctpCookieEchoed if has(Chunks::COOKIE_ACK) => SctpEstablished,
        SctpHeartbeatSent if has(Chunks::HEARTBEAT_ACK) && direction == Direction::Reply => {
            SctpEstablished
        }
        SctpEstablished | SctpShutdownSent | SctpShutdownReceived if has(Chunks::SHUTDOWN_ACK) => {
            SctpShutdownAckSent
        }
        SctpEstablished if has(Chunks::SHUTDOWN) => match direction {
            Direction::Original => SctpShutdownSent,
            Direction::Reply => SctpShutdownReceived,
        },
        state => state,
    }
}
