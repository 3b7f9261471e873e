//! From the daemon's pcapng stream to files: whole blocks are written, and nothing else of them is
//! changed. Each further file begins with the header and the interfaces again.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use runtime::output::has_gone;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::words::Output;

/// How long it takes at most until a signal is heeded, or a packet is written.
const PERIOD: Duration = Duration::from_millis(200);

/// Longer blocks are none of the daemon's.
const MAX_BLOCK: usize = 1 << 20;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// What came of a tap.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) packets: u64,
    pub(super) lost: u64,
    pub(super) why: String,
    /// Whether the daemon went away without a word.
    pub(super) is_broken: bool,
}

/// Copies blocks until either side ends it.
///
/// # Errors
/// A file cannot be written, or what comes is no pcapng.
pub(super) fn copy(stream: UnixStream, output: &Output) -> anyhow::Result<Outcome> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).context("heeding signals")?;
    }
    stream.set_read_timeout(Some(PERIOD))?;
    copy_until(stream, output, &stopped)
}

fn copy_until(
    mut stream: impl Read,
    output: &Output,
    stopped: &AtomicBool,
) -> anyhow::Result<Outcome> {
    let mut writer = Writer::new(output)?;
    let mut outcome = Outcome { packets: 0, lost: 0, why: String::new(), is_broken: false };
    let (mut waiting, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        if stopped.load(Ordering::Relaxed) {
            outcome.why = "stopped".to_owned();
            return Ok(outcome);
        }
        if output.file.is_none() && has_gone() {
            outcome.why = "nobody reads any more".to_owned();
            return Ok(outcome);
        }
        let count = match stream.read(&mut buffer) {
            Ok(0) => {
                outcome.is_broken = outcome.why.is_empty();
                if outcome.is_broken {
                    outcome.why = "the daemon has gone".to_owned();
                }
                return Ok(outcome);
            }
            Ok(count) => count,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error).context("reading from the daemon"),
        };
        waiting.extend_from_slice(&buffer[..count]);
        let mut done = 0;
        while let Some(block) = first_block(&waiting[done..])? {
            done += block.len();
            let is_last = match writer.add(block, &mut outcome, output) {
                Ok(is_last) => is_last,
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    outcome.why = "nobody reads any more".to_owned();
                    return Ok(outcome);
                }
                Err(error) => return Err(error).context(writer.name()),
            };
            if is_last {
                writer.flush().with_context(|| writer.name())?;
                return Ok(outcome);
            }
        }
        waiting.drain(..done);
        match writer.flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                outcome.why = "nobody reads any more".to_owned();
                return Ok(outcome);
            }
            flushed => flushed.with_context(|| writer.name())?,
        }
    }
}

