//! The server on the control socket: HTTP in, one [`PendingRequest`](super::PendingRequest) to the
//! control thread for each request.
//!
//! What comes from outside is bounded everywhere: connections at once, the length of a request, the
//! time that it takes to arrive, the memory of all replies together, and the time that a client has
//! to read its own. Who may speak is decided by the kernel's word on who connected, besides the
//! socket file's mode.
//!
//! A request that has arrived is replied to: with its outcome, or with a refusal that says that
//! nothing was done. A connection that is closed without a reply has asked for nothing, unless the
//! daemon itself was killed.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use api::{Refusal, RefusalCode, Reply, Request};
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::daemon::Message;
use crate::daemon::asking::{self, TURN_TIMEOUT, busy, stopping, system};
use crate::daemon::audit::{Audit, Note, Peer};
use crate::daemon::connection_events::ConnectionEvents;
use crate::daemon::connections::{Connection, Connections, EVICTION_PERIOD, Phase};
use crate::daemon::http::{self, Limits, Priority};
use crate::daemon::metrics_server;
use crate::daemon::monitors::Monitors;
use crate::daemon::scrape::Scrapes;
use crate::daemon::taps::{TapStream, Taps};
use crate::daemon::traces::Traces;

/// What clients get. What they follow goes on as long as they want.
const LIMITS: Limits = Limits { connections: 256, head: None, longest: None };

/// Long batches that are read and carried out at once. More are refused, to be tried again. The
/// reason is their memory.
const LONG_BATCHES: usize = 1;

/// How long the body of a request may take, and that of a long batch.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
const LONG_BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Lists that are made at once. The reason is their memory.
const LISTS: usize = 2;

/// What all replies that are being read may take together, in KiB.
const REPLY_ROOM: usize = 256 << 10;

/// A reply of up to so many bytes takes no room: as many as there are connections fit.
const SHORT_REPLY: usize = 64 << 10;

/// The server's thread.
#[derive(Debug)]
pub(crate) struct Server {
    thread: Option<thread::JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Stops accepting, and gives those who wait a moment to read their replies.
    pub(crate) fn stop(mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the server ended in a panic; please report it");
        }
    }
}

/// Who reads what is sent on and on.
type Readers = ((Taps, Traces), ConnectionEvents, Monitors);

/// Serves `listener` on a thread of its own until it is stopped.
///
/// # Errors
/// If the system gives no thread or no event queue.
pub(crate) fn start(
    listener: UnixListener,
    control: SyncSender<Message>,
    readers: Readers,
    scrapes: Scrapes,
    audit: Audit,
) -> anyhow::Result<Server> {
    let (stop, mut stopped) = watch::channel(false);
    let thread = http::start("server", Priority::Usual, move || {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let connections = Arc::new(Connections::default());
        let open = open(control, readers, scrapes, audit.clone(), Arc::clone(&connections));
        let closed = Router::new().fallback(any(forbidden));
        let who = move |stream: &UnixStream| {
            let (peer, may_speak) = peer_of(stream, &audit);
            (peer, if may_speak { open.clone() } else { closed.clone() })
        };
        let stopped = async move {
            let _ = stopped.changed().await;
        };
        Ok(http::serve("control socket", listener, LIMITS, connections, who, stopped))
    })?;
    Ok(Server { thread: Some(thread), stop })
}

/// What is there for those who may speak.
fn open(
    control: SyncSender<Message>,
    ((taps, traces), events, monitors): Readers,
    scrapes: Scrapes,
    audit: Audit,
    connections: Arc<Connections>,
) -> Router {
    Router::new()
        .route(api::PATH, post(handle_request))
        .route(api::BATCH_PATH, post(handle_batch))
        .route(api::TAP_PATH, post(handle_tap))
        .route(api::TRACE_PATH, post(handle_trace))
        .route(api::CONNTRACK_PATH, post(handle_conntrack))
        .route(api::MONITOR_PATH, post(handle_monitor))
        .route(api::METRICS_PATH, get(handle_metrics))
        .fallback(any(elsewhere))
        .with_state(Senders {
            control,
            long: Arc::new(Semaphore::new(LONG_BATCHES)),
            lists: Arc::new(Semaphore::new(LISTS)),
            room: Arc::new(Semaphore::new(REPLY_ROOM)),
            connections,
            taps,
            traces,
            events,
            monitors,
            scrapes,
            audit,
        })
}

