//! TCP, case by case. The client begins at sequence number 1000, the server at 5000.

mod gate;

use std::collections::BTreeMap;
use std::time::Duration;

use conntrack::{Direction, Hit, Named, Packet, Reason, Reference, Settings, State, Tuple};
use gate::{EST, Gate, INV, NEW, REPLY, segment, settings, tcp, with};

struct Connection {
    gate: Gate,
    tuple: Tuple,
}

impl Connection {
    fn new() -> Self {
        Self::with(&settings(64))
    }

    fn with(settings: &Settings) -> Self {
        Self { gate: Gate::new(settings), tuple: tcp(0x0b00_0001, 4000) }
    }

    fn client(&mut self, packet: Packet) -> conntrack::CtState {
        self.gate.packet(self.tuple, &packet)
    }

    fn server(&mut self, packet: Packet) -> conntrack::CtState {
        self.gate.packet(self.tuple.reversed(), &packet)
    }

    fn state(&self) -> Option<State> {
        self.gate.connection(&self.tuple).map(|connection| connection.state)
    }

    /// Client's next sequence number 1001, server's 5001, both windows 10,000.
    fn established() -> Self {
        let mut it = Self::new();
        assert_eq!(it.client(segment("S", 1000, 0, 0)), NEW);
        assert_eq!(it.state(), Some(State::SynSent));
        assert_eq!(it.server(segment("SA", 5000, 1001, 0)), REPLY);
        assert_eq!(it.state(), Some(State::SynRecv));
        assert_eq!(it.client(segment("A", 1001, 5001, 0)), EST);
        assert_eq!(it.state(), Some(State::Established));
        it
    }

    /// Each side has sent a FIN, and all is acknowledged.
    fn time_wait() -> Self {
        let mut it = Self::established();
        assert_eq!(it.client(segment("FA", 1001, 5001, 0)), EST);
        assert_eq!(it.state(), Some(State::FinWait));
        assert_eq!(it.server(segment("A", 5001, 1002, 0)), REPLY);
        assert_eq!(it.state(), Some(State::CloseWait));
        assert_eq!(it.server(segment("FA", 5001, 1002, 0)), REPLY);
        assert_eq!(it.state(), Some(State::LastAck));
        assert_eq!(it.client(segment("A", 1002, 5002, 0)), EST);
        assert_eq!(it.state(), Some(State::TimeWait));
        it
    }

    fn still_carries_data(&mut self) {
        assert_eq!(self.client(segment("PA", 1001, 5001, 100)), EST);
        assert_eq!(self.server(segment("PA", 5001, 1101, 100)), REPLY);
        assert_eq!(self.state(), Some(State::Established));
    }
}

#[test]
fn a_connection_opens_carries_data_and_closes() {
    Connection::established().still_carries_data();
    Connection::time_wait();
}

#[test]
fn both_may_close_at_once() {
    let mut it = Connection::established();
    it.client(segment("FA", 1001, 5001, 0));
    it.server(segment("FA", 5001, 1001, 0));
    assert_eq!(it.state(), Some(State::LastAck));
    it.client(segment("A", 1002, 5002, 0));
    assert_eq!(it.state(), Some(State::LastAck));
    it.server(segment("A", 5002, 1002, 0));
    assert_eq!(it.state(), Some(State::TimeWait));
}

#[test]
fn one_side_may_send_on_after_the_other_has_closed() {
    let mut it = Connection::established();
    it.client(segment("FA", 1001, 5001, 0));
    for at in 0..50 {
        assert_eq!(it.server(segment("A", 5001 + at * 1000, 1002, 1000)), REPLY);
        assert_eq!(it.client(segment("A", 1002, 6001 + at * 1000, 0)), EST);
        assert_eq!(it.state(), Some(State::CloseWait));
        it.gate.wait(50);
    }
}

#[test]
fn an_acknowledgment_that_is_not_of_the_fin_does_not_close() {
    let mut it = Connection::established();
    it.client(segment("FA", 1001, 5001, 10));
    it.server(segment("A", 5001, 1006, 0));
    assert_eq!(it.state(), Some(State::FinWait));
    it.server(segment("A", 5001, 1012, 0));
    assert_eq!(it.state(), Some(State::CloseWait));
}

