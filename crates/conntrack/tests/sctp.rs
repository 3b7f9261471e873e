//! Associations of SCTP: how they open, restart and end, and what others cannot do to them.

mod gate;

use conntrack::{Chunks, Packet, State, Tuple};
use gate::{EST, Gate, INV, NEW, REPLY, addresses};
use types::Protocol;

/// A packet with one chunk.
fn packet(kind: u16, tag: u32, initiate: u32) -> Packet {
    Packet::Sctp(Chunks { tag, initiate, kinds: 1 << kind, reflected: false })
}

fn tuple() -> Tuple {
    Tuple::new(addresses(1, 2), Protocol::SCTP, 10, 20)
}

#[test]
fn an_sctp_association_opens_and_closes() {
    let mut gate = Gate::used(8);
    let tuple = tuple();
    let state = |gate: &Gate| gate.connection(&tuple).map(|connection| connection.state);
    // Out of the blue.
    assert_eq!(gate.packet(tuple, &packet(0, 7, 0)), INV);
    assert_eq!(gate.packet(tuple, &packet(1, 1, 100)), INV);
    assert_eq!(gate.packet(tuple, &packet(1, 0, 100)), NEW);
    assert_eq!(gate.packet(tuple.reversed(), &packet(2, 99, 200)), INV);
    assert_eq!(gate.packet(tuple.reversed(), &packet(2, 100, 200)), REPLY);
    assert_eq!(gate.packet(tuple, &packet(10, 200, 0)), EST);
    assert_eq!(state(&gate), Some(State::SctpCookieEchoed));
    assert_eq!(gate.packet(tuple.reversed(), &packet(11, 100, 0)), REPLY);
    assert_eq!(state(&gate), Some(State::SctpEstablished));
    // A wrong tag ends nothing, and neither does an INIT.
    assert_eq!(gate.packet(tuple, &packet(6, 201, 0)), INV);
    assert_eq!(gate.packet(tuple, &packet(7, 0, 0)), INV);
    assert_eq!(gate.packet(tuple.reversed(), &packet(1, 0, 300)), REPLY);
    assert_eq!(gate.packet(tuple, &packet(0, 200, 0)), EST);
    assert_eq!(state(&gate), Some(State::SctpEstablished));
    assert_eq!(gate.packet(tuple, &packet(7, 200, 0)), EST);
    assert_eq!(state(&gate), Some(State::SctpShutdownSent));
    assert_eq!(gate.packet(tuple.reversed(), &packet(8, 100, 0)), REPLY);
    assert_eq!(gate.packet(tuple, &packet(14, 200, 0)), EST);
    assert_eq!(state(&gate), Some(State::SctpClosed));
    assert_eq!(gate.packet(tuple, &packet(1, 0, 101)), NEW);
    assert_eq!(state(&gate), Some(State::SctpCookieWait));
}

/// Either end begins anew (RFC 9260 section 5.2.2), and both have other tags then.
#[test]
fn an_sctp_association_restarts() {
    let tuple = tuple();
    for is_by_client in [true, false] {
        for (forged, is_shut_down) in
            [(None, false), (None, true), (Some(true), false), (Some(false), false)]
        {
            let mut gate = Gate::used(8);
            gate.packet(tuple, &packet(1, 0, 100));
            gate.packet(tuple.reversed(), &packet(2, 100, 200));
            gate.packet(tuple, &packet(10, 200, 0));
            gate.packet(tuple.reversed(), &packet(11, 100, 0));
            if is_shut_down {
                gate.packet(tuple, &packet(7, 200, 0));
                assert_eq!(gate.connection(&tuple).unwrap().state, State::SctpShutdownSent);
            }
            // What the one that restarts sends with its peer's tag, and what it is sent with its own.
            let (here, there, old_peer) = match is_by_client {
                true => (tuple, tuple.reversed(), 200),
                false => (tuple.reversed(), tuple, 100),
            };
            let passes = |gate: &mut Gate, from, packet| gate.packet(from, &packet) != INV;
            assert!(passes(&mut gate, here, packet(1, 0, 500)));
            assert!(passes(&mut gate, there, packet(2, 500, 600)));
            // From before the restart, late.
            assert!(passes(&mut gate, here, packet(0, old_peer, 0)));
            assert!(passes(&mut gate, here, packet(10, 600, 0)));
            // Somebody in the name of either end, who knows no tag.
            if let Some(is_of_here) = forged {
                let from = if is_of_here { here } else { there };
                gate.packet(from, &packet(1, 0, 0x7777));
            }
            assert!(passes(&mut gate, there, packet(11, 500, 0)));
            assert!(passes(&mut gate, there, packet(0, 500, 0)));
            assert!(passes(&mut gate, here, packet(0, 600, 0)), "{is_by_client} {forged:?}");
            assert!(!passes(&mut gate, here, packet(0, old_peer, 0)));
            assert!(!passes(&mut gate, here, packet(0, 0x7777, 0)));
            assert_eq!(gate.connection(&tuple).unwrap().state, State::SctpEstablished);
        }
    }
}

