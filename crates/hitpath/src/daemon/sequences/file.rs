//! The file `sequences` of the state directory: how far the numbers of every key are used.
//!
//! ```text
//! header   64 bytes: magic, the secret that keys are recognized with, CRC-32
//! places   128 bytes each, of two copies of 64
//! copy     version 8, digest 16, number and whether it is exact 8, mask 8, stamp 8, place 8,
//!          numbers ahead 4, CRC-32
//! ```
//!
//! A record is written over the older of its place's two copies. Whatever becomes of that write,
//! the other copy is as it was, and says the last number that was ever allowed: a new one is
//! allowed only once the write is on the disk. So there is nothing to compact, nothing to rename,
//! and a disk that has become full takes everything but new keys. A place is used first in two
//! steps, each on the disk before the next: so a place with two broken copies is damage, never a
//! write that was cut short.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use control::{SECRET_LENGTH, SequenceRecord};
use zeroize::Zeroizing;

/// The file's name in the state directory.
pub(super) const NAME: &str = "sequences";

const MAGIC: [u8; 8] = *b"hitpseq1";
const HEADER: usize = 64;
const COPY: usize = 64;

/// Beside a number: it was used last, and none was reserved.
const EXACT: u64 = 1 << 32;
const LAST: u64 = u32::MAX as u64;

/// More places than any gateway has keys; a longer file is not one of ours.
const MAX_PLACES: usize = 16 << 20;

/// Where bytes are kept. Tests have disks of their own.
pub(super) trait Disk: Send + 'static {
    /// Writes all of `bytes`, or fails; what is on the disk then is anybody's guess.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// What was written survives power loss once this returns.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file, open, and where the next start looks for it.
pub(super) struct Named {
    file: File,
    path: PathBuf,
}

impl Disk for Named {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        // The next start finds nothing of what is written to a file that has another name or none.
        let own = self.file.metadata()?;
        let what = match fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (own.dev(), own.ino()) => return Ok(()),
            Ok(_) => "is another one now",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "was removed",
            Err(error) => return Err(error),
        };
        Err(io::Error::other(format!(
            "the file of sequence numbers {what}; stop the gateway and give all SAs new keys"
        )))
    }
}

/// What a file holds.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) secret: Zeroizing<[u8; SECRET_LENGTH]>,
    /// The records, by place.
    pub(super) known: Vec<(u32, SequenceRecord)>,
    /// The version of each place's newer copy; 0 where there is none.
    versions: Vec<u64>,
}

/// The places of a file.
pub(super) struct Places<D> {
    disk: D,
    versions: Vec<u64>,
}

/// Opens the file in `directory`, which nobody else uses. It is made if the gateway `is_first` to
/// run there.
///
/// # Errors
/// If the system refuses, others may use the file, or it is damaged or missing.
pub(super) fn open(directory: &Path, is_first: bool) -> anyhow::Result<(Places<Named>, Contents)> {
    let path = directory.join(NAME);
    let is_there = path.try_exists().with_context(|| format!("looking for {}", path.display()))?;
    if !is_there {
        ensure!(
            is_first,
            "{} is missing, and the state directory was used before. {}",
            path.display(),
            begin_anew(directory)
        );
        make(directory).with_context(|| format!("making {}", path.display()))?;
    }
    check_owner(&path)?;
    let reading = || format!("opening {}", path.display());
    let mut file = OpenOptions::new().read(true).write(true).open(&path).with_context(reading)?;
    let mut bytes = Zeroizing::new(Vec::new());
    let longest = HEADER + MAX_PLACES * 2 * COPY;
    (&mut file).take(longest as u64 + 1).read_to_end(&mut bytes).with_context(reading)?;
    ensure!(bytes.len() <= longest, "{} is too long to be the gateway's", path.display());
    let contents = read(&bytes)
        .with_context(|| format!("{} is damaged. {}", path.display(), begin_anew(directory)))?;
    Ok((Places::new(Named { file, path }, &contents), contents))
}