#[test]
fn a_wild_reset_or_fin_neither_removes_nor_ends() {
    for sequence in [0, 900_000, 1000 + (1 << 31), u32::MAX, 12_000] {
        for flags in ["R", "RA", "FA"] {
            let mut it = Connection::established();
            assert_eq!(it.client(segment(flags, sequence, 5001, 0)), INV, "{flags} {sequence}");
            let mut it2 = Connection::established();
            assert_eq!(it2.server(segment(flags, sequence.wrapping_add(70_000), 1001, 0)), INV);
            it.still_carries_data();
            it2.still_carries_data();
        }
    }
}

#[test]
fn a_reset_within_the_window_is_left_to_the_receiver() {
    let mut it = Connection::established();
    assert_eq!(it.server(segment("R", 5002, 0, 0)), REPLY);
    assert_eq!(it.state(), Some(State::Established));
    // The challenge ACK passes, and so does the right reset that answers it.
    assert_eq!(it.client(segment("A", 1001, 5001, 0)), EST);
    assert_eq!(it.server(segment("R", 5001, 0, 0)), REPLY);
    assert_eq!(it.state(), Some(State::Close));
}

#[test]
fn a_syn_never_ends_a_connection() {
    let mut it = Connection::established();
    // Sent again, late; and of a host that was restarted: RFC 5961 has the server challenge it.
    for sequence in [1000, 77_000, 1 << 31] {
        assert_eq!(it.client(segment("S", sequence, 0, 0)), EST);
        assert_eq!(it.server(segment("S", sequence, 0, 0)), INV);
    }
    it.still_carries_data();
}

#[test]
fn a_restarted_client_gets_its_connection() {
    let mut it = Connection::established();
    assert_eq!(it.client(segment("S", 77_000, 0, 0)), EST);
    assert_eq!(it.server(segment("A", 5001, 1001, 0)), REPLY);
    assert_eq!(it.client(segment("R", 1001, 0, 0)), EST);
    assert_eq!(it.state(), Some(State::Close));
    assert_eq!(it.client(segment("S", 77_000, 0, 0)), NEW);
    assert_eq!(it.state(), Some(State::SynSent));
    assert_eq!(it.gate.ended.len(), 1);
    assert_eq!(it.gate.ended[0].reason, Reason::Reused);
    assert_eq!(it.server(segment("SA", 9000, 77_001, 0)), REPLY);
    assert_eq!(it.client(segment("A", 77_001, 9001, 0)), EST);
    assert_eq!(it.state(), Some(State::Established));
}

#[test]
fn a_restarted_server_is_found_out() {
    let mut it = Connection::new();
    it.client(segment("S", 1000, 0, 0));
    // It still has an older connection, and says so; the client resets that.
    assert_eq!(it.server(segment("A", 99_999, 88_888, 0)), REPLY);
    assert_eq!(it.client(segment("R", 88_888, 0, 0)), NEW);
    assert_eq!(it.state(), Some(State::SynSent));
    assert_eq!(it.client(segment("S", 1000, 0, 0)), NEW);
    assert_eq!(it.server(segment("SA", 5000, 1001, 0)), REPLY);
    assert_eq!(it.client(segment("A", 1001, 5001, 0)), EST);
}

#[test]
fn a_forged_answer_does_not_block_a_syn() {
    let mut it = Connection::new();
    it.client(segment("S", 1000, 0, 0));
    it.server(segment("A", 1, 1, 0));
    assert_eq!(it.server(segment("SA", 1, 1, 0)), INV);
    assert_eq!(it.server(segment("R", 1, 0, 0)), INV);
    assert_eq!(it.server(segment("RA", 0, 999, 0)), INV);
    assert_eq!(it.server(segment("FA", 1, 1001, 0)), INV);
    it.server(segment("S", 66, 0, 0));
    assert_eq!(it.server(segment("SA", 5000, 1001, 0)), REPLY);
    assert_eq!(it.client(segment("A", 1001, 5001, 0)), EST);
    assert_eq!(it.state(), Some(State::Established));
    // Nor does a forged ACK before the SYN make a connection of its own.
    let mut it = Connection::new();
    assert_eq!(it.server(segment("A", 1, 1, 0)), INV);
    assert_eq!(it.client(segment("S", 1000, 0, 0)), NEW);
}

