//! What happens to connections, for clients that follow it.
//!
//! A thread looks at the table again and again, and tells what is different. So nothing of it costs
//! packets anything, and nobody waits for a client: what does not fit into its bounded queue is
//! lost and counted. A connection lives for seconds at least unless somebody ends it, so that the
//! thread sees each; states that last shorter than a round are not told. How a connection was when it
//! ended, the table remembers as long as somebody follows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{io, thread};

use api::{
    ConnectionChangeKind, ConnectionEvent, ConnectionEventSpec, ConnectionFilter, Refusal,
    RefusalCode,
};
use axum::body::Bytes;
use conntrack::{Connection, Connections, ExpectationChange};
use control::connections;
use packet::Time;
use runtime::clock::Clock;
use tables::Reader;
use tokio::sync::mpsc;

use super::taps::{HEARTBEAT, TapStream};

/// Clients at once.
const MAX_CLIENTS: usize = 8;

/// Events that may wait for a client.
const WAITING: usize = 4096;

/// Connections that are remembered, of about 300 bytes each. What happens to others is lost.
const MAX_KNOWN: usize = 1 << 17;

/// Between two rounds, at least.
const PERIOD: Duration = Duration::from_millis(100);

/// Places that are looked at in one go.
const STRIDE: u32 = 1 << 15;

/// The thread rests for so many times as long as it looks.
const REST: u32 = 3;

/// All clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionEvents(Arc<Mutex<Hub>>);

#[derive(Debug, Default)]
struct Hub {
    last: u64,
    clients: BTreeMap<u64, Client>,
}

#[derive(Debug)]
struct Client {
    spec: ConnectionEventSpec,
    sender: mpsc::Sender<Bytes>,
    lost: u64,
    /// When it last heard something; nothing yet in the beginning.
    heard: Option<Instant>,
}

impl ConnectionEvents {
    /// Tells a client what happens from now on.
    ///
    /// # Errors
    /// There are as many clients as there may be.
    pub(crate) fn open(&self, spec: ConnectionEventSpec) -> Result<TapStream, Refusal> {
        let mut hub = self.hub();
        hub.clients.retain(|_, client| !client.sender.is_closed());
        if hub.clients.len() >= MAX_CLIENTS {
            let message = format!("{MAX_CLIENTS} clients follow connections already");
            return Err(
                Refusal::new(RefusalCode::Full, message).with_hint("end another `conntrack -E`")
            );
        }
        let (sender, receiver) = mpsc::channel(WAITING);
        hub.last += 1;
        let id = hub.last;
        hub.clients.insert(id, Client { spec, sender, lost: 0, heard: None });
        Ok(TapStream::new(receiver))
    }

    /// Ends all.
    pub(crate) fn end_all(&self) {
        self.hub().clients.clear();
    }

    fn are_there(&self) -> bool {
        let mut hub = self.hub();
        hub.clients.retain(|_, client| !client.sender.is_closed());
        !hub.clients.is_empty()
    }

    fn is_wanted(&self, connection: &Connection) -> bool {
        self.hub()
            .clients
            .values()
            .filter(|client| !client.spec.expectations)
            .any(|client| connections::matches(&client.spec.filter, connection))
    }

    /// Lets clients hear something that have not for a while: only by writing is it noticed that
    /// one has gone.
    fn look_after(&self) {
        for client in self.hub().clients.values_mut() {
            if client.heard.is_none_or(|heard| heard.elapsed() >= HEARTBEAT) {
                client.heard = Some(Instant::now());
                client.send(&ConnectionEvent::Status { lost: client.lost });
            }
        }
    }

    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    fn send(&self, event: &ConnectionEvent) -> bool {
        let Ok(mut line) = serde_json::to_vec(event) else { return false };
        line.push(b'\n');
        self.sender.try_send(Bytes::from(line)).is_ok()
    }
}

/// Starts the thread.
///
/// # Errors
/// If the system gives none.
pub(crate) fn start(events: ConnectionEvents, mut reader: Reader, clock: Clock) -> io::Result<()> {
    let work = move || {
        let mut seen = Seen {
            events,
            known: HashMap::new(),
            missing: HashSet::new(),
            is_first: true,
            expectations: None,
        };
        // As long as the process lives: it holds nothing that has to be put in order.
        loop {
            // In any case: what a reader has loaded stays in memory, with its keys.
            let table = reader.load().connections().cloned();
            let are_there = seen.events.are_there();
            table.iter().for_each(|table| table.follow_ended(are_there));
            if !are_there {
                seen.forget();
                thread::sleep(PERIOD);
                continue;
            }
            if let Some(table) = table {
                seen.look_at_expectations(&table, clock.now());
                seen.look(&table, || clock.now());
            }
            seen.events.look_after();
            thread::sleep(PERIOD);
        }
    };
    thread::Builder::new().name("connections".into()).spawn(work).map(drop)
}

