//! Commands on their way: a [`api::Batch`] as the daemon reads it, in pieces that never move, since
//! they may hold keys.

use std::path::Path;

use anyhow::Context;
use api::{
    BATCH_PATH, BatchReport, MAX_BATCH, MAX_BATCH_BYTES, MAX_REQUEST_BYTES, OnRefusal, PATH, Reply,
    Request,
};
use serde_json::Serializer;
use zeroize::Zeroizing;

use super::wipe;
use crate::client;

/// Commands in one request, if they need not all be in one: few enough that others are answered
/// in between without delay.
const AT_ONCE: usize = 1000;

/// Bytes of one piece.
const PIECE: usize = 1 << 20;

/// More than the longest command takes: a line's bytes, escaped, and the names of members.
const LONGEST: usize = 128 * 1024;

/// Begin and end of the request, at the longest.
const FRAME: usize = 128;

/// Commands that go in one request.
pub(super) struct Chunk {
    on_refusal: OnRefusal,
    pieces: Vec<Zeroizing<Vec<u8>>>,
    bytes: usize,
    /// The line of each.
    lines: Vec<usize>,
    scratch: Zeroizing<Vec<u8>>,
}

/// Why a command was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DoesNotFit {
    /// The chunk has to be sent first.
    Full,
    /// It cannot be sent in parts, and is as large as the daemon takes them.
    TooLarge,
}

impl Chunk {
    pub(super) fn new(on_refusal: OnRefusal) -> Self {
        let scratch = Zeroizing::new(Vec::with_capacity(LONGEST));
        Self { on_refusal, pieces: Vec::new(), bytes: 0, lines: Vec::new(), scratch }
    }

    /// The lines of its commands.
    pub(super) fn lines(&self) -> &[usize] {
        &self.lines
    }

    /// Adds the command of line `line`.
    pub(super) fn add(
        &mut self,
        line: usize,
        request: &Request,
    ) -> anyhow::Result<Result<(), DoesNotFit>> {
        let (most, limit) = self.limits();
        wipe(&mut self.scratch);
        serde::Serialize::serialize(request, &mut Serializer::new(&mut *self.scratch))
            .context("writing a request")?;
        if self.lines.len() == most || self.bytes + self.scratch.len() + 1 + FRAME > limit {
            return Ok(Err(if self.on_refusal == OnRefusal::Undo {
                DoesNotFit::TooLarge
            } else {
                DoesNotFit::Full
            }));
        }
        let fits = |piece: &Zeroizing<Vec<u8>>| piece.len() + self.scratch.len() < PIECE;
        if !self.pieces.last().is_some_and(fits) {
            self.pieces.push(Zeroizing::new(Vec::with_capacity(PIECE)));
        }
        if let Some(piece) = self.pieces.last_mut() {
            if !self.lines.is_empty() {
                piece.push(b',');
            }
            piece.extend_from_slice(&self.scratch);
        }
        self.bytes += self.scratch.len() + 1;
        self.lines.push(line);
        Ok(Ok(()))
    }

    /// Sends it, and is empty afterwards. Returns what came of the commands.
    pub(super) fn send(&mut self, socket: &Path, sync: bool) -> anyhow::Result<BatchReport> {
        let lines = std::mem::take(&mut self.lines);
        let pieces = std::mem::take(&mut self.pieces);
        self.bytes = 0;
        if lines.is_empty() {
            return Ok(BatchReport::default());
        }
        let begin = format!(
            r#"{{"do":"batch","with":{{"on_refusal":{},"requests":["#,
            serde_json::to_string(&self.on_refusal)?
        );
        let mut parts: Vec<&[u8]> = vec![begin.as_bytes()];
        parts.extend(pieces.iter().map(|piece| piece.as_slice()));
        parts.push(b"]}}");
        let path = if self.on_refusal == OnRefusal::Undo { BATCH_PATH } else { PATH };
        match client::ask_in_parts(socket, &client::path(path, sync), &parts)? {
            Reply::Batch(report) => Ok(report),
            other => Err(client::unexpected(&other)),
        }
    }

    /// Commands and bytes at most.
    fn limits(&self) -> (usize, usize) {
        match self.on_refusal {
            OnRefusal::Undo => (MAX_BATCH, MAX_BATCH_BYTES),
            OnRefusal::Stop | OnRefusal::Continue => (AT_ONCE, MAX_REQUEST_BYTES),
        }
    }
}

#[cfg(test)]
mod tests {
    use api::{Batch, VrfSpec};

    use super::*;

    fn request(number: usize) -> Request {
        Request::VrfAdd(VrfSpec {
            table: None,
            name: format!("vrf{number:0>11}{}", "x".repeat(1000)),
        })
    }

    fn read(chunk: &Chunk) -> Batch {
        let all: Vec<u8> = chunk.pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        serde_json::from_str(&format!(
            r#"{{"on_refusal":"stop","requests":[{}]}}"#,
            String::from_utf8(all).unwrap()
        ))
        .unwrap()
    }

    #[test]
    fn pieces_make_one_list_and_never_move() {
        let mut chunk = Chunk::new(OnRefusal::Undo);
        for number in 0..3000 {
            assert_eq!(chunk.add(number + 1, &request(number)).unwrap(), Ok(()));
        }
        assert!(chunk.pieces.len() > 2, "{}", chunk.pieces.len());
        assert!(chunk.pieces.iter().all(|piece| piece.capacity() == PIECE));
        assert_eq!(chunk.scratch.capacity(), LONGEST);
        assert_eq!(chunk.lines().last(), Some(&3000));
        assert!(read(&chunk).requests.iter().enumerate().all(|(at, read)| *read == request(at)));
    }

    #[test]
    fn a_request_stays_within_what_the_daemon_takes() {
        let mut chunk = Chunk::new(OnRefusal::Stop);
        let mut taken = 0;
        while chunk.add(taken + 1, &request(taken)).unwrap() == Ok(()) {
            taken += 1;
        }
        assert_eq!(chunk.add(1, &request(1)).unwrap(), Err(DoesNotFit::Full));
        assert!((900..AT_ONCE).contains(&taken), "{taken}");
        assert!(chunk.bytes + FRAME <= MAX_REQUEST_BYTES);

        let mut chunk = Chunk::new(OnRefusal::Continue);
        for number in 0..AT_ONCE {
            assert_eq!(chunk.add(number, &Request::VrfList).unwrap(), Ok(()));
        }
        assert_eq!(chunk.add(1, &Request::VrfList).unwrap(), Err(DoesNotFit::Full));

        let mut chunk = Chunk::new(OnRefusal::Undo);
        let mut taken = 0;
        while chunk.add(taken + 1, &request(taken)).unwrap() == Ok(()) {
            taken += 1;
        }
        assert_eq!(chunk.add(1, &request(1)).unwrap(), Err(DoesNotFit::TooLarge));
        assert!(chunk.bytes + FRAME <= MAX_BATCH_BYTES && chunk.bytes > MAX_BATCH_BYTES - 4096);
    }
}