/// What to do without the file.
fn begin_anew(directory: &Path) -> String {
    format!(
        "Without it the gateway could send sequence numbers again: give all SAs new keys, then \
        `hitpath state forget-sequences {}`",
        directory.display()
    )
}

/// Puts a file without keys in the place of what is there. Returns where that is now.
///
/// # Errors
/// If the system refuses.
pub(crate) fn forget(directory: &Path) -> anyhow::Result<Option<PathBuf>> {
    let (path, aside) = (directory.join(NAME), directory.join("sequences.forgotten"));
    let moved = match fs::rename(&path, &aside) {
        Ok(()) => Some(aside),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("moving {}", path.display())),
    };
    make(directory).with_context(|| format!("making {}", path.display()))?;
    Ok(moved)
}

/// Keys could be recognized, and numbers set back, by whoever has access.
fn check_owner(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let found = fs::metadata(path).with_context(|| format!("looking at {shown}"))?;
    let own = rustix::process::geteuid().as_raw();
    ensure!(
        found.uid() == own,
        "{shown} belongs to user {}, and the gateway runs as {own} (chown {own} {shown})",
        found.uid()
    );
    ensure!(
        found.mode() & 0o077 == 0,
        "{shown} has mode {:04o}, so that others may use it (chmod 0600 {shown})",
        found.mode() & 0o7777
    );
    Ok(())
}

/// Makes a file without places. It has its name once it is whole.
fn make(directory: &Path) -> io::Result<()> {
    let new = directory.join("sequences.new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&*header(&rand::random()))?;
    file.sync_all()?;
    fs::rename(&new, directory.join(NAME))?;
    File::open(directory)?.sync_all()
}

fn header(secret: &[u8; SECRET_LENGTH]) -> Zeroizing<[u8; HEADER]> {
    let mut bytes = Zeroizing::new([0; HEADER]);
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..8 + SECRET_LENGTH].copy_from_slice(secret);
    seal(&mut bytes);
    bytes
}

/// Writes the checksum of what is before it.
fn seal(bytes: &mut [u8; 64]) {
    let sum = crc32fast::hash(&bytes[..60]);
    bytes[60..].copy_from_slice(&sum.to_be_bytes());
}

fn is_sealed(bytes: &[u8; 64]) -> bool {
    crc32fast::hash(&bytes[..60]).to_be_bytes() == bytes[60..]
}

/// What `bytes` say, as far as they reach.
fn read(bytes: &[u8]) -> anyhow::Result<Contents> {
    let header = bytes.first_chunk::<HEADER>().context("it has no header")?;
    ensure!(header[..8] == MAGIC, "it is no file of sequence numbers of this version");
    ensure!(is_sealed(header), "its header's checksum is wrong");
    let mut secret = Zeroizing::new([0; SECRET_LENGTH]);
    secret.copy_from_slice(&header[8..8 + SECRET_LENGTH]);

    let (mut known, mut versions) = (Vec::new(), Vec::new());
    for (place, found) in bytes[HEADER..].chunks(2 * COPY).enumerate() {
        let place = u32::try_from(place)?;
        // What the file does not reach to was never written whole.
        let mut both = [0; 2 * COPY];
        both[..found.len()].copy_from_slice(found);
        let [first, second] = [0, 1].map(|at| copy(place, &both[at * COPY..]));
        let newer = match (first, second) {
            (Found::Record(a), Found::Record(b)) => Some(if a.0 > b.0 { a } else { b }),
            (Found::Record(one), _) | (_, Found::Record(one)) => Some(one),
            (Found::Broken, Found::Broken) => bail!("the checksums of place {place} are wrong"),
            // Written for the first time, and cut short: nothing was allowed yet.
            _ => None,
        };
        versions.push(newer.map_or(0, |(version, _)| version));
        known.extend(newer.map(|(_, record)| (place, record)));
    }
    Ok(Contents { secret, known, versions })
}

