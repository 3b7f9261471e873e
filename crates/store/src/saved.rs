//! What was kept, as it is read at the start; and what to do about damage.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use api::Key;
use zeroize::Zeroizing;

use crate::directory::{Directory, StoreError, private};
use crate::frame;

/// The log's name.
pub(crate) const LOG: &str = "log";

/// Its name until it is whole.
const NEW: &str = "log.new";

/// The most files that are named where the log is missing.
const MAX_TRACES: usize = 8;

/// The first line of the log.
pub(crate) const VERSION: &str = "hitpath state 1";

/// The first line of a file of keys.
pub(crate) const KEYS_VERSION: &str = "hitpath keys 1";

/// In place of the configuration, in a log that was begun before anything was used.
const NOT_RUN: &str = "none";

/// In place of the configuration, where that is not known.
const UNKNOWN: &str = "unknown";

/// In the beginning of a log of which a part was lost.
const INCOMPLETE: &str = "incomplete";

/// What was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// A digest of the configuration that the changes were made to.
    pub configuration: String,
    /// The number of the file of keys, if there is one.
    pub(crate) generation: Option<u64>,
    /// Changes, in the order in which they were made: those of one element were made together.
    pub changes: Vec<String>,
    /// The keys that the changes name by number.
    pub keys: BTreeMap<u64, Key>,
    /// Bytes at the log's end that were not written whole, and so never answered.
    pub torn: Range<usize>,
    /// Whether [`Directory::repair`] could not keep all.
    pub is_incomplete: bool,
}

impl Saved {
    /// Whether no gateway has run on the directory before.
    pub fn is_first(&self) -> bool {
        self.configuration == NOT_RUN
    }
}

/// What a repair has kept, and what not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The damaged log.
    pub backup: PathBuf,
    /// Changes that were kept.
    pub changes: usize,
    /// The bytes of the log that could not be read.
    pub lost: Vec<Range<usize>>,
    /// Whether anything of the log was lost, but for a last write that was cut short and so never answered.
    pub is_incomplete: bool,
    /// Whether keys could not be read: their SAs do not come back.
    pub has_lost_keys: bool,
}

/// What was put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The log, which is there now.
    Log(PathBuf),
    /// Other files of a gateway, whose log was missing.
    Traces,
    /// Nothing was there.
    Nothing,
}

impl Directory {
    /// Reads what was kept. Returns `None` if nothing was, as no gateway has run on it.
    ///
    /// # Errors
    /// If it cannot be read, is not what was written, or is missing where a gateway has run.
    pub fn read(&self) -> Result<Option<Saved>, StoreError> {
        let Some(bytes) = self.contents(LOG)? else {
            let traces = self.traces().map_err(self.system("listing it"))?;
            if traces.is_empty() {
                return Ok(None);
            }
            let traces = traces.join(", ");
            return Err(StoreError::Missing { folder: self.path().to_owned(), traces });
        };
        let frames = frame::read(&bytes).map_err(self.damage(LOG))?;
        let mut texts = Vec::with_capacity(frames.contents.len());
        for contents in frames.contents {
            texts.push(text(contents).ok_or_else(|| self.damaged(LOG, "not text"))?);
        }
        let mut texts = texts.into_iter();
        let first = texts.next().ok_or_else(|| self.damaged(LOG, "it has no beginning"))?;
        let Header { configuration, generation, is_incomplete } = header(first)
            .ok_or_else(|| self.damaged(LOG, &format!("its first line is not `{VERSION}`")))?;
        let changes = texts.map(str::to_owned).collect();
        let keys = match generation {
            None => BTreeMap::new(),
            Some(number) => self.keys(number)?,
        };
        let torn = frames.torn;
        Ok(Some(Saved { configuration, generation, changes, keys, torn, is_incomplete }))
    }