/// The first block, if it is there as a whole.
fn first_block(bytes: &[u8]) -> anyhow::Result<Option<&[u8]>> {
    if bytes.len() < 8 {
        return Ok(None);
    }
    let length = word(bytes, 4) as usize;
    if !(12..=MAX_BLOCK).contains(&length) || !length.is_multiple_of(4) {
        bail!("what the daemon sends is no pcapng: a block of {length} bytes");
    }
    Ok(bytes.get(..length))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

/// The files.
struct Writer {
    path: Option<PathBuf>,
    file: Box<dyn Write>,
    /// Whole blocks that are to be written.
    pending: Vec<u8>,
    written: u64,
    number: u32,
    /// What each file begins with.
    head: Vec<u8>,
}

impl Writer {
    fn new(output: &Output) -> anyhow::Result<Self> {
        let number = if output.files.is_some() { 1 } else { 0 };
        let path = output.file.as_ref().map(|file| numbered(file, number));
        let file: Box<dyn Write> = match &path {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(create(path)?),
        };
        let (pending, head) = (Vec::new(), Vec::new());
        Ok(Self { path, file, pending, written: 0, number, head })
    }

    fn name(&self) -> String {
        self.path.as_ref().map_or_else(
            || "writing to standard output".to_owned(),
            |path| format!("writing {}", path.display()),
        )
    }

    /// Takes a block. Returns whether it was the last that is wanted.
    fn add(&mut self, block: &[u8], outcome: &mut Outcome, output: &Output) -> io::Result<bool> {
        let kind = word(block, 0);
        if kind == STATISTICS {
            let statistics = Statistics::parse(block);
            outcome.lost = statistics.lost;
            // Others only say that the daemon is there.
            let Some(why) = statistics.comment else { return Ok(false) };
            outcome.why = why;
            self.pending.extend_from_slice(block);
            return Ok(false);
        }
        if matches!(kind, SECTION | INTERFACE) {
            self.head.extend_from_slice(block);
        }
        let behind = self.written + (self.pending.len() + block.len()) as u64;
        if kind == PACKET && output.size.is_some_and(|size| behind > size) {
            match (output.files, &output.file) {
                (Some(files), Some(file)) => self.next_file(file, files)?,
                _ => {
                    outcome.why = "the file has its size".to_owned();
                    return Ok(true);
                }
            }
        }
        self.pending.extend_from_slice(block);
        if kind == PACKET {
            outcome.packets += 1;
            if output.count == Some(outcome.packets) {
                outcome.why = "that many were wanted".to_owned();
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn next_file(&mut self, file: &Path, files: u32) -> io::Result<()> {
        self.flush()?;
        self.number = self.number % files + 1;
        let path = numbered(file, self.number);
        self.file = Box::new(File::create(&path)?);
        self.path = Some(path);
        self.pending.extend_from_slice(&self.head);
        self.written = 0;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.pending.is_empty() {
            self.file.write_all(&self.pending)?;
            self.file.flush()?;
            self.written += self.pending.len() as u64;
            self.pending.clear();
        }
        Ok(())
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("making {}", path.display()))
}

/// FILE, or FILE.1, FILE.2 and so on.
fn numbered(file: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return file.to_owned();
    }
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// What the daemon says of a tap.
#[derive(Debug, Default, PartialEq, Eq)]
struct Statistics {
    lost: u64,
    /// At the end of a tap, why it has ended.
    comment: Option<String>,
}

impl Statistics {
    fn parse(block: &[u8]) -> Self {
        let mut found = Self::default();
        let body = block.len().saturating_sub(4);
        let mut options = block.get(20..body).unwrap_or_default();
        while let Some((&[a, b, c, d], rest)) = options.split_first_chunk() {
            let length = usize::from(u16::from_le_bytes([c, d]));
            let value = rest.get(..length).unwrap_or_default();
            match (u16::from_le_bytes([a, b]), value.first_chunk()) {
                (0, _) => break,
                (1, _) => found.comment = Some(String::from_utf8_lossy(value).into_owned()),
                (5, Some(lost)) => found.lost = u64::from_le_bytes(*lost),
                _ => {}
            }
            options = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::io::pcap::PcapReader;
    use ::io::pcap::pcapng::{self, EnhancedPacket};

    fn stream(packets: usize, why: Option<&str>) -> Vec<u8> {
        let mut bytes = Vec::new();
        pcapng::section(&mut bytes, "test");
        pcapng::interface(&mut bytes, "wan", 65_535);
        for number in 0..packets {
            pcapng::statistics(&mut bytes, 0, 1, (0, 0), None);
            let packet = EnhancedPacket {
                interface: 0,
                time: 1_700_000_000_000_000_000 + number as u64,
                length: 1500,
                bytes: &[number as u8; 100],
                is_outbound: false,
                dropped: 0,
                comment: "vrf main; forward in clear by wan",
            };
            pcapng::packet(&mut bytes, &packet);
        }
        if why.is_some() {
            pcapng::statistics(&mut bytes, 0, 1, (packets as u64 + 4, 4), why);
        }
        bytes
    }

    /// Gives a few bytes at a time.
    struct Slowly<'b>(&'b [u8], usize);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    fn run(bytes: &[u8], output: &Output) -> anyhow::Result<Outcome> {
        copy_until(Slowly(bytes, 37), output, &AtomicBool::new(false))
    }

    /// The first bytes of a file's packets.
    fn packets(path: &Path) -> Vec<u8> {
        let mut reader = PcapReader::open(path).unwrap();
        let mut found = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            found.push(record.bytes[0]);
        }
        found
    }

    #[test]
    fn a_file_has_the_packets_and_the_end_has_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        let output = Output { file: Some(file.clone()), ..Output::default() };
        let outcome = run(&stream(5, Some("deleted")), &output).unwrap();
        let wanted = Outcome { packets: 5, lost: 4, why: "deleted".into(), is_broken: false };
        assert_eq!(outcome, wanted);
        assert_eq!(packets(&file), [0, 1, 2, 3, 4]);
        let outcome = run(&stream(2, None), &output).unwrap();
        assert!(outcome.is_broken);
        assert_eq!(packets(&file), [0, 1]);
        let outcome = run(&stream(9, None), &Output { count: Some(3), ..output }).unwrap();
        assert_eq!((outcome.packets, outcome.is_broken), (3, false));
        assert_eq!(packets(&file), [0, 1, 2]);
    }

    #[test]
    fn files_are_used_in_turn_and_each_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        let size = Some(1000);
        let one = Output { file: Some(file.clone()), size, ..Output::default() };
        let outcome = run(&stream(30, None), &one).unwrap();
        assert_eq!(outcome.packets, packets(&file).len() as u64);
        assert!(file.metadata().unwrap().len() <= 1000);
        run(&stream(30, Some("end")), &Output { files: Some(3), ..one }).unwrap();
        let mut all = Vec::new();
        for number in 1..=3 {
            let file = numbered(&file, number);
            assert!(file.metadata().unwrap().len() <= 1100);
            all.extend(packets(&file));
        }
        all.sort_unstable();
        // The last ones, without a gap.
        let first = all[0];
        assert_eq!(all, (first..30).collect::<Vec<_>>());
        assert!(!numbered(&file, 4).exists());
    }

    #[test]
    fn what_is_no_pcapng_and_a_full_disk_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output { file: Some(folder.path().join("a")), ..Output::default() };
        let error = run(&[7; 100], &output).unwrap_err();
        assert!(error.to_string().contains("no pcapng"), "{error}");
        let full = Output { file: Some("/dev/full".into()), ..Output::default() };
        let error = run(&stream(5, None), &full).unwrap_err();
        assert!(format!("{error:#}").contains("writing /dev/full: No space"), "{error:#}");
    }
}