#[test]
fn a_refused_connection_may_be_tried_again() {
    let mut it = Connection::new();
    it.client(segment("S", 1000, 0, 0));
    // Sent again, so that its decision is kept; it makes nothing.
    it.client(segment("S", 1000, 0, 0));
    assert_eq!(it.server(segment("RA", 0, 1001, 0)), REPLY);
    assert_eq!(it.state(), Some(State::Close));
    assert_eq!(it.client(segment("S", 2000, 0, 0)), NEW);
    assert_eq!(it.state(), Some(State::SynSent));
}

#[test]
fn syns_may_cross() {
    let mut it = Connection::new();
    assert_eq!(it.client(segment("S", 1000, 0, 0)), NEW);
    assert_eq!(it.server(segment("S", 5000, 0, 0)), REPLY);
    assert_eq!(it.state(), Some(State::SynSent2));
    assert_eq!(it.client(segment("SA", 1000, 5001, 0)), EST);
    assert_eq!(it.server(segment("SA", 5000, 1001, 0)), REPLY);
    assert_eq!(it.state(), Some(State::Established));
    it.still_carries_data();
}

#[test]
fn crossing_syns_may_be_acknowledged_without_syn() {
    let mut it = Connection::new();
    it.client(segment("S", 1000, 0, 0));
    it.server(segment("S", 5000, 0, 0));
    it.client(segment("SA", 1000, 5001, 0));
    assert_eq!(it.server(segment("A", 5001, 1001, 0)), REPLY);
    assert_eq!(it.state(), Some(State::Established));
}

#[test]
fn a_port_is_used_again_after_time_wait_and_close() {
    let mut it = Connection::time_wait();
    assert_eq!(it.client(segment("S", 500_000, 0, 0)), NEW);
    assert_eq!(it.state(), Some(State::SynSent));
    assert_eq!(it.server(segment("SA", 7000, 500_001, 0)), REPLY);
    // The other side may do so as well; it is the client then.
    let mut it = Connection::time_wait();
    assert_eq!(it.server(segment("S", 600_000, 0, 0)), NEW);
    let (_, direction) = it.gate.lookup(&it.tuple).unwrap();
    assert_eq!(direction, Direction::Reply);
}

#[test]
fn a_port_is_used_again_right_after_fin() {
    // The last ACK is lost on its way to us.
    let mut it = Connection::established();
    it.client(segment("FA", 1001, 5001, 0));
    it.server(segment("FA", 5001, 1002, 0));
    assert_eq!(it.state(), Some(State::LastAck));
    assert_eq!(it.client(segment("S", 500_000, 0, 0)), NEW);
    assert_eq!(it.server(segment("SA", 7000, 500_001, 0)), REPLY);
    assert_eq!(it.client(segment("A", 500_001, 7001, 0)), EST);
    assert_eq!(it.state(), Some(State::Established));
}

#[test]
fn strange_flags_are_invalid() {
    let strange = ["", "F", "FU", "FPU", "SF", "SFA", "SR", "FR", "FRA", "PU", "SFRPAU", "U", "P"];
    for flags in strange {
        let mut it = Connection::established();
        assert_eq!(it.client(segment(flags, 1001, 5001, 0)), INV, "{flags}");
        it.still_carries_data();
        let mut fresh = Connection::new();
        assert_eq!(fresh.client(segment(flags, 1001, 5001, 0)), INV, "{flags}");
    }
}