/// The connections as they were seen last, by their places.
struct Seen {
    events: ConnectionEvents,
    known: HashMap<u32, Connection>,
    /// The place of one that was gone without a word, at the last look.
    missing: HashSet<u32>,
    /// What is there when the first client comes is no event.
    is_first: bool,
    /// How many changes of expectations were told or passed over.
    expectations: Option<u64>,
}

impl Seen {
    fn forget(&mut self) {
        (self.known, self.missing) = (HashMap::new(), HashSet::new());
        (self.is_first, self.expectations) = (true, None);
    }

    /// Tells what has happened to expectations. Most are void after a moment, so the table itself
    /// remembers that they were there.
    fn look_at_expectations(&mut self, table: &Connections, now: Time) {
        let since = self.expectations.unwrap_or_else(|| table.expectation_changes(u64::MAX).1);
        let (changes, count) = table.expectation_changes(since);
        self.expectations = Some(count);
        let forgotten = (count - since).saturating_sub(changes.len() as u64);
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = time.map_or(0, |time| time.as_nanos() as u64);
        let events: Vec<_> = changes
            .iter()
            .map(|change| {
                let (kind, expected) = match change {
                    ExpectationChange::New(it) => (ConnectionChangeKind::New, it),
                    ExpectationChange::Destroy(it) => (ConnectionChangeKind::Destroy, it),
                };
                let expectation = Box::new(connections::expectation_view(table, expected, now));
                (kind, ConnectionEvent::Expectation { kind, time, expectation })
            })
            .collect();
        for client in self.events.hub().clients.values_mut().filter(|it| it.spec.expectations) {
            client.lost += forgotten;
            for (kind, event) in &events {
                let kinds = &client.spec.kinds;
                if kinds.is_empty() || kinds.contains(kind) {
                    match client.send(event) {
                        true => client.heard = Some(Instant::now()),
                        false => client.lost += 1,
                    }
                }
            }
        }
    }

    /// Looks at all places once.
    fn look(&mut self, table: &Connections, now: impl Fn() -> Time) {
        let most = table.settings().connections;
        let mut from = 0;
        while from < most {
            let (begin, end) = (Instant::now(), most.min(from.saturating_add(STRIDE)));
            let moment = now();
            self.look_at_ended(table, moment);
            (from..end).for_each(|index| self.look_at(table, index, moment));
            from = end;
            if from < most {
                thread::sleep(begin.elapsed() * REST);
            }
        }
        self.is_first = false;
    }

    /// Tells the ends of connections, with what they were then.
    fn look_at_ended(&mut self, table: &Connections, now: Time) {
        for ended in table.take_ended() {
            let index = ended.handle.index;
            if self.known.get(&index).is_some_and(|was| is_same(was, &ended)) {
                self.end(table, &ended, now);
            }
        }
    }

    fn look_at(&mut self, table: &Connections, index: u32, now: Time) {
        let found = table.connection(index, now);
        let is_it = |was: &&Connection| found.as_ref().is_some_and(|is| is_same(was, is));
        if self.known.get(&index).is_some_and(|was| !is_it(&was)) {
            self.look_at_ended(table, now);
        }
        let was = self.known.get(&index).copied();
        let is = found.filter(|is| connections::is_alive(is, now));
        match (was, found, is) {
            // Somebody is ending it, and says a moment later how it was; or too many have ended at once.
            (Some(_), None, _) if self.missing.insert(index) => {}
            (Some(was), found, None) => {
                // It is dead, and nobody has taken it out.
                let last = found.filter(|is| is_same(&was, is)).unwrap_or(was);
                self.end(table, &last, now);
            }
            (Some(was), _, Some(is)) if is_same(&was, &is) => {
                let differs = was.state != is.state
                    || was.is_replied != is.is_replied
                    || was.is_assured != is.is_assured
                    || (was.mark, was.label, was.helper) != (is.mark, is.label, is.helper);
                self.known.insert(index, is);
                if differs {
                    self.tell(ConnectionChangeKind::Update, table, &is, now);
                }
            }
            (was, _, Some(is)) => {
                was.iter().for_each(|was| self.end(table, was, now));
                self.come(table, &is, now);
            }
            (None, _, None) => {}
        }
    }

