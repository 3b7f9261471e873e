//! One request to the control thread, and its reply.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use api::{Refusal, RefusalCode, Reply, Request};
use tokio::sync::oneshot;

use crate::daemon::Message;
use crate::daemon::audit::Note;
use crate::daemon::reply_to::{Claim, ReplyTo};

/// How long a request waits for its turn.
pub(super) const TURN_TIMEOUT: Duration = Duration::from_secs(30);

/// A request, and where its reply goes.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    /// What is asked.
    pub(crate) request: Request,
    /// Whether the reply waits until a change would survive power loss.
    pub(crate) sync: bool,
    /// Who waits for the reply.
    pub(crate) reply: ReplyTo,
    /// Whether sequence numbers are reserved for the SAs that it adds.
    pub(crate) is_prepared: bool,
}

/// Has the control thread carry a request out. If there is no reply in time, nothing was done.
///
/// # Errors
/// Why it was refused.
pub(super) async fn ask(
    control: &SyncSender<Message>,
    request: Request,
    sync: bool,
    note: Option<Note>,
) -> Result<Reply, Refusal> {
    let (sender, mut receiver) = oneshot::channel();
    let claim = Claim::default();
    let reply = ReplyTo::new(sender, claim.clone(), note);
    let pending = PendingRequest { request, sync, reply, is_prepared: false };
    match control.try_send(Message::Request(Box::new(pending))) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => return Err(busy()),
        Err(TrySendError::Disconnected(_)) => return Err(stopping()),
    }
    let outcome = match tokio::time::timeout(TURN_TIMEOUT, &mut receiver).await {
        Ok(outcome) => outcome,
        Err(_) if claim.take() => return Err(busy()),
        // It is being carried out, however long that takes.
        Err(_) => receiver.await,
    };
    match outcome {
        Ok(outcome) => outcome,
        Err(_) if claim.take() => Err(stopping()),
        Err(_) => Err(system("the gateway has stopped while it carried the request out")),
    }
}

pub(super) fn busy() -> Refusal {
    system("the gateway is busy with other requests, and nothing was done; try again")
}

pub(super) fn stopping() -> Refusal {
    system("the gateway is stopping, and nothing was done")
}

pub(super) fn system(message: &str) -> Refusal {
    Refusal::new(RefusalCode::System, message)
}
