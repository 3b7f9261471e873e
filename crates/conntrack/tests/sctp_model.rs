//! Two honest ends of SCTP (RFC 9260) that talk through the gateway: whatever is lost, sent twice or begun
//! anew, and whatever somebody forges who sees none of it, they find together.

mod gate;

use std::collections::VecDeque;

use Mode::{Closed, CookieEchoed, CookieWait, Established, ShutdownAckSent, ShutdownSent};
use Step::{
    Abort, Crash, Forged, LostBefore, LostBehind, Open, Shutdown, Timer, ToGate, ToPeer, Twice,
    TwiceLate,
};
use conntrack::{Chunks, Packet, State, Tuple};
use gate::{Gate, INV, addresses};
use proptest::prelude::*;
use types::Protocol;

const DATA: u16 = 0;
const INIT: u16 = 1;
const INIT_ACK: u16 = 2;
const SACK: u16 = 3;
const ABORT: u16 = 6;
const SHUTDOWN: u16 = 7;
const SHUTDOWN_ACK: u16 = 8;
const COOKIE_ECHO: u16 = 10;
const COOKIE_ACK: u16 = 11;
const SHUTDOWN_COMPLETE: u16 = 14;
const FORGED: u32 = 1_000_000;

/// What the one that wrote it has to know when it comes back.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cookie {
    local: u32,
    peer: u32,
    /// Tags of the association that it had then, or zeros.
    ties: (u32, u32),
    /// A host that begins anew does not know its old cookies.
    secret: u32,
}

/// A packet with one chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sent {
    kind: u16,
    tag: u32,
    initiate: u32,
    reflected: bool,
    cookie: Option<Cookie>,
}

fn sent(kind: u16, tag: u32) -> Sent {
    Sent { kind, tag, ..Sent::default() }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Mode {
    #[default]
    Closed,
    CookieWait,
    CookieEchoed,
    Established,
    ShutdownSent,
    ShutdownAckSent,
}

/// An end, with the tag that it has chosen and that of its peer.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    mode: Mode,
    local: u32,
    peer: u32,
    cookie: Option<Cookie>,
    secret: u32,
    /// How often its timer has fired in vain.
    tries: u32,
}

impl End {
    fn close(&mut self) -> Option<Sent> {
        *self = End { secret: self.secret, ..End::default() };
        None
    }

    fn enter(&mut self, mode: Mode) -> Option<Sent> {
        (self.mode, self.tries) = (mode, 0);
        self.again()
    }

    /// What it sends, and sends again when its timer fires.
    fn again(&self) -> Option<Sent> {
        Some(match self.mode {
            Closed => return None,
            CookieWait => Sent { initiate: self.local, ..sent(INIT, 0) },
            CookieEchoed => Sent { cookie: self.cookie, ..sent(COOKIE_ECHO, self.peer) },
            Established => sent(DATA, self.peer),
            ShutdownSent => sent(SHUTDOWN, self.peer),
            ShutdownAckSent => sent(SHUTDOWN_ACK, self.peer),
        })
    }

    fn timer(&mut self) -> Option<Sent> {
        self.tries += 1;
        let most = if [CookieWait, CookieEchoed].contains(&self.mode) { 8 } else { 10 };
        if self.tries > most { self.close() } else { self.again() }
    }

