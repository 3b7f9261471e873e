//! Keeps the sequence numbers of keys on the disk. A thread of its own writes, so that neither
//! control nor workers ever wait for the disk.

pub(crate) mod file;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use control::{Control, GatewaySettings, Reservation, SequenceRecord};
use packet::Time;

use file::{Disk, Named, Places};

/// How long to wait before a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How long start and stop wait for the disk. Then they go on: SAs without numbers drop, and those
/// that were reserved and not used are lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to do once reservations are durable, or why they are not.
pub(super) type Done = Box<dyn FnOnce(Result<(), String>) + Send>;

/// Has `control` begin the numbers of SAs where those of their keys stopped, as the state directory
/// has it, or refuse what is not safe if there is none. With the directory comes whether this
/// gateway is the first to run there. To be called before there is an SA.
///
/// # Errors
/// If the file in the state directory cannot be used.
pub(super) fn open(
    control: &mut Control,
    directory: Option<(&Path, bool)>,
    settings: &GatewaySettings,
) -> anyhow::Result<Option<Opened>> {
    match directory {
        Some((directory, is_first)) => {
            let (places, contents) = file::open(directory, is_first)?;
            tracing::info!(
                directory = %directory.display(),
                keys = contents.known.len(),
                "sequence numbers are kept"
            );
            control.keep_sequences(contents.secret, contents.known);
            Ok(Some(Opened(places)))
        }
        None if settings.allow_sequence_reuse => {
            tracing::warn!(
                "sequence numbers begin anew with every start, as there is no state-directory: \
                peers refuse them as replays, and AES-GCM is safe by chance alone"
            );
            Ok(None)
        }
        None => {
            control.refuse_sequence_reuse();
            Ok(None)
        }
    }
}

/// Says how many SAs accept nothing for now, as the gateway was killed.
pub(super) fn warn_of_crash(control: &Control) {
    let (sas, most) = control.sas_behind_crash();
    if sas == 0 {
        return;
    }
    let packets = match most {
        0 => "an unknown number of".to_owned(),
        most => format!("up to {most}"),
    };
    tracing::warn!(
        sas,
        "the gateway was not stopped but killed, or has crashed: SAs that had received packets \
        accept none (esp_too_old, esp_replayed) before their peers have sent {packets} packets \
        each, as these may have been accepted before; `hitpath show sas` says which number an SA \
        awaits. New keys end that at once"
    );
}

/// A file whose numbers are known. Nothing is written to it yet.
pub(super) struct Opened(Places<Named>);

impl Opened {
    /// Starts the thread that writes, which has the rights of the calling thread.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn start(self) -> anyhow::Result<Writer> {
        Writer::on(self.0)
    }
}

/// Has reservations written.
pub(super) struct Writer {
    queue: Arc<Queue>,
}

/// What waits for the thread.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// By place: what is newer replaces what was not written yet, so that a disk that hangs fills
    /// no memory.
    reservations: BTreeMap<u32, Reservation>,
    done: Vec<Awaited>,
    is_over: bool,
    /// Why the disk does not take all, as long as it does not.
    failure: Option<String>,
}

/// What to do once the records of some places are durable.
struct Awaited {
    places: Vec<u32>,
    done: Done,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, reservations: Vec<Reservation>, done: Option<Done>) {
        let mut waiting = self.lock();
        let places = reservations.iter().map(|one| one.place).collect();
        waiting.done.extend(done.map(|done| Awaited { places, done }));
        waiting.reservations.extend(reservations.into_iter().map(|one| (one.place, one)));
        self.changed.notify_one();
    }
}

impl Writer {
    fn on<D: Disk>(mut places: Places<D>) -> anyhow::Result<Self> {
        let queue = Arc::new(Queue::default());
        thread::Builder::new()
            .name("sequences".into())
            .spawn({
                let queue = Arc::clone(&queue);
                move || run(&queue, &mut places)
            })
            .context("starting the thread that keeps sequence numbers")?;
        Ok(Self { queue })
    }

    /// Reserves numbers for the SAs that there are, and waits for the disk.
    pub(super) fn prepare(&self, control: &mut Control, now: Time) {
        control.reserve_sequences(now);
        self.write_and_wait(control.take_reservations());
    }

    /// Why the disk does not take all of them, if it does not.
    pub(super) fn failure(&self) -> Option<String> {
        self.queue.lock().failure.clone()
    }

    /// Writes reservations by and by, then does what is to be `done`.
    pub(super) fn write(&self, reservations: Vec<Reservation>, done: Option<Done>) {
        if !reservations.is_empty() || done.is_some() {
            self.queue.add(reservations, done);
        }
    }

    /// Writes what is left when nothing is sent or received any more.
    pub(super) fn stop(&self, control: &mut Control) {
        // What waits still is superseded: nobody will use it.
        self.write_and_wait(control.take_last_reservations());
    }