/// Who has connected, and whether they may speak: root and the daemon's own user may.
fn peer_of(stream: &UnixStream, audit: &Audit) -> (Option<Peer>, bool) {
    match stream.peer_cred() {
        Ok(found) => {
            // Of another PID namespace, the system says 0.
            let pid = found.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid != 0);
            let peer = Peer { uid: found.uid(), pid };
            let allowed = peer.uid == 0 || peer.uid == nix::unistd::geteuid().as_raw();
            if !allowed {
                tracing::warn!(
                    uid = peer.uid,
                    "refused a client: only root and the daemon's own user may speak to it"
                );
                let why = "only root and the user of the daemon may speak to it";
                audit.peer_refused(Some(&peer), why);
            }
            (Some(peer), allowed)
        }
        Err(error) => {
            tracing::warn!(%error, "refused a client: the system does not say who it is");
            audit.peer_refused(None, "the system does not say who it is");
            (None, false)
        }
    }
}

/// Where requests go.
#[derive(Clone)]
struct Senders {
    control: SyncSender<Message>,
    /// Whose turn it is to be long.
    long: Arc<Semaphore>,
    /// Whose turn it is to make a list.
    lists: Arc<Semaphore>,
    /// What replies may take.
    room: Arc<Semaphore>,
    /// Who has to make room.
    connections: Arc<Connections>,
    /// Who reads packets.
    taps: Taps,
    traces: Traces,
    events: ConnectionEvents,
    monitors: Monitors,
    /// What is counted.
    scrapes: Scrapes,
    /// Where it is written who asks for what.
    audit: Audit,
}

impl Senders {
    /// What is to be written down of a request.
    fn note(&self, connection: &Connection, request: &Request) -> Option<Note> {
        Note::of(&self.audit, connection.peer.as_ref()?, request)
    }

    /// What a client has sent is refused before anything is done.
    fn refused(&self, connection: &Connection, refusal: &Refusal) -> Response {
        self.audit.not_a_request(connection.peer.as_ref(), refusal);
        refused(refusal)
    }
}

async fn handle_request(
    State(senders): State<Senders>,
    RawQuery(query): RawQuery,
    Extension(connection): Extension<Arc<Connection>>,
    request: axum::extract::Request,
) -> Response {
    let sync = match waits(query.as_deref()) {
        Ok(sync) => sync,
        Err(refusal) => return refused(&refusal),
    };
    let request = match read(&senders, &connection, request).await {
        Ok(request) => request,
        Err(refusal) => return refusal,
    };
    let note = senders.note(&connection, &request);
    ask(&senders, &connection, request, sync, note).await
}

/// A batch may be long, and no more than one at a time is.
async fn handle_batch(
    State(senders): State<Senders>,
    Extension(connection): Extension<Arc<Connection>>,
    request: axum::extract::Request,
) -> Response {
    let Ok(_turn) = senders.long.try_acquire() else {
        let refusal = system("the gateway is busy with another batch; try again");
        return senders.refused(&connection, &refusal);
    };
    let sync = match waits(request.uri().query()) {
        Ok(sync) => sync,
        Err(refusal) => return refused(&refusal),
    };
    let body = match arrived(request, api::MAX_BATCH_BYTES, LONG_BODY_TIMEOUT).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    // Other requests are served meanwhile.
    let read = tokio::task::spawn_blocking({
        let (senders, connection) = (senders.clone(), Arc::clone(&connection));
        move || {
            let request = serde_json::from_slice(&body)?;
            drop(body);
            let note = senders.note(&connection, &request);
            Ok::<_, serde_json::Error>((request, note))
        }
    });
    match read.await {
        Ok(Ok((
            request @ (Request::Batch(_) | Request::FlowChange(_) | Request::FirewallReplace(_)),
            note,
        ))) => ask(&senders, &connection, request, sync, note).await,
        Ok(Ok(_)) => {
            let refusal = Refusal::new(RefusalCode::Invalid, "this is no batch");
            refused(&refusal.with_hint(format!("other requests are posted to {}", api::PATH)))
        }
        Ok(Err(error)) => senders.refused(&connection, &not_understood(&error)),
        Err(_) => refused(&system("the batch could not be read")),
    }
}