    fn end(&mut self, table: &Connections, last: &Connection, now: Time) {
        self.known.remove(&last.handle.index);
        self.missing.remove(&last.handle.index);
        self.tell(ConnectionChangeKind::Destroy, table, last, now);
    }

    fn come(&mut self, table: &Connections, is: &Connection, now: Time) {
        if !self.events.is_wanted(is) {
            return;
        }
        if self.known.len() >= MAX_KNOWN {
            let mut hub = self.events.hub();
            hub.clients.values_mut().for_each(|client| client.lost += 1);
            return;
        }
        self.known.insert(is.handle.index, *is);
        if !self.is_first {
            self.tell(ConnectionChangeKind::New, table, is, now);
        }
    }

    fn tell(
        &self,
        kind: ConnectionChangeKind,
        table: &Connections,
        connection: &Connection,
        now: Time,
    ) {
        let is_meant = |filter: &ConnectionFilter| connections::matches(filter, connection);
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = time.map_or(0, |time| time.as_nanos() as u64);
        let view = connections::view(table, connection, now);
        let event = ConnectionEvent::Change { kind, time, connection: Box::new(view) };
        for client in self.events.hub().clients.values_mut().filter(|it| !it.spec.expectations) {
            let kinds = &client.spec.kinds;
            if (kinds.is_empty() || kinds.contains(&kind)) && is_meant(&client.spec.filter) {
                match client.send(&event) {
                    true => client.heard = Some(Instant::now()),
                    false => client.lost += 1,
                }
            }
        }
    }
}

fn is_same(one: &Connection, other: &Connection) -> bool {
    (one.handle.index, one.created) == (other.handle.index, other.created)
        && (one.zone, one.original) == (other.zone, other.original)
}

#[cfg(test)]
mod tests {
    use super::*;
    use conntrack::{New, Packet, Settings, Tuple};
    use std::net::Ipv4Addr;
    use wire::{Addresses, Protocol};

    const NOW: Time = Time(5_000_000_000);

    fn tuple(port: u16) -> Tuple {
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        Tuple::new(Addresses::V4 { source, destination }, Protocol::UDP, port, 53)
    }

    fn next(stream: &mut TapStream) -> Option<(ConnectionChangeKind, u16)> {
        loop {
            let line = stream.receiver.try_recv().ok()?;
            match serde_json::from_slice(&line).unwrap() {
                ConnectionEvent::Change { kind, connection, .. } => {
                    return Some((kind, connection.original.source_port.unwrap()));
                }
                ConnectionEvent::Expectation { .. } | ConnectionEvent::Status { .. } => {}
            }
        }
    }

    #[test]
    fn clients_are_told_what_comes_changes_and_ends() {
        use ConnectionChangeKind::{Destroy, New as Made, Update};
        let settings = Settings { connections: 64, ipv6_connections: 0, ..Settings::default() };
        let table = Connections::new(&settings, [1, 2], NOW).unwrap();
        let make = |port| {
            let new = New::plain(0, tuple(port));
            table.commit(&new, &Packet::Datagram, 40, NOW, &mut |_| {}).unwrap()
        };
        make(1);
        let events = ConnectionEvents::default();
        let mut all = events.open(ConnectionEventSpec::default()).unwrap();
        let kinds = vec![Destroy];
        let mut ends = events.open(ConnectionEventSpec { kinds, ..Default::default() }).unwrap();
        let mut seen = Seen {
            events: events.clone(),
            known: HashMap::new(),
            missing: HashSet::new(),
            is_first: true,
            expectations: None,
        };
        seen.look(&table, || NOW);
        assert_eq!(next(&mut all), None);
        let handle = make(2);
        seen.look(&table, || NOW);
        assert_eq!(next(&mut all), Some((Made, 2)));
        let handle = table.set_mark(handle, 7, u32::MAX).unwrap();
        seen.look(&table, || NOW);
        assert_eq!(next(&mut all), Some((Update, 2)));
        table.remove(handle, NOW, &mut |_| {});
        make(3);
        seen.look(&table, || NOW);
        assert_eq!(next(&mut ends), Some((Destroy, 2)));
        assert_eq!(next(&mut ends), None);
        let mut told = [next(&mut all), next(&mut all)].map(|event| event.unwrap());
        told.sort_by_key(|(_, port)| *port);
        assert_eq!(told, [(Destroy, 2), (Made, 3)]);
        // Those that are dead have ended, though nobody has taken them out.
        seen.look(&table, || NOW + Duration::from_secs(100));
        let mut told = [next(&mut all), next(&mut all)].map(|event| event.unwrap());
        told.sort_by_key(|(_, port)| *port);
        assert_eq!(told, [(Destroy, 1), (Destroy, 3)]);
        drop((all, ends));
        assert!(!events.are_there());
    }

