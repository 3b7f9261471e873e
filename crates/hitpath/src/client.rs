//! The client's side of the control socket: one blocking HTTP/1.1 exchange over a Unix socket.
//!
//! The daemon answers each request whole and closes the connection, so a dozen lines of HTTP serve
//! better here than an asynchronous client.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use api::{LinkFilter, LinkView, Refusal, Reply, Request};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use zeroize::Zeroizing;

use crate::exit::Unreachable;

/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest answer that is read, in bytes.
const MAX_ANSWER: u64 = 1 << 30;

/// The most bytes of the answer's head.
const MAX_HEAD: u64 = 64 * 1024;

/// An answer of the daemon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The body: JSON.
    pub(crate) body: Vec<u8>,
}

/// Asks the daemon that listens on `socket`.
///
/// # Errors
/// [`Unreachable`] if no daemon listens, the daemon's [`Refusal`] if it refuses.
pub(crate) fn ask(socket: &Path, request: &Request) -> anyhow::Result<Reply> {
    change(socket, request, true)
}

/// The same of a change, whose answer waits until it would survive power loss if `sync` says so.
///
/// # Errors
/// As [`ask`].
pub(crate) fn change(socket: &Path, request: &Request, sync: bool) -> anyhow::Result<Reply> {
    // Keys are among what is sent.
    let body = Zeroizing::new(serde_json::to_vec(request)?);
    ask_in_parts(socket, &path(api::PATH, sync), &[&body])
}

/// Asks as [`ask`] does, and waits for no longer than that at a time, be it for a daemon that accepts
/// nobody: who asks has pressed a key.
///
/// # Errors
/// As [`ask`]; and that no answer came in time.
pub(crate) fn ask_within(
    socket: &Path,
    request: &Request,
    limit: Duration,
) -> anyhow::Result<Reply> {
    let body = serde_json::to_vec(request)?;
    read_reply(post_within(socket, api::PATH, &[&body], limit)?)
}

/// The links of an answer with addresses, above which iproute2 shows them; none of other answers.
///
/// # Errors
/// As [`ask`].
pub(crate) fn links_of(
    socket: &Path,
    request: &Request,
    reply: &Reply,
) -> anyhow::Result<Vec<LinkView>> {
    let (Request::AddressList(filter), Reply::Addresses(_)) = (request, reply) else {
        return Ok(Vec::new());
    };
    let links =
        LinkFilter { port: filter.port.clone(), vrf: filter.vrf.clone(), ..LinkFilter::default() };
    match ask(socket, &Request::LinkList(links))? {
        Reply::Links(links) => Ok(links),
        other => Err(unexpected(&other)),
    }
}

/// Where a change is posted to.
pub(crate) fn path(path: &str, sync: bool) -> String {
    if sync { path.to_owned() } else { format!("{path}?{}", api::NO_SYNC) }
}

/// Asks the daemon that listens on `socket` at `path`. `parts` are the request, one behind the
/// other.
///
/// # Errors
/// As [`ask`].
pub(crate) fn ask_in_parts(socket: &Path, path: &str, parts: &[&[u8]]) -> anyhow::Result<Reply> {
    read_reply(post_parts(socket, path, parts)?)
}

#[allow(clippy::needless_pass_by_value)] // It ends here.
fn read_reply(answer: Answer) -> anyhow::Result<Reply> {
    let text = || String::from_utf8_lossy(&answer.body);
    if answer.status == 200 {
        return serde_json::from_slice(&answer.body)
            .with_context(|| format!("the daemon's answer is not understood: {}", text()));
    }
    match serde_json::from_slice::<Refusal>(&answer.body) {
        Ok(refusal) => Err(refusal.into()),
        Err(_) => {
            bail!("the daemon answered with HTTP status {}: {}", answer.status, text().trim_end())
        }
    }
}

/// The daemon answered something that does not answer the question.
pub(crate) fn unexpected(reply: &Reply) -> anyhow::Error {
    anyhow::anyhow!("the daemon's answer does not fit the question: {reply:?}")
}

