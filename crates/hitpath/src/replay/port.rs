//! A replay's port: a capture port that the replay can look at while the worker has it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use io::pcap::{PcapPort, Skipped};
use packet::{Batch, LinkKind, Pool, Port, PortError, PortStatistics, Time};
use wire::{Mac, PortId};

use crate::replay::neighbours::{self, Question};

/// The replay's hold on a port.
#[derive(Clone, Debug)]
pub(crate) struct Tap(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    /// Gone when the replay has finished it.
    port: Option<PcapPort>,
    /// Damage in the input, after which nothing more comes from it.
    damage: Option<PortError>,
    /// Questions after neighbours that are to be answered by the replay itself, if it does that.
    questions: Option<Vec<Question>>,
}

/// The worker's hold on it.
#[derive(Debug)]
struct ReplayPort {
    tap: Tap,
    name: String,
    link: LinkKind,
    mac: Mac,
    mtu: u16,
    statistics: Arc<PortStatistics>,
}

impl Tap {
    /// Shares `port`. If `answer` is set, questions after neighbours are kept for
    /// [`Tap::questions`] instead of being sent.
    pub(crate) fn new(port: PcapPort, answer: bool) -> Self {
        let questions = answer.then(Vec::new);
        Self(Arc::new(Mutex::new(Shared { port: Some(port), damage: None, questions })))
    }

    /// The worker's side, for the port of this number.
    pub(crate) fn port(&self, id: PortId) -> Option<Box<dyn Port>> {
        let mut shared = self.lock();
        let port = shared.port.as_mut()?;
        port.set_id(id);
        Some(Box::new(ReplayPort {
            tap: self.clone(),
            name: port.name().to_owned(),
            link: port.link(),
            mac: port.mac(),
            mtu: port.mtu(),
            statistics: Arc::clone(port.statistics()),
        }))
    }

    /// What its frames begin with.
    pub(crate) fn link(&self) -> LinkKind {
        self.lock().port.as_ref().map_or(LinkKind::Ethernet, Port::link)
    }

    /// When the next packet is due.
    pub(crate) fn next_time(&self) -> Option<Time> {
        self.lock().port.as_ref()?.next_time()
    }

    /// Bytes of the input read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.lock().port.as_ref().map_or(0, |port| port.progress().0)
    }

    /// Bytes of the input, if that is known.
    pub(crate) fn bytes_in_all(&self) -> Option<u64> {
        self.lock().port.as_ref().and_then(|port| port.progress().1)
    }

    /// Questions after neighbours since the last time.
    pub(crate) fn questions(&self) -> Vec<Question> {
        self.lock().questions.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Writes the output to its end. Returns what was skipped of the input, and the damage that it
    /// ended in.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub(crate) fn finish(&self) -> Result<(Skipped, Option<PortError>), PortError> {
        let mut shared = self.lock();
        let damage = shared.damage.take();
        let Some(port) = shared.port.take() else { return Ok((Skipped::default(), damage)) };
        let skipped = port.skipped();
        port.finish()?;
        Ok((skipped, damage))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // The replay is one thread: no other can have panicked while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port for ReplayPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn link(&self) -> LinkKind {
        self.link
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Damage in one capture does not end the replay of the others, nor what this port sends.
    fn receive(
        &mut self,
        now: Time,
        pool: &mut Pool,
        batch: &mut Batch,
    ) -> Result<usize, PortError> {
        let mut shared = self.tap.lock();
        let Some(port) = &mut shared.port else { return Ok(0) };
        match port.receive(now, pool, batch) {
            Ok(received) => Ok(received),
            Err(error) => {
                shared.damage = Some(error);
                Ok(0)
            }
        }
    }

    fn transmit(&mut self, now: Time, pool: &mut Pool, batch: &mut Batch) -> Result<(), PortError> {
        let mut shared = self.tap.lock();
        let Shared { port: Some(port), questions, .. } = &mut *shared else {
            pool.give_all(batch.drain(..));
            return Ok(());
        };
        if let Some(questions) = questions
            && self.link == LinkKind::Ethernet
        {
            for packet in std::mem::take(batch) {
                match neighbours::question(packet.bytes()) {
                    Some(question) => {
                        questions.push(question);
                        pool.give(packet);
                    }
                    None => batch.push(packet),
                }
            }
        }
        port.transmit(now, pool, batch)
    }

    fn statistics(&self) -> &Arc<PortStatistics> {
        &self.statistics
    }
}