/// A tap is replied to with its packets, until it ends.
async fn handle_tap(
    State(senders): State<Senders>,
    Extension(connection): Extension<Arc<Connection>>,
    request: axum::extract::Request,
) -> Response {
    let mut spec: api::TapSpec = match read(&senders, &connection, request).await {
        Ok(spec) => spec,
        Err(refusal) => return refusal,
    };
    let note = senders.note(&connection, &Request::TapAdd(spec.clone()));
    match senders.taps.open(&mut spec) {
        Ok(stream) => {
            let reply = ask(&senders, &connection, Request::TapAdd(spec), true, note).await;
            begun(&connection, reply, stream, "application/x-pcapng")
        }
        Err(refusal) => not_begun(note, refusal),
    }
}

/// A trace is replied to with what becomes of packets, until it ends.
async fn handle_trace(
    State(senders): State<Senders>,
    Extension(connection): Extension<Arc<Connection>>,
    request: axum::extract::Request,
) -> Response {
    let mut spec: api::TraceSpec = match read(&senders, &connection, request).await {
        Ok(spec) => spec,
        Err(refusal) => return refusal,
    };
    let note = senders.note(&connection, &Request::TraceAdd(spec.clone()));
    match senders.traces.open(&mut spec) {
        Ok(stream) => {
            let reply = ask(&senders, &connection, Request::TraceAdd(spec), true, note).await;
            begun(&connection, reply, stream, "application/x-ndjson")
        }
        Err(refusal) => not_begun(note, refusal),
    }
}

/// Who follows connections is replied to with what happens to them, until either side ends it.
async fn handle_conntrack(
    State(senders): State<Senders>,
    Extension(connection): Extension<Arc<Connection>>,
    request: axum::extract::Request,
) -> Response {
    let spec = match read(&senders, &connection, request).await {
        Ok(spec) => spec,
        Err(refusal) => return refusal,
    };
    match senders.events.open(spec) {
        Ok(stream) => streamed(&connection, stream, "application/x-ndjson"),
        Err(refusal) => refused(&refusal),
    }
}

/// Who follows changes is replied to with them, until either side ends it.
async fn handle_monitor(
    State(senders): State<Senders>,
    Extension(connection): Extension<Arc<Connection>>,
    request: axum::extract::Request,
) -> Response {
    let spec = match read(&senders, &connection, request).await {
        Ok(spec) => spec,
        Err(refusal) => return refusal,
    };
    let stream = match senders.monitors.open(spec) {
        Ok(stream) => stream,
        Err(refusal) => return refused(&refusal),
    };
    // Who has a reply misses nothing from then on.
    let (begun, has_begun) = oneshot::channel();
    match senders.control.try_send(Message::Watch(begun)) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => return refused(&busy()),
        Err(TrySendError::Disconnected(_)) => return refused(&stopping()),
    }
    connection.enter(Phase::Waiting);
    match has_begun.await {
        Ok(()) => streamed(&connection, stream, "application/x-ndjson"),
        Err(_) => refused(&stopping()),
    }
}

/// What is counted, as Prometheus reads it.
async fn handle_metrics(
    State(senders): State<Senders>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
) -> Response {
    connection.enter(Phase::Waiting);
    match senders.scrapes.texts().await {
        Ok(texts) => {
            let (kind, text) = texts.accepted(metrics_server::accept(&headers));
            sent(&senders, &connection, kind, text).await
        }
        Err(why) => with_json(StatusCode::SERVICE_UNAVAILABLE, &system(why)),
    }
}

/// The reply to who reads packets, once the control thread has said yes.
fn begun(
    connection: &Connection,
    reply: Response,
    stream: TapStream,
    kind: &'static str,
) -> Response {
    match reply.status() {
        StatusCode::OK => streamed(connection, stream, kind),
        _ => reply,
    }
}

/// The reply to who cannot read packets, which is written down.
fn not_begun(note: Option<Note>, refusal: Refusal) -> Response {
    let response = refused(&refusal);
    if let Some(note) = note {
        note.finish(&Err(refusal), true);
    }
    response
}

/// A reply that goes on until either side ends it.
fn streamed(connection: &Connection, stream: TapStream, kind: &'static str) -> Response {
    connection.enter(Phase::Tapping);
    (StatusCode::OK, [(CONTENT_TYPE, kind)], Body::new(stream)).into_response()
}

/// Whether a reply is to wait until a change would survive power loss.
fn waits(query: Option<&str>) -> Result<bool, Refusal> {
    match query {
        None => Ok(true),
        Some(api::NO_SYNC) => Ok(false),
        Some(_) => Err(Refusal::new(RefusalCode::Invalid, "unknown words behind the path")
            .with_hint(format!("?{}, or nothing", api::NO_SYNC))),
    }
}