#[test]
fn data_outside_of_the_window_is_invalid() {
    let mut it = Connection::established();
    assert_eq!(it.client(segment("A", 11_001, 5001, 100)), EST);
    assert_eq!(it.client(segment("A", 11_002, 5001, 100)), INV);
    // Older than a window: sent again, and no state changes by it.
    let mut it = Connection::established();
    assert_eq!(it.client(segment("A", 1001u32.wrapping_sub(10_100), 5001, 99)), EST);
    assert_eq!(it.client(segment("A", 1001u32.wrapping_sub(76_100), 5001, 100)), EST);
    assert_eq!(it.client(segment("A", 1001u32.wrapping_sub(76_101), 5001, 100)), INV);
    assert_eq!(it.client(segment("FA", 1001u32.wrapping_sub(10_100), 5001, 90)), INV);
    assert_eq!(it.client(segment("A", 1001u32.wrapping_sub(10_100), 5002, 99)), INV);
    assert_eq!(it.client(segment("A", 1001 - 100, 5001, 100)), EST);
    // Acknowledging what was not sent.
    assert_eq!(it.client(segment("A", 1001, 5002, 0)), INV);
    assert_eq!(it.client(segment("A", 1001, 5001u32.wrapping_sub(66_001), 0)), INV);
    let sack = |beyond| with(segment("A", 1001, 5001, 0), |segment| segment.sacked = beyond);
    assert_eq!(it.client(sack(1)), INV);
    it.server(segment("A", 5101, 1001, 100));
    assert_eq!(it.client(sack(200)), EST);
    it.still_carries_data();
}

#[test]
fn windows_are_scaled_if_both_offer_it() {
    let offer = |packet, scale| with(packet, |segment| segment.scale = Some(scale));
    let mut it = Connection::new();
    it.client(offer(segment("S", 1000, 0, 0), 3));
    it.server(offer(segment("SA", 5000, 1001, 0), 7));
    it.client(segment("A", 1001, 5001, 0));
    // 10,000 << 3 from the client.
    assert_eq!(it.server(segment("A", 5001 + 80_000, 1001, 100)), REPLY);
    assert_eq!(it.server(segment("A", 5001 + 80_001, 1001, 100)), INV);
    // The window of a SYN-ACK is not scaled; that of the next segment is.
    assert_eq!(it.client(segment("A", 1001 + 1_000_000, 85_101, 100)), EST);

    let mut it = Connection::new();
    it.client(offer(segment("S", 1000, 0, 0), 3));
    it.server(segment("SA", 5000, 1001, 0));
    it.client(segment("A", 1001, 5001, 0));
    assert_eq!(it.server(segment("A", 5001 + 10_001, 1001, 100)), INV);
}

#[test]
fn a_closed_window_is_probed_by_one_byte() {
    let close = |packet| with(packet, |segment| segment.window = 0);
    let mut it = Connection::established();
    it.client(segment("A", 1001, 5001, 10_000));
    assert_eq!(it.server(close(segment("A", 5001, 11_001, 0))), REPLY);
    for _ in 0..20 {
        it.gate.wait(60);
        assert_eq!(it.client(segment("A", 11_001, 5001, 1)), EST);
        assert_eq!(it.server(close(segment("A", 5001, 11_001, 0))), REPLY);
    }
    assert_eq!(it.client(segment("A", 11_003, 5001, 1)), INV);
    assert_eq!(it.server(segment("A", 5001, 11_001, 0)), REPLY);
    assert_eq!(it.client(segment("A", 11_001, 5001, 1000)), EST);
}

#[test]
fn keepalives_keep_it_alive() {
    let mut it = Connection::established();
    for _ in 0..20 {
        it.gate.wait(7200 * 10);
        assert_eq!(it.client(segment("A", 1000, 5001, 0)), EST);
        assert_eq!(it.server(segment("A", 5001, 1001, 0)), REPLY);
    }
    it.gate.wait(432_000 - 1);
    assert_eq!(it.state(), Some(State::Established));
    it.gate.wait(2);
    assert_eq!(it.state(), None);
}

#[test]
fn sequence_numbers_go_round() {
    let mut it = Connection::new();
    let (client, server) = (u32::MAX - 2, u32::MAX - 5000);
    it.client(segment("S", client, 0, 0));
    it.server(segment("SA", server, client.wrapping_add(1), 0));
    let (mut client, mut server) = (client.wrapping_add(1), server.wrapping_add(1));
    for _ in 0..100 {
        assert_eq!(it.client(segment("A", client, server, 1000)), EST);
        client = client.wrapping_add(1000);
        assert_eq!(it.server(segment("A", server, client, 1000)), REPLY);
        server = server.wrapping_add(1000);
    }
    assert_eq!(it.client(segment("R", client.wrapping_sub(50), 0, 0)), INV);
    assert_eq!(it.client(segment("R", client, 0, 0)), EST);
    assert_eq!(it.state(), Some(State::Close));
}

