//! Commands in iproute2's words.

use api::{Refusal, Request};

/// Reads a command: `xfrm state add ...`, `route add ...` and so on, one word to an element, as a shell would split it.
///
/// # Errors
/// What word is wrong, and what was expected in its place; or what is not supported.
pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Request, Refusal> {
    let _ = words;
    todo!()
}