/// What an INIT proves in somebody's name is nothing, whenever it comes. A packet is of the end that restarts
/// (or that has made the association), or of its peer.
#[test]
fn forged_inits_stop_no_sctp_association_that_restarts() {
    const HERE: bool = true;
    const THERE: bool = false;
    let tuple = tuple();
    let restart = [
        (HERE, packet(1, 0, 500)),
        (THERE, packet(2, 500, 600)),
        (HERE, packet(10, 600, 0)),
        // Lost behind us, and sent again.
        (HERE, packet(10, 600, 0)),
        (THERE, packet(11, 500, 0)),
        (THERE, packet(0, 500, 0)),
        (HERE, packet(0, 600, 0)),
    ];
    let mut cases = Vec::new();
    for is_by_client in [true, false] {
        // Before the INIT ACK only the peer: the one that restarts sends its INIT again.
        cases.push((is_by_client, 1, THERE));
        // Before the cookie echo only the one that restarts: its peer sends the INIT ACK again.
        cases.push((is_by_client, 2, HERE));
        (3..=restart.len()).for_each(|at| {
            cases.extend([HERE, THERE].map(|from| (is_by_client, at, from)));
        });
    }
    for (is_by_client, forged_at, forged_from) in cases {
        let mut gate = Gate::used(8);
        gate.packet(tuple, &packet(1, 0, 100));
        gate.packet(tuple.reversed(), &packet(2, 100, 200));
        gate.packet(tuple, &packet(10, 200, 0));
        gate.packet(tuple.reversed(), &packet(11, 100, 0));
        let from = |end: bool| if end == is_by_client { tuple } else { tuple.reversed() };
        for (at, (end, packet_of_it)) in restart.iter().enumerate() {
            if at == forged_at {
                gate.packet(from(forged_from), &packet(1, 0, 0x7777));
            }
            let judged = gate.packet(from(*end), packet_of_it);
            assert_ne!(judged, INV, "{is_by_client} {forged_at} {forged_from}: {at}");
        }
        assert_eq!(gate.packet(from(HERE), &packet(0, 0x7777, 0)), INV);
        assert_eq!(gate.connection(&tuple).unwrap().state, State::SctpEstablished);
    }
}

/// Both ends restart at once, and one cookie echo is lost behind the gateway: the one that it was for is up
/// by the answer to its own.
#[test]
fn both_ends_of_an_sctp_association_restart() {
    let mut gate = Gate::used(8);
    let there = tuple();
    let back = there.reversed();
    for (from, kind, tag, initiate) in [
        (there, 1, 0, 100),
        (back, 2, 100, 200),
        (there, 10, 200, 0),
        (back, 11, 100, 0),
        (there, 1, 0, 500),
        (back, 1, 0, 700),
        (back, 2, 500, 700),
        (there, 2, 700, 500),
        (there, 10, 700, 0),
        (back, 10, 500, 0),
        (there, 11, 700, 0),
        (there, 0, 700, 0),
        (back, 0, 500, 0),
    ] {
        let judged = gate.packet(from, &packet(kind, tag, initiate));
        assert_ne!(judged, INV, "{kind} {tag}");
    }
}

/// The end that awaits the SHUTDOWN COMPLETE answers an INIT with its SHUTDOWN ACK (RFC 9260 section 9.2).
#[test]
fn an_init_while_an_sctp_association_ends_proves_nothing() {
    let there = tuple();
    let back = there.reversed();
    for is_gone in [false, true] {
        let mut gate = Gate::used(8);
        for (from, kind, tag, initiate) in [
            (there, 1, 0, 100),
            (back, 2, 100, 200),
            (there, 10, 200, 0),
            (back, 11, 100, 0),
            (there, 7, 200, 0),
            (back, 8, 100, 0),
            (there, 1, 0, 500),
        ] {
            gate.packet(from, &packet(kind, tag, initiate));
        }
        let state = |gate: &Gate| gate.connection(&there).map(|connection| connection.state);
        assert_eq!(state(&gate), Some(State::SctpShutdownAckSent));
        // The SHUTDOWN COMPLETE was lost before us, and the other end is through.
        if is_gone {
            assert_eq!(gate.packet(back, &packet(2, 500, 600)), REPLY);
            assert_eq!(gate.packet(there, &packet(10, 600, 0)), EST);
            assert_eq!(state(&gate), Some(State::SctpCookieEchoed));
            assert_eq!(gate.packet(back, &packet(11, 500, 0)), REPLY);
            assert_eq!(state(&gate), Some(State::SctpEstablished));
            continue;
        }
        assert_eq!(gate.packet(back, &packet(8, 100, 0)), REPLY);
        let complete =
            Packet::Sctp(Chunks { tag: 100, initiate: 0, kinds: 1 << 14, reflected: true });
        assert_eq!(gate.packet(there, &complete), EST);
        assert_eq!(state(&gate), Some(State::SctpClosed));
        assert_eq!(gate.packet(there, &packet(1, 0, 500)), NEW);
    }
}

