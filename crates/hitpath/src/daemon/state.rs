//! What survives a restart: changes by command go to the state directory's log.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use api::{Refusal, RefusalCode, Reply};
use control::{Control, GatewaySettings, StateDirectory};
use packet::Time;
use store::{Directory, Done, Log, Saved, Snapshot};

use super::audit::Audit;
use super::reply_to::ReplyTo;

/// The log begins anew when it has this much more than twice what it began with.
const SLACK: usize = 1 << 20;

/// The most bytes that may wait for the disk before changes are refused.
const MAX_WAITING: usize = 64 << 20;

/// How long the keys of SAs that are gone may stay on the disk.
const FORGET: Duration = Duration::from_secs(60);

/// How long to wait before a log that failed is begun anew.
const RETRY: Duration = Duration::from_secs(5);

/// The control thread is busy with beginning the log anew for less than this part of its time,
/// where it is not the log's length that asks for it.
const SHARE: u32 = 50;

/// Who waits for a reply.
pub(super) type Waiting = ReplyTo;

/// The directory that the settings name, if they name one.
pub(super) fn directory(settings: &GatewaySettings) -> Option<PathBuf> {
    match &settings.state {
        StateDirectory::Off => None,
        StateDirectory::At(path) => Some(path.clone()),
        StateDirectory::Usual => {
            nix::unistd::geteuid().is_root().then(|| PathBuf::from(StateDirectory::DEFAULT))
        }
    }
}

/// A state directory, locked, and what was kept in it.
pub(super) struct Opened {
    directory: Directory,
    saved: Saved,
}

impl Opened {
    /// Opens the directory that the settings name, if they name one. `socket` is what others are
    /// told of this gateway.
    ///
    /// # Errors
    /// If it cannot be used, is damaged, or has lost its log.
    pub(super) fn of(settings: &GatewaySettings, socket: &Path) -> anyhow::Result<Option<Self>> {
        let Some(path) = directory(settings) else {
            tracing::info!("changes by command are not kept: there is no state-directory");
            return Ok(None);
        };
        let holder = format!("hitpath run, socket {}", socket.display());
        let directory = Directory::open(&path, &holder)?;
        let saved = directory.read_or_begin()?;
        Ok(Some(Self { directory, saved }))
    }