/// What a copy is.
#[derive(Clone, Copy)]
enum Found {
    Nothing,
    Broken,
    /// With its version.
    Record((u64, SequenceRecord)),
}

fn copy(place: u32, bytes: &[u8]) -> Found {
    let Some(bytes) = bytes.first_chunk::<COPY>() else { return Found::Broken };
    if *bytes == [0; COPY] {
        return Found::Nothing;
    }
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|index| bytes[at + index]));
    if !is_sealed(bytes) || word(48) != u64::from(place) || word(24) & !EXACT > LAST {
        return Found::Broken;
    }
    let record = SequenceRecord {
        digest: std::array::from_fn(|index| bytes[8 + index]),
        number: word(24) as u32,
        is_exact: word(24) & EXACT != 0,
        mask: word(32),
        stamp: word(40),
        ahead: (word(56) >> 32) as u32,
    };
    Found::Record((word(0), record))
}

fn encode(place: u32, version: u64, record: &SequenceRecord) -> [u8; COPY] {
    let mut bytes = [0; COPY];
    bytes[8..24].copy_from_slice(&record.digest);
    let number = u64::from(record.number) | if record.is_exact { EXACT } else { 0 };
    let words = [(0, version), (24, number), (32, record.mask), (40, record.stamp)];
    for (at, word) in words.into_iter().chain([(48, place.into())]) {
        bytes[at..at + 8].copy_from_slice(&word.to_be_bytes());
    }
    bytes[56..60].copy_from_slice(&record.ahead.to_be_bytes());
    seal(&mut bytes);
    bytes
}

impl<D: Disk> Places<D> {
    /// The places of a file that holds `contents`.
    pub(super) fn new(disk: D, contents: &Contents) -> Self {
        Self { disk, versions: contents.versions.clone() }
    }

    /// Writes records. They survive power loss once this returns, but for those that the disk
    /// refused, by place: a full disk takes no new places, and goes on with those it has.
    ///
    /// # Errors
    /// If the disk refuses as a whole. Some of the records may be written, and none counts.
    pub(super) fn write(
        &mut self,
        records: &BTreeMap<u32, &SequenceRecord>,
    ) -> io::Result<BTreeMap<u32, String>> {
        let mut refused = BTreeMap::new();
        let Some((last, _)) = records.last_key_value() else { return Ok(refused) };
        let count = self.versions.len().max(*last as usize + 1);
        self.versions.resize(count, 0);
        let mut new: Vec<_> = records.keys().copied().filter(|place| self.is_new(*place)).collect();

        self.write_copies(records.iter().map(|(place, record)| (*place, *record)), &mut refused)?;
        for place in records.keys().filter(|place| !refused.contains_key(*place)) {
            self.versions[*place as usize] += 1;
        }
        // A place that is new counts once both of its copies are written.
        new.retain(|place| !refused.contains_key(place));
        if !new.is_empty() {
            let mut refused_again = BTreeMap::new();
            let again = new.iter().map(|place| (*place, records[place]));
            self.write_copies(again, &mut refused_again)?;
            for place in new.iter().filter(|place| !refused_again.contains_key(*place)) {
                self.versions[*place as usize] += 1;
            }
            refused.append(&mut refused_again);
        }
        Ok(refused)
    }

    /// Whether the place has no record yet, so that one needs room on the disk.
    pub(super) fn is_new(&self, place: u32) -> bool {
        self.versions.get(place as usize).is_none_or(|version| *version == 0)
    }

    /// Whether the disk takes a new place: writes nothing behind the last one, where nothing is.
    ///
    /// # Errors
    /// If it does not.
    pub(super) fn try_room(&mut self) -> io::Result<()> {
        let offset = HEADER as u64 + self.versions.len() as u64 * 2 * COPY as u64;
        self.disk.write_at(offset, &[0; 2 * COPY])?;
        self.disk.sync()
    }