    /// Reads what was kept, and begins a log if no gateway has run on the directory. A directory
    /// with other files of a gateway and without a log has lost it: so this comes before any other
    /// file is written.
    ///
    /// # Errors
    /// As [`Directory::read`], or if the log cannot be written.
    pub fn read_or_begin(&self) -> Result<Saved, StoreError> {
        if let Some(saved) = self.read()? {
            return Ok(saved);
        }
        self.begin(NOT_RUN).map_err(self.system("beginning its log"))?;
        Ok(Saved { configuration: NOT_RUN.to_owned(), ..Saved::default() })
    }

    /// Writes a log without changes.
    fn begin(&self, configuration: &str) -> std::io::Result<()> {
        write(self, &Header::of(configuration), "", &[]).map(|_| ())
    }

    /// Files that a gateway writes once its log is there. What a start that was cut short leaves
    /// is not among them.
    fn traces(&self) -> std::io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path())? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            let is_trace = name.starts_with("keys.")
                || name.starts_with("log.") && name != NEW
                || name.starts_with("sequences");
            if is_trace && names.len() < MAX_TRACES {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn keys(&self, number: u64) -> Result<BTreeMap<u64, Key>, StoreError> {
        let name = keys_name(number);
        let bytes = self.contents(&name)?.ok_or_else(|| self.damaged(&name, "it is not there"))?;
        let frames = frame::read(&bytes).map_err(self.damage(&name))?;
        let mut keys = BTreeMap::new();
        for contents in frames.contents.iter().skip(1) {
            keys_of(contents, &mut keys).ok_or_else(|| self.damaged(&name, "not keys"))?;
        }
        Ok(keys)
    }

    /// Keeps of a damaged log what can be read, with a mark if that is not all that was answered. The
    /// damaged one stays beside it, and in its place until the other one is written.
    ///
    /// # Errors
    /// If the system refuses, if there is nothing to repair, or nothing can be read.
    pub fn repair(&self) -> Result<Repaired, StoreError> {
        // Says which files there are, if the log is none of them.
        let is_damaged = match self.read() {
            Ok(_) => false,
            Err(StoreError::Damaged { file, .. }) => file == self.file(LOG),
            Err(error) => return Err(error),
        };
        let bytes = self.contents(LOG)?.ok_or_else(|| self.damaged(LOG, "it is not there"))?;
        let (contents, lost) = frame::salvage(&bytes);
        let mut texts: Vec<&str> = contents.iter().filter_map(|found| text(found)).collect();
        let known = texts.first().copied().and_then(header);
        // Without its beginning, the log does not say which configuration it was about. What it
        // says of the file's own objects is then left out, as with another file.
        let generations = self.generations().map_err(self.system("listing it"))?;
        let known = known.inspect(|_| _ = texts.remove(0)).unwrap_or_else(|| Header {
            generation: generations.iter().copied().max(),
            is_incomplete: true,
            ..Header::of(UNKNOWN)
        });
        let mut keys = BTreeMap::new();
        let mut has_lost_keys = false;
        if let Some(generation) = known.generation {
            has_lost_keys = self.keys(generation).is_err();
            let bytes = self.contents(&keys_name(generation))?.unwrap_or_default();
            let (contents, _) = frame::salvage(&bytes);
            for found in contents {
                let _ = keys_of(found, &mut keys);
            }
        }
        let keys: Vec<_> = keys.into_iter().collect();
        let next = generations.iter().max().map_or(0, |last| last + 1);
        let text = texts.concat();
        let is_incomplete = known.is_incomplete || is_damaged;
        let header = Header { generation: Some(next), is_incomplete, ..known };
        let backup = self.copy_aside("log.damaged")?;
        write(self, &header, &text, &keys).map_err(|error| {
            forget_name(&backup);
            self.system("writing the log, which is as it was")(error)
        })?;
        for number in generations {
            self.wipe(&keys_name(number)).map_err(self.system("removing former keys"))?;
        }
        Ok(Repaired { backup, changes: text.lines().count(), lost, is_incomplete, has_lost_keys })
    }

    /// Moves the log aside, puts one without changes in its place, and removes the keys.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn put_aside(&self) -> Result<Dropped, StoreError> {
        if self.read().is_ok_and(|saved| saved.is_some_and(|saved| saved.is_first())) {
            return Ok(Dropped::Nothing);
        }
        let is_there = self.file(LOG).try_exists().map_err(self.system("looking for its log"))?;
        let dropped = if is_there {
            Dropped::Log(self.copy_aside("log.dropped")?)
        } else if self.traces().map_err(self.system("listing it"))?.is_empty() {
            return Ok(Dropped::Nothing);
        } else {
            Dropped::Traces
        };
        // The next start finds that the log is missing, unless there is one.
        self.begin(UNKNOWN).map_err(|error| {
            if let Dropped::Log(backup) = &dropped {
                forget_name(backup);
            }
            self.system("writing a log without changes; all is as it was")(error)
        })?;
        for number in self.generations().map_err(self.system("listing it"))? {
            self.wipe(&keys_name(number)).map_err(self.system("removing keys"))?;
        }
        Ok(dropped)
    }

    /// Gives the log a second name, or copies it where the file system has no such. It keeps the
    /// first one until another log takes that.
    fn copy_aside(&self, name: &str) -> Result<PathBuf, StoreError> {
        let (log, backup) = (self.file(LOG), self.free_name(name)?);
        let copy = || {
            if fs::hard_link(&log, &backup).is_ok() {
                return Ok(());
            }
            let mut file = private().create_new(true).open(&backup)?;
            std::io::copy(&mut File::open(&log)?, &mut file)?;
            file.sync_all()
        };
        copy().map_err(|error| {
            let _ = fs::remove_file(&backup);
            self.system("keeping the log aside; nothing is changed")(error)
        })?;
        Ok(backup)
    }

    /// Keeps a copy of the log beside it. Returns where, if there is one.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn keep_copy(&self) -> Result<Option<PathBuf>, StoreError> {
        let backup = self.file("log.before");
        match fs::copy(self.file(LOG), &backup) {
            Ok(_) => Ok(Some(backup)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.system("copying the log")(error)),
        }
    }

    fn free_name(&self, name: &str) -> Result<PathBuf, StoreError> {
        let names = (1..=9999).map(|number| self.file(&format!("{name}.{number}")));
        let mut free = names.filter(|path| !path.exists());
        free.next().ok_or_else(|| {
            self.system("finding a name for the former log")(ErrorKind::AlreadyExists.into())
        })
    }

    fn contents(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
        let mut bytes = Zeroizing::new(Vec::new());
        match File::open(self.file(name)) {
            Ok(mut file) => {
                let length = file.metadata().map_or(0, |found| found.len());
                // At once, so that no copy of keys is left behind.
                bytes.reserve_exact(usize::try_from(length).unwrap_or(0) + 1);
                file.read_to_end(&mut bytes).map_err(self.system("reading it"))?;
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.system("reading it")(error)),
        }
    }
}

