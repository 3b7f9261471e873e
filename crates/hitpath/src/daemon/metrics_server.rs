//! `GET /metrics` at a TCP address, for those who may not speak on the control socket.
//!
//! It has a thread of its own at the lowest priority. Whatever a client sends or does not read, it
//! costs a connection of a bounded number, for a bounded time; the one that has waited for its
//! client for the longest makes room for others.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use control::MetricsSettings;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::setpriority_process;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::daemon::connections::{Connection, Connections, Phase};
use crate::daemon::scrape::Scrapes;
use crate::gateway;

/// Connections served at once.
const CONNECTIONS: usize = 32;

/// How long the head of a request may take to arrive, and how long it may be.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HEAD: usize = 16 << 10;

/// How long a connection may last.
const LONGEST: Duration = Duration::from_secs(30);

/// The lowest priority (setpriority(2)).
const LOWEST: i32 = 19;

/// How long a token may be.
const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;

/// An address that is listened on, and who may ask there.
#[derive(Debug)]
pub(crate) struct Opened {
    listener: TcpListener,
    token: Option<Token>,
}

/// What clients have to know.
#[derive(Clone)]
struct Token(Arc<Zeroizing<String>>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Listens on the address of `settings`, if there is one. `config` is the configuration file.
///
/// # Errors
/// The address cannot be had, or the file with the token is wrong.
pub(crate) fn open(settings: &MetricsSettings, config: &Path) -> anyhow::Result<Option<Opened>> {
    let Some(address) = settings.address else { return Ok(None) };
    let token = match &settings.token_file {
        None => None,
        // Beside the configuration, unless it says where.
        Some(file) => {
            Some(token(&config.parent().map_or_else(|| file.clone(), |folder| folder.join(file)))?)
        }
    };
    let listener = TcpListener::bind(address)
        .with_context(|| format!("listening on {address}, address in [metrics]"))?;
    listener.set_nonblocking(true)?;
    if !address.ip().is_loopback() {
        warn(address, token.is_some());
    }
    Ok(Some(Opened { listener, token }))
}

/// Says what an address means that others than this machine reach.
fn warn(address: SocketAddr, has_token: bool) {
    let who = match has_token {
        true => "who has the token can read them, and so can, with the token, who sees the packets",
        false => "whoever reaches it can read them",
    };
    tracing::warn!(
        "metrics are served in clear text at {address}, which is not of the loopback interface: \
        they have names of ports and VRFs, addresses of peers and counters, and {who}"
    );
}

fn token(file: &Path) -> anyhow::Result<Token> {
    let text = gateway::read_secret(file)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    if !TOKEN_LENGTHS.contains(&line.len()) || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!(
            "{}: token-file in [metrics] has one line of {} to {} printable characters without \
            spaces, as `openssl rand -hex 32` makes it",
            file.display(),
            TOKEN_LENGTHS.start(),
            TOKEN_LENGTHS.end()
        );
    }
    Ok(Token(Arc::new(Zeroizing::new(line.to_owned()))))
}

impl Token {
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

impl Opened {
    /// Serves `scrapes` on a thread of its own, until the process ends.
    ///
    /// # Errors
    /// If the system gives no thread or no event queue.
    pub(crate) fn start(self, scrapes: Scrapes) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .context("starting the metrics server")?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener)
                .context("starting the metrics server")?
        };
        let router = router(scrapes, self.token);
        let run = move || {
            // Packets go first. That the system refuses changes nothing else.
            if let Err(error) = setpriority_process(None, LOWEST) {
                tracing::warn!(%error, "metrics are served at the priority of everything else");
            }
            runtime.block_on(serve(listener, router));
        };
        thread::Builder::new()
            .name("metrics".into())
            .spawn(run)
            .context("starting the metrics server's thread")?;
        Ok(())
    }
}

fn router(scrapes: Scrapes, token: Option<Token>) -> Router {
    let router = Router::new().route("/metrics", get(metrics)).with_state(scrapes);
    let router = router.fallback(|| async { (StatusCode::NOT_FOUND, "only /metrics is here\n") });
    match token {
        None => router,
        Some(token) => router.layer(middleware::from_fn_with_state(token, authorized)),
    }
}

/// Lets those through who have the token.
async fn authorized(State(token): State<Token>, request: Request, next: Next) -> Response {
    if token.is_in(request.headers()) {
        return next.run(request).await;
    }
    let why = "the token is needed: Authorization: Bearer TOKEN\n";
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], why).into_response()
}