#[test]
fn a_syn_may_have_data() {
    let mut it = Connection::new();
    it.client(segment("S", 1000, 0, 500));
    // Acknowledged with its data, or the SYN alone, or in part; nothing beside that.
    assert_eq!(it.server(segment("SA", 5000, 1000, 0)), INV);
    assert_eq!(it.server(segment("SA", 5000, 1502, 0)), INV);
    assert_eq!(it.server(segment("SA", 5000, 1001, 300)), REPLY);
    assert_eq!(it.server(segment("A", 5301, 1501, 700)), REPLY);
    assert_eq!(it.state(), Some(State::SynRecv));
    assert_eq!(it.client(segment("A", 1501, 5001, 0)), EST);
    assert_eq!(it.state(), Some(State::Established));
}

#[test]
fn a_handshake_needs_the_right_acknowledgment() {
    let mut it = Connection::new();
    it.client(segment("S", 1000, 0, 0));
    it.server(segment("SA", 5000, 1001, 0));
    for wrong in [5000, 4000, 5002, 0] {
        it.client(segment("A", 1001, wrong, 0));
        assert_eq!(it.state(), Some(State::SynRecv), "{wrong}");
    }
    // Sent again in both directions.
    assert_eq!(it.client(segment("S", 1000, 0, 0)), EST);
    assert_eq!(it.server(segment("SA", 5000, 1001, 0)), REPLY);
    it.client(segment("A", 1001, 5001, 0));
    assert_eq!(it.state(), Some(State::Established));
}

/// A host that has forgotten the first SYN, as one with SYN cookies or that was restarted, answers it with
/// another number.
#[test]
fn a_server_may_begin_anew_until_it_is_answered() {
    let mut it = Connection::new();
    it.client(segment("S", 1000, 0, 0));
    it.server(segment("SA", 5000, 1001, 0));
    it.client(segment("S", 1000, 0, 0));
    // One that does not know the SYN's number changes nothing.
    assert_eq!(it.server(segment("SA", 77_000_000, 1002, 0)), INV);
    assert_eq!(it.server(segment("SA", 900_000_000, 1001, 0)), REPLY);
    assert_eq!(it.server(segment("SA", 900_000_000, 1001, 0)), REPLY);
    assert_eq!(it.state(), Some(State::SynRecv));
    it.client(segment("A", 1001, 5001, 0));
    assert_eq!(it.state(), Some(State::SynRecv));
    assert_eq!(it.client(segment("A", 1001, 900_000_001, 0)), EST);
    assert_eq!(it.state(), Some(State::Established));
    assert_eq!(it.server(segment("A", 900_000_001, 1001, 100)), REPLY);
    // From now on no SYN-ACK changes it.
    it.server(segment("SA", 5000, 1001, 0));
    assert_eq!(it.client(segment("A", 1001, 900_000_101, 100)), EST);
    assert_eq!(it.server(segment("A", 900_000_101, 1101, 100)), REPLY);
}

/// The SYN-ACK is sent again although data have followed it, which count on.
#[test]
fn a_syn_ack_comes_again_behind_its_data() {
    let mut it = Connection::new();
    it.client(segment("S", 1000, 0, 500));
    it.server(segment("SA", 5000, 1501, 0));
    assert_eq!(it.server(segment("A", 5001, 1501, 700)), REPLY);
    assert_eq!(it.server(segment("SA", 5000, 1501, 0)), REPLY);
    assert_eq!(it.client(segment("A", 1501, 5701, 0)), EST);
    assert_eq!(it.state(), Some(State::Established));
}