/// Removes a file that has another name.
fn forget_name(path: &Path) {
    if fs::metadata(path).is_ok_and(|found| found.nlink() > 1) {
        let _ = fs::remove_file(path);
    }
}

pub(crate) fn keys_name(number: u64) -> String {
    format!("keys.{number}")
}

fn text(bytes: &[u8]) -> Option<&str> {
    str::from_utf8(bytes).ok()
}

/// The first frame: which configuration, which keys, and whether a part was lost.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) configuration: String,
    pub(crate) generation: Option<u64>,
    pub(crate) is_incomplete: bool,
}

impl Header {
    /// That of a log without keys.
    fn of(configuration: &str) -> Self {
        let configuration = configuration.to_owned();
        Self { configuration, generation: None, is_incomplete: false }
    }

    fn text(&self) -> String {
        let Self { configuration, generation, is_incomplete } = self;
        let keys = generation.map_or_else(|| "none".to_owned(), |number| number.to_string());
        let mut text = format!("{VERSION}\nconfiguration {configuration}\nkeys {keys}\n");
        if *is_incomplete {
            text = text + INCOMPLETE + "\n";
        }
        text
    }
}

fn header(text: &str) -> Option<Header> {
    let mut lines = text.lines();
    if lines.next()? != VERSION {
        return None;
    }
    let configuration = lines.next()?.strip_prefix("configuration ")?;
    let keys = lines.next()?.strip_prefix("keys ")?;
    let generation = if keys == "none" { None } else { Some(keys.parse().ok()?) };
    let is_incomplete = lines.any(|line| line == INCOMPLETE);
    Some(Header { configuration: configuration.to_owned(), generation, is_incomplete })
}