    /// What it answers (sections 8.4, 8.5.1 and 9.2). `fresh` is a tag that nobody has chosen.
    fn receive(&mut self, packet: &Sent, fresh: u32) -> Option<Sent> {
        let is_right = packet.tag == self.local;
        let is_its_own = self.peer != 0 && packet.tag == self.peer;
        let is_of_peer = if packet.reflected { is_its_own } else { is_right };
        let complete = Some(sent(SHUTDOWN_COMPLETE, self.peer));
        let reflected = |kind| Some(Sent { reflected: true, ..sent(kind, packet.tag) });
        match (packet.kind, self.mode) {
            (INIT, ShutdownAckSent) => self.again(),
            (INIT, _) => Some(self.answer(packet.initiate, fresh)),
            (COOKIE_ECHO, _) => self.cookie(packet),
            (SHUTDOWN_ACK, Closed | CookieWait | CookieEchoed) => reflected(SHUTDOWN_COMPLETE),
            (ABORT | SHUTDOWN_COMPLETE | COOKIE_ACK, Closed) => None,
            (_, Closed) => reflected(ABORT),
            (ABORT, _) | (SHUTDOWN_COMPLETE, ShutdownAckSent) if is_of_peer => self.close(),
            (ABORT | SHUTDOWN_COMPLETE, _) => None,
            _ if !is_right => None,
            (INIT_ACK, CookieWait) => {
                (self.peer, self.cookie) = (packet.initiate, packet.cookie);
                self.enter(CookieEchoed)
            }
            (COOKIE_ACK, CookieEchoed) => self.enter(Established).and(None),
            (DATA, Established | ShutdownSent) => Some(sent(SACK, self.peer)),
            (SACK, Established) => self.enter(Established).and(None),
            (SHUTDOWN, Established | ShutdownSent) => self.enter(ShutdownAckSent),
            (SHUTDOWN_ACK, ShutdownSent | ShutdownAckSent) => self.close().or(complete),
            _ => None,
        }
    }

    /// The INIT ACK (sections 5.1, 5.2.1 and 5.2.2).
    fn answer(&self, tag: u32, fresh: u32) -> Sent {
        let is_opening = [CookieWait, CookieEchoed].contains(&self.mode);
        let local = if is_opening { self.local } else { fresh };
        let has_peer = ![Closed, CookieWait].contains(&self.mode);
        let ties = if has_peer { (self.local, self.peer) } else { (0, 0) };
        let cookie = Some(Cookie { local, peer: tag, ties, secret: self.secret });
        Sent { initiate: local, cookie, ..sent(INIT_ACK, tag) }
    }

    /// A cookie comes back (sections 5.1.5 and 5.2.4).
    fn cookie(&mut self, packet: &Sent) -> Option<Sent> {
        let cookie = packet.cookie?;
        if cookie.secret != self.secret || cookie.local != packet.tag {
            return None;
        }
        let is_same = (cookie.local == self.local, cookie.peer == self.peer);
        let is_restart = cookie.ties == (self.local, self.peer);
        match (self.mode, is_same) {
            (Closed, _) | (_, (true, false)) | (CookieEchoed, (true, true)) => {}
            (ShutdownAckSent, (false, false)) if is_restart => return self.again(),
            (_, (false, false)) if is_restart => {}
            (_, (true, true)) => return Some(sent(COOKIE_ACK, self.peer)),
            _ => return None,
        }
        (self.local, self.peer, self.cookie) = (cookie.local, cookie.peer, None);
        self.enter(Established).and(Some(sent(COOKIE_ACK, self.peer)))
    }
}

/// Of an end, or of the first packet of it that is on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Open,
    Shutdown,
    Abort,
    Crash,
    /// It sends again, or data.
    Timer,
    ToGate,
    ToPeer,
    LostBefore,
    LostBehind,
    /// As `ToGate`, and it is still on its way.
    Twice,
    /// Another one comes behind all that is on its way.
    TwiceLate,
    /// An INIT of somebody in its name.
    Forged,
}

/// Both ends, and what is on its way from each: before the gateway and behind it.
#[derive(Default)]
struct World {
    ends: [End; 2],
    before: [VecDeque<Sent>; 2],
    behind: [VecDeque<Sent>; 2],
    gate: Option<Gate>,
    tags: u32,
    /// What has come to the gateway: from which end, and whether it passed.
    seen: Vec<(usize, Sent, bool)>,
    /// Where in `seen` the last association begins.
    begun: usize,
    /// The gateway has dropped what it is known to drop.
    is_excused: bool,
}

fn tuple(end: usize) -> Tuple {
    let there = Tuple::new(addresses(1, 2), Protocol::SCTP, 10, 20);
    [there, there.reversed()][end]
}

impl World {
    fn after(is_up: bool, steps: &[(usize, Step)]) -> Self {
        let mut world = Self { gate: Some(Gate::used(8)), tags: 99, ..Self::default() };
        if is_up {
            world.step(0, Open);
            world.settle();
        }
        steps.iter().for_each(|(end, step)| world.step(*end, *step));
        world
    }

