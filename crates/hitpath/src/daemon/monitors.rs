//! What changes, for clients that follow it.
//!
//! The control thread hands over what has changed and goes on: what does not fit into a client's
//! bounded queue is lost and counted, and the client is told how many.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use api::{MonitorEvent, MonitorSpec, Refusal, RefusalCode};
use axum::body::Bytes;
use control::ObjectChange;
use tokio::sync::mpsc;

use super::taps::{HEARTBEAT, TapStream};

/// Clients at once.
const MAX_CLIENTS: usize = 8;

/// Changes that may wait for a client.
const WAITING: usize = 16_384;

/// All clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Monitors(Arc<Mutex<Vec<Client>>>);

#[derive(Debug)]
struct Client {
    spec: MonitorSpec,
    sender: mpsc::Sender<Bytes>,
    lost: u64,
    /// Losses that it knows of.
    told: u64,
    /// When it last heard something; nothing yet in the beginning.
    heard: Option<Instant>,
}

impl Monitors {
    /// Tells a client what changes from now on.
    ///
    /// # Errors
    /// There are as many clients as there may be.
    pub(crate) fn open(&self, spec: MonitorSpec) -> Result<TapStream, Refusal> {
        let mut clients = self.clients();
        clients.retain(|client| !client.sender.is_closed());
        if clients.len() >= MAX_CLIENTS {
            let message = format!("{MAX_CLIENTS} clients follow changes already");
            return Err(Refusal::new(RefusalCode::Full, message).with_hint("end another `monitor`"));
        }
        let (sender, receiver) = mpsc::channel(WAITING);
        clients.push(Client { spec, sender, lost: 0, told: 0, heard: None });
        Ok(TapStream::new(receiver))
    }

    /// Whether somebody follows.
    pub(crate) fn are_there(&self) -> bool {
        let mut clients = self.clients();
        clients.retain(|client| !client.sender.is_closed());
        !clients.is_empty()
    }

    /// Ends all.
    pub(crate) fn end_all(&self) {
        self.clients().clear();
    }

    /// Tells everybody what has changed.
    pub(crate) fn tell(&self, changes: Vec<ObjectChange>) {
        if changes.is_empty() {
            return;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = time.map_or(0, |time| time.as_nanos() as u64);
        let mut clients = self.clients();
        for ObjectChange { is_deleted, was_there, view } in changes {
            let wants: Vec<_> = clients.iter().map(|client| client.spec.wants(&view)).collect();
            // What nobody has room for is not made a line.
            let mut wanting = clients.iter_mut().zip(&wants).filter(|(_, wants)| **wants);
            if wanting.all(|(client, _)| client.sender.capacity() == 0) {
                let wanting = clients.iter_mut().zip(&wants).filter(|(_, wants)| **wants);
                wanting.for_each(|(client, _)| client.lost += 1);
                continue;
            }
            let (deleted, changed) = (is_deleted, was_there && !is_deleted);
            let event = MonitorEvent::Change { time, deleted, changed, view: Box::new(view) };
            let Some(line) = line(&event) else { continue };
            for (client, _) in clients.iter_mut().zip(wants).filter(|(_, wants)| *wants) {
                client.send(&line);
            }
        }
    }

    /// Lets clients hear something that have not for a while: only by writing is it noticed that
    /// one has gone.
    pub(crate) fn look_after(&self) {
        for client in self.clients().iter_mut() {
            if client.heard.is_none_or(|heard| heard.elapsed() >= HEARTBEAT) {
                client.say_lost();
            }
        }
    }

    fn clients(&self) -> MutexGuard<'_, Vec<Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    fn send(&mut self, line: &Bytes) {
        // Where something is missing it is said first.
        if self.lost > self.told && !self.say_lost() {
            self.lost += 1;
            return;
        }
        match self.sender.try_send(line.clone()) {
            Ok(()) => self.heard = Some(Instant::now()),
            Err(_) => self.lost += 1,
        }
    }

    fn say_lost(&mut self) -> bool {
        let Some(line) = line(&MonitorEvent::Status { lost: self.lost }) else { return false };
        let is_said = self.sender.try_send(line).is_ok();
        if is_said {
            (self.told, self.heard) = (self.lost, Some(Instant::now()));
        }
        is_said
    }
}

fn line(event: &MonitorEvent) -> Option<Bytes> {
    let mut line = serde_json::to_vec(event).ok()?;
    line.push(b'\n');
    Some(Bytes::from(line))
}

#[cfg(test)]
mod tests {
    use api::{AddressView, Family, MonitorObject, MonitorView, Origin};

    use super::*;

    fn change(address: &str) -> ObjectChange {
        let view = AddressView {
            port: "lan".to_owned(),
            vrf: "main".to_owned(),
            address: address.parse().unwrap(),
            up: true,
            origin: Origin::Runtime,
        };
        ObjectChange { is_deleted: false, was_there: false, view: MonitorView::Address(view) }
    }

    fn next(stream: &mut TapStream) -> Option<MonitorEvent> {
        Some(serde_json::from_slice(&stream.receiver.try_recv().ok()?).unwrap())
    }

    #[test]
    fn clients_are_told_what_they_want() {
        let monitors = Monitors::default();
        let mut all = monitors.open(MonitorSpec::default()).unwrap();
        let links = MonitorSpec { objects: vec![MonitorObject::Link], family: None };
        let mut links = monitors.open(links).unwrap();
        let ipv6 = MonitorSpec { objects: Vec::new(), family: Some(Family::V6) };
        let mut ipv6 = monitors.open(ipv6).unwrap();
        monitors.tell(vec![change("192.0.2.1/24"), change("2001:db8::1/64")]);
        assert!(next(&mut all).is_some() && next(&mut all).is_some() && next(&mut all).is_none());
        assert!(next(&mut links).is_none());
        assert!(next(&mut ipv6).is_some() && next(&mut ipv6).is_none());
        drop((all, links, ipv6));
        assert!(!monitors.are_there());
    }

    #[test]
    fn a_slow_client_loses_changes_and_is_told_where() {
        let monitors = Monitors::default();
        let mut stream = monitors.open(MonitorSpec::default()).unwrap();
        monitors.tell((0..WAITING + 10).map(|_| change("192.0.2.1/24")).collect());
        for _ in 0..WAITING {
            assert!(matches!(next(&mut stream), Some(MonitorEvent::Change { .. })));
        }
        assert!(next(&mut stream).is_none());
        monitors.tell(vec![change("192.0.2.2/24")]);
        assert!(matches!(next(&mut stream), Some(MonitorEvent::Status { lost: 10 })));
        assert!(matches!(next(&mut stream), Some(MonitorEvent::Change { .. })));
    }
}
