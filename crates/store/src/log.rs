//! The log, written by a thread of its own.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use api::Key;

use crate::directory::{Directory, StoreError};
use crate::saved::{Files, Header, keys_name, keys_text, write};

/// What is called once changes are durable, or why they are not.
pub type Done = Box<dyn FnOnce(Result<(), String>) + Send>;

/// All that is not in the configuration, to begin the log anew with.
#[derive(Debug)]
pub struct Snapshot {
    /// A digest of the configuration.
    pub configuration: String,
    /// The changes to it.
    pub text: String,
    /// The keys that they name.
    pub keys: Vec<(u64, Key)>,
    /// Whether there may be keys from now on.
    pub keeps_keys: bool,
    /// Whether the log that there is does no longer hold without this: after a reload.
    pub is_needed: bool,
}

/// How long a log that is dropped waits for the disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// The log. What was given to it before it is dropped is written, unless the disk hangs.
#[derive(Debug)]
pub struct Log {
    sender: Option<Sender<Command>>,
    /// Is disconnected once the thread has ended.
    ended: Receiver<()>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Why nothing can be written.
    failure: Mutex<Option<String>>,
    /// Bytes that wait to be written.
    waiting: AtomicUsize,
}

enum Command {
    Append { text: String, keys: Vec<(u64, Key)>, done: Option<Done> },
    Replace { snapshot: Snapshot, done: Option<Done> },
}