    fn write_and_wait(&self, reservations: Vec<Reservation>) {
        let (sender, receiver) = mpsc::channel();
        self.write(reservations, Some(Box::new(move |result| _ = sender.send(result))));
        match receiver.recv_timeout(PATIENCE) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::error!("sequence numbers are not kept: {why}"),
            Err(_) => tracing::error!(
                "the disk takes more than {} s to keep sequence numbers: going on without",
                PATIENCE.as_secs()
            ),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.lock().is_over = true;
        self.queue.changed.notify_one();
    }
}

/// Writes what waits, many reservations with one fsync, until there is nothing more to come.
fn run<D: Disk>(queue: &Queue, places: &mut Places<D>) {
    let mut trouble = Trouble::default();
    loop {
        let mut waiting = queue.lock();
        if trouble.is_there && !waiting.is_over && waiting.done.is_empty() {
            let result = queue.changed.wait_timeout_while(waiting, RETRY, |waiting| {
                !waiting.is_over && waiting.done.is_empty()
            });
            waiting = result.unwrap_or_else(PoisonError::into_inner).0;
        }
        while waiting.reservations.is_empty() && waiting.done.is_empty() {
            if waiting.is_over {
                return;
            }
            // It is looked at whether that is over.
            if trouble.is_there {
                break;
            }
            waiting = queue.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let reservations = std::mem::take(&mut waiting.reservations);
        let done = std::mem::take(&mut waiting.done);
        drop(waiting);

        let records: BTreeMap<u32, &SequenceRecord> =
            reservations.iter().map(|(place, one)| (*place, &one.record)).collect();
        let new: Vec<u32> = records.keys().copied().filter(|place| places.is_new(*place)).collect();
        let refused = match places.write(&records) {
            Ok(refused) => refused,
            Err(error) => records.keys().map(|place| (*place, error.to_string())).collect(),
        };
        let failure = trouble.judge(&refused, (records.len(), &new), || places.try_room());
        queue.lock().failure = failure;
        let mut again = Vec::new();
        for (place, reservation) in reservations {
            if !refused.contains_key(&place) {
                reservation.is_durable();
            } else if reservation.is_wanted() {
                again.push((place, reservation));
            }
        }
        for awaited in done {
            let why = awaited.places.iter().find_map(|place| refused.get(place));
            (awaited.done)(why.map_or(Ok(()), |why| Err(why.clone())));
        }
        let mut waiting = queue.lock();
        for (place, reservation) in again {
            if let Entry::Vacant(vacant) = waiting.reservations.entry(place) {
                vacant.insert(reservation);
            }
        }
        if trouble.is_there && waiting.is_over {
            return;
        }
    }
}

/// A disk that does not take all, which is said once, and so is its end.
#[derive(Debug, Default)]
struct Trouble {
    is_there: bool,
    /// New places were refused: that others are taken is no end of it.
    lacks_room: bool,
    why: String,
}

impl Trouble {
    /// Looks at what became of a write of some records, those in `new` places among them. Returns
    /// why the disk does not take all, if it does not. `try_room` says whether it takes a new place.
    fn judge(
        &mut self,
        refused: &BTreeMap<u32, String>,
        (written, new): (usize, &[u32]),
        try_room: impl FnOnce() -> std::io::Result<()>,
    ) -> Option<String> {
        if let Some((_, why)) = refused.first_key_value() {
            self.lacks_room |= refused.keys().any(|place| new.contains(place));
            self.why.clone_from(why);
            if !self.is_there {
                self.is_there = true;
                tracing::error!(
                    "sequence numbers cannot be kept: {why}; SAs with new keys are refused, and \
                    SAs whose reserved numbers end drop what they are to send \
                    (esp_sequence_unreserved) or receive (esp_sequence_unstored)"
                );
            }
        } else if self.is_there {
            let is_over = match self.lacks_room {
                true => !new.is_empty() || try_room().is_ok(),
                false => written > 0 || try_room().is_ok(),
            };
            if is_over {
                *self = Self::default();
                tracing::info!("sequence numbers are kept again");
            }
        }
        self.is_there.then(|| self.why.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    /// A disk that hangs or is full, as long as it is told to.
    #[derive(Clone, Default)]
    struct Slow {
        hangs: Arc<AtomicBool>,
        is_full: Arc<AtomicBool>,
    }

    impl Disk for Slow {
        fn write_at(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
            match self.is_full.load(Ordering::SeqCst) {
                true => Err(io::Error::from(io::ErrorKind::StorageFull)),
                false => Ok(()),
            }
        }

        fn sync(&mut self) -> io::Result<()> {
            while self.hangs.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }
    }

    /// Control with one SA, and what keeps its numbers on `disk`.
    fn gateway(disk: &Slow) -> (Control, Writer) {
        let mut control = Control::new(1, [7; 32]);
        let contents = file::Contents::default();
        control.keep_sequences(contents.secret.clone(), Vec::new());
        let writer = Writer::on(Places::new(disk.clone(), &contents)).unwrap();
        let key = "0b".repeat(20);
        let line = format!(
            "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel aead rfc4106(gcm(aes)) \
            0x{key} 128"
        );
        let words: Vec<_> = line.split(' ').collect();
        let request = control::grammar::parse(&words).unwrap();
        control.handle(request, Time(0)).unwrap();
        (control, writer)
    }

    /// How many of `count` packets the SA seals.
    fn sealed(control: &Control, count: usize) -> usize {
        let mut reader = control.shared().reader();
        let sa = reader.load().sad().iter().next().unwrap().clone();
        let mut randomness = rand::rng();
        let is_sealed = |_: &usize| {
            let mut buffer = [0; 128];
            let mut jobs = [esp::SealJob::new(&mut buffer, 32, 16, wire::Protocol::IPV4)];
            sa.outbound.seal(&mut jobs, &mut randomness);
            jobs[0].result.is_ok()
        };
        (0..count).filter(is_sealed).count()
    }

    fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !is_so() {
            assert!(Instant::now() < end, "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_disk_that_hangs_stops_neither_control_nor_the_numbers_reserved_before() {
        let disk = Slow::default();
        let (mut control, writer) = gateway(&disk);
        writer.prepare(&mut control, Time(0));
        disk.hangs.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        let before = sealed(&control, 100_000);
        assert!((64..100_000).contains(&before), "{before}");
        for tick in 1..100 {
            control.tick(Time(100_000_000 * tick));
            writer.write(control.take_reservations(), None);
        }
        assert_eq!(sealed(&control, 100), 0);
        assert!(writer.queue.lock().reservations.len() <= 1, "a hanging disk fills memory");
        assert!(begin.elapsed() < Duration::from_secs(5), "somebody waited for the disk");
        disk.hangs.store(false, Ordering::SeqCst);
        eventually("numbers come again", || sealed(&control, 1) == 1);
    }

    #[test]
    fn a_full_disk_is_told_tried_again_and_waited_for_by_nobody() {
        let disk = Slow::default();
        disk.is_full.store(true, Ordering::SeqCst);
        let (mut control, writer) = gateway(&disk);
        control.reserve_sequences(Time(0));
        let (sender, receiver) = mpsc::channel();
        let done: Done = Box::new(move |result| _ = sender.send(result));
        writer.write(control.take_reservations(), Some(done));
        let why = receiver.recv_timeout(Duration::from_secs(10)).unwrap().unwrap_err();
        assert!(why.contains("no storage space"), "{why}");
        assert_eq!(sealed(&control, 100), 0);
        assert!(writer.failure().is_some_and(|why| why.contains("no storage space")));
        disk.is_full.store(false, Ordering::SeqCst);
        eventually("it is tried again by itself", || sealed(&control, 1) == 1);
        eventually("it is over", || writer.failure().is_none());
    }

    #[test]
    fn a_disk_without_room_for_new_places_is_no_better_when_it_takes_old_ones() {
        let refused = |place| BTreeMap::from([(place, "full".to_owned())]);
        let full = || Err(io::Error::from(io::ErrorKind::StorageFull));
        let why = Some("full".to_owned());
        let mut trouble = Trouble::default();
        assert_eq!(trouble.judge(&BTreeMap::new(), (1, &[]), || unreachable!()), None);
        assert_eq!(trouble.judge(&refused(7), (2, &[7]), || unreachable!()), why);
        for _ in 0..3 {
            assert_eq!(trouble.judge(&BTreeMap::new(), (1, &[]), full), why);
            assert_eq!(trouble.judge(&BTreeMap::new(), (0, &[]), full), why);
        }
        assert_eq!(trouble.judge(&BTreeMap::new(), (1, &[7]), || unreachable!()), None);
        // Nobody tries again, and there is room.
        assert_eq!(trouble.judge(&refused(8), (1, &[8]), || unreachable!()), why);
        assert_eq!(trouble.judge(&BTreeMap::new(), (0, &[]), || Ok(())), None);
        // One that takes nothing at all is well again when it takes anything.
        assert_eq!(trouble.judge(&refused(7), (1, &[]), || unreachable!()), why);
        assert_eq!(trouble.judge(&BTreeMap::new(), (0, &[]), full), why);
        assert_eq!(trouble.judge(&BTreeMap::new(), (1, &[]), || unreachable!()), None);
    }

    #[test]
    fn what_nobody_waits_for_is_given_up_on_a_full_disk() {
        let disk = Slow::default();
        disk.is_full.store(true, Ordering::SeqCst);
        let (mut control, writer) = gateway(&disk);
        control.reserve_sequences(Time(0));
        let words = ["xfrm", "state", "flush"];
        control.handle(control::grammar::parse(&words).unwrap(), Time(0)).unwrap();
        // The snapshot with the SA goes.
        control.tick(Time(1));
        writer.write(control.take_reservations(), None);
        eventually("it is tried", || {
            let waiting = writer.queue.lock();
            waiting.reservations.is_empty() && waiting.done.is_empty()
        });
        writer.write_and_wait(Vec::new());
        assert!(writer.queue.lock().reservations.is_empty());
        assert!(writer.failure().is_some());
        disk.is_full.store(false, Ordering::SeqCst);
        eventually("nobody tries, and it is over", || writer.failure().is_none());
    }
}