/// What the body of a request asks for.
async fn read<T: serde::de::DeserializeOwned>(
    senders: &Senders,
    connection: &Connection,
    request: axum::extract::Request,
) -> Result<T, Response> {
    let body = arrived(request, api::MAX_REQUEST_BYTES, BODY_TIMEOUT).await?;
    serde_json::from_slice(&body)
        .map_err(|error| senders.refused(connection, &not_understood(&error)))
}

/// The body of a request, if it arrives in time and is not too long.
pub(super) async fn arrived(
    request: axum::extract::Request,
    longest: usize,
    timeout: Duration,
) -> Result<Bytes, Response> {
    let too_long = || {
        let message = format!("a request to this path has {longest} bytes at most");
        with_json(StatusCode::PAYLOAD_TOO_LARGE, &Refusal::new(RefusalCode::Invalid, message))
    };
    let body: Body = request.into_body();
    // What is said to be too long is refused before any of it arrives.
    if axum::body::HttpBody::size_hint(&body).lower() > longest as u64 {
        return Err(too_long());
    }
    match tokio::time::timeout(timeout, axum::body::to_bytes(body, longest)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => Err(too_long()),
        Err(_) => {
            let message = format!(
                "the request did not arrive within {} seconds, and nothing was done",
                timeout.as_secs()
            );
            Err(with_json(StatusCode::REQUEST_TIMEOUT, &system(&message)))
        }
    }
}

/// Has the control thread carry a request out.
async fn ask(
    senders: &Senders,
    connection: &Connection,
    request: Request,
    sync: bool,
    note: Option<Note>,
) -> Response {
    connection.enter(Phase::Waiting);
    // Held until there is room for the reply: so it is not in memory more often than that.
    let _turn = if is_list(&request) {
        match tokio::time::timeout(TURN_TIMEOUT, senders.lists.acquire()).await {
            Ok(turn) => turn.ok(),
            Err(_) => return refused(&busy()),
        }
    } else {
        None
    };
    match asking::ask(&senders.control, request, sync, note).await {
        Ok(reply) => with_room(senders, connection, reply).await,
        Err(refusal) => refused(&refusal),
    }
}

/// The response for `reply`, as soon as there is room for it. Changes are made by now, so their
/// replies are always sent.
async fn with_room(senders: &Senders, connection: &Connection, reply: Reply) -> Response {
    let body = match serde_json::to_vec(&reply) {
        Ok(body) => Bytes::from(body),
        Err(error) => return refused(&system(&format!("the reply cannot be written: {error}"))),
    };
    drop(reply);
    sent(senders, connection, "application/json", body).await
}

/// The response with `body`, as soon as there is room for it.
async fn sent(
    senders: &Senders,
    connection: &Connection,
    kind: &'static str,
    body: Bytes,
) -> Response {
    if body.len() > SHORT_REPLY {
        let wanted = (body.len() >> 10).min(REPLY_ROOM) as u32;
        loop {
            let room = Arc::clone(&senders.room).acquire_many_owned(wanted);
            match tokio::time::timeout(EVICTION_PERIOD, room).await {
                Ok(room) => {
                    // Never closed, so there is room in the end.
                    room.into_iter().for_each(|room| connection.keep(room));
                    break;
                }
                Err(_) => senders.connections.evict_reader(),
            }
        }
    }
    (StatusCode::OK, [(CONTENT_TYPE, kind)], body).into_response()
}

/// Whether the reply may be long because there is much to show.
const fn is_list(request: &Request) -> bool {
    matches!(
        request,
        Request::Ports
            | Request::Spd(_)
            | Request::StateList(_)
            | Request::PolicyList(_)
            | Request::PolicyPage(_)
            | Request::RouteList(_)
            | Request::RuleList(_)
            | Request::NextHopList
            | Request::NeighbourList(_)
            | Request::AddressList(_)
            | Request::LinkList(_)
            | Request::VrfList
            | Request::FlowList(_)
            | Request::FirewallGet
            | Request::ConnectionList(_)
            | Request::ConnectionDelete(_)
            | Request::ConnectionUpdate(_)
    )
}

pub(super) fn not_understood(error: &serde_json::Error) -> Refusal {
    // It quotes what stands in the wrong place, which may be a key.
    let why = error.to_string();
    let why = api::without_keys(&why);
    Refusal::new(RefusalCode::Invalid, format!("the request cannot be understood: {why}"))
}

