//! What happens to connections, for clients that follow it.
//!
//! A thread looks at the table again and again, and tells what is different. So nothing of it costs
//! packets anything, and nobody waits for a client: what does not fit into its bounded queue is
//! lost and counted. States that last shorter than a round are not told. How a connection was when it
//! ended, the table remembers as long as somebody follows; so one that begins and ends within a round is
//! told as well.

use std::collections::{BTreeMap, HashMap};
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

/// Connections that are remembered, of about 300 bytes each. Of others it is told that they come and end,
/// and not how they change.
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
    /// From when on it is told what is new; not known before the thread's next round.
    since: Option<Time>,
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
        hub.clients.insert(id, Client { spec, sender, lost: 0, since: None, heard: None });
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

    /// What clients that have come were not there for begins before this moment.
    fn begin(&self, now: Time) {
        self.hub().clients.values_mut().for_each(|client| _ = client.since.get_or_insert(now));
    }

    /// Counts connections that nobody can be told of.
    fn lose(&self, count: u64) {
        let mut hub = self.hub();
        let clients = hub.clients.values_mut().filter(|client| !client.spec.expectations);
        clients.for_each(|client| client.lost += count);
    }

    /// Counts a connection of which no client can be told how it changes.
    fn lose_updates(&self, connection: &Connection) {
        let mut hub = self.hub();
        let clients = hub.clients.values_mut().filter(|client| {
            // What was there before is not new, and was counted for nobody.
            client.asks(ConnectionChangeKind::Update)
                && client.since.is_some_and(|since| connection.created >= since)
                && connections::matches(&client.spec.filter, connection)
        });
        clients.for_each(|client| client.lost += 1);
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
    /// Whether it is told of connections, and what happens to them so.
    fn asks(&self, kind: ConnectionChangeKind) -> bool {
        let ConnectionEventSpec { expectations, kinds, .. } = &self.spec;
        !expectations && (kinds.is_empty() || kinds.contains(&kind))
    }

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
        let mut seen = Seen::new(events);
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
    known: HashMap<u32, Known>,
    /// When places were looked at last, [`STRIDE`] by [`STRIDE`].
    looked: Vec<Time>,
    /// How many changes of expectations were told or passed over.
    expectations: Option<u64>,
}

/// A connection that was seen.
struct Known {
    was: Connection,
    /// Whether its end was told, and the table has not said yet how it was then.
    is_over: bool,
    /// At how many looks it was gone without a word.
    gone: u8,
}

/// Looks at which a connection is gone until its end is told, and until it is forgotten: somebody is ending
/// it, and says a moment later how it was; or too many have ended at once.
const GONE: u8 = 2;
const FORGOTTEN: u8 = 20;

impl Seen {
    fn new(events: ConnectionEvents) -> Self {
        Self { events, known: HashMap::new(), looked: Vec::new(), expectations: None }
    }

    fn forget(&mut self) {
        (self.known, self.looked, self.expectations) = (HashMap::new(), Vec::new(), None);
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
        self.looked.resize(most.div_ceil(STRIDE) as usize, Time(0));
        self.events.begin(now());
        while from < most {
            let (begin, end) = (Instant::now(), most.min(from.saturating_add(STRIDE)));
            let moment = now();
            self.look_at_ended(table, moment);
            (from..end).for_each(|index| self.look_at(table, index, moment));
            self.looked[(from / STRIDE) as usize] = moment;
            from = end;
            if from < most {
                thread::sleep(begin.elapsed() * REST);
            }
        }
    }

    /// Whether a connection was not there when its place was looked at last.
    fn is_new(&self, connection: &Connection) -> bool {
        let looked = self.looked.get((connection.handle.index / STRIDE) as usize);
        looked.is_none_or(|looked| connection.created >= *looked)
    }

