//! The connection table: when it is made, and what is set of it while it is there.

use std::sync::Arc;

use api::{ChangeKind, Refusal, RefusalCode};
use conntrack::Connections;
use packet::Time;
use pipeline::Pipeline;
use tables::Tables;

use super::Draft;
use super::desired::Desired;
use super::reload::Notes;
use crate::conntrack_settings::ConntrackSettings;

/// What a table is made with, beside its settings.
#[derive(Clone, Copy)]
pub(super) struct Maker {
    pub(super) workers: usize,
    pub(super) secret: [u64; 2],
}

impl Maker {
    /// Makes the table if the configuration asks for it or a flow uses `ct`, and it is not there.
    /// It stays as long as the gateway runs.
    pub(super) fn make_if_wanted(
        self,
        tables: &mut Tables,
        pipeline: &Pipeline,
        desired: &Desired,
        now: Time,
    ) -> Result<(), Refusal> {
        let is_wanted = || desired.conntrack.is_some() || pipeline.tracks();
        if tables.connections().is_some() || !is_wanted() {
            return Ok(());
        }
        let settings = desired.conntrack.clone().unwrap_or_default();
        let table = Connections::new(&settings.table(self.workers), self.secret, now);
        let table = table.map_err(|why| {
            Refusal::new(RefusalCode::Full, format!("connections cannot be tracked: {why}"))
                .with_hint("fewer `connections` in [conntrack]")
        })?;
        settings.set(&table, &ConntrackSettings::default());
        tables.set_connections(Arc::new(table));
        Ok(())
    }
}

impl Draft<'_> {
    /// Makes the table if it is wanted with these flows.
    pub(super) fn make_connections(
        &mut self,
        pipeline: &Pipeline,
        now: Time,
    ) -> Result<(), Refusal> {
        match self.connections {
            Some(maker) => maker.make_if_wanted(&mut self.tables, pipeline, self.desired, now),
            None => Ok(()),
        }
    }

    /// Makes the settings what the file says, as far as the table that is there can follow.
    /// [`set`] is due once nothing is refused any more.
    pub(super) fn reconcile_conntrack(
        &mut self,
        wanted: Option<&ConntrackSettings>,
        notes: &mut Notes,
    ) {
        let is = self.desired.conntrack.clone().unwrap_or_default();
        let mut new = wanted.cloned().unwrap_or_default();
        // What a gateway starts with is no change.
        let is_first = self.desired.gateway.is_none();
        let mut note = |kind, changes: Vec<String>| {
            for change in changes.into_iter().filter(|_| !is_first) {
                notes.note(kind, "conntrack", change);
            }
        };
        note(ChangeKind::Modified, is.other_changes(&new));
        if self.tables.connections().is_some() {
            note(ChangeKind::AtRestart, is.table_changes(&new));
            new = new.with_table_of(&is);
        } else {
            note(ChangeKind::Modified, is.table_changes(&new));
        }
        let is_said = wanted.is_some() || new != ConntrackSettings::default();
        self.desired.conntrack = is_said.then_some(new);
    }
}

/// Sets limits and timeouts of the table that is there.
pub(super) fn set(tables: &Tables, desired: &Desired, before: &Desired) {
    if let Some(table) = tables.connections() {
        let of = |desired: &Desired| desired.conntrack.clone().unwrap_or_default();
        of(desired).set(table, &of(before));
    }
}
