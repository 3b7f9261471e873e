//! One HTTP conversation for each connection, as the control socket, the metrics and the page have
//! it: bounded connections, and bounded times and sizes for what arrives.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::setpriority_process;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use crate::daemon::audit::Peer;
use crate::daemon::connections::{Connection, Connections, Phase};

/// How long the head of a request may take to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long connections have to end once the server does.
const LAST_REPLIES: Duration = Duration::from_secs(2);

/// How long nothing is accepted after the system refused to: out of descriptors, most likely, and
/// connections that end give some back.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// The lowest priority (setpriority(2)).
const LOWEST: i32 = 19;

/// What the clients of a server get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections served at once. If there are more, one that waits for its client makes room.
    pub(super) connections: usize,
    /// How long the head of a request may be, in bytes, where not as long as the library lets it.
    pub(super) head: Option<usize>,
    /// How long a connection may last, if not as long as it wants.
    pub(super) longest: Option<Duration>,
}

/// Where clients connect to.
pub(super) trait Accepts {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// From where one comes, over a network.
    fn from(_: &Self::Stream) -> Option<SocketAddr> {
        None
    }

    /// The next one.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>>;
}

impl Accepts for tokio::net::TcpListener {
    type Stream = tokio::net::TcpStream;

    fn from(stream: &Self::Stream) -> Option<SocketAddr> {
        stream.peer_addr().ok()
    }

    async fn accept(&self) -> io::Result<Self::Stream> {
        let (stream, _) = tokio::net::TcpListener::accept(self).await?;
        Ok(stream)
    }
}

impl Accepts for tokio::net::UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn accept(&self) -> io::Result<Self::Stream> {
        let (stream, _) = tokio::net::UnixListener::accept(self).await?;
        Ok(stream)
    }
}

/// Runs what `make` returns on a thread of its own, with a runtime of its own, until it ends.
///
/// # Errors
/// If the system gives no thread or no event queue, or `make` fails.
pub(super) fn start<F: Future<Output = ()> + 'static>(
    name: &'static str,
    priority: Priority,
    make: impl FnOnce() -> io::Result<F> + Send + 'static,
) -> anyhow::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .with_context(|| format!("starting the thread `{name}`"))?;
    let (made, is_made) = std::sync::mpsc::sync_channel(1);
    let run = move || {
        // Packets go first. That the system refuses changes nothing else.
        if priority == Priority::Lowest
            && let Err(error) = setpriority_process(None, LOWEST)
        {
            tracing::warn!(%error, "`{name}` runs at the priority of everything else");
        }
        let serve = {
            let _inside = runtime.enter();
            make()
        };
        match serve {
            Ok(serve) => {
                let _ = made.send(Ok(()));
                runtime.block_on(serve);
            }
            Err(error) => drop(made.send(Err(error))),
        }
    };
    let thread = thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .with_context(|| format!("starting the thread `{name}`"))?;
    match is_made.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error).with_context(|| format!("starting the thread `{name}`")),
        Err(_) => anyhow::bail!("the thread `{name}` ended when it started"),
    }
}

/// Which processor time a server gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// As everything else.
    Usual,
    /// What is left over.
    Lowest,
}

/// Serves connections until `stopped`, and lets those who wait then read their replies. `who` says
/// who has connected, as far as that is known, and what is there for them.
pub(super) async fn serve<L: Accepts>(
    name: &'static str,
    listener: L,
    limits: Limits,
    connections: Arc<Connections>,
    who: impl Fn(&L::Stream) -> (Option<Peer>, Router),
    stopped: impl Future<Output = ()>,
) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let mut stopped = std::pin::pin!(stopped);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stopped => break,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "{name}: cannot accept a connection");
                tokio::time::sleep(AFTER_ERROR).await;
                continue;
            }
        };
        let slot = connections.slot(&slots).await;
        let (peer, router) = who(&stream);
        let from = L::from(&stream);
        let connections = Arc::clone(&connections);
        tokio::spawn(async move {
            let connection = connections.add(peer, from);
            let why = tokio::select! {
                () = converse(name, stream, router, &connection, limits) => None,
                why = connection.ended() => Some(why),
                () = lasts(limits.longest) => Some("it has lasted too long"),
            };
            if let Some(why) = why {
                tracing::debug!("{name}: a connection ends: {why}");
            }
            connections.remove(&connection);
            drop(slot);
        });
    }
    // Nobody connects any more. Those who wait are replied to.
    drop(listener);
    let all = slots.acquire_many(limits.connections as u32);
    let _ = tokio::time::timeout(LAST_REPLIES, all).await;
}

async fn lasts(longest: Option<Duration>) {
    match longest {
        Some(longest) => tokio::time::sleep(longest).await,
        None => std::future::pending().await,
    }
}

/// One request and its reply. Whoever handles it finds the connection in its extensions.
async fn converse(
    name: &'static str,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    connection: &Arc<Connection>,
    limits: Limits,
) {
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(connection));
        let reply = TowerToHyperService::new(router.clone()).call(request);
        async {
            let reply = reply.await;
            connection.enter(Phase::Replying);
            reply
        }
    });
    let mut builder = http1::Builder::new();
    // A client that has said everything may still read.
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).keep_alive(false);
    builder.half_close(true);
    if let Some(most) = limits.head {
        builder.max_buf_size(most);
    }
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "{name}: a connection broke");
    }
}
