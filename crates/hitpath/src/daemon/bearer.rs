//! The word that clients at a TCP address have to know.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::daemon::audit::Audit;
use crate::daemon::connections::Connection;
use crate::gateway;

/// How long a token may be.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;

/// How long the first wrong token of an address is answered late, which doubles with each further
/// one, and how long at most. Tests have better things to do.
const SHORTEST: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });
const LONGEST: Duration = SHORTEST.saturating_mul(50);

/// How long wrong tokens are remembered.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// For how many addresses, or networks of IPv6, they are counted apart.
const PLACES: usize = 64;

/// How many replies may be late at once.
const WAITING: usize = 8;

/// What clients have to know.
#[derive(Clone)]
pub(super) struct Token(Arc<Zeroizing<String>>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The token in `file`, which `token-file` of `section` names; it is beside the configuration
    /// file `config`, unless it says where.
    ///
    /// # Errors
    /// The file cannot be read, or has no token.
    pub(super) fn read(file: &Path, config: &Path, section: &str) -> anyhow::Result<Self> {
        let file = gateway::beside(config, file);
        let text = gateway::read_secret(&file)?;
        let Some(line) = line(&text) else { bail!(wrong(&file, section)) };
        Ok(Self(Arc::new(Zeroizing::new(line.to_owned()))))
    }

    /// Whether a request has it. The time that this takes says nothing of the token.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.split_once(' '));
        given.is_some_and(|(scheme, word)| {
            scheme.eq_ignore_ascii_case("bearer")
                && bool::from(word.trim().as_bytes().ct_eq(self.0.as_bytes()))
        })
    }
}

/// The token in the text of a file, if it has one.
pub(crate) fn line(text: &str) -> Option<&str> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let is_token =
        LENGTHS.contains(&line.len()) && line.bytes().all(|byte| byte.is_ascii_graphic());
    is_token.then_some(line)
}

/// What is said of a file that has none.
pub(crate) fn wrong(file: &Path, section: &str) -> String {
    format!(
        "{}: token-file in [{section}] has one line of {} to {} printable characters without \
        spaces, as `openssl rand -hex 32` makes it",
        file.display(),
        LENGTHS.start(),
        LENGTHS.end()
    )
}

/// Who is let through at a TCP address, and what becomes of those who are not.
#[derive(Clone)]
pub(super) struct Guard {
    token: Token,
    guesses: Arc<Guesses>,
    audit: Audit,
    /// What is served there.
    of: &'static str,
    /// Whether clients begin without a token, to find out whether one is needed.
    begins_without: bool,
}

impl Guard {
    pub(super) fn new(token: Token, audit: Audit, of: &'static str, begins_without: bool) -> Self {
        Self { token, guesses: Arc::default(), audit, of, begins_without }
    }

    /// Has a client wait who has sent a wrong token, and writes down who it was.
    async fn refuse(&self, from: Option<SocketAddr>, has_sent: bool) {
        if has_sent || !self.begins_without {
            let why = if has_sent { "a wrong token" } else { "no token" };
            self.audit.token_refused(self.of, from, why);
        }
        if let (true, Some(from)) = (has_sent, from) {
            self.guesses.wait(from.ip()).await;
        }
    }
}

/// Lets those through who have the token, whatever others send.
pub(super) async fn authorized(
    State(guard): State<Guard>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
    next: Next,
) -> Response {
    if guard.token.is_in(request.headers()) {
        return next.run(request).await;
    }
    guard.refuse(connection.from, request.headers().contains_key(AUTHORIZATION)).await;
    let why = "the token is needed: Authorization: Bearer TOKEN\n";
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], why).into_response()
}

/// Wrong tokens of late, in a table of fixed size. The addresses of a place share it, so who shares
/// one with somebody who guesses waits longer for having mistyped.
#[derive(Debug)]
struct Guesses {
    by: RandomState,
    places: Mutex<[Place; PLACES]>,
    /// Who waits. Whoever finds no room is refused at once, so that connections are left for others.
    waiting: Semaphore,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    count: u32,
    last: Option<Instant>,
}

impl Default for Guesses {
    fn default() -> Self {
        Self {
            by: RandomState::new(),
            places: Mutex::new([Place::default(); PLACES]),
            waiting: Semaphore::new(WAITING),
        }
    }
}

impl Guesses {
    async fn wait(&self, from: IpAddr) {
        let pause = self.pause(from, Instant::now());
        if let Ok(_place) = self.waiting.try_acquire() {
            tokio::time::sleep(pause).await;
        }
    }

    /// Counts a wrong token, and says how long its sender has to wait for the reply.
    fn pause(&self, from: IpAddr, now: Instant) -> Duration {
        // Who has one IPv6 address of a network has all of them.
        let network = match from.to_canonical() {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        };
        let at = self.by.hash_one(network) as usize % PLACES;
        let place = &mut self.places.lock().unwrap_or_else(PoisonError::into_inner)[at];
        let is_over = |last: Instant| now.saturating_duration_since(last) >= FORGOTTEN;
        if place.last.is_none_or(is_over) {
            place.count = 0;
        }
        *place = Place { count: place.count.saturating_add(1), last: Some(now) };
        LONGEST.min(SHORTEST * 2_u32.saturating_pow(place.count - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_waits_longer_each_time_until_that_is_forgotten() {
        let (guesses, begin) = (Guesses::default(), Instant::now());
        let [one, other] = ["192.0.2.1", "::ffff:192.0.2.1"].map(|it| it.parse().unwrap());
        let pauses: Vec<_> =
            (0..8).map(|_| guesses.pause(one, begin).as_millis() / SHORTEST.as_millis()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 50, 50]);
        assert_eq!(guesses.pause(other, begin), LONGEST, "it is the same address");
        assert_eq!(guesses.pause(one, begin + FORGOTTEN), SHORTEST);
        // Of one network of IPv6, all addresses are one.
        let of = |last: u16| format!("2001:db8::{last:x}").parse().unwrap();
        let more: Vec<_> = (0..3).map(|last| guesses.pause(of(last), begin)).collect();
        assert!(more[0] < more[1] && more[1] < more[2], "{more:?}");
        // Whoever asks, the table stays as it is.
        (0..10_000_u32)
            .for_each(|number| _ = guesses.pause(IpAddr::from(number.to_be_bytes()), begin));
        (0..40).for_each(|_| _ = guesses.pause(one, begin));
    }

    #[test]
    fn a_token_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("gw.toml");
        let file = folder.path().join("token");
        let read = || Token::read(Path::new("token"), &config, "page");
        assert!(read().is_err());
        for text in ["", "short", "sixteen and a space", "line\nand-another-line-that-is-long"] {
            std::fs::write(&file, text).unwrap();
            let why = read().unwrap_err().to_string();
            assert!(why.contains("[page] has one line of 16 to 256"), "{text}: {why}");
        }
        std::fs::write(&file, "x".repeat(257)).unwrap();
        read().unwrap_err();
        std::fs::write(&file, "x".repeat(256)).unwrap();
        read().unwrap();
        Token::read(&file, Path::new("/elsewhere/gw.toml"), "page").unwrap();
    }
}