#[test]
fn a_connection_is_picked_up_in_the_middle_if_that_is_wanted() {
    let mut it = Connection::new();
    assert_eq!(it.client(segment("A", 1001, 5001, 100)), INV);
    let mut it = Connection::with(&Settings { pick_up: true, ..settings(64) });
    assert_eq!(it.client(segment("FA", 1001, 5001, 100)), INV);
    assert_eq!(it.client(segment("R", 1001, 5001, 100)), INV);
    assert_eq!(it.client(segment("SA", 1001, 5001, 100)), INV);
    assert_eq!(it.client(segment("A", 1001, 5001, 100)), NEW);
    assert!(!it.gate.connection(&it.tuple).unwrap().is_assured);
    // Scales are not known, so windows are not held against it; resets are.
    assert_eq!(it.server(segment("A", 5001, 1101, 60_000)), REPLY);
    assert_eq!(it.client(segment("A", 1101, 65_001, 100)), EST);
    assert!(it.gate.connection(&it.tuple).unwrap().is_assured);
    assert_eq!(it.server(segment("R", 5001, 0, 0)), INV);
    assert_eq!(it.state(), Some(State::Established));
    assert_eq!(it.server(segment("R", 65_001, 0, 0)), REPLY);
    assert_eq!(it.state(), Some(State::Close));
}

/// How long it takes until a connection is out of the table, looked at each second.
fn seconds_held(it: &mut Connection) -> u64 {
    (0..2000)
        .find(|_| {
            it.gate.expire();
            let is_gone = it.gate.table.counts().connections == 0;
            it.gate.wait(1);
            is_gone
        })
        .unwrap()
}

/// Its place, its limits and its port are held as long. A step of the wheel takes a second, and one is spare.
#[test]
fn a_shorter_deadline_is_kept_too() {
    let reset = |it: &mut Connection| {
        assert_eq!(it.server(segment("R", 5001, 0, 0)), REPLY);
        assert_eq!(it.state(), Some(State::Close));
    };
    // Refused at once.
    let mut it = Connection::new();
    assert_eq!(it.client(segment("S", 1000, 0, 0)), NEW);
    assert_eq!(it.server(segment("RA", 0, 1001, 0)), REPLY);
    assert_eq!(it.state(), Some(State::Close));
    assert!((10..=13).contains(&seconds_held(&mut it)));
    // After minutes, when the wheel has put it off for a whole turn.
    let mut it = Connection::established();
    for _ in 0..200 {
        it.gate.wait(1);
        it.gate.expire();
    }
    reset(&mut it);
    assert!((10..=13).contains(&seconds_held(&mut it)));
    // As others say.
    let mut it = Connection::established();
    let shorter = BTreeMap::from([(State::Established, Duration::from_secs(3))]);
    it.gate.table.set_timeouts(&shorter, &[]);
    assert!((3..=6).contains(&seconds_held(&mut it)));
    // An end in order lasts for its time.
    let mut it = Connection::time_wait();
    assert!((120..=123).contains(&seconds_held(&mut it)));
}

/// Nothing was heard of the other side yet but what it is told: its next number.
#[test]
fn what_is_picked_up_and_not_answered_does_not_end_by_a_guess() {
    let mut it = Connection::with(&Settings { pick_up: true, ..settings(64) });
    assert_eq!(it.client(segment("A", 1001, 5001, 100)), NEW);
    for sequence in [0, 1, 5000, 900_000, u32::MAX] {
        assert_eq!(it.server(segment("R", sequence, 0, 0)), INV, "{sequence}");
        assert_eq!(it.state(), Some(State::Established));
    }
    assert_eq!(it.server(segment("R", 5001, 0, 0)), REPLY);
    assert_eq!(it.state(), Some(State::Close));
}

#[test]
fn a_syn_that_is_sent_again_keeps_no_connection() {
    let mut it = Connection::new();
    assert_eq!(it.client(segment("S", 1000, 0, 0)), NEW);
    for number in [1000, 1000, 7000] {
        it.gate.wait(30);
        it.client(segment("S", number, 0, 0));
        assert_eq!(it.state(), Some(State::SynSent));
    }
    it.gate.wait(31);
    assert_eq!(it.state(), None);
}

#[test]
fn what_is_picked_up_has_a_short_deadline_until_it_is_answered() {
    for is_answered in [false, true] {
        let mut it = Connection::with(&Settings { pick_up: true, ..settings(64) });
        assert_eq!(it.client(segment("A", 1001, 5001, 0)), NEW);
        if is_answered {
            it.gate.wait(299);
            assert_eq!(it.server(segment("A", 5001, 1001, 0)), REPLY);
        }
        it.gate.wait(299);
        assert_eq!(it.state(), Some(State::Established));
        it.gate.wait(2);
        assert_eq!(it.state().is_some(), is_answered);
    }
}