    /// Writes each record over the older copy of its place.
    fn write_copies<'r>(
        &mut self,
        records: impl Iterator<Item = (u32, &'r SequenceRecord)>,
        refused: &mut BTreeMap<u32, String>,
    ) -> io::Result<()> {
        for (place, record) in records {
            let version = self.versions[place as usize] + 1;
            let offset = HEADER as u64 + (u64::from(place) * 2 + version % 2) * COPY as u64;
            if let Err(error) = self.disk.write_at(offset, &encode(place, version, record)) {
                refused.insert(place, error.to_string());
            }
        }
        self.disk.sync()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A disk that loses power: what was not synced is there in part, in any order.
    #[derive(Clone, Default)]
    struct Failing {
        /// What is on the disk for good.
        bytes: Vec<u8>,
        /// Writes since the last sync.
        since: Vec<(u64, Vec<u8>)>,
        /// Writes and syncs that still succeed.
        steps: usize,
    }

    impl Failing {
        fn step(&mut self) -> io::Result<()> {
            self.steps = self.steps.checked_sub(1).ok_or_else(|| io::Error::other("power loss"))?;
            Ok(())
        }

        fn put(bytes: &mut Vec<u8>, offset: u64, written: &[u8]) {
            let end = offset as usize + written.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[offset as usize..end].copy_from_slice(written);
        }

        /// The disk, with of each write since the last sync the bytes that `reached` it.
        fn after(&self, mut reached: impl FnMut(usize) -> bool) -> Vec<u8> {
            let (mut bytes, mut at) = (self.bytes.clone(), 0);
            for (offset, written) in &self.since {
                for (index, byte) in written.iter().enumerate() {
                    if reached(at) {
                        Self::put(&mut bytes, offset + index as u64, &[*byte]);
                    }
                    at += 1;
                }
            }
            bytes
        }

        fn unsynced(&self) -> usize {
            self.since.iter().map(|(_, written)| written.len()).sum()
        }
    }

    impl Disk for Failing {
        fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.since.push((offset, bytes.to_vec()));
            self.step()
        }

        fn sync(&mut self) -> io::Result<()> {
            self.step()?;
            for (offset, written) in std::mem::take(&mut self.since) {
                Self::put(&mut self.bytes, offset, &written);
            }
            Ok(())
        }
    }

    fn empty() -> Vec<u8> {
        header(&[7; SECRET_LENGTH]).to_vec()
    }

    /// What is wrong with `bytes`.
    #[track_caller]
    fn damage(bytes: &[u8]) -> String {
        read(bytes).err().unwrap().to_string()
    }

    fn record(key: u8, number: u32) -> SequenceRecord {
        let (digest, mask) = ([key; 16], u64::MAX - u64::from(key));
        let (is_exact, stamp) = (number.is_multiple_of(3), number.into());
        let ahead = number.wrapping_mul(0x0101_0101);
        SequenceRecord { digest, number, is_exact, mask, stamp, ahead }
    }

    /// The number of each key in `bytes`.
    fn numbers(bytes: &[u8]) -> BTreeMap<u8, u32> {
        let known = read(bytes).unwrap().known;
        known.iter().map(|(_, record)| (record.digest[0], record.number)).collect()
    }

    #[test]
    fn trying_for_room_changes_nothing() {
        let disk = Failing { bytes: empty(), steps: 100, ..Failing::default() };
        let mut places = Places::new(disk, &read(&empty()).unwrap());
        for place in 0..2 {
            places.try_room().unwrap();
            assert!(places.is_new(place));
            places.write(&BTreeMap::from([(place, &record(place as u8, 5 + place))])).unwrap();
            assert!(!places.is_new(place));
        }
        places.try_room().unwrap();
        let known = read(&places.disk.bytes).unwrap().known;
        assert_eq!(known, [(0, record(0, 5)), (1, record(1, 6))]);
        places.disk.steps = 0;
        places.try_room().unwrap_err();
    }