fn keys_of(contents: &[u8], keys: &mut BTreeMap<u64, Key>) -> Option<()> {
    for line in text(contents)?.lines() {
        let (number, key) = line.split_once(' ')?;
        if line != KEYS_VERSION {
            keys.insert(number.parse().ok()?, key.parse().ok()?);
        }
    }
    Some(())
}

/// Writes keys as a file of them has them.
pub(crate) fn keys_text(keys: &[(u64, Key)]) -> Zeroizing<String> {
    let length = keys.iter().map(|(_, key)| 24 + 2 * key.bytes().len()).sum();
    let mut text = Zeroizing::new(String::with_capacity(length));
    for (number, key) in keys {
        text.push_str(&number.to_string());
        text.push(' ');
        text.push_str(&key.to_hex());
        text.push('\n');
    }
    text
}

/// A log and a file of keys, open at their ends.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) log: Writer,
    pub(crate) keys: Option<(u64, Writer)>,
}

/// A file that is written frame by frame.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    frames: u32,
    /// Bytes of whole frames.
    pub(crate) length: u64,
}

impl Writer {
    fn create(directory: &Directory, name: &str) -> std::io::Result<Self> {
        let file = private().create(true).truncate(true).open(directory.file(name))?;
        Ok(Self { file, frames: 0, length: 0 })
    }

    fn put(&mut self, contents: &[u8]) -> std::io::Result<()> {
        let header = frame::header(self.frames, contents).ok_or(ErrorKind::FileTooLarge)?;
        self.file.write_all(&header)?;
        self.file.write_all(contents)?;
        self.frames += 1;
        self.length += (header.len() + contents.len()) as u64;
        Ok(())
    }

    /// Writes a frame, and returns once it is durable.
    pub(crate) fn append(&mut self, contents: &[u8]) -> std::io::Result<()> {
        self.put(contents)?;
        self.file.sync_data()
    }
}

/// Writes a log anew: all of it or, if that fails, nothing.
pub(crate) fn write(
    directory: &Directory,
    header: &Header,
    text: &str,
    keys: &[(u64, Key)],
) -> std::io::Result<Files> {
    let generation = header.generation;
    let make = || {
        let keys_file = match generation {
            None => None,
            Some(number) => {
                let mut file = Writer::create(directory, &keys_name(number))?;
                file.put(format!("{KEYS_VERSION}\n").as_bytes())?;
                file.put(keys_text(keys).as_bytes())?;
                file.file.sync_data()?;
                Some((number, file))
            }
        };
        let mut log = Writer::create(directory, NEW)?;
        log.put(header.text().as_bytes())?;
        log.put(text.as_bytes())?;
        log.file.sync_data()?;
        // The keys have to be there before the log that names them.
        directory.sync()?;
        fs::rename(directory.file(NEW), directory.file(LOG))?;
        Ok(Files { log, keys: keys_file })
    };
    let made = make();
    match &made {
        Ok(_) => directory.sync()?,
        Err(_) => {
            let _ = fs::remove_file(directory.file(NEW));
            if let Some(number) = generation {
                let _ = directory.wipe(&keys_name(number));
            }
        }
    }
    made
}