async fn elsewhere() -> Response {
    let refusal = Refusal::new(RefusalCode::NotFound, "there is nothing here")
        .with_hint(format!("requests are posted to {}", api::PATH));
    refused(&refusal)
}

async fn forbidden() -> Response {
    let refusal = system("only root and the daemon's own user may speak to the gateway");
    with_json(StatusCode::FORBIDDEN, &refusal)
}

pub(super) fn refused(refusal: &Refusal) -> Response {
    let status =
        StatusCode::from_u16(refusal.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_json(status, refusal)
}

pub(super) fn with_json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;

    use super::*;
    use crate::client;
    use crate::daemon::socket;

    /// A server whose control thread answers every request with the number of ports it never has.
    fn serve_in(folder: &Path) -> (std::path::PathBuf, (socket::SocketFile, Server)) {
        let path = folder.join("control");
        let (listener, file) = socket::listen(&path, socket::CONTROL, socket::PRIVATE).unwrap();
        let (sender, messages) = mpsc::sync_channel(1);
        let scrapes = Scrapes::new(sender.clone());
        let audit = Audit::default();
        let server = start(listener, sender, Default::default(), scrapes, audit).unwrap();
        thread::spawn(move || {
            while let Ok(Message::Request(pending)) = messages.recv() {
                pending.reply.send(match pending.request {
                    Request::Version => Ok(Reply::Count(0)),
                    _ => Err(Refusal::new(RefusalCode::NotFound, "no such thing")),
                });
            }
        });
        (path, (file, server))
    }

    #[test]
    fn requests_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _server) = serve_in(folder.path());
        let answer = client::post_parts(&path, api::PATH, &[br#"{"do":"version"}"#]).unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &br#"{"is":"count","of":0}"#[..]));
        let answer = client::post_parts(&path, api::PATH, &[br#"{"do":"ports"}"#]).unwrap();
        assert_eq!(answer.status, 404);
        assert_eq!(
            serde_json::from_slice::<Refusal>(&answer.body).unwrap().message,
            "no such thing"
        );
    }

    #[test]
    fn nonsense_is_refused_with_a_message() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _server) = serve_in(folder.path());
        let answer = client::post_parts(&path, api::PATH, &[b"{"]).unwrap();
        assert_eq!(answer.status, 400);
        let answer = client::post_parts(&path, api::PATH, &[br#"{"do":"sing"}"#]).unwrap();
        let refusal: Refusal = serde_json::from_slice(&answer.body).unwrap();
        assert!(refusal.message.contains("sing"), "{refusal}");
        let answer = client::post_parts(&path, "/", &[]).unwrap();
        assert_eq!(answer.status, 404);
        assert!(String::from_utf8(answer.body).unwrap().contains(api::PATH));
    }

    #[test]
    fn a_request_that_is_too_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _server) = serve_in(folder.path());
        let answer =
            client::post_parts(&path, api::PATH, &[&vec![b' '; api::MAX_REQUEST_BYTES + 1]])
                .unwrap();
        assert_eq!(answer.status, 413);
    }

    #[test]
    fn a_batch_may_be_long_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _server) = serve_in(folder.path());
        let padding = vec![b' '; api::MAX_REQUEST_BYTES];
        let post = |parts: &[&[u8]]| client::post_parts(&path, api::BATCH_PATH, parts).unwrap();
        let answer = post(&[br#"{"do":"batch","with":{"requests":[]}}"#, &padding]);
        // The batch came through to the control thread, which knows of none.
        assert_eq!(answer.status, 404);
        let answer = post(&[br#"{"do":"version"}"#, &padding]);
        assert_eq!(answer.status, 400);
        assert!(String::from_utf8(answer.body).unwrap().contains("no batch"));
        let too_long: Vec<&[u8]> =
            vec![&padding; api::MAX_BATCH_BYTES / api::MAX_REQUEST_BYTES + 1];
        assert_eq!(post(&too_long).status, 413);
    }

    #[test]
    fn many_connections_at_once_are_all_answered() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _server) = serve_in(folder.path());
        let idle: Vec<_> = (0..LIMITS.connections - 1)
            .map(|_| std::os::unix::net::UnixStream::connect(&path).unwrap())
            .collect();
        let answer = client::post_parts(&path, api::PATH, &[br#"{"do":"version"}"#]).unwrap();
        assert_eq!(answer.status, 200);
        drop(idle);
    }
}