/// A translation must not last as long as somebody tries.
#[test]
fn an_sctp_init_sent_again_keeps_nothing_alive() {
    let mut gate = Gate::used(8);
    let (tuple, made) = (tuple(), gate.table.counts().made);
    for _ in 0..5 {
        gate.packet(tuple, &packet(1, 0, 7));
        gate.wait(1);
    }
    // Three seconds are over, and another one has begun.
    assert_eq!(gate.table.counts().made, made + 2);
}

/// Whose packets come in an order that others make, or lose: none gets stuck. `true` is the client, each case
/// ends with packets of both ends, and one that must not pass has the tag 1.
#[test]
fn no_sctp_association_is_stuck() {
    const A: bool = true;
    const B: bool = false;
    let open = [(A, 1, 0, 100), (B, 2, 100, 200), (A, 10, 200, 0), (B, 11, 100, 0)];
    let after_open = |more: &[(bool, u16, u32, u32)]| [&open[..], more].concat();
    let cases = [
        // The client begins anew behind the INIT ACK, or somebody in its name.
        vec![
            (A, 1, 0, 100),
            (B, 2, 100, 200),
            (A, 1, 0, 500),
            (B, 2, 500, 600),
            (A, 10, 600, 0),
            (B, 11, 500, 0),
            (B, 3, 500, 0),
            (A, 3, 600, 0),
        ],
        vec![
            (A, 1, 0, 0x7777),
            (B, 2, 0x7777, 9),
            (A, 1, 0, 100),
            (B, 2, 100, 200),
            (A, 10, 200, 0),
            (B, 11, 100, 0),
            (B, 3, 100, 0),
            (A, 3, 200, 0),
        ],
        // An INIT sent again crosses the INIT ACK: the first answer counts, or the second one.
        vec![
            (A, 1, 0, 100),
            (B, 2, 100, 200),
            (A, 1, 0, 100),
            (A, 10, 200, 0),
            (B, 2, 100, 300),
            (B, 11, 100, 0),
            (A, 0, 200, 0),
            (B, 3, 100, 0),
        ],
        vec![
            (A, 1, 0, 100),
            (B, 2, 100, 200),
            (A, 1, 0, 100),
            (B, 2, 100, 300),
            (A, 10, 200, 0),
            (B, 11, 100, 0),
            (A, 0, 200, 0),
            (B, 3, 100, 0),
        ],
        vec![
            (A, 1, 0, 100),
            (B, 2, 100, 200),
            (A, 1, 0, 100),
            (B, 2, 100, 300),
            (A, 10, 300, 0),
            (B, 11, 100, 0),
            (A, 0, 300, 0),
            (B, 3, 100, 0),
        ],
        // Somebody in the server's name, whom the client answers.
        vec![
            (A, 1, 0, 100),
            (B, 1, 0, 0x7777),
            (A, 2, 0x7777, 100),
            (B, 2, 100, 200),
            (A, 10, 200, 0),
            (B, 1, 0, 0x8888),
            (A, 2, 0x8888, 100),
            (B, 11, 100, 0),
            (A, 0, 200, 0),
            (B, 3, 100, 0),
        ],
        vec![
            (A, 1, 0, 100),
            (B, 2, 100, 200),
            (A, 1, 0, 100),
            (B, 2, 100, 210),
            (A, 10, 210, 0),
            (B, 1, 0, 0x8888),
            (B, 11, 100, 0),
            (A, 0, 210, 0),
            (B, 3, 100, 0),
        ],
        after_open(&[
            (A, 1, 0, 500),
            (B, 2, 500, 600),
            (A, 10, 600, 0),
            (B, 1, 0, 0x7777),
            (A, 2, 0x7777, 500),
            (B, 11, 500, 0),
            (A, 0, 600, 0),
            (B, 3, 500, 0),
        ]),
        // One end restarts, and then the other.
        after_open(&[
            (A, 1, 0, 500),
            (B, 2, 500, 600),
            (A, 10, 600, 0),
            (B, 11, 500, 0),
            (B, 1, 0, 700),
            (A, 2, 700, 800),
            (B, 10, 800, 0),
            (A, 11, 700, 0),
            (A, 0, 700, 0),
            (B, 0, 800, 0),
        ]),
        // INITs that cross, while one end begins anew or its INIT ACK comes twice.
        vec![
            (A, 1, 0, 100),
            (B, 1, 0, 102),
            (B, 2, 100, 102),
            (A, 2, 102, 104),
            (B, 10, 104, 0),
            (A, 11, 102, 0),
            (B, 0, 104, 0),
            (A, 0, 102, 0),
        ],
        vec![
            (A, 1, 0, 100),
            (B, 1, 0, 101),
            (A, 2, 101, 100),
            (B, 1, 0, 103),
            (A, 2, 103, 100),
            (B, 2, 100, 103),
            (A, 10, 103, 0),
            (B, 10, 100, 0),
            (A, 11, 103, 0),
            (B, 11, 100, 0),
            (A, 0, 103, 0),
            (B, 0, 100, 0),
        ],
        vec![
            (A, 1, 0, 100),
            (B, 1, 0, 101),
            (A, 2, 101, 100),
            (B, 1, 0, 104),
            (A, 2, 101, 100),
            (B, 2, 100, 104),
            (A, 2, 104, 100),
            (B, 10, 100, 0),
            (A, 10, 104, 0),
            (A, 11, 104, 0),
            (A, 0, 104, 0),
        ],
        vec![
            (B, 1, 0, 103),
            (A, 1, 0, 100),
            (B, 2, 100, 103),
            (A, 1, 0, 102),
            (B, 2, 100, 103),
            (A, 2, 103, 102),
            (B, 2, 102, 103),
            (B, 10, 102, 0),
            (A, 10, 103, 0),
            (B, 11, 102, 0),
            (A, 11, 103, 0),
            (A, 0, 103, 0),
            (B, 0, 102, 0),
        ],
        vec![
            (A, 1, 0, 100),
            (B, 2, 100, 104),
            (A, 1, 0, 103),
            (B, 2, 103, 108),
            (A, 10, 108, 0),
            (B, 1, 0, 110),
            (A, 2, 110, 103),
            (B, 10, 103, 0),
            (A, 11, 110, 0),
            (B, 10, 103, 0),
            (A, 11, 110, 0),
            (A, 0, 110, 0),
            (B, 0, 103, 0),
        ],
        // An INIT of a restart is refused, which ends nothing.
        after_open(&[(A, 1, 0, 500), (B, 6, 500, 0), (A, 0, 200, 0), (B, 0, 100, 0)]),
        vec![(A, 1, 0, 100), (B, 2, 100, 200), (A, 1, 0, 500), (B, 6, 500, 0)],
    ];
    for case in cases {
        let mut gate = Gate::used(8);
        for (at, (is_client, kind, tag, initiate)) in case.iter().enumerate() {
            let from = if *is_client { tuple() } else { tuple().reversed() };
            let judged = gate.packet(from, &packet(*kind, *tag, *initiate));
            assert_ne!(judged, INV, "{case:?}: {at}");
        }
        for from in [tuple(), tuple().reversed()] {
            assert_eq!(gate.packet(from, &packet(0, 1, 0)), INV, "{case:?}");
        }
    }
}

/// One that was seen in the middle is ended by a host that has none, with the tag that it was sent
/// (RFC 9260 section 8.5.1).
#[test]
fn an_sctp_association_seen_by_its_heartbeat_is_ended() {
    let abort =
        |tag: u32| Packet::Sctp(Chunks { tag, initiate: 0, kinds: 1 << 6, reflected: true });
    for (is_answered, from, tag) in
        [(false, tuple().reversed(), 200), (true, tuple(), 100), (true, tuple().reversed(), 200)]
    {
        let mut gate = Gate::used(8);
        gate.packet(tuple(), &packet(4, 200, 0));
        if is_answered {
            assert_eq!(gate.packet(tuple().reversed(), &packet(5, 100, 0)), REPLY);
        }
        assert_eq!(gate.packet(from, &abort(7)), INV);
        assert_ne!(gate.packet(from, &abort(tag)), INV);
        assert_eq!(gate.connection(&tuple()).unwrap().state, State::SctpClosed);
    }
}
