//! The connections of clients, and which of them has to make room.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::daemon::audit::Peer;

/// How long a client has to read its reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long it has in any case, even if there is no place for others.
const SHORTEST: Duration = Duration::from_secs(1);

/// How long a new connection, or a reply, waits for others to end by themselves.
pub(super) const EVICTION_PERIOD: Duration = Duration::from_millis(20);

/// How often a connection is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its request arrives. Nothing was done yet.
    Arriving,
    /// Its request is carried out.
    Waiting,
    /// Its reply is sent.
    Replying,
    /// Packets are copied to it, as long as it wants.
    Tapping,
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// Who is at the other end, if the system says it.
    pub(super) peer: Option<Peer>,
    /// From where it comes, over a network.
    pub(super) from: Option<SocketAddr>,
    state: Mutex<State>,
    evicted: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    /// Its share of the memory of replies, until it ends.
    room: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// The phase from now on. Nothing comes after [`Phase::Tapping`].
    pub(super) fn enter(&self, phase: Phase) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.phase != Phase::Tapping {
            (state.phase, state.since) = (phase, Instant::now());
        }
    }

    /// Holds `room` until the connection ends.
    pub(super) fn keep(&self, room: OwnedSemaphorePermit) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).room = Some(room);
    }

    /// Returns when the connection has to end although its client does not.
    pub(super) async fn ended(&self) -> &'static str {
        loop {
            tokio::select! {
                () = self.evicted.notified() => return "it made room for another",
                () = tokio::time::sleep(PERIOD) => {}
            }
            let (phase, since) = self.phase();
            if phase == Phase::Replying && since.elapsed() >= REPLY_TIMEOUT {
                return "its reply was not read";
            }
        }
    }

    fn phase(&self) -> (Phase, Instant) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.phase, state.since)
    }

    /// Since when it waits for its client, if it has done so for a while.
    fn may_be_evicted(&self) -> Option<Instant> {
        let (phase, since) = self.phase();
        (!matches!(phase, Phase::Waiting | Phase::Tapping) && since.elapsed() >= SHORTEST)
            .then_some(since)
    }

    fn has_room(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).room.is_some()
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Vec<Arc<Connection>>>);

impl Connections {
    /// A new one of `peer`, which is forgotten when [`Connections::remove`] is told to.
    pub(super) fn add(&self, peer: Option<Peer>, from: Option<SocketAddr>) -> Arc<Connection> {
        let state = State { phase: Phase::Arriving, since: Instant::now(), room: None };
        let connection =
            Arc::new(Connection { peer, from, state: Mutex::new(state), evicted: Notify::new() });
        self.all().push(Arc::clone(&connection));
        connection
    }

    /// Forgets a connection that has ended.
    pub(super) fn remove(&self, connection: &Arc<Connection>) {
        self.all().retain(|other| !Arc::ptr_eq(other, connection));
    }

    /// A place among those that `slots` are for. If there is none, one that waits for its client
    /// makes room.
    pub(super) async fn slot(&self, slots: &Arc<Semaphore>) -> OwnedSemaphorePermit {
        loop {
            // Never closed, so there is a slot as soon as somebody has ended.
            let slot = Arc::clone(slots).acquire_owned();
            if let Ok(Ok(slot)) = tokio::time::timeout(EVICTION_PERIOD, slot).await {
                return slot;
            }
            self.evict_one();
        }
    }

    /// Ends the connection that has waited for its client for the longest time. What is carried out
    /// is not touched, and neither is who came or was replied to a moment ago.
    pub(super) fn evict_one(&self) {
        self.evict(|_| true);
    }

    /// As [`Connections::evict_one`], of those that hold memory for a reply.
    pub(super) fn evict_reader(&self) {
        self.evict(Connection::has_room);
    }

    fn evict(&self, which: impl Fn(&Connection) -> bool) {
        let all = self.all();
        let may = all.iter().filter(|one| which(one));
        let waiting = may.filter_map(|one| Some((one.may_be_evicted()?, one)));
        if let Some((_, one)) = waiting.min_by_key(|(since, _)| *since) {
            one.evicted.notify_one();
        }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Connection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
