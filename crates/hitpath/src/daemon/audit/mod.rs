//! The audit log: who changed what, what became of it, and what happened to SAs and ports.
//!
//! Whoever has something to write puts it into a bounded queue and goes on; a thread of its own
//! writes. So neither a full disk nor a journal that does not read holds anything up: what does not
//! fit is lost, counted, and said as soon as something can be written again.

mod events;
mod limiter;
mod note;
mod pages;
mod record;
mod sink;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use api::AuditView;
use control::AuditLog;

use limiter::Limiter;
use note::Carried;
pub(crate) use note::{Note, Peer};
use pages::{Page, Pages};
pub(crate) use record::{Priority, Record};
use sink::Sink;

/// The most bytes that may wait to be written: a batch of as many commands as there may be, with
/// room for what comes meanwhile.
const MAX_WAITING: usize = 64 << 20;

/// How long the last records have to be written when the daemon ends.
const LAST_RECORDS: Duration = Duration::from_secs(2);

/// How often it is tried to say what was lost, while nothing else is to be written.
const RETRY: Duration = Duration::from_secs(1);

/// The audit log, for those who write. The default one writes nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audit(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Where records go.
    name: String,
    written: AtomicU64,
    lost: AtomicU64,
    suppressed: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Records that there was no room for, and that are not said yet.
    overflowed: u64,
    limiter: Limiter,
    /// Changes of which more is to come.
    pages: Pages,
    reopen: bool,
    stop: bool,
    has_ended: bool,
}

/// What is to be written.
#[derive(Debug)]
enum Entry {
    /// A record.
    One(Record),
    /// A request and what became of it: a record, and one for each of its commands.
    Carried(Box<Carried>),
}

impl Entry {
    fn size(&self) -> usize {
        match self {
            Self::One(record) => record.size(),
            Self::Carried(carried) => carried.size(),
        }
    }

    fn count(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Carried(carried) => carried.count(),
        }
    }
}

/// An audit log that is open, and not written yet.
pub(crate) struct Opened(Option<Sink>);

impl Opened {
    /// Opens what the settings say.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub(crate) fn of(log: &AuditLog) -> anyhow::Result<Self> {
        let sink = Sink::open(log).with_context(|| format!("{log}, log in [audit]"))?;
        if matches!(log, AuditLog::Off) {
            tracing::info!("who changes what is not written down: log = \"off\" in [audit]");
        }
        Ok(Self(sink))
    }

    /// Starts the thread that writes.
    ///
    /// # Errors
    /// If the system gives none.
    pub(crate) fn start(self) -> io::Result<Audit> {
        let Some(sink) = self.0 else { return Ok(Audit(None)) };
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            name: sink.name(),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        });
        let writer =
            Writer { shared: Arc::clone(&shared), sink, number: 0, unsaid: 0, failed: false };
        thread::Builder::new().name("audit".into()).spawn(move || writer.run())?;
        Ok(Audit(Some(shared)))
    }
}

impl Audit {
    /// Whether anything is written at all.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Writes a record.
    pub(crate) fn write(&self, record: Record) {
        self.put(Entry::One(record));
    }

    /// Writes a record of what others than those who may change something can cause, as often as
    /// they like: `class` has a rate, and what is above is counted and said later.
    pub(crate) fn write_limited(&self, class: &'static str, record: Record) {
        let Some(shared) = &self.0 else { return };
        let mut queue = shared.queue();
        let (passes, suppressed) = queue.limiter.pass(class, Instant::now());
        if let Some(count) = suppressed {
            queue.put(shared, Entry::One(suppressed_record(class, count)));
        }
        match passes {
            true => queue.put(shared, Entry::One(record)),
            false => _ = shared.suppressed.fetch_add(1, Ordering::Relaxed),
        }
        shared.changed.notify_one();
    }

    /// Opens a file anew, which may have been renamed.
    pub(crate) fn reopen(&self) {
        if let Some(shared) = &self.0 {
            shared.queue().reopen = true;
            shared.changed.notify_one();
        }
    }

