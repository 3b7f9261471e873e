//! The page that shows in a browser what the gateway does.
//!
//! It can only be looked at: there is nothing here that changes anything. At a TCP address a token
//! is needed for all but the files of the page, which are the same for everybody. At a Unix socket
//! none is, as the socket's mode says who may connect. As the server of metrics, it has a thread of
//! its own at the lowest priority, and whatever a client sends or does not read, it costs a
//! connection of a bounded number, for a bounded time.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anyhow::Context;
use api::{Refusal, RefusalCode, Reply, Request};
use axum::extract::State;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use control::PageSettings;
use nix::sys::stat::Mode;
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::daemon::Message;
use crate::daemon::asking::{self, busy, system};
use crate::daemon::audit::Audit;
use crate::daemon::bearer::{Guard, Token, authorized};
use crate::daemon::connections::{Connection, Phase};
use crate::daemon::http::{self, Limits, Priority};
use crate::daemon::scrape::Scrapes;
use crate::daemon::server::{arrived, not_understood, refused, with_json};
use crate::daemon::socket::{self, SocketFile};
use crate::page;

/// What clients get, at the address and at the socket.
const LIMITS: Limits =
    Limits { connections: 32, head: Some(16 << 10), longest: Some(Duration::from_secs(60)) };

/// The longest question, in bytes, and how long it may take to arrive.
const MAX_QUESTION: usize = 4 << 10;
const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Packets that are explained at once; who comes later waits so long for a turn.
const EXPLAINED: usize = 1;
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// What the page may do in a browser: show its own files, and ask where it comes from. Nothing in
/// it is made by putting markup together.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Where the page is served.
#[derive(Debug)]
pub(crate) struct Opened {
    at_address: Option<(TcpListener, Token)>,
    at_socket: Option<(UnixListener, SocketFile)>,
}

/// The page is served; its socket's file goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    _socket: Option<SocketFile>,
}

/// Listens where `settings` say. `config` is the configuration file.
///
/// # Errors
/// The address or the socket cannot be had, or the file with the token is wrong.
pub(crate) fn open(settings: &PageSettings, config: &Path) -> anyhow::Result<Option<Opened>> {
    let PageSettings { address, token_file, socket, socket_group } = settings;
    let at_address = match (address, token_file) {
        (Some(address), Some(file)) => {
            let token = Token::read(file, config, "page")?;
            let listener = TcpListener::bind(address)
                .with_context(|| format!("listening on {address}, address in [page]"))?;
            listener.set_nonblocking(true)?;
            if !address.ip().is_loopback() {
                warn(*address);
            }
            Some((listener, token))
        }
        _ => None,
    };
    let mode = if *socket_group {
        socket::PRIVATE | Mode::S_IRGRP | Mode::S_IWGRP
    } else {
        socket::PRIVATE
    };
    let what = "socket of the page (socket in [page])";
    let at_socket = socket.as_ref().map(|path| socket::listen(path, what, mode)).transpose()?;
    let is_any = at_address.is_some() || at_socket.is_some();
    Ok(is_any.then_some(Opened { at_address, at_socket }))
}

/// Says what an address means that others than this machine reach.
fn warn(address: SocketAddr) {
    tracing::warn!(
        "the page is served in clear text at {address}, which is not of the loopback interface: \
        who sees the packets sees the token, and with it names of ports and VRFs, addresses of \
        peers and counters"
    );
}