impl Log {
    /// Begins to write in `directory`. The first thing to give it is a snapshot.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(directory: Directory) -> Result<Self, StoreError> {
        let (sender, commands) = mpsc::channel();
        let (ends, ended) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        shared.fail("the log was not begun");
        let refused = directory.system("starting a thread for it");
        let writer = Writer { directory, files: None, shared: Arc::clone(&shared) };
        thread::Builder::new()
            .name("state".into())
            .spawn(move || {
                writer.run(&commands);
                drop::<Sender<()>>(ends);
            })
            .map_err(refused)?;
        Ok(Self { sender: Some(sender), ended, shared })
    }

    /// Writes changes, and calls `done` once they are durable.
    pub fn append(&self, text: String, keys: Vec<(u64, Key)>, done: Option<Done>) {
        self.shared.waiting.fetch_add(text.len(), Ordering::Relaxed);
        self.send(Command::Append { text, keys, done });
    }

    /// Begins the log anew. If that fails, the one that there is goes on, unless it no longer
    /// holds. If the log had failed, it is good again.
    pub fn replace(&self, snapshot: Snapshot, done: Option<Done>) {
        self.shared.waiting.fetch_add(snapshot.text.len(), Ordering::Relaxed);
        self.send(Command::Replace { snapshot, done });
    }

    /// Why changes cannot be kept, if they cannot.
    pub fn failure(&self) -> Option<String> {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes that wait for the disk.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    fn send(&self, command: Command) {
        let Some(sender) = &self.sender else { return };
        if let Err(mpsc::SendError(command)) = sender.send(command) {
            let (Command::Append { done, .. } | Command::Replace { done, .. }) = command;
            if let Some(done) = done {
                done(Err("the log has ended".to_owned()));
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.sender = None;
        if self.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::error!(
                bytes = self.waiting(),
                "the disk takes more than {} s to write the log: ending without the last changes",
                PATIENCE.as_secs()
            );
        }
    }
}

impl Shared {
    fn fail(&self, why: &str) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    }

    fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Writer {
    directory: Directory,
    files: Option<Files>,
    shared: Arc<Shared>,
}

/// Changes that are written together.
#[derive(Default)]
struct Group {
    text: String,
    keys: Vec<(u64, Key)>,
    done: Vec<Done>,
}

impl Writer {
    fn run(mut self, commands: &Receiver<Command>) {
        while let Ok(first) = commands.recv() {
            // Whatever came while the last ones were written goes together.
            let mut next = Some(first);
            let mut group = Group::default();
            while let Some(command) = next.take() {
                match command {
                    Command::Append { text, keys, done } => {
                        group.text.push_str(&text);
                        group.keys.extend(keys);
                        group.done.extend(done);
                    }
                    Command::Replace { snapshot, done } => {
                        // It has in it what came before.
                        self.write(std::mem::take(&mut group));
                        self.replace(&snapshot, done);
                    }
                }
                next = commands.try_recv().ok();
            }
            self.write(group);
        }
    }

    fn write(&mut self, group: Group) {
        if group.text.is_empty() && group.done.is_empty() {
            return;
        }
        let result = match (self.shared.failure(), &mut self.files) {
            (Some(failure), _) => Err(failure),
            (None, None) => Err("the log was not begun".to_owned()),
            (None, Some(files)) => append(files, &group).map_err(|error| {
                let log = self.directory.file(crate::saved::LOG);
                let why = format!("writing {}: {error}", log.display());
                self.shared.fail(&why);
                why
            }),
        };
        self.shared.waiting.fetch_sub(group.text.len(), Ordering::Relaxed);
        for done in group.done {
            done(result.clone());
        }
    }

    fn replace(&mut self, snapshot: &Snapshot, done: Option<Done>) {
        let result = self.begin(snapshot).map_err(|error| {
            format!("writing the log in {} anew: {error}", self.directory.path().display())
        });
        match &result {
            Ok(()) => {
                *self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            Err(why) if snapshot.is_needed || self.files.is_none() => self.shared.fail(why),
            Err(_) => {}
        }
        self.shared.waiting.fetch_sub(snapshot.text.len(), Ordering::Relaxed);
        if let Some(done) = done {
            done(result);
        }
    }

    fn begin(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let Snapshot { configuration, text, keys, keeps_keys, .. } = snapshot;
        let before = self.directory.generations()?;
        let next = before.iter().max().map_or(0, |last| last + 1);
        let generation = keeps_keys.then_some(next);
        let configuration = configuration.clone();
        let header = Header { configuration, generation, is_incomplete: false };
        self.files = Some(write(&self.directory, &header, text, keys)?);
        for number in before {
            if let Err(error) = self.directory.wipe(&keys_name(number)) {
                tracing::warn!(%error, file = keys_name(number), "former keys are not removed");
            }
        }
        Ok(())
    }
}

fn append(files: &mut Files, group: &Group) -> io::Result<()> {
    // Keys have to be there before the change that names them.
    if let (Some((_, keys)), false) = (&mut files.keys, group.keys.is_empty()) {
        keys.append(keys_text(&group.keys).as_bytes())?;
    }
    files.log.append(group.text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::saved::Dropped;

    fn snapshot(text: &str, keys: &[(u64, &str)]) -> Snapshot {
        Snapshot {
            configuration: "abc".to_owned(),
            text: text.to_owned(),
            keys: numbered(keys),
            keeps_keys: true,
            is_needed: true,
        }
    }

    fn numbered(keys: &[(u64, &str)]) -> Vec<(u64, Key)> {
        keys.iter().map(|(number, key)| (*number, key.parse().unwrap())).collect()
    }

    fn wait(give: impl FnOnce(Done)) -> Result<(), String> {
        let (sender, receiver) = mpsc::channel();
        give(Box::new(move |result| _ = sender.send(result)));
        receiver.recv().unwrap()
    }

    fn open(path: &std::path::Path) -> Directory {
        Directory::open(path, "test").unwrap()
    }

    #[test]
    fn what_was_answered_is_read_again_and_keys_are_a_file_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let log = Log::start(open(&path)).unwrap();
        assert!(wait(|done| log.append("vrf add x\n".into(), Vec::new(), Some(done))).is_err());
        wait(|done| log.replace(snapshot("vrf add red\n", &[(0, "0x0102")]), Some(done))).unwrap();
        wait(|done| log.append("vrf add blue\n".into(), numbered(&[(1, "0x0304")]), Some(done)))
            .unwrap();
        log.append("vrf add green\n".into(), Vec::new(), None);
        assert!(Directory::open(&path, "other").unwrap_err().to_string().contains("in use"));
        drop(log);
        let saved = open(&path).read().unwrap().unwrap();
        assert_eq!(saved.changes, ["vrf add red\n", "vrf add blue\n", "vrf add green\n"]);
        assert_eq!(saved.configuration, "abc");
        assert_eq!(
            saved.keys.into_iter().collect::<Vec<_>>(),
            numbered(&[(0, "0x0102"), (1, "0x0304")])
        );
        assert!(saved.torn.is_empty());
        for name in ["log", "keys.0", "lock"] {
            assert_eq!(fs::metadata(path.join(name)).unwrap().mode() & 0o777, 0o600, "{name}");
        }
        assert!(!String::from_utf8_lossy(&fs::read(path.join("log")).unwrap()).contains("0x01"));
    }

    #[test]
    fn a_log_that_begins_anew_has_keys_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let log = Log::start(open(&path)).unwrap();
        wait(|done| log.replace(snapshot("a\n", &[(0, "0x0102")]), Some(done))).unwrap();
        wait(|done| log.replace(snapshot("b\n", &[(0, "0x0506")]), Some(done))).unwrap();
        wait(|done| log.append("c\n".into(), numbered(&[(1, "0x07")]), Some(done))).unwrap();
        drop(log);
        let saved = open(&path).read().unwrap().unwrap();
        assert_eq!(saved.changes, ["b\n", "c\n"]);
        assert_eq!(
            saved.keys.into_iter().collect::<Vec<_>>(),
            numbered(&[(0, "0x0506"), (1, "0x07")])
        );
        assert!(!path.join("keys.0").exists() && path.join("keys.1").exists());
    }

    #[test]
    fn damage_is_refused_with_the_command_that_mends_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let log = Log::start(open(&path)).unwrap();
        wait(|done| log.replace(snapshot("a\n", &[(0, "0x01")]), Some(done))).unwrap();
        for text in ["b\n", "see\n", "d\n"] {
            wait(|done| log.append(text.into(), Vec::new(), Some(done))).unwrap();
        }
        drop(log);
        let file = path.join("log");
        let mut bytes = fs::read(&file).unwrap();
        let at = bytes.windows(2).position(|two| two == b"ee").unwrap();
        bytes[at] = b'x';
        fs::write(&file, &bytes).unwrap();
        let directory = open(&path);
        let error = directory.read().unwrap_err().to_string();
        assert!(error.contains("damaged bytes at byte") && error.contains("hitpath state repair"));
        let repaired = directory.repair().unwrap();
        assert_eq!((repaired.changes, repaired.lost.len()), (3, 1));
        assert!(repaired.lost[0].contains(&at));
        assert_eq!(fs::read(repaired.backup).unwrap(), bytes);
        assert!(repaired.is_incomplete);
        let saved = directory.read().unwrap().unwrap();
        assert_eq!(saved.changes.concat(), "a\nb\nd\n");
        assert_eq!((saved.configuration.as_str(), saved.keys.len()), ("abc", 1));
        assert!(saved.is_incomplete);
        // It stays so until a gateway has begun it anew.
        assert!(directory.repair().unwrap().is_incomplete);
        let log = Log::start(directory).unwrap();
        wait(|done| log.replace(snapshot("a\n", &[]), Some(done))).unwrap();
        drop(log);
        let directory = open(&path);
        assert!(!directory.read().unwrap().unwrap().is_incomplete);
        assert!(!directory.repair().unwrap().is_incomplete, "nothing was lost");
        // Nor is by a last write that was cut short.
        let mut bytes = fs::read(&file).unwrap();
        let length = bytes.len();
        bytes.extend_from_slice(b"HPL1torn");
        fs::write(&file, &bytes).unwrap();
        let repaired = directory.repair().unwrap();
        assert!(repaired.lost.iter().eq([&(length..length + 8)]) && !repaired.is_incomplete);
    }

    #[test]
    fn what_is_dropped_leaves_a_log_without_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert_eq!(open(&path).put_aside().unwrap(), Dropped::Nothing);
        assert!(!path.join("log").exists());
        let log = Log::start(open(&path)).unwrap();
        wait(|done| log.replace(snapshot("a\n", &[(0, "0x01")]), Some(done))).unwrap();
        drop(log);
        let directory = open(&path);
        let former = fs::read(path.join("log")).unwrap();
        let Dropped::Log(backup) = directory.put_aside().unwrap() else { panic!("no log") };
        assert_eq!(fs::read(backup).unwrap(), former);
        let saved = directory.read().unwrap().unwrap();
        assert_eq!((saved.changes.concat(), saved.keys.len()), (String::new(), 0));
        assert!(!saved.is_first() && !saved.is_incomplete);
        assert!(directory.generations().unwrap().is_empty());
    }

    #[test]
    fn a_log_that_is_missing_is_refused_where_a_gateway_has_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        for name in ["keys.0", "sequences", "log.damaged.1", "log.dropped.1"] {
            let directory = open(&path);
            assert_eq!(directory.read().unwrap(), None);
            fs::write(path.join(name), "").unwrap();
            for refused in
                [directory.read().err(), directory.read_or_begin().err(), directory.repair().err()]
            {
                let error = refused.unwrap().to_string();
                let remedy = format!("`hitpath state drop {}`", path.display());
                assert!(error.contains(name) && error.contains(&remedy), "{error}");
            }
            assert_eq!(directory.put_aside().unwrap(), Dropped::Traces);
            assert!(!directory.read_or_begin().unwrap().is_first());
            fs::remove_dir_all(&path).unwrap();
        }
    }

    #[test]
    fn a_first_start_that_is_cut_short_refuses_none_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let directory = open(&path);
        // Before the log had its name.
        fs::write(path.join("log.new"), "HP").unwrap();
        assert!(directory.read_or_begin().unwrap().is_first());
        // Whatever comes after it: it is the first start still.
        for name in ["sequences.new", "sequences", "keys.0", "log.new"] {
            fs::write(path.join(name), "").unwrap();
            assert!(directory.read_or_begin().unwrap().is_first(), "{name}");
        }
        let log = Log::start(directory).unwrap();
        wait(|done| log.replace(snapshot("a\n", &[]), Some(done))).unwrap();
        drop(log);
        assert!(!open(&path).read_or_begin().unwrap().is_first());
    }

    #[test]
    fn a_repair_that_cannot_write_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let log = Log::start(open(&path)).unwrap();
        wait(|done| log.replace(snapshot("a\n", &[(0, "0x01")]), Some(done))).unwrap();
        wait(|done| log.append("b\n".into(), Vec::new(), Some(done))).unwrap();
        drop(log);
        let mut bytes = fs::read(path.join("log")).unwrap();
        bytes[30] ^= 1;
        fs::write(path.join("log"), &bytes).unwrap();
        // In the way of the file that is written first.
        fs::create_dir(path.join("log.new")).unwrap();
        let directory = open(&path);
        let names = || -> BTreeSet<_> {
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        let before = names();
        assert!(directory.repair().is_err());
        assert!(directory.put_aside().is_err());
        assert_eq!(names(), before);
        assert_eq!(fs::read(path.join("log")).unwrap(), bytes);
        assert!(directory.read().is_err(), "it is damaged still, and no gateway starts");
        fs::remove_dir(path.join("log.new")).unwrap();
        assert!(directory.repair().unwrap().is_incomplete);
    }

    #[test]
    fn without_its_beginning_a_log_is_repaired_for_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let log = Log::start(open(&path)).unwrap();
        wait(|done| log.replace(snapshot("a\n", &[(0, "0x01")]), Some(done))).unwrap();
        drop(log);
        let file = path.join("log");
        let mut bytes = fs::read(&file).unwrap();
        bytes[30] ^= 1;
        fs::write(&file, &bytes).unwrap();
        let directory = open(&path);
        assert!(directory.read().is_err());
        directory.repair().unwrap();
        let saved = directory.read().unwrap().unwrap();
        assert_eq!(
            (saved.configuration.as_str(), saved.changes.concat()),
            ("unknown", "a\n".into())
        );
        assert_eq!(saved.keys.len(), 1);
    }
}