/// Sends `parts`, one behind the other, to `path` of the daemon that listens on `socket`.
///
/// # Errors
/// [`Unreachable`] if no daemon listens; others if it went away or spoke nonsense.
pub(crate) fn post_parts(socket: &Path, path: &str, parts: &[&[u8]]) -> anyhow::Result<Answer> {
    post_within(socket, path, parts, PATIENCE)
}

fn post_within(
    socket: &Path,
    path: &str,
    parts: &[&[u8]],
    patience: Duration,
) -> anyhow::Result<Answer> {
    let mut stream = connect(socket, patience)?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: hitpath\r\nContent-Type: \
        application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        parts.iter().map(|part| part.len()).sum::<usize>()
    );
    // A daemon that refuses early (wrong user, body too long) has answered and closed before all
    // was sent. Its answer says why.
    let mut all = std::iter::once(head.as_bytes()).chain(parts.iter().copied());
    let sent = all.try_for_each(|part| stream.write_all(part));
    match read_answer(&mut BufReader::new(&stream)) {
        Ok(answer) => Ok(answer),
        Err(error) => {
            let is_late = error.downcast_ref::<io::Error>();
            if is_late.is_some_and(|error| error.kind() == ErrorKind::WouldBlock) {
                bail!("the daemon at {} has not answered for {patience:?}", socket.display());
            }
            sent.context("sending the request to the daemon")?;
            Err(error).with_context(|| {
                format!("reading the answer of the daemon at {}", socket.display())
            })
        }
    }
}

/// Posts `body` to `path`, and returns what is answered as it comes.
///
/// # Errors
/// As [`ask`].
pub(crate) fn stream(socket: &Path, path: &str, body: &[u8]) -> anyhow::Result<UnixStream> {
    let mut stream = connect(socket, PATIENCE)?;
    // HTTP/1.0 has no transfer encodings: the answer ends with the connection.
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: hitpath\r\nContent-Type: application/json\r\n\
        Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body))?;
    // Byte by byte, so that none behind the head is taken.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") && (answer.len() as u64) < MAX_HEAD {
        let mut byte = [0];
        stream.read_exact(&mut byte).context("reading the daemon's answer")?;
        answer.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&answer);
    if text.split(' ').nth(1) == Some("200") {
        return Ok(stream);
    }
    let mut refusal = Vec::new();
    stream.take(MAX_HEAD).read_to_end(&mut refusal)?;
    match serde_json::from_slice::<Refusal>(&refusal) {
        Ok(refusal) => Err(refusal.into()),
        Err(_) => bail!("the daemon answered: {}", text.lines().next().unwrap_or_default()),
    }
}

/// A connection that is waited for, as for each answer by it, no longer than `patience`. A daemon that
/// is stopped accepts nobody, and once its queue is full only the time to send limits the wait
/// (socket(7), `SO_SNDTIMEO`).
fn connect(socket: &Path, patience: Duration) -> anyhow::Result<UnixStream> {
    let connect = || -> io::Result<UnixStream> {
        let address = SocketAddrUnix::new(socket)?;
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let made = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let stream = UnixStream::from(made);
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        rustix::net::connect(&stream, &address)?;
        Ok(stream)
    };
    connect().map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => Unreachable(format!(
            "the daemon at {} has accepted nobody for {patience:?}: is it stopped?",
            socket.display()
        ))
        .into(),
        _ => unreachable(socket, &error),
    })
}

fn unreachable(socket: &Path, error: &io::Error) -> anyhow::Error {
    let socket = socket.display();
    let advice = match error.kind() {
        ErrorKind::PermissionDenied => {
            return Unreachable(format!(
                "you may not connect to the daemon's socket {socket}: {error}; only root and the \
                daemon's own user may"
            ))
            .into();
        }
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            "is the daemon running? Start it by `hitpath run --config FILE`, or name its socket by \
            --socket or HITPATH_SOCKET"
        }
        _ => "name the daemon's socket by --socket or HITPATH_SOCKET",
    };
    Unreachable(format!("no daemon at {socket}: {error}; {advice}")).into()
}

