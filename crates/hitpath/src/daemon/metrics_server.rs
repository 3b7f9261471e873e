//! `GET /metrics` at a TCP address, for those who may not speak on the control socket.
//!
//! It has a thread of its own at the lowest priority. Whatever a client sends or does not read, it
//! costs a connection of a bounded number, for a bounded time; the one that has waited for its
//! client for the longest makes room for others.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router, middleware};
use control::MetricsSettings;

use crate::daemon::audit::Audit;
use crate::daemon::bearer::{Guard, Token, authorized};
use crate::daemon::connections::{Connection, Phase};
use crate::daemon::http::{self, Limits, Priority};
use crate::daemon::scrape::Scrapes;

/// What clients get.
const LIMITS: Limits =
    Limits { connections: 32, head: Some(16 << 10), longest: Some(Duration::from_secs(30)) };

/// An address that is listened on, and who may ask there.
#[derive(Debug)]
pub(crate) struct Opened {
    listener: TcpListener,
    token: Option<Token>,
}

/// Listens on the address of `settings`, if there is one. `config` is the configuration file.
///
/// # Errors
/// The address cannot be had, or the file with the token is wrong.
pub(crate) fn open(settings: &MetricsSettings, config: &Path) -> anyhow::Result<Option<Opened>> {
    let Some(address) = settings.address else { return Ok(None) };
    let file = settings.token_file.as_ref();
    let token = file.map(|file| Token::read(file, config, "metrics")).transpose()?;
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

impl Opened {
    /// Serves `scrapes` on a thread of its own, until the process ends.
    ///
    /// # Errors
    /// If the system gives no thread or no event queue.
    pub(crate) fn start(self, scrapes: Scrapes, audit: Audit) -> anyhow::Result<()> {
        let Self { listener, token } = self;
        let guard = token.map(|token| Guard::new(token, audit, "metrics", false));
        http::start("metrics", Priority::Lowest, move || {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let router = router(scrapes, guard);
            let who = move |_: &_| (None, router.clone());
            Ok(http::serve(
                "metrics",
                listener,
                LIMITS,
                Arc::default(),
                who,
                std::future::pending(),
            ))
        })?;
        Ok(())
    }
}

fn router(scrapes: Scrapes, guard: Option<Guard>) -> Router {
    let router = Router::new().route("/metrics", get(metrics)).with_state(scrapes);
    let router = router.fallback(|| async { (StatusCode::NOT_FOUND, "only /metrics is here\n") });
    match guard {
        None => router,
        Some(guard) => router.layer(middleware::from_fn_with_state(guard, authorized)),
    }
}

/// The metrics, in the format that is asked for.
async fn metrics(
    State(scrapes): State<Scrapes>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
) -> Response {
    connection.enter(Phase::Waiting);
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::mpsc;
    use std::thread;

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
        opened.start(Scrapes::new(sender), Audit::default()).unwrap();
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
        let long = format!("GET /{}", "x".repeat(2 * LIMITS.head.unwrap()));
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
            (0..2 * LIMITS.connections).map(|_| TcpStream::connect(address).unwrap()).collect();
        let text = said(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        drop(idle);
    }
}