    /// The directory.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Whether no gateway has run on it before.
    pub(super) fn is_first(&self) -> bool {
        self.saved.is_first()
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes anew what was kept, on top of the configuration, whose digest is `configuration`.
    ///
    /// # Errors
    /// If the system gives no thread, or the first log of a directory cannot be written.
    pub(super) fn restore(
        self,
        control: &mut Control,
        settings: &GatewaySettings,
        configuration: String,
        audit: &Audit,
        now: Time,
    ) -> anyhow::Result<Keeper> {
        let Self { directory, saved } = self;
        let is_first = saved.is_first();
        let is_same = configuration == saved.configuration;
        restore(control, &directory, (&saved, is_same), audit, now);
        control.keep_changes(settings.keep_keys);
        let path = directory.path().to_owned();
        let mut keeper = Keeper {
            log: Log::start(directory).context("starting the state directory's log")?,
            configuration,
            path: path.clone(),
            keeps_keys: settings.keep_keys,
            has_failed: false,
            began_with: 0,
            length: 0,
            has_dead_keys: false,
            began: now,
            took: Duration::ZERO,
        };
        // Before packets pass. If the disk is full they do all the same.
        let (sender, receiver) = mpsc::channel();
        let done: Done = Box::new(move |result| _ = sender.send(result));
        keeper.begin_anew(control, true, Some(done), now);
        match receiver.recv() {
            Ok(Ok(())) => tracing::info!(directory = %path.display(), "changes are kept"),
            // What is used from now on would be taken for what was never used.
            Ok(Err(why)) if is_first => bail!("the state directory's first log: {why}"),
            Ok(Err(why)) => tracing::error!("changes by command are refused: {why}"),
            Err(_) => tracing::error!("changes by command are refused: the log has ended"),
        }
        keeper.has_failed = keeper.failure().is_some();
        Ok(keeper)
    }
}

fn restore(
    control: &mut Control,
    directory: &Directory,
    (saved, is_same): (&Saved, bool),
    audit: &Audit,
    now: Time,
) {
    if !saved.torn.is_empty() {
        tracing::warn!(
            bytes = saved.torn.len(),
            "the last write to the log was cut short, and is dropped: it was never answered"
        );
    }
    let texts = saved.changes.iter().map(String::as_str);
    let mut restored = control.restore(texts, &saved.keys, is_same, now);
    if saved.is_incomplete {
        control.drop_everything(&mut restored);
    }
    audit.restored(&restored, directory.path());
    if restored.done > 0 {
        tracing::info!(changes = restored.done, "made anew what commands had changed");
    }
    if restored.left > 0 {
        tracing::info!(
            changes = restored.left,
            "the configuration file is another one: changes to what it or the former one names are \
            left out"
        );
    }
    if restored.without_keys > 0 {
        tracing::warn!(
            sas = restored.without_keys,
            "SAs are not there, as their keys were not kept: what they protect is dropped"
        );
    }
    for vrf in &restored.closed {
        tracing::warn!(
            %vrf,
            "has no policies, as those that commands had added were left out or refused: it \
            forwards nothing across its boundary; a policy opens it, or `hitpath vrf set {vrf} \
            ipsec auto` if it is to be a plain router"
        );
    }
    for (vrf, priority) in &restored.dropping {
        tracing::error!(
            %vrf,
            "drops everything, as the firewall, or flows that commands had made, did not come back or \
            may be lost: make them anew, and open it by `hitpath flow del --strict \
            'vrf={vrf},table=0,priority={priority}'`"
        );
    }
    for vrf in &restored.lacking {
        tracing::error!(
            %vrf,
            "lacks flows that commands had made, or their firewall, that did not come back: it may let \
            more pass than before"
        );
    }
    for of in &restored.unfiltered {
        tracing::error!(
            filter = %of,
            "lacks a rule that a command had made and that did not come back: it may let more pass than \
            before; `hitpath filter show {of}` shows the others"
        );
    }
    for vrf in &restored.open {
        tracing::error!(
            %vrf,
            "is open: it was to drop everything, as flows or the firewall did not come back or may be \
            lost, and the flow that does it finds no place: `hitpath flow show vrf={vrf}` shows which \
            flow of priority 65535 is there, if none was refused above"
        );
    }
    if saved.is_incomplete {
        tracing::warn!(
            "the log was repaired, and a part of it is lost: policies, flows, filters and the firewall \
            too, perhaps; see `hitpath diff`"
        );
        for vrf in control.require_policies() {
            tracing::warn!(
                %vrf,
                "has no policies, and may have had some that are lost: it forwards nothing across \
                its boundary; a policy opens it, or `hitpath vrf set {vrf} ipsec auto` if it is to \
                be a plain router"
            );
        }
    }
    if restored.refusals > 0 {
        restored.refused.iter().take(10).for_each(|refused| tracing::error!("{refused}"));
        let copy = match directory.keep_copy() {
            Ok(Some(path)) => format!("the log as it was is {}", path.display()),
            Ok(None) => String::new(),
            Err(error) => error.to_string(),
        };
        tracing::error!(changes = restored.refusals, "could not be made anew; {copy}");
    }
}

/// Keeps changes.
pub(super) struct Keeper {
    log: Log,
    path: PathBuf,
    /// Whether it was said that changes are not kept.
    has_failed: bool,
    /// The digest of the configuration in force.
    configuration: String,
    keeps_keys: bool,
    /// Bytes that the log began with, and has now.
    began_with: usize,
    length: usize,
    /// Whether keys may be on the disk whose SAs are gone.
    has_dead_keys: bool,
    /// When the log was last begun anew, and how long that took the control thread.
    began: Time,
    took: Duration,
}

impl Keeper {
    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Why no change can be kept now, if none can.
    pub(super) fn failure(&self) -> Option<String> {
        self.log.failure()
    }

