//! What is counted, for those who ask: measured by the control thread, written here, as metrics and
//! as what the page shows.
//!
//! However many ask, and however often, the control thread is asked once at a time and once in a
//! second: who comes in between gets what was made last.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use crate::daemon::Message;
use crate::metrics::{Measured, Texts};
use crate::page;

/// How long something measured is handed out.
const FRESH: Duration = Duration::from_secs(1);

/// How long one who asks waits for the control thread, which may be busy with a long batch.
const PATIENCE: Duration = Duration::from_secs(8);

/// What is said to who has waited for so long.
const BUSY: &str = "the gateway is busy with other requests; try again";

/// Where metrics come from. Clones share what was made last.
#[derive(Clone, Debug)]
pub(super) struct Scrapes {
    control: SyncSender<Message>,
    last: Arc<Mutex<Option<Made>>>,
}

/// What was measured, and what was written of it.
#[derive(Clone, Debug)]
struct Made {
    at: Instant,
    measured: Arc<Measured>,
    texts: Option<Texts>,
    page: Option<Bytes>,
}

impl Scrapes {
    /// Has `control` measure.
    pub(super) fn new(control: SyncSender<Message>) -> Self {
        Self { control, last: Arc::default() }
    }

    /// The metrics, a second old at most.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) async fn texts(&self) -> Result<Texts, &'static str> {
        const WRONG: &str = "the metrics could not be written; please report it";
        self.made(|made| made.texts.clone(), |measured| Texts::of(measured).map_err(|_| WRONG))
            .await
    }

    /// What the page shows, as JSON, a second old at most.
    ///
    /// # Errors
    /// Why there is nothing.
    pub(super) async fn page(&self) -> Result<Bytes, &'static str> {
        const WRONG: &str = "what the page shows could not be written; please report it";
        self.made(
            |made| made.page.clone(),
            |measured| page::state(&measured).map(Bytes::from).map_err(|_| WRONG),
        )
        .await
    }

    /// Something that `write` makes of what was measured, or what was made of it before.
    async fn made<T: Kept>(
        &self,
        found: fn(&Made) -> Option<T>,
        write: fn(Arc<Measured>) -> Result<T, &'static str>,
    ) -> Result<T, &'static str> {
        let control = self.control.clone();
        let last = Arc::clone(&self.last);
        let made = async move {
            let last = last.lock_owned().await;
            let fresh = last.as_ref().filter(|made| made.at.elapsed() < FRESH);
            if let Some(found) = fresh.and_then(found) {
                return Ok(found);
            }
            let known = fresh.map(|made| Arc::clone(&made.measured));
            // Goes on if the client goes away: those who come and go do not ask more often.
            let making = tokio::spawn(make(control, known, last, write));
            making.await.unwrap_or(Err("what is counted could not be read; please report it"))
        };
        tokio::time::timeout(PATIENCE, made).await.unwrap_or(Err(BUSY))
    }
}

/// What is made of a measurement, and handed out again.
trait Kept: Clone + Send + 'static {
    fn keep(self, made: &mut Made);
}

impl Kept for Texts {
    fn keep(self, made: &mut Made) {
        made.texts = Some(self);
    }
}

impl Kept for Bytes {
    fn keep(self, made: &mut Made) {
        made.page = Some(self);
    }
}

/// Measures, unless that is known, and writes it.
async fn make<T: Kept>(
    control: SyncSender<Message>,
    known: Option<Arc<Measured>>,
    mut last: OwnedMutexGuard<Option<Made>>,
    write: fn(Arc<Measured>) -> Result<T, &'static str>,
) -> Result<T, &'static str> {
    let measured = match known {
        Some(known) => known,
        None => {
            let measured = Arc::new(measure(&control).await?);
            let (at, known) = (Instant::now(), Arc::clone(&measured));
            *last = Some(Made { at, measured: known, texts: None, page: None });
            measured
        }
    };
    // Other connections are served meanwhile.
    let written = tokio::task::spawn_blocking(move || write(measured)).await;
    let written =
        written.unwrap_or(Err("what is counted could not be written; please report it"))?;
    if let Some(made) = last.as_mut() {
        written.clone().keep(made);
    }
    Ok(written)
}

async fn measure(control: &SyncSender<Message>) -> Result<Measured, &'static str> {
    const STOPPING: &str = "the gateway is stopping";
    let (sender, receiver) = oneshot::channel::<Measured>();
    match control.try_send(Message::Metrics(sender)) {
        Ok(()) => receiver.await.map_err(|_| STOPPING),
        Err(TrySendError::Full(_)) => Err(BUSY),
        Err(TrySendError::Disconnected(_)) => Err(STOPPING),
    }
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
        // The page shows what was measured for them.
        scrapes.page().await.unwrap();
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