    /// Between two looks a connection may carry packets and get a mark, and end, and its place be another
    /// one's, or be dead without that anybody has taken it out.
    #[test]
    fn the_end_of_a_connection_says_how_it_was_then() {
        let settings = Settings { connections: 1, accounting: true, ..Settings::default() };
        let table = Connections::new(&settings, [1, 2], NOW).unwrap();
        let make = |port| {
            let new = New::plain(0, tuple(port));
            table.commit(&new, &Packet::Datagram, 40, NOW, &mut |_| {}).unwrap()
        };
        let use_it = |port, times: u32| {
            (0..times).for_each(|_| {
                let reference = table.track(0, &tuple(port), &Packet::Datagram, NOW).reference;
                table.hit(reference, &Packet::Datagram, 40, NOW);
            });
        };
        let events = ConnectionEvents::default();
        let kinds = vec![ConnectionChangeKind::Destroy];
        let mut ends = events.open(ConnectionEventSpec { kinds, ..Default::default() }).unwrap();
        let mut told = || loop {
            let line = ends.receiver.try_recv().ok()?;
            if let ConnectionEvent::Change { connection, .. } =
                serde_json::from_slice(&line).unwrap()
            {
                let original = &connection.original;
                return Some((
                    original.source_port.unwrap(),
                    original.packets.unwrap(),
                    original.bytes.unwrap(),
                    connection.mark,
                ));
            }
        };
        let mut seen = Seen {
            events: events.clone(),
            known: HashMap::new(),
            missing: HashSet::new(),
            is_first: true,
            expectations: None,
        };
        table.follow_ended(true);
        let handle = make(1);
        seen.look(&table, || NOW);
        use_it(1, 10);
        let handle = table.set_mark(handle, 7, u32::MAX).unwrap();
        table.remove(handle, NOW, &mut |_| {});
        seen.look(&table, || NOW);
        assert_eq!(told(), Some((1, 11, 440, 7)));
        // The place is another one's before anybody looks, and that one makes room in the full table.
        make(2);
        seen.look(&table, || NOW);
        use_it(2, 2);
        make(3);
        seen.look(&table, || NOW);
        assert_eq!((told(), told()), (Some((2, 3, 120, 0)), None));
        // Dead, and still there.
        use_it(3, 4);
        let late = NOW + Duration::from_secs(100);
        seen.look(&table, || late);
        assert_eq!(told(), Some((3, 5, 200, 0)));
        table.expire(late, 9, &mut |_| {});
        seen.look(&table, || late);
        assert_eq!(told(), None);
        // Nothing stays of those that end while nobody follows.
        table.follow_ended(false);
        table.remove(make(4), NOW, &mut |_| {});
        assert!(table.take_ended().is_empty());
    }

    #[test]
    fn what_a_client_does_not_read_is_counted() {
        let settings = Settings { connections: 8192, ipv6_connections: 0, ..Settings::default() };
        let table = Connections::new(&settings, [1, 2], NOW).unwrap();
        let events = ConnectionEvents::default();
        let _stream = events.open(ConnectionEventSpec::default()).unwrap();
        let mut seen = Seen {
            events: events.clone(),
            known: HashMap::new(),
            missing: HashSet::new(),
            is_first: true,
            expectations: None,
        };
        seen.look(&table, || NOW);
        for port in 1..=5000 {
            let new = New::plain(0, tuple(port));
            table.commit(&new, &Packet::Datagram, 40, NOW, &mut |_| {}).unwrap();
        }
        seen.look(&table, || NOW);
        let lost = events.hub().clients.values().next().unwrap().lost;
        assert_eq!(lost, 5000 - WAITING as u64);
    }
}