    /// Why no change can be kept now, so that none is made.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        if let Some(why) = self.log.failure() {
            let message = format!("changes cannot be kept: {why}");
            return Some(Refusal::new(RefusalCode::System, message).with_hint(
                "make room on the disk; the gateway tries again by itself, and forwards meanwhile",
            ));
        }
        (self.log.waiting() > MAX_WAITING).then(|| {
            Refusal::new(RefusalCode::System, "the disk is too slow for so many changes")
                .with_hint("try again")
        })
    }

    /// Keeps what commands have changed, and replies to who has asked for it: with `sync` once it
    /// is durable.
    pub(super) fn keep(
        &mut self,
        control: &mut Control,
        reply: Result<Reply, Refusal>,
        waiting: Waiting,
        sync: bool,
    ) {
        let changes = control.take_changes();
        if changes.is_empty() {
            waiting.send(reply);
            return;
        }
        self.length += changes.text.len();
        self.has_dead_keys |= changes.text.contains("xfrm state delete");
        if sync {
            self.log.append(changes.text, changes.keys, Some(replies(reply, waiting)));
        } else {
            self.log.append(changes.text, changes.keys, None);
            waiting.send(reply);
        }
    }

    /// Keeps what no command has changed but the time: flows that are over.
    pub(super) fn keep_aged(&mut self, control: &mut Control) {
        let changes = control.take_changes();
        if !changes.is_empty() {
            self.length += changes.text.len();
            self.log.append(changes.text, changes.keys, None);
        }
    }

    /// Takes note of the configuration that is in force from now on, and replies once that is
    /// durable.
    pub(super) fn reloaded(
        &mut self,
        control: &mut Control,
        configuration: String,
        done: Option<Done>,
        now: Time,
    ) {
        self.configuration = configuration;
        self.begin_anew(control, true, done, now);
    }

    /// Begins the log anew where that is due.
    pub(super) fn tick(&mut self, control: &mut Control, now: Time) {
        let rested = now.since(self.began);
        let is_rested = |least: Duration| rested >= least.max(self.took * SHARE);
        let has_failed = self.log.failure().is_some() && is_rested(RETRY);
        let forgets = self.has_dead_keys && self.keeps_keys && is_rested(FORGET);
        self.say_failure();
        if has_failed || forgets || self.length > 2 * self.began_with + SLACK {
            let done: Done = Box::new(move |result| match result {
                Ok(()) => {}
                Err(why) if has_failed => tracing::debug!("{why}"),
                Err(why) => tracing::warn!("{why}; the former log goes on"),
            });
            self.begin_anew(control, false, Some(done), now);
        }
    }

    /// Tries once more to keep what the disk has refused, before the gateway ends.
    pub(super) fn try_again(&mut self, control: &mut Control, now: Time) {
        if self.failure().is_some() {
            let done: Done = Box::new(|result| match result {
                Ok(()) => tracing::info!("changes are kept again"),
                Err(why) => tracing::error!("the last changes end with the gateway: {why}"),
            });
            self.begin_anew(control, false, Some(done), now);
        }
    }

    /// Says once when changes are not kept any more, and once when they are again.
    fn say_failure(&mut self) {
        match (self.failure(), self.has_failed) {
            (Some(why), false) => tracing::error!(
                "changes by command cannot be kept: {why}; until there is room, commands that \
                change something and reloads are refused, but for those that delete SAs, and \
                packets pass as before"
            ),
            (None, true) => tracing::info!("changes are kept again"),
            _ => return,
        }
        self.has_failed = !self.has_failed;
    }

    fn begin_anew(
        &mut self,
        control: &mut Control,
        is_needed: bool,
        done: Option<Done>,
        now: Time,
    ) {
        let begin = Instant::now();
        let changes = control.all_changes();
        (self.began, self.took) = (now, begin.elapsed());
        (self.began_with, self.length) = (changes.text.len(), changes.text.len());
        self.has_dead_keys = false;
        let snapshot = Snapshot {
            configuration: self.configuration.clone(),
            text: changes.text,
            keys: changes.keys,
            keeps_keys: self.keeps_keys,
            is_needed,
        };
        self.log.replace(snapshot, done);
    }
}

/// Replies once changes are durable, or says that they are not.
pub(super) fn replies(reply: Result<Reply, Refusal>, mut waiting: Waiting) -> Done {
    Box::new(move |result| {
        if result.is_err() && reply.is_ok() {
            waiting.is_in_force();
        }
        // A client that has gone away wants no answer.
        waiting.send(match result {
            Ok(()) => reply,
            Err(why) => {
                let message = format!("the change is in force, and was not kept: {why}");
                Err(Refusal::new(RefusalCode::NotKept, message).with_hint(
                    "it is written once there is room on the disk, and undone if the gateway ends \
                    before; other changes than to delete SAs are refused until then",
                ))
            }
        });
    })
}