impl Opened {
    /// Serves the page on a thread of its own, until the process ends.
    ///
    /// # Errors
    /// If the system gives no thread or no event queue.
    pub(crate) fn start(
        self,
        scrapes: Scrapes,
        control: SyncSender<Message>,
        audit: Audit,
    ) -> anyhow::Result<Served> {
        let Self { at_address, at_socket } = self;
        let (local, file) = at_socket.unzip();
        let asked = Asked { scrapes, control, turns: Arc::new(Semaphore::new(EXPLAINED)) };
        http::start("page", Priority::Lowest, move || {
            let (listener, token) = at_address.unzip();
            let by_token =
                token.map(|token| router(&asked, Some(Guard::new(token, audit, "page", true))));
            let remote = listener.map(tokio::net::TcpListener::from_std).transpose()?;
            let local = local.map(tokio::net::UnixListener::from_std).transpose()?;
            let by_socket = router(&asked, None);
            Ok(async move {
                let remote = async {
                    if let (Some(listener), Some(router)) = (remote, by_token) {
                        serve(listener, router).await;
                    }
                };
                let local = async {
                    if let Some(listener) = local {
                        serve(listener, by_socket).await;
                    }
                };
                tokio::join!(remote, local);
            })
        })?;
        Ok(Served { _socket: file })
    }
}

async fn serve(listener: impl http::Accepts, router: Router) {
    let who = move |_: &_| (None, router.clone());
    http::serve("page", listener, LIMITS, Arc::default(), who, std::future::pending()).await;
}

/// Whom clients ask.
#[derive(Clone)]
struct Asked {
    scrapes: Scrapes,
    control: SyncSender<Message>,
    turns: Arc<Semaphore>,
}

fn router(asked: &Asked, guard: Option<Guard>) -> Router {
    let mut asking = Router::new()
        .route("/state", get(state))
        .route("/explain", post(explain))
        .with_state(asked.clone());
    asking = match guard {
        Some(guard) => asking.layer(middleware::from_fn_with_state(guard, authorized)),
        None => asking.layer(middleware::from_fn(by_name)),
    };
    let files = page::FILES.into_iter().fold(Router::new(), |router, file| {
        let reply = move || async move { ([(CONTENT_TYPE, file.kind)], file.text) };
        router.route(file.path, get(reply))
    });
    let nothing = || async { (StatusCode::NOT_FOUND, "there is nothing here; the page is at /\n") };
    files
        .merge(asking)
        .fallback(nothing)
        .layer(middleware::from_fn(same_site))
        .layer(middleware::map_response(guarded))
}

/// Refuses what a browser asks on behalf of another site.
async fn same_site(request: axum::extract::Request, next: Next) -> Response {
    let site = request.headers().get("sec-fetch-site").map(HeaderValue::as_bytes);
    let mode = request.headers().get("sec-fetch-mode").map(HeaderValue::as_bytes);
    // Somebody may follow a link to the page.
    let is_other = matches!(site, Some(b"cross-site" | b"same-site")) && mode != Some(b"navigate");
    match is_other {
        true => (StatusCode::FORBIDDEN, "other sites ask nothing here\n").into_response(),
        false => next.run(request).await,
    }
}

/// Refuses requests for a name that may be anybody's: where no token is needed, a site could have its
/// own name lead here, and then read what a browser here may read.
async fn by_name(request: axum::extract::Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if is_own_name(host) {
        return next.run(request).await;
    }
    let why = "a request without token needs `localhost` or an address in its Host header; have \
        the proxy in front send that (proxy_set_header Host localhost)\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// Whether a Host header has `localhost` or an address, with a port or without.
fn is_own_name(host: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::Ipv4Addr>().is_ok()
        }
    }
}

/// What every reply says about what a browser may do with it.
async fn guarded(mut reply: Response) -> Response {
    let headers = reply.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// What the gateway has counted.
async fn state(
    State(asked): State<Asked>,
    Extension(connection): Extension<Arc<Connection>>,
) -> Response {
    connection.enter(Phase::Waiting);
    match asked.scrapes.page().await {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(why) => with_json(StatusCode::SERVICE_UNAVAILABLE, &system(why)),
    }
}

/// A packet that somebody wants to have explained.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    packet: String,
}