/// The metrics, in the format that is asked for.
async fn metrics(State(scrapes): State<Scrapes>, headers: HeaderMap) -> Response {
    match scrapes.texts().await {
        Ok(texts) => {
            let (kind, text) = texts.accepted(accept(&headers));
            (StatusCode::OK, [(CONTENT_TYPE, kind)], text).into_response()
        }
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

/// What a client accepts.
pub(super) fn accept(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

async fn serve(listener: tokio::net::TcpListener, router: Router) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = Arc::new(Connections::default());
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let slot = connections.slot(&slots).await;
        let (router, connections) = (router.clone(), Arc::clone(&connections));
        tokio::spawn(async move {
            let connection = connections.add(None);
            tokio::select! {
                () = converse(stream, router, &connection) => {}
                why = connection.ended() => tracing::debug!("a metrics connection ends: {why}"),
                () = tokio::time::sleep(LONGEST) => {}
            }
            connections.remove(&connection);
            drop(slot);
        });
    }
}

/// One request and its reply.
async fn converse(stream: tokio::net::TcpStream, router: Router, connection: &Connection) {
    let service = service_fn(|request: hyper::Request<Incoming>| {
        connection.enter(Phase::Waiting);
        let reply = TowerToHyperService::new(router.clone()).call(request);
        async {
            let reply = reply.await;
            connection.enter(Phase::Replying);
            reply
        }
    });
    let conversation = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = conversation.await {
        tracing::debug!(%error, "a metrics connection broke");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::mpsc;

    use super::*;
    use crate::daemon::Message;
    use crate::metrics::Measured;

    const TOKEN: &str = "correct-horse-battery";

    /// A server for which somebody measures, and its address.
    fn served(token: Option<&str>) -> SocketAddr {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let token_file = token.map(|token| {
            std::fs::write(&file, format!("{token}\n")).unwrap();
            file.clone()
        });
        let address = Some("127.0.0.1:0".parse().unwrap());
        let settings = MetricsSettings { address, token_file, ..MetricsSettings::default() };
        let opened = open(&settings, &folder.path().join("gw.toml")).unwrap().unwrap();
        let address = opened.listener.local_addr().unwrap();
        let (sender, messages) = mpsc::sync_channel(4);
        thread::spawn(move || {
            while let Ok(Message::Metrics(reply)) = messages.recv() {
                let _ = reply.send(Measured::default());
            }
        });
        opened.start(Scrapes::new(sender)).unwrap();
        address
    }

    fn said(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn only_metrics_are_there_and_only_to_be_read() {
        let address = served(None);
        let said = |request: &str| said(address, &format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let text = said("GET /metrics");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        assert!(text.contains("\nhitpath_build_info{version="), "{text}");
        assert!(said("GET /").starts_with("HTTP/1.1 404"));
        assert!(said("POST /v1").starts_with("HTTP/1.1 404"));
        assert!(said("POST /metrics").starts_with("HTTP/1.1 405"));
        assert!(said("nonsense").starts_with("HTTP/1.1 400"));
        let long = format!("GET /{}", "x".repeat(2 * MAX_HEAD));
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(long.as_bytes());
        let mut text = Vec::new();
        // It may be reset while it still sends.
        let _ = stream.read_to_end(&mut text);
        assert!(!text.starts_with(b"HTTP/1.1 200"));
    }

    #[test]
    fn the_token_is_needed_for_everything() {
        let address = served(Some(TOKEN));
        let ask = |path: &str, header: &str| {
            said(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n"))
        };
        for header in [
            String::new(),
            "Authorization: Bearer\r\n".to_owned(),
            format!("Authorization: Basic {TOKEN}\r\n"),
            format!("Authorization: Bearer {TOKEN}x\r\n"),
            format!("Authorization: Bearer {}\r\n", &TOKEN[1..]),
        ] {
            for path in ["/metrics", "/"] {
                let text = ask(path, &header);
                assert!(text.starts_with("HTTP/1.1 401"), "{header}: {text}");
                assert!(!text.contains("hitpath_"), "{text}");
            }
        }
        let text = ask("/metrics", &format!("authorization: bearer {TOKEN}\r\n"));
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    }

    #[test]
    fn those_who_say_nothing_make_room() {
        let address = served(None);
        let idle: Vec<_> =
            (0..2 * CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let text = said(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        drop(idle);
    }

    #[test]
    fn a_token_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        for text in ["", "short", "sixteen and a space", "line\nand-another-line-that-is-long"] {
            std::fs::write(&file, text).unwrap();
            let why = token(&file).unwrap_err().to_string();
            assert!(why.contains("one line of 16 to 256"), "{text}: {why}");
        }
        std::fs::write(&file, "x".repeat(257)).unwrap();
        token(&file).unwrap_err();
        assert!(token(&folder.path().join("none")).is_err());
        std::fs::write(&file, "x".repeat(256)).unwrap();
        token(&file).unwrap();
    }
}