    /// Writes in rounds until the power fails after `steps` steps. Returns the disk, what was
    /// allowed of each key, and what was asked for last.
    fn until_power_fails(
        bytes: Vec<u8>,
        rounds: &[&[(u32, SequenceRecord)]],
        steps: usize,
    ) -> (Failing, BTreeMap<u8, u32>, BTreeMap<u8, u32>) {
        let contents = read(&bytes).unwrap();
        let mut places = Places::new(Failing { bytes, steps, ..Failing::default() }, &contents);
        let (mut allowed, mut asked) = (BTreeMap::new(), BTreeMap::new());
        for round in rounds {
            asked.extend(round.iter().map(|(_, record)| (record.digest[0], record.number)));
            let records = round.iter().map(|(place, record)| (*place, record)).collect();
            if places.write(&records).is_err() {
                break;
            }
            allowed.extend(round.iter().map(|(_, record)| (record.digest[0], record.number)));
        }
        (places.disk, allowed, asked)
    }

    #[test]
    fn whatever_is_torn_no_number_that_was_allowed_is_lost() {
        let rounds: [&[_]; 5] = [
            &[(0, record(1, 100))],
            &[(0, record(1, 200)), (1, record(2, 50))],
            &[(1, record(2, 70)), (3, record(3, 10))],
            &[(0, record(1, 300))],
            // Another key takes the place of one that was forgotten.
            &[(1, record(4, 5)), (0, record(1, 400))],
        ];
        let mut torn = 0;
        for steps in 0..20 {
            let (disk, allowed, asked) = until_power_fails(empty(), &rounds, steps);
            // Cut at every byte, from the front and from behind, and with every byte alone missing.
            let length = disk.unsynced();
            for cut in 0..=length {
                for bytes in [
                    disk.after(|at| at < cut),
                    disk.after(|at| at >= cut),
                    disk.after(|at| at != cut),
                    disk.after(|at| at == cut),
                ] {
                    torn += 1;
                    let found = numbers(&bytes);
                    for (key, number) in &allowed {
                        // A key that was forgotten may be gone or there.
                        if *key == 2 && asked.contains_key(&4) {
                            continue;
                        }
                        let found = found.get(key);
                        assert!(found >= Some(number), "key {key} after {steps} steps: {found:?}");
                    }
                    assert!(found.iter().all(|(key, number)| asked.get(key) >= Some(number)));
                }
            }
        }
        assert!(torn > 3000, "{torn}");
    }

