//! Compressed captures.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

/// What a gzip file begins with (RFC 1952).
pub(super) const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// How far a compressed capture is expanded: a small file may be made to say that it has more than
/// anybody waits for. Memory is none of that, as one packet is held at a time.
const MAX_EXPANDED: u64 = 64 << 30;

/// Bytes that were read of a file, whoever reads it.
#[derive(Clone, Debug, Default)]
pub(super) struct Consumed(Arc<AtomicU64>);

impl Consumed {
    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The file as it is, counted.
struct Counted<R> {
    input: R,
    consumed: Consumed,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.consumed.0.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// What is in a compressed file. It may have several members one behind the other, as tools that
/// compress in parallel make them.
struct Expanded<R> {
    decoder: MultiGzDecoder<R>,
    left: u64,
}

impl<R: Read> Read for Expanded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 && !buffer.is_empty() {
            return Err(io::Error::other(format!(
                "the compressed file has more than {} GiB in it",
                MAX_EXPANDED >> 30
            )));
        }
        let count = self.decoder.read(&mut buffer[..most])?;
        self.left -= count as u64;
        Ok(count)
    }
}

/// What is in `input`, which begins with `begin`; expanded if it is compressed. Then it is also said
/// how much of the file was read.
pub(super) fn expanded(
    begin: Vec<u8>,
    input: impl Read + Send + 'static,
) -> (Box<dyn Read + Send>, Option<Consumed>) {
    expanded_up_to(MAX_EXPANDED, begin, input)
}

fn expanded_up_to(
    left: u64,
    begin: Vec<u8>,
    input: impl Read + Send + 'static,
) -> (Box<dyn Read + Send>, Option<Consumed>) {
    let is_compressed = begin.starts_with(&MAGIC);
    let whole = io::Cursor::new(begin).chain(input);
    if !is_compressed {
        return (Box::new(whole), None);
    }
    let consumed = Consumed::default();
    let counted = Counted { input: whole, consumed: consumed.clone() };
    (Box::new(Expanded { decoder: MultiGzDecoder::new(counted), left }), Some(consumed))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn read(left: u64, file: &[u8]) -> io::Result<Vec<u8>> {
        let (begin, rest) = file.split_at(file.len().min(4));
        let rest = io::Cursor::new(rest.to_vec());
        let mut all = Vec::new();
        expanded_up_to(left, begin.to_vec(), rest).0.read_to_end(&mut all)?;
        Ok(all)
    }

    #[test]
    fn what_is_compressed_is_expanded_and_the_rest_is_as_it_is() {
        assert_eq!(read(100, b"plain").unwrap(), b"plain");
        assert_eq!(read(100, b"").unwrap(), b"");
        assert_eq!(read(100, &compressed(b"capture")).unwrap(), b"capture");
        let members = [compressed(b"cap"), compressed(b"ture")].concat();
        assert_eq!(read(100, &members).unwrap(), b"capture");
        let (mut reader, consumed) = expanded_up_to(100, members.clone(), io::empty());
        reader.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(consumed.unwrap().read(), members.len() as u64);
    }

    #[test]
    fn a_bomb_is_given_up_and_a_cut_file_is_an_error() {
        let bomb = compressed(&vec![0; 1 << 20]);
        assert!(bomb.len() < 2048);
        let why = read(1 << 19, &bomb).unwrap_err().to_string();
        assert!(why.contains("more than 64 GiB"), "{why}");
        assert!(read(2 << 20, &bomb).is_ok());
        let cut = &compressed(b"capture")[..20];
        assert!(read(100, cut).is_err());
        assert!(read(100, &[0x1f, 0x8b, 0xff, 0xff, 0, 0]).is_err());
    }
}