fn read_answer(stream: &mut impl BufRead) -> anyhow::Result<Answer> {
    let mut head = stream.take(MAX_HEAD);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        bail!("the connection was closed without one");
    }
    let status = line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|code| code.parse().ok())
        .with_context(|| format!("`{}` is no HTTP answer", line.trim_end()))?;
    let mut length = None;
    loop {
        line.clear();
        if head.read_line(&mut line)? == 0 {
            bail!("the answer ends inside its head");
        }
        let field = line.trim_end();
        if field.is_empty() {
            break;
        }
        let Some((name, value)) = field.split_once(':') else {
            bail!("`{field}` is no HTTP field")
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(
                value.trim().parse::<u64>().with_context(|| format!("`{field}` is no length"))?,
            );
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            bail!(
                "the answer comes in a transfer encoding ({}), which the daemon does not use",
                value.trim()
            );
        }
    }
    let limit = length.unwrap_or(MAX_ANSWER);
    if limit > MAX_ANSWER {
        bail!("the answer is {limit} bytes long, more than the {MAX_ANSWER} that are read");
    }
    let mut body = Vec::new();
    stream.take(limit).read_to_end(&mut body)?;
    if length.is_some_and(|length| body.len() as u64 != length) {
        bail!("the answer ends after {} of {limit} bytes", body.len());
    }
    Ok(Answer { status, body })
}

/// What there is of a line that the daemon sends.
pub(crate) enum Next {
    /// All of it.
    Line,
    /// The time to wait is up. What came stays.
    Waits,
    /// The daemon ended the stream.
    Gone,
}

/// Reads on in a line of at most so many bytes, which is to be a `what`.
///
/// # Errors
/// The stream cannot be read, or the line is longer.
pub(crate) fn next_line(
    stream: &mut impl BufRead,
    line: &mut Vec<u8>,
    most: u64,
    what: &str,
) -> anyhow::Result<Next> {
    let room = most.saturating_sub(line.len() as u64);
    match stream.take(room).read_until(b'\n', line) {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
            ) =>
        {
            return Ok(Next::Waits);
        }
        read => read.context("reading from the daemon")?,
    };
    match line.ends_with(b"\n") {
        true => Ok(Next::Line),
        false if line.len() as u64 >= most => {
            anyhow::bail!("what the daemon sends is no {what}: a line of more than {most} bytes")
        }
        false => Ok(Next::Gone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::exit::Exit;

    fn read(bytes: &str) -> anyhow::Result<Answer> {
        read_answer(&mut bytes.as_bytes())
    }

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let answer = read(
            "HTTP/1.1 422 Unprocessable\r\nContent-Type: application/json\r\ncontent-length: \
                2\r\n\r\n{}",
        )
        .unwrap();
        assert_eq!(answer, Answer { status: 422, body: b"{}".to_vec() });
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\nall of it").unwrap().body, b"all of it");
    }

    #[test]
    fn a_broken_answer_is_an_error() {
        for (bytes, message) in [
            ("", "closed without one"),
            ("SSH-2.0\r\n", "no HTTP answer"),
            ("HTTP/1.1 200 OK\r\n", "inside its head"),
            ("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "no HTTP field"),
            ("HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n", "no length"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", "more than"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", "after 5 of 9"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "does not use"),
        ] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.contains(message), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn a_daemon_that_is_stopped_keeps_nobody_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let limit = Duration::from_millis(1);
        let ask = || ask_within(&socket, &Request::Version, limit).unwrap_err().to_string();
        assert!(ask().contains("has not answered for 1ms"));
        // Until its queue is full.
        let queued: Vec<_> = std::iter::from_fn(|| connect(&socket, limit).ok()).collect();
        assert!(!queued.is_empty());
        assert!(ask().contains("has accepted nobody for 1ms"));
    }

    #[test]
    fn no_daemon_is_its_own_exit_code() {
        let error = post_parts(Path::new("/nonexistent/hitpath.sock"), "/", &[]).unwrap_err();
        assert_eq!(crate::exit::of(&error), Exit::Unreachable);
        assert!(error.to_string().contains("hitpath run"), "{error}");
    }
}
