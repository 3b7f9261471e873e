//! Metrics for those who ask: measured by the control thread, made text here.
//!
//! However many ask, and however often, the control thread is asked once at a time and once in a
//! second: who comes in between gets the text that was made last.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, oneshot};

use crate::daemon::Message;
use crate::metrics::{Measured, Texts};

/// How long a text is handed out.
const FRESH: Duration = Duration::from_secs(1);

/// How long one who asks waits for the control thread, which may be busy with a long batch.
const PATIENCE: Duration = Duration::from_secs(8);

/// Where metrics come from. Clones share the text that was made last.
#[derive(Clone, Debug)]
pub(super) struct Scrapes {
    control: SyncSender<Message>,
    last: Arc<Mutex<Option<(Instant, Texts)>>>,
}

impl Scrapes {
    /// Has `control` measure.
    pub(super) fn new(control: SyncSender<Message>) -> Self {
        Self { control, last: Arc::default() }
    }

    /// The text, a second old at most.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn texts(&self) -> Result<Texts, &'static str> {
        const BUSY: &str = "the gateway is busy with other requests; try again";
        let control = self.control.clone();
        let last = Arc::clone(&self.last);
        let made = async move {
            let mut last = last.lock_owned().await;
            if let Some((at, texts)) = &*last
                && at.elapsed() < FRESH
            {
                return Ok(texts.clone());
            }
            // Goes on if the client goes away: those who come and go do not ask more often.
            let making = tokio::spawn(async move {
                let texts = make(&control).await?;
                *last = Some((Instant::now(), texts.clone()));
                Ok(texts)
            });
            making.await.unwrap_or(Err("the metrics could not be made; please report it"))
        };
        tokio::time::timeout(PATIENCE, made).await.unwrap_or(Err(BUSY))
    }
}

async fn make(control: &SyncSender<Message>) -> Result<Texts, &'static str> {
    const STOPPING: &str = "the gateway is stopping";
    let (sender, receiver) = oneshot::channel::<Measured>();
    match control.try_send(Message::Metrics(sender)) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => {
            return Err("the gateway is busy with other requests; try again");
        }
        Err(TrySendError::Disconnected(_)) => return Err(STOPPING),
    }
    let measured = receiver.await.map_err(|_| STOPPING)?;
    // Other connections are served meanwhile.
    let text = tokio::task::spawn_blocking(move || Texts::of(measured)).await;
    text.ok().and_then(Result::ok).ok_or("the metrics could not be written; please report it")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn those_who_ask_at_once_or_go_away_are_one_for_the_control_thread() {
        let (sender, messages) = mpsc::sync_channel(16);
        let scrapes = Scrapes::new(sender);
        // Somebody asks and goes away before there is a text.
        let gone = tokio::time::timeout(Duration::from_millis(20), scrapes.texts()).await;
        assert!(gone.is_err());
        let others: Vec<_> = (0..20)
            .map(|_| {
                let scrapes = scrapes.clone();
                tokio::spawn(async move { scrapes.texts().await.map(drop) })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let Ok(Message::Metrics(reply)) = messages.try_recv() else { panic!("not asked") };
        assert!(messages.try_recv().is_err(), "asked again");
        reply.send(Measured::default()).unwrap();
        for other in others {
            other.await.unwrap().unwrap();
        }
        assert!(messages.try_recv().is_err(), "asked again");
    }

    #[tokio::test]
    async fn a_gateway_that_stops_says_so() {
        let (sender, messages) = mpsc::sync_channel(1);
        let scrapes = Scrapes::new(sender);
        drop(messages);
        assert_eq!(scrapes.texts().await.map(drop), Err("the gateway is stopping"));
    }
}
