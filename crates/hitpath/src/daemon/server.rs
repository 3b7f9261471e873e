//! The server on the control socket: HTTP in, one [`PendingRequest`] to the control thread for each
//! request.
//!
//! What comes from outside is bounded everywhere: connections at once, the length of a request, and
//! the time that a connection may take. Who may speak is decided by the kernel's word on who
//! connected, besides the socket file's mode.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use api::{Refusal, RefusalCode, Reply, Request};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, oneshot};

use crate::daemon::Message;

/// Connections served at once; the next ones wait.
const CONNECTIONS: usize = 64;

/// Long batches that are read and carried out at once. More are refused, to be tried again. The
/// reason is their memory.
const LONG_BATCHES: usize = 1;

/// How long the head of a request may take to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may last.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// A request, and where its reply goes.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    /// What is asked.
    pub(crate) request: Request,
    /// Whether the reply waits until a change would survive power loss.
    pub(crate) sync: bool,
    /// Who waits for the reply.
    pub(crate) reply: oneshot::Sender<Result<Reply, Refusal>>,
}

/// Serves `listener` on a thread of its own until the process ends.
///
/// # Errors
/// If the system gives no thread or no event queue.
pub(crate) fn start(listener: UnixListener, control: SyncSender<Message>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the server")?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::UnixListener::from_std(listener).context("starting the server")?
    };
    thread::Builder::new()
        .name("server".into())
        .spawn(move || runtime.block_on(serve(listener, control)))
        .context("starting the server's thread")?;
    Ok(())
}

async fn serve(listener: tokio::net::UnixListener, control: SyncSender<Message>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let open = Router::new()
        .route(api::PATH, post(handle_request))
        .route(api::BATCH_PATH, post(handle_batch))
        .fallback(any(elsewhere))
        .layer(DefaultBodyLimit::max(api::MAX_REQUEST_BYTES))
        .with_state(Senders { control, long: Arc::new(Semaphore::new(LONG_BATCHES)) });
    let closed = Router::new().fallback(any(forbidden));
    loop {
        // Never closed, so there is always a slot to wait for.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: connections that end give some back.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let router = if may_speak(&stream) { open.clone() } else { closed.clone() };
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
            match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a client's connection broke"),
                Err(_) => tracing::debug!("a client's connection took too long and was closed"),
            }
            drop(slot);
        });
    }
}

/// Root and the daemon's own user may.
fn may_speak(stream: &UnixStream) -> bool {
    match stream.peer_cred() {
        Ok(peer) => {
            let allowed = peer.uid() == 0 || peer.uid() == nix::unistd::geteuid().as_raw();
            if !allowed {
                tracing::warn!(
                    uid = peer.uid(),
                    "refused a client: only root and the daemon's own user may speak to it"
                );
            }
            allowed
        }
        Err(error) => {
            tracing::warn!(%error, "refused a client: the system does not say who it is");
            false
        }
    }
}

/// Where requests go.
#[derive(Clone)]
struct Senders {
    control: SyncSender<Message>,
    /// Whose turn it is to be long.
    long: Arc<Semaphore>,
}

async fn handle_request(
    State(senders): State<Senders>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    let sync = match waits(query.as_deref()) {
        Ok(sync) => sync,
        Err(refusal) => return refused(&refusal),
    };
    match serde_json::from_slice(&body) {
        Ok(request) => ask(&senders.control, request, sync).await,
        Err(error) => refused(&not_understood(&error)),
    }
}

/// A batch may be long, and no more than one at a time is.
async fn handle_batch(State(senders): State<Senders>, request: axum::extract::Request) -> Response {
    let Ok(_turn) = senders.long.try_acquire() else {
        return refused(&system("the gateway is busy with another batch; try again"));
    };
    let sync = match waits(request.uri().query()) {
        Ok(sync) => sync,
        Err(refusal) => return refused(&refusal),
    };
    let body = match axum::body::to_bytes(request.into_body(), api::MAX_BATCH_BYTES).await {
        Ok(body) => body,
        Err(_) => {
            let message = format!("a batch has {} bytes at most", api::MAX_BATCH_BYTES);
            return with_json(
                StatusCode::PAYLOAD_TOO_LARGE,
                &Refusal::new(RefusalCode::Invalid, message),
            );
        }
    };
    // Other requests are served meanwhile.
    let read = tokio::task::spawn_blocking(move || serde_json::from_slice(&body)).await;
    match read {
        Ok(Ok(request @ Request::Batch(_))) => ask(&senders.control, request, sync).await,
        Ok(Ok(_)) => {
            let refusal = Refusal::new(RefusalCode::Invalid, "this is no batch");
            refused(&refusal.with_hint(format!("other requests are posted to {}", api::PATH)))
        }
        Ok(Err(error)) => refused(&not_understood(&error)),
        Err(_) => refused(&system("the batch could not be read")),
    }
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

async fn ask(control: &SyncSender<Message>, request: Request, sync: bool) -> Response {
    let (sender, receiver) = oneshot::channel();
    let pending = Box::new(PendingRequest { request, sync, reply: sender });
    match control.try_send(Message::Request(pending)) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => {
            return refused(&system("the gateway is busy with other requests; try again"));
        }
        Err(TrySendError::Disconnected(_)) => return refused(&system("the gateway is stopping")),
    }
    match receiver.await {
        Ok(Ok(reply)) => with_json(StatusCode::OK, &reply),
        Ok(Err(refusal)) => refused(&refusal),
        Err(_) => refused(&system("the gateway is stopping")),
    }
}

fn not_understood(error: &serde_json::Error) -> Refusal {
    Refusal::new(RefusalCode::Invalid, format!("the request cannot be understood: {error}"))
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

fn system(message: &str) -> Refusal {
    Refusal::new(RefusalCode::System, message)
}

fn refused(refusal: &Refusal) -> Response {
    let status =
        StatusCode::from_u16(refusal.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_json(status, refusal)
}

fn with_json(status: StatusCode, value: &impl serde::Serialize) -> Response {
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
    fn serve_in(folder: &Path) -> (std::path::PathBuf, socket::SocketFile) {
        let path = folder.join("control");
        let (listener, file) = socket::listen(&path).unwrap();
        let (sender, messages) = mpsc::sync_channel(1);
        start(listener, sender).unwrap();
        thread::spawn(move || {
            while let Ok(Message::Request(pending)) = messages.recv() {
                let _ = pending.reply.send(match pending.request {
                    Request::Version => Ok(Reply::Count(0)),
                    _ => Err(Refusal::new(RefusalCode::NotFound, "no such thing")),
                });
            }
        });
        (path, file)
    }

    #[test]
    fn requests_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _file) = serve_in(folder.path());
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
        let (path, _file) = serve_in(folder.path());
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
        let (path, _file) = serve_in(folder.path());
        let answer =
            client::post_parts(&path, api::PATH, &[&vec![b' '; api::MAX_REQUEST_BYTES + 1]])
                .unwrap();
        assert_eq!(answer.status, 413);
    }

    #[test]
    fn a_batch_may_be_long_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _file) = serve_in(folder.path());
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
        let (path, _file) = serve_in(folder.path());
        let idle: Vec<_> = (0..CONNECTIONS - 1)
            .map(|_| std::os::unix::net::UnixStream::connect(&path).unwrap())
            .collect();
        let answer = client::post_parts(&path, api::PATH, &[br#"{"do":"version"}"#]).unwrap();
        assert_eq!(answer.status, 200);
        drop(idle);
    }
}