#[test]
fn data_that_nobody_acknowledges_shortens_the_deadline() {
    let mut it = Connection::established();
    it.client(segment("PA", 1001, 5001, 100));
    it.gate.wait(299);
    assert_eq!(it.state(), Some(State::Established));
    it.gate.wait(2);
    assert_eq!(it.state(), None);
    let mut it = Connection::established();
    it.client(segment("PA", 1001, 5001, 100));
    it.server(segment("A", 5001, 1101, 0));
    it.gate.wait(3000);
    assert_eq!(it.state(), Some(State::Established));
}

#[test]
fn each_state_has_its_timeout() {
    let states = [
        ("S", 120, State::SynSent),
        ("SA", 60, State::SynRecv),
        ("A", 432_000, State::Established),
    ];
    for (last, (_, timeout, state)) in states.into_iter().enumerate() {
        let mut it = Connection::new();
        it.client(segment("S", 1000, 0, 0));
        if last > 0 {
            it.server(segment("SA", 5000, 1001, 0));
        }
        if last > 1 {
            it.client(segment("A", 1001, 5001, 0));
        }
        it.gate.wait(timeout - 1);
        assert_eq!(it.state(), Some(state));
        it.gate.wait(2);
        assert_eq!(it.state(), None, "{state:?}");
    }
    let mut it = Connection::time_wait();
    it.gate.wait(119);
    assert_eq!(it.state(), Some(State::TimeWait));
    it.gate.wait(2);
    assert_eq!(it.state(), None);
}

/// What was said of the packet holds until another one has opened the connection anew, or it is gone:
/// packets of a batch are tracked together, before the first has opened anything.
#[test]
fn a_packet_opens_a_connection_anew_once() {
    let (mut it, syn) = (Connection::time_wait(), segment("S", 500_000, 0, 0));
    let (tuple, now) = (it.tuple, it.gate.now);
    let said = |it: &Connection| it.gate.table.track(0, &tuple, &syn, now);
    let holds = |it: &Connection, said: Reference| {
        let holds = it.gate.table.holds(said, &syn, now);
        assert_eq!(it.gate.table.hit(said, &syn, 100, now) != Hit::Stale, holds);
        holds
    };
    let first = said(&it);
    assert!(matches!(first.reference.named(), Named::Renewed(_, Direction::Original, NEW)));
    assert_eq!((first.ct_state, first.keep, first.connection), (NEW, false, None));
    assert!(holds(&it, first.reference));
    // Another segment opens nothing.
    assert!(!it.gate.table.holds(first.reference, &segment("A", 1002, 5002, 0), now));
    assert_eq!(it.state(), Some(State::TimeWait));
    assert_eq!(it.client(syn), NEW);
    assert_eq!(it.state(), Some(State::SynSent));
    assert!(!holds(&it, first.reference));
    // It may be over again.
    assert_eq!(it.server(segment("RA", 0, 500_001, 0)), REPLY);
    assert_eq!(it.state(), Some(State::Close));
    assert!(!holds(&it, first.reference));
    let second = said(&it);
    assert!(holds(&it, second.reference));
    let (handle, _) = it.gate.table.lookup(0, &tuple, now).unwrap();
    assert!(it.gate.table.remove(handle, now, &mut |_| ()));
    assert!(!holds(&it, second.reference));
}

/// A Fast Open SYN is sent again without its data (RFC 7413 section 4.1.3), and the answer to the first
/// one may come after that.
#[test]
fn a_syn_sent_again_without_its_data_is_answered_to_all_of_it() {
    for (lengths, acknowledgment) in [([500, 0], 1501), ([500, 0], 1001), ([0, 500], 1501)] {
        let mut it = Connection::new();
        lengths.into_iter().for_each(|length| _ = it.client(segment("S", 1000, 0, length)));
        assert_eq!(it.server(segment("SA", 5000, acknowledgment, 0)), REPLY, "{acknowledgment}");
        assert_eq!(it.client(segment("A", acknowledgment, 5001, 0)), EST);
    }
}