    /// The same ends, if all passes.
    fn without_gate(&self) -> Self {
        let (before, behind) = (self.before.clone(), self.behind.clone());
        Self { ends: self.ends, before, behind, tags: self.tags, ..Self::default() }
    }

    fn passes(&mut self, end: usize, packet: &Sent) -> bool {
        let Some(gate) = &mut self.gate else { return true };
        let Sent { kind, tag, initiate, reflected, .. } = *packet;
        let chunks = Chunks { tag, initiate, kinds: 1 << kind, reflected };
        let opened = |gate: &Gate| gate.table.counts().made + gate.table.counts().reused;
        let before = opened(gate);
        let passes = gate.packet(tuple(end), &Packet::Sctp(chunks)) != INV;
        if opened(gate) != before {
            self.begun = self.seen.len();
        }
        self.is_excused |= self.is_known(end, packet, passes);
        self.seen.push((end, *packet, passes));
        passes
    }

    /// What keeps two ends apart until one of them gives up (docs/conntrack.md).
    fn is_known(&self, end: usize, packet: &Sent, passes: bool) -> bool {
        let End { mode, local, peer, .. } = self.ends[end];
        let is_live = mode != Closed && packet.tag == peer;
        let passed = |from: usize| {
            let now = self.seen[self.begun..].iter();
            now.filter(move |(end, _, passes)| *end == from && *passes).map(|(_, sent, _)| sent)
        };
        // The end of a former association was lost behind the gateway.
        let mut former = self.seen[..self.begun].iter().map(|(_, sent, _)| sent.initiate);
        let is_former = (is_live || packet.reflected) && former.any(|tag| tag == packet.tag);
        // So was the cookie of a peer that has begun anew and is gone again.
        let is_cookie = |sent: &Sent| sent.kind == COOKIE_ECHO && sent.tag != local;
        let is_gone =
            is_live && self.ends[1 - end].mode == Closed && passed(1 - end).any(is_cookie);
        // The cookie is not of the last INIT ACK, or its peer has begun anew.
        let (own, tag) = (packet.cookie.map_or(0, |cookie| cookie.peer), packet.tag);
        let is_ack = |sent: &Sent| (sent.kind, sent.tag, sent.initiate) == (INIT_ACK, own, tag);
        let is_other = |own: u32| move |sent: &Sent| ![0, own].contains(&sent.initiate);
        let mut later = passed(1 - end).skip_while(|sent| !is_ack(sent));
        let is_late = packet.kind == COOKIE_ECHO && later.any(is_other(tag));
        !passes && (is_former || is_gone || is_late) || is_late && passed(end).any(is_other(own))
    }

    fn step(&mut self, end: usize, step: Step) {
        self.tags += 1;
        let fresh = self.tags;
        let own = &mut self.ends[end];
        let first = self.before[end].front().copied();
        let sends = match step {
            Open if own.mode == Closed => {
                own.local = fresh;
                own.enter(CookieWait)
            }
            Shutdown if own.mode == Established => own.enter(ShutdownSent),
            Open | Shutdown => None,
            Abort => {
                let abort = (own.peer != 0).then(|| sent(ABORT, own.peer));
                own.close().or(abort)
            }
            Timer => own.timer(),
            Forged => Some(Sent { initiate: FORGED + fresh, ..sent(INIT, 0) }),
            Crash => {
                own.secret += 1;
                own.close()
            }
            ToGate | Twice => {
                self.before[end].drain(..usize::from(step == ToGate && first.is_some()));
                let passed = first.filter(|packet| self.passes(end, packet));
                self.behind[end].extend(passed);
                None
            }
            ToPeer => {
                let packet = self.behind[end].pop_front();
                let answer = |packet| self.ends[1 - end].receive(&packet, fresh);
                self.before[1 - end].extend(packet.and_then(answer));
                None
            }
            LostBefore => self.before[end].pop_front().and(None),
            LostBehind => self.behind[end].pop_front().and(None),
            TwiceLate => first,
        };
        self.before[end].extend(sends);
    }