    /// Writes what is still to be written, if that can be done in a moment, and nothing more.
    pub(crate) fn stop(&self) {
        let Some(shared) = &self.0 else { return };
        let mut queue = shared.queue();
        while let Some(record) = queue.pages.give_up() {
            queue.put(shared, Entry::One(record));
        }
        queue.stop = true;
        shared.changed.notify_all();
        let end = Instant::now() + LAST_RECORDS;
        while !queue.has_ended {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::error!("the audit log has not written its last records");
                return;
            }
            queue =
                shared.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What was written and lost; nothing if nothing is written.
    pub(crate) fn view(&self) -> Option<AuditView> {
        let shared = self.0.as_ref()?;
        Some(AuditView {
            log: shared.name.clone(),
            written: shared.written.load(Ordering::Relaxed),
            lost: shared.lost.load(Ordering::Relaxed),
            suppressed: shared.suppressed.load(Ordering::Relaxed),
        })
    }

    fn put(&self, entry: Entry) {
        if let Some(shared) = &self.0 {
            shared.queue().put(shared, entry);
            shared.changed.notify_one();
        }
    }

    /// Writes a change that comes page by page, once its last one is there.
    fn put_page(&self, page: Page) {
        if let Some(shared) = &self.0 {
            let mut queue = shared.queue();
            if let Some(record) = queue.pages.take(page, Instant::now()) {
                queue.put(shared, Entry::One(record));
            }
            shared.changed.notify_one();
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn put(&mut self, shared: &Shared, entry: Entry) {
        // One that is longer than all the room is taken if nothing else waits.
        let size = entry.size();
        if self.bytes > 0 && self.bytes + size > MAX_WAITING {
            self.overflowed += entry.count();
            shared.lost.fetch_add(entry.count(), Ordering::Relaxed);
            return;
        }
        self.bytes += size;
        self.entries.push_back(entry);
    }
}

fn suppressed_record(class: &'static str, count: u64) -> Record {
    Record::now("suppressed", Priority::Notice).with("class", class).with("count", count)
}

/// The thread that writes.
struct Writer {
    shared: Arc<Shared>,
    sink: Sink,
    /// The number of the last record. Those that were lost have numbers as well.
    number: u64,
    /// Records that were lost, and that no record has said yet.
    unsaid: u64,
    failed: bool,
}

impl Writer {
    fn run(mut self) {
        loop {
            let (entries, overflowed, is_last) = self.wait();
            self.number += overflowed;
            self.unsaid += overflowed;
            self.say_lost();
            for entry in entries {
                match entry {
                    Entry::One(record) => self.put(&record),
                    Entry::Carried(carried) => carried.records(|record| self.put(record)),
                }
            }
            self.flush();
            if is_last {
                self.shared.queue().has_ended = true;
                self.shared.changed.notify_all();
                return;
            }
        }
    }

    /// What there is to write.
    fn wait(&mut self) -> (VecDeque<Entry>, u64, bool) {
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.queue();
        loop {
            if let Some((class, count)) = queue.limiter.due(Instant::now()) {
                queue.put(&shared, Entry::One(suppressed_record(class, count)));
            }
            while let Some(record) = queue.pages.due(Instant::now()) {
                queue.put(&shared, Entry::One(record));
            }
            if std::mem::take(&mut queue.reopen) {
                // A disk that hangs keeps nobody else waiting.
                drop(queue);
                self.sink.reopen();
                queue = shared.queue();
            }
            let is_something = !queue.entries.is_empty() || queue.overflowed > 0 || queue.stop;
            if is_something {
                break;
            }
            let period =
                match self.unsaid > 0 || queue.limiter.is_limiting() || !queue.pages.is_empty() {
                    true => RETRY,
                    // Nothing is due before somebody says so.
                    false => Duration::from_secs(3600),
                };
            let (again, timeout) =
                shared.changed.wait_timeout(queue, period).unwrap_or_else(PoisonError::into_inner);
            queue = again;
            if timeout.timed_out() && self.unsaid > 0 {
                break;
            }
        }
        queue.bytes = 0;
        let overflowed = std::mem::take(&mut queue.overflowed);
        (std::mem::take(&mut queue.entries), overflowed, queue.stop)
    }

    fn put(&mut self, record: &Record) {
        self.number += 1;
        self.sink.put(record, self.number);
    }

    /// Says how many were lost, if that is so. Only if this is written does it count as said.
    fn say_lost(&mut self) {
        if self.unsaid == 0 {
            return;
        }
        let count = self.unsaid;
        self.put(&Record::now("lost", Priority::Warning).with("count", count));
        let written = self.sink.flush();
        let is_said = written.lost == 0;
        self.note(&written);
        match is_said {
            true => self.unsaid -= count,
            // It was none of those that are to be said.
            false => {
                self.unsaid = count;
                self.number -= 1;
                self.shared.lost.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn flush(&mut self) {
        let written = self.sink.flush();
        self.note(&written);
    }

    fn note(&mut self, written: &sink::Written) {
        self.shared.written.fetch_add(written.written, Ordering::Relaxed);
        self.shared.lost.fetch_add(written.lost, Ordering::Relaxed);
        self.unsaid += written.lost;
        if let Some(error) = written.error.as_ref().filter(|_| !self.failed) {
            self.failed = true;
            tracing::error!("the audit log {} cannot be written: {error}", self.shared.name);
        } else if self.failed && written.lost == 0 && written.written > 0 {
            self.failed = false;
            tracing::info!("the audit log {} is written again", self.shared.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn at(path: &Path) -> Audit {
        Opened::of(&AuditLog::File(path.to_owned())).unwrap().start().unwrap()
    }

    fn record(number: u64) -> Record {
        Record::now("test", Priority::Info).with("number", number)
    }

    #[test]
    fn everything_is_written_before_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let audit = at(&path);
        (0..1000).for_each(|number| audit.write(record(number)));
        audit.stop();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), 1000);
        assert!(text.lines().last().unwrap().contains("seq=1000 event=test number=999"));
        assert_eq!(audit.view().unwrap().written, 1000);
    }

    #[test]
    fn what_there_is_no_room_for_is_counted_and_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let audit = at(&path);
        let shared = audit.0.clone().unwrap();
        {
            // Held, so that the thread takes nothing meanwhile.
            let mut queue = shared.queue();
            queue.put(&shared, Entry::One(record(1)));
            queue.bytes = MAX_WAITING;
            (0..5).for_each(|_| queue.put(&shared, Entry::One(record(2))));
        }
        // The thread may have been waiting already.
        shared.changed.notify_one();
        // There is room again once the thread has taken what there was.
        while shared.queue().bytes > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        audit.write(record(3));
        audit.stop();
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains("event=lost count=5"), "{text}");
        assert_eq!(audit.view().unwrap().lost, 5);
    }

    #[test]
    fn what_others_cause_has_a_rate_and_the_rest_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let audit = at(&path);
        (0..100_000).for_each(|number| audit.write_limited("peer", record(number)));
        audit.stop();
        let view = audit.view().unwrap();
        assert!(view.suppressed > 90_000 && view.written < 10_000, "{view:?}");
    }

    #[test]
    fn none_is_written_without_a_place() {
        let audit = Opened::of(&AuditLog::Off).unwrap().start().unwrap();
        audit.write(record(1));
        assert!(!audit.is_on() && audit.view().is_none());
        audit.stop();
    }
}