    /// Tells the ends of connections, with what they were then.
    fn look_at_ended(&mut self, table: &Connections, now: Time) {
        let (all, forgotten) = table.take_ended(now);
        self.events.lose(forgotten);
        for ended in &all {
            let index = ended.handle.index;
            match self.known.get(&index) {
                Some(known) if is_same(&known.was, ended) => {
                    let is_told = known.is_over;
                    self.known.remove(&index);
                    if !is_told {
                        self.tell(ConnectionChangeKind::Destroy, table, ended, now);
                    }
                }
                _ => {
                    // It was not there at the last look. Otherwise nobody wanted it, or there was no room.
                    if self.is_new(ended) {
                        self.tell(ConnectionChangeKind::New, table, ended, now);
                    }
                    self.tell(ConnectionChangeKind::Destroy, table, ended, now);
                }
            }
        }
    }

    fn look_at(&mut self, table: &Connections, index: u32, now: Time) {
        let found = table.connection(index, now);
        let is_it = |known: &Known| found.as_ref().is_some_and(|is| is_same(&known.was, is));
        if self.known.get(&index).is_some_and(|known| !is_it(known)) {
            self.look_at_ended(table, now);
        }
        let is = found.filter(|is| connections::is_alive(is, now));
        match (self.known.get_mut(&index), found, is) {
            (Some(known), None, _) => {
                known.gone += 1;
                match known.gone {
                    FORGOTTEN => _ = self.known.remove(&index),
                    GONE => self.end(table, index, None, now),
                    _ => {}
                }
            }
            // It is dead, and nobody has taken it out.
            (Some(known), Some(last), None) if is_same(&known.was, &last) => {
                self.end(table, index, Some(last), now);
            }
            (Some(known), _, Some(is)) if is_same(&known.was, &is) => {
                // A timeout that has become longer has it live on.
                known.is_over = false;
                let was = core::mem::replace(&mut known.was, is);
                let differs = was.state != is.state
                    || was.is_replied != is.is_replied
                    || was.is_assured != is.is_assured
                    || (was.mark, was.label, was.helper) != (is.mark, is.label, is.helper);
                if differs {
                    self.tell(ConnectionChangeKind::Update, table, &is, now);
                }
            }
            (was, _, is) => {
                if was.is_some() {
                    self.end(table, index, None, now);
                    self.known.remove(&index);
                }
                is.iter().for_each(|is| self.come(table, is, now));
            }
        }
    }

    /// Tells the end of one that is known, with what it was last, unless it was told.
    fn end(&mut self, table: &Connections, index: u32, last: Option<Connection>, now: Time) {
        let Some(known) = self.known.get_mut(&index) else { return };
        known.was = last.unwrap_or(known.was);
        let was = known.was;
        if !core::mem::replace(&mut known.is_over, true) {
            self.tell(ConnectionChangeKind::Destroy, table, &was, now);
        }
    }