/// What would happen to a packet, step by step.
async fn explain(
    State(asked): State<Asked>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
    request: axum::extract::Request,
) -> Response {
    // A form of another site cannot send this type.
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().is_none_or(|kind| kind.trim() != "application/json") {
        let refusal = Refusal::new(RefusalCode::Invalid, "a question is JSON")
            .with_hint("Content-Type: application/json");
        return with_json(StatusCode::UNSUPPORTED_MEDIA_TYPE, &refusal);
    }
    let body = match arrived(request, MAX_QUESTION, QUESTION_TIMEOUT).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let Question { packet } = match serde_json::from_slice(&body) {
        Ok(question) => question,
        Err(error) => return refused(&not_understood(&error)),
    };
    connection.enter(Phase::Waiting);
    let Ok(Ok(_turn)) = tokio::time::timeout(TURN_TIMEOUT, asked.turns.acquire()).await else {
        return refused(&busy());
    };
    match asking::ask(&asked.control, Request::Explain { packet }, false, None).await {
        Ok(Reply::Explained(stages)) => with_json(StatusCode::OK, &stages),
        Ok(_) => refused(&system("the gateway has replied with something else; please report it")),
        Err(refusal) => refused(&refusal),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::thread;

    use api::Stage;

    use super::*;
    use crate::metrics::Measured;

    const TOKEN: &str = "correct-horse-battery";

    /// The page at an address and at a socket, before a gateway that explains every packet alike.
    struct Site {
        address: SocketAddr,
        socket: PathBuf,
        _served: Served,
        _folder: tempfile::TempDir,
    }

    fn site() -> Site {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("page.sock");
        std::fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let settings = PageSettings {
            address: Some("127.0.0.1:0".parse().unwrap()),
            token_file: Some("token".into()),
            socket: Some(socket.clone()),
            socket_group: false,
        };
        let opened = open(&settings, &folder.path().join("gw.toml")).unwrap().unwrap();
        let address = opened.at_address.as_ref().unwrap().0.local_addr().unwrap();
        let (sender, messages) = mpsc::sync_channel(4);
        thread::spawn(move || {
            while let Ok(message) = messages.recv() {
                match message {
                    Message::Metrics(reply) => drop(reply.send(Measured::default())),
                    Message::Request(pending) => {
                        let mut reply = pending.reply;
                        assert!(reply.begin());
                        let Request::Explain { packet } = pending.request else { panic!() };
                        let (stage, text, members) =
                            ("parse".to_owned(), packet, Default::default());
                        reply.send(Ok(Reply::Explained(vec![Stage { stage, text, members }])));
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
        let served = opened.start(Scrapes::new(sender.clone()), sender, Audit::default()).unwrap();
        Site { address, socket, _served: served, _folder: folder }
    }

    fn said(mut stream: impl Read + Write, head: &str, body: &str) -> String {
        let length = body.len();
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    }

    impl Site {
        fn remote(&self, line: &str, headers: &str, body: &str) -> String {
            let stream = TcpStream::connect(self.address).unwrap();
            said(stream, &format!("{line} HTTP/1.1\r\nHost: gw\r\n{headers}"), body)
        }

        fn local(&self, line: &str, headers: &str) -> String {
            let stream = UnixStream::connect(&self.socket).unwrap();
            said(stream, &format!("{line} HTTP/1.1\r\n{headers}"), "")
        }
    }

    #[test]
    fn the_files_are_there_for_everybody_and_the_rest_for_who_has_the_token() {
        let site = site();
        for page::File { path, kind, text } in page::FILES {
            let reply = site.remote(&format!("GET {path}"), "", "");
            assert!(reply.starts_with("HTTP/1.1 200"), "{path}: {reply}");
            assert!(reply.contains(&format!("content-type: {kind}\r\n")), "{path}: {reply}");
            assert!(reply.ends_with(text), "{path}");
        }
        let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
        for wrong in ["", "Authorization: Bearer\r\n", &bearer("x"), &bearer(&TOKEN[1..])] {
            for line in ["GET /state", "POST /explain"] {
                let reply = site.remote(line, wrong, "");
                assert!(reply.starts_with("HTTP/1.1 401"), "{line} {wrong}: {reply}");
                assert!(reply.contains("content-security-policy: default-src 'none'"), "{reply}");
            }
        }
        let reply = site.remote("GET /state", &bearer(TOKEN), "");
        assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("\"graph\":[{"), "{reply}");
    }

    #[test]
    fn a_packet_is_explained_and_nothing_else_can_be_asked() {
        let site = site();
        let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
        let json = format!("{bearer}Content-Type: application/json\r\n");
        let reply = site.remote("POST /explain", &json, r#"{"packet":"udp"}"#);
        assert!(reply.ends_with(r#"[{"stage":"parse","text":"udp"}]"#), "{reply}");
        for (line, headers, body, status) in [
            ("POST /explain", &bearer, r#"{"packet":"udp"}"#, "415"),
            ("POST /explain", &json, r#"{"packet":"udp","do":"x"}"#, "400"),
            ("POST /explain", &json, "{", "400"),
            ("POST /explain", &json, &" ".repeat(MAX_QUESTION + 1), "413"),
            ("GET /explain", &json, "", "405"),
            ("POST /state", &json, "", "405"),
            ("DELETE /state", &json, "", "405"),
            ("PUT /", &json, "", "405"),
            ("POST /v1", &json, r#"{"do":"version"}"#, "404"),
            ("GET /metrics", &json, "", "404"),
            ("GET /../../etc/passwd", &json, "", "404"),
            ("GET /%2e%2e/etc/passwd", &json, "", "404"),
            ("GET //state", &json, "", "404"),
            ("GET /state/", &json, "", "404"),
            ("nonsense", &json, "", "400"),
        ] {
            let reply = site.remote(line, headers, body);
            assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {reply}");
        }
    }

    #[test]
    fn the_socket_needs_no_token_and_a_name_that_is_its_own() {
        let site = site();
        for host in ["localhost", "localhost:8080", "127.0.0.1:80", "[::1]:8080", "[::1]", "::1"] {
            let status = if host == "::1" { "421" } else { "200" };
            let reply = site.local("GET /state", &format!("Host: {host}\r\n"));
            assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {reply}");
        }
        for host in ["evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example", ""] {
            let reply = site.local("GET /state", &format!("Host: {host}\r\n"));
            assert!(reply.starts_with("HTTP/1.1 421"), "{host}: {reply}");
        }
        for site_of in ["cross-site", "same-site"] {
            let headers = format!("Host: localhost\r\nSec-Fetch-Site: {site_of}\r\n");
            assert!(site.local("GET /state", &headers).starts_with("HTTP/1.1 403"));
            let headers = format!("{headers}Sec-Fetch-Mode: navigate\r\n");
            assert!(site.local("GET /", &headers).starts_with("HTTP/1.1 200"));
        }
    }

    #[test]
    fn those_who_say_nothing_make_room() {
        let site = site();
        let idle: Vec<_> = (0..2 * LIMITS.connections)
            .map(|_| TcpStream::connect(site.address).unwrap())
            .collect();
        assert!(site.remote("GET /", "", "").starts_with("HTTP/1.1 200"));
        drop(idle);
    }

    #[test]
    fn who_may_connect_to_the_socket_is_said_by_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        for (socket_group, mode) in [(false, 0o600), (true, 0o660)] {
            let path = folder.path().join("page.sock");
            let settings = PageSettings {
                socket: Some(path.clone()),
                socket_group,
                ..PageSettings::default()
            };
            let opened = open(&settings, Path::new("gw.toml")).unwrap().unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
            drop(opened);
            assert!(!path.exists());
        }
        assert!(open(&PageSettings::default(), Path::new("gw.toml")).unwrap().is_none());
    }
}
