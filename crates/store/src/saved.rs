//! What was kept, as it is read at the start; and what to do about damage.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::ops::Range;

use api::Key;
use zeroize::Zeroizing;

use crate::directory::{Directory, StoreError, private};
use crate::frame;

/// The log's name.
pub(crate) const LOG: &str = "log";

/// The first line of the log.
pub(crate) const VERSION: &str = "hitpath state 1";

/// The first line of a file of keys.
pub(crate) const KEYS_VERSION: &str = "hitpath keys 1";

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
}

/// What a repair has kept, and what not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The damaged log.
    pub backup: std::path::PathBuf,
    /// Changes that were kept.
    pub changes: usize,
    /// The bytes of the log that could not be read.
    pub lost: Vec<Range<usize>>,
}

impl Directory {
    /// Reads what was kept. Returns `None` if nothing was.
    ///
    /// # Errors
    /// If it cannot be read, or is not what was written.
    pub fn read(&self) -> Result<Option<Saved>, StoreError> {
        let Some(bytes) = self.contents(LOG)? else { return Ok(None) };
        let frames = frame::read(&bytes).map_err(self.damage(LOG))?;
        let mut texts = Vec::with_capacity(frames.contents.len());
        for contents in frames.contents {
            texts.push(text(contents).ok_or_else(|| self.damaged(LOG, "not text"))?);
        }
        let mut texts = texts.into_iter();
        let first = texts.next().ok_or_else(|| self.damaged(LOG, "it has no beginning"))?;
        let (configuration, generation) = header(first)
            .ok_or_else(|| self.damaged(LOG, &format!("its first line is not `{VERSION}`")))?;
        let changes = texts.map(str::to_owned).collect();
        let keys = match generation {
            None => BTreeMap::new(),
            Some(number) => self.keys(number)?,
        };
        Ok(Some(Saved { configuration, generation, changes, keys, torn: frames.torn }))
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

    /// Keeps of a damaged log what can be read. The damaged one stays beside it.
    ///
    /// # Errors
    /// If the system refuses, if there is nothing to repair, or nothing can be read.
    pub fn repair(&self) -> Result<Repaired, StoreError> {
        let bytes = self.contents(LOG)?.ok_or_else(|| self.damaged(LOG, "it is not there"))?;
        let (contents, lost) = frame::salvage(&bytes);
        let mut texts: Vec<&str> = contents.iter().filter_map(|found| text(found)).collect();
        let known = texts.first().copied().and_then(header);
        // Without its beginning, the log does not say which configuration it was about. What it
        // says of the file's own objects is then left out, as with another file.
        let generations = self.generations().map_err(self.system("listing it"))?;
        let (configuration, generation) = known
            .inspect(|_| _ = texts.remove(0))
            .unwrap_or_else(|| ("unknown".to_owned(), generations.iter().copied().max()));
        let mut keys = BTreeMap::new();
        if let Some(name) = generation.map(keys_name) {
            let bytes = self.contents(&name)?.unwrap_or_default();
            let (contents, _) = frame::salvage(&bytes);
            for found in contents {
                let _ = keys_of(found, &mut keys);
            }
        }
        let backup = self.free_name("log.damaged")?;
        fs::rename(self.file(LOG), &backup).map_err(self.system("moving the log aside"))?;
        let keys: Vec<_> = keys.into_iter().collect();
        let next = generations.iter().max().map_or(0, |last| last + 1);
        let text = texts.concat();
        write(self, &configuration, Some(next), &text, &keys)
            .map_err(self.system("writing the log"))?;
        for number in generations {
            self.wipe(&keys_name(number)).map_err(self.system("removing former keys"))?;
        }
        Ok(Repaired { backup, changes: text.lines().count(), lost })
    }

    /// Moves the log aside, and removes the keys. Returns where it is now, if there was one.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn put_aside(&self) -> Result<Option<std::path::PathBuf>, StoreError> {
        for number in self.generations().map_err(self.system("listing it"))? {
            self.wipe(&keys_name(number)).map_err(self.system("removing keys"))?;
        }
        let backup = self.free_name("log.dropped")?;
        match fs::rename(self.file(LOG), &backup) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.system("moving the log aside")(error)),
        }
        self.sync().map_err(self.system("moving the log aside"))?;
        Ok(Some(backup))
    }

    /// Keeps a copy of the log beside it. Returns where, if there is one.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn keep_copy(&self) -> Result<Option<std::path::PathBuf>, StoreError> {
        let backup = self.file("log.before");
        match fs::copy(self.file(LOG), &backup) {
            Ok(_) => Ok(Some(backup)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.system("copying the log")(error)),
        }
    }

    fn free_name(&self, name: &str) -> Result<std::path::PathBuf, StoreError> {
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

pub(crate) fn keys_name(number: u64) -> String {
    format!("keys.{number}")
}

fn text(bytes: &[u8]) -> Option<&str> {
    str::from_utf8(bytes).ok()
}

/// The first frame: which configuration, and which keys.
fn header(text: &str) -> Option<(String, Option<u64>)> {
    let mut lines = text.lines();
    if lines.next()? != VERSION {
        return None;
    }
    let configuration = lines.next()?.strip_prefix("configuration ")?;
    let keys = lines.next()?.strip_prefix("keys ")?;
    let generation = if keys == "none" { None } else { Some(keys.parse().ok()?) };
    Some((configuration.to_owned(), generation))
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
    configuration: &str,
    generation: Option<u64>,
    text: &str,
    keys: &[(u64, Key)],
) -> std::io::Result<Files> {
    const NEW: &str = "log.new";
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
        let named = generation.map_or_else(|| "none".to_owned(), |number| number.to_string());
        let first = format!("{VERSION}\nconfiguration {configuration}\nkeys {named}\n");
        log.put(first.as_bytes())?;
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