    fn come(&mut self, table: &Connections, is: &Connection, now: Time) {
        if !self.events.is_wanted(is) {
            return;
        }
        if self.known.len() < MAX_KNOWN {
            let known = Known { was: *is, is_over: false, gone: 0 };
            self.known.insert(is.handle.index, known);
        } else if self.is_new(is) {
            self.events.lose_updates(is);
        } else {
            return;
        }
        self.tell(ConnectionChangeKind::New, table, is, now);
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
        for client in self.events.hub().clients.values_mut() {
            // What was there when the client came is not new to it.
            let is_old = kind == ConnectionChangeKind::New
                && client.since.is_none_or(|since| connection.created < since);
            if client.asks(kind) && !is_old && is_meant(&client.spec.filter) {
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
    use api::TupleFilter;
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
        let make = |port, now| {
            let new = New::plain(0, tuple(port));
            table.commit(&new, &Packet::Datagram, 40, now, &mut |_| {}).unwrap()
        };
        make(1, NOW);
        let later = NOW + Duration::from_millis(1);
        let events = ConnectionEvents::default();
        let mut all = events.open(ConnectionEventSpec::default()).unwrap();
        let kinds = vec![Destroy];
        let mut ends = events.open(ConnectionEventSpec { kinds, ..Default::default() }).unwrap();
        let mut seen = Seen::new(events.clone());
        seen.look(&table, || later);
        assert_eq!(next(&mut all), None);
        let handle = make(2, later);
        seen.look(&table, || later);
        assert_eq!(next(&mut all), Some((Made, 2)));
        let handle = table.set_mark(handle, 7, u32::MAX).unwrap();
        seen.look(&table, || later);
        assert_eq!(next(&mut all), Some((Update, 2)));
        table.remove(handle, NOW, &mut |_| {});
        make(3, later);
        seen.look(&table, || later);
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
        // Who comes later is told nothing of what was there before, though nobody wanted that.
        drop((all, ends));
        let of_port = |port| TupleFilter { source_port: Some(port), ..TupleFilter::default() };
        let filter = ConnectionFilter { original: of_port(4), ..ConnectionFilter::default() };
        let one = events.open(ConnectionEventSpec { filter, ..Default::default() }).unwrap();
        make(5, later);
        seen.look(&table, || later);
        let mut all = events.open(ConnectionEventSpec::default()).unwrap();
        seen.look(&table, || later + Duration::from_millis(1));
        assert_eq!(next(&mut all), None);
        drop((all, one));
        assert!(!events.are_there());
    }

    /// Also if its place is another one's again.
    #[test]
    fn a_connection_that_ends_before_anybody_looks_is_told() {
        use ConnectionChangeKind::{Destroy, New as Made};
        let settings = Settings { connections: 1, ipv6_connections: 0, ..Settings::default() };
        let table = Connections::new(&settings, [1, 2], NOW).unwrap();
        let make = |port, now| {
            let new = New::plain(0, tuple(port));
            table.commit(&new, &Packet::Datagram, 40, now, &mut |_| {}).unwrap()
        };
        let events = ConnectionEvents::default();
        let mut all = events.open(ConnectionEventSpec::default()).unwrap();
        let mut seen = Seen::new(events.clone());
        table.follow_ended(true);
        make(1, NOW);
        let moment = |millis| NOW + Duration::from_millis(millis);
        seen.look(&table, || moment(1));
        make(2, moment(2));
        table.remove(make(3, moment(3)), moment(3), &mut |_| {});
        make(4, moment(4));
        seen.look(&table, || moment(5));
        let told: Vec<_> = core::iter::from_fn(|| next(&mut all)).collect();
        let ways = [(Destroy, 1), (Made, 2), (Destroy, 2), (Made, 3), (Destroy, 3), (Made, 4)];
        assert_eq!(told, ways);
        table.remove(make(5, moment(6)), moment(6), &mut |_| {});
        seen.look(&table, || moment(7));
        seen.look(&table, || moment(8));
        let told: Vec<_> = core::iter::from_fn(|| next(&mut all)).collect();
        assert_eq!(told, [(Destroy, 4), (Made, 5), (Destroy, 5)]);
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
        let mut seen = Seen::new(events.clone());
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
        assert!(table.take_ended(NOW).0.is_empty());
    }

    #[test]
    fn what_a_client_does_not_read_is_counted() {
        let settings = Settings { connections: 8192, ipv6_connections: 0, ..Settings::default() };
        let table = Connections::new(&settings, [1, 2], NOW).unwrap();
        let events = ConnectionEvents::default();
        let _stream = events.open(ConnectionEventSpec::default()).unwrap();
        let mut seen = Seen::new(events.clone());
        seen.look(&table, || NOW);
        assert!(seen.known.is_empty());
        for port in 1..=5000 {
            let new = New::plain(0, tuple(port));
            table.commit(&new, &Packet::Datagram, 40, NOW, &mut |_| {}).unwrap();
        }
        seen.look(&table, || NOW);
        let lost = events.hub().clients.values().next().unwrap().lost;
        assert_eq!(lost, 5000 - WAITING as u64);
    }
}