    /// Nothing more is lost.
    fn settle(&mut self) {
        while self.before.iter().chain(&self.behind).any(|queue| !queue.is_empty()) {
            for end in [0, 1] {
                self.step(end, ToGate);
                self.step(end, ToPeer);
            }
        }
    }

    /// Whether both are up with each other's tags, and data pass both ways.
    fn are_together(&mut self) -> bool {
        let [one, other] = self.ends;
        [one.mode, other.mode] == [Established; 2]
            && (one.local, one.peer) == (other.peer, other.local)
            && (0..2).all(|end| self.passes(end, &sent(DATA, self.ends[end].peer)))
    }

    /// How often the timers fire until the ends are together. One that has given up opens again.
    fn rounds(&mut self, opener: usize) -> Option<u32> {
        (0..60).find(|_| {
            self.settle();
            let is_over = self.ends.iter().all(|end| end.mode == Closed);
            let steps: &[_] = if is_over { &[(opener, Open)] } else { &[(0, Timer), (1, Timer)] };
            let are_together = self.are_together();
            steps.iter().filter(|_| !are_together).for_each(|(end, step)| self.step(*end, *step));
            are_together
        })
    }
}

/// Steps of each end, and whether they begin with an association that is up.
fn schedule(rare: &[Step]) -> impl Strategy<Value = (bool, Vec<(usize, Step)>)> + use<> {
    let step = prop_oneof![
        24 => prop::sample::select(vec![ToGate, ToPeer]),
        8 => prop::sample::select([&[Open, Crash, Shutdown, Timer, Abort], rare].concat()),
    ];
    (any::<bool>(), prop::collection::vec((0usize..2, step), 4..60))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Nearly as soon as without a gateway.
    #[test]
    fn ends_find_together(
        (is_up, steps) in schedule(&[LostBefore, LostBehind, LostBehind, Twice]),
        opener in 0usize..2,
    ) {
        let mut world = World::after(is_up, &steps);
        let best = world.without_gate().rounds(opener).unwrap();
        let rounds = world.rounds(opener).unwrap();
        let is_soon = rounds <= best + 2 || world.is_excused;
        prop_assert!(is_soon, "{:?} {} {:?}", rounds, best, world.seen);
    }

    /// As soon as one gives up, whatever comes late and whatever was forged.
    #[test]
    fn ends_that_give_up_find_together(
        (is_up, steps) in schedule(&[LostBefore, LostBehind, TwiceLate, Forged]),
        opener in 0usize..2,
    ) {
        let mut world = World::after(is_up, &steps);
        prop_assert!(world.rounds(opener).is_some(), "{:?}", world.seen);
    }

    /// Of somebody who does not see the tags nothing passes but INITs, and these do no harm.
    #[test]
    fn nobody_else_harms_an_association(
        steps in prop::collection::vec((0usize..2, 0usize..14, any::<bool>(), 1u32..1000), 1..60),
    ) {
        let mut world = World::after(true, &[]);
        for (end, what, reflected, tag) in steps {
            let kinds = [DATA, SACK, ABORT, SHUTDOWN, SHUTDOWN_ACK, SHUTDOWN_COMPLETE];
            let steps = [Forged, Forged, ToGate, ToGate, ToPeer, Twice, LostBefore, LostBehind];
            if let Some(kind) = kinds.get(what) {
                // A tag that he has chosen himself, or any.
                let is_own = tag % 2 == 0;
                let tag = if is_own { FORGED + tag % world.tags } else { 2 * FORGED + tag };
                let reflected = reflected && [ABORT, SHUTDOWN_COMPLETE].contains(kind);
                let passes = world.passes(end, &Sent { reflected, ..sent(*kind, tag) });
                // An INIT may be refused, which ends nothing.
                prop_assert!(!passes || *kind == ABORT && is_own, "{:?}", world.seen);
            } else {
                world.step(end, steps[what - kinds.len()]);
            }
            prop_assert!(world.are_together(), "{:?}", world.seen);
        }
        world.settle();
        prop_assert!(world.are_together(), "{:?}", world.seen);
        let connection = world.gate.unwrap().connection(&tuple(0)).unwrap();
        prop_assert_eq!(connection.state, State::SctpEstablished);
    }
}