    #[test]
    fn after_a_power_loss_it_goes_on_and_survives_the_next() {
        let rounds: [&[_]; 2] = [&[(0, record(1, 100))], &[(0, record(1, 200))]];
        for first in 0..8 {
            let (disk, ..) = until_power_fails(empty(), &rounds, first);
            for cut in 0..=disk.unsynced() {
                let bytes = disk.after(|at| at < cut);
                for second in 0..6 {
                    let more: [&[_]; 2] = [&[(0, record(1, 1000))], &[(0, record(1, 2000))]];
                    let (disk, allowed, _) = until_power_fails(bytes.clone(), &more, second);
                    for cut in [0, 1, 31, 60, 63, 64] {
                        let found = numbers(&disk.after(|at| at < cut));
                        assert!(found.get(&1) >= allowed.get(&1), "{first} {second} {cut}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_write_that_failed_is_made_good_by_the_next() {
        for steps in 0..4 {
            let contents = read(&empty()).unwrap();
            let disk = Failing { bytes: empty(), steps, ..Failing::default() };
            let mut places = Places::new(disk, &contents);
            let first = record(1, 100);
            places.write(&BTreeMap::from([(0, &first)])).unwrap_err();
            places.disk.steps = usize::MAX;
            let second = record(1, 200);
            places.write(&BTreeMap::from([(0, &second)])).unwrap();
            assert_eq!(numbers(&places.disk.bytes), BTreeMap::from([(1, 200)]));
        }
    }

    /// A disk with room for so many bytes.
    struct Full(Vec<u8>, usize);

    impl Disk for Full {
        fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            if offset as usize + bytes.len() > self.1 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            Failing::put(&mut self.0, offset, bytes);
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_refuses_new_keys_and_goes_on_with_those_it_has() {
        // The second place has room for none of its copies, for one, and for both.
        for (room, is_taken) in [(1, false), (COPY, false), (2 * COPY, true)] {
            let disk = Full(empty(), HEADER + 2 * COPY + room);
            let mut places = Places::new(disk, &read(&empty()).unwrap());
            for number in [100, 200, 300] {
                let (first, second) = (record(1, number), record(2, number));
                let refused = places.write(&BTreeMap::from([(0, &first), (1, &second)])).unwrap();
                assert_eq!(refused.is_empty(), is_taken, "{room}");
                assert!(refused.keys().all(|place| *place == 1));
                assert_eq!(numbers(&places.disk.0).get(&1), Some(&number));
            }
            places.disk.1 = usize::MAX;
            assert!(places.write(&BTreeMap::from([(1, &record(2, 400))])).unwrap().is_empty());
            assert_eq!(numbers(&places.disk.0), BTreeMap::from([(1, 300), (2, 400)]));
        }
    }

    #[test]
    fn other_damage_is_refused() {
        let rounds: [&[_]; 1] = [&[(0, record(1, 100))]];
        let (disk, ..) = until_power_fails(empty(), &rounds, 100);
        assert_eq!(numbers(&disk.bytes), BTreeMap::from([(1, 100)]));
        for at in 0..HEADER {
            let mut bytes = disk.bytes.clone();
            bytes[at] ^= 1;
            damage(&bytes);
        }
        let mut bytes = disk.bytes.clone();
        for at in [HEADER + 30, HEADER + COPY + 30] {
            bytes[at] ^= 1;
        }
        assert!(damage(&bytes).contains("place 0"));
        // A copy that stands in another place than it was written to is no copy.
        let swapped = [&disk.bytes[..HEADER], &[0; 2 * COPY], &disk.bytes[HEADER..]].concat();
        damage(&swapped);
        for length in 0..HEADER {
            damage(&disk.bytes[..length]);
        }
    }

    #[test]
    fn it_is_for_its_owner_alone_and_has_one_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let (_, contents) = open(folder.path(), true).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(contents.known.is_empty());
        let (_, again) = open(folder.path(), false).unwrap();
        assert_eq!(again.secret, contents.secret);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = open(folder.path(), true).err().unwrap().to_string();
        assert!(error.contains("so that others may use it (chmod 0600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "").unwrap();
        let error = format!("{:#}", open(folder.path(), true).err().unwrap());
        assert!(error.contains("is damaged") && error.contains("new keys"), "{error}");

        // What was used before does not lose it unseen.
        fs::remove_file(&path).unwrap();
        let error = open(folder.path(), false).err().unwrap().to_string();
        let remedy = format!("`hitpath state forget-sequences {}`", folder.path().display());
        assert!(error.contains("is missing") && error.contains(&remedy), "{error}");
        assert_eq!(forget(folder.path()).unwrap(), None);
        let (_, contents) = open(folder.path(), false).unwrap();
        let moved = forget(folder.path()).unwrap().unwrap();
        assert!(moved.ends_with("sequences.forgotten") && moved.exists());
        assert_ne!(open(folder.path(), false).unwrap().1.secret, contents.secret);
    }

    #[test]
    fn nothing_counts_that_the_next_start_would_not_find() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join(NAME), folder.path().join("aside"));
        let (mut places, _) = open(folder.path(), true).unwrap();
        let mut write = |number| {
            let record = record(1, number);
            places.write(&BTreeMap::from([(0, &record)])).map_err(|error| error.to_string())
        };
        write(100).unwrap();
        fs::rename(&path, &aside).unwrap();
        assert!(write(200).unwrap_err().contains("was removed"));
        fs::copy(&aside, &path).unwrap();
        let error = write(300).unwrap_err();
        assert!(error.contains("is another one now") && error.contains("new keys"), "{error}");
        fs::rename(&aside, &path).unwrap();
        write(400).unwrap();
    }
}
