//! What the daemon says at a moment.

use std::path::Path;
use std::time::{Duration, Instant};

use api::{
    CacheReport, ConnectionQuery, ConnectionStatistics, ConnectionView, DropView, PortView,
    QdiscFilter, QdiscView, Reply, Request, StateList, StateView, WorkerView,
};

use super::view::View;
use crate::client;

/// How long the daemon may take to say one thing.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most connections that are asked for: a screen shows those of the highest rates.
const MOST_CONNECTIONS: usize = 4096;

/// What the daemon says at a moment. What the view does not need is not asked for.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// When it was said.
    pub(super) at: Instant,
    pub(super) ports: Vec<PortView>,
    pub(super) drops: Vec<DropView>,
    pub(super) workers: Vec<WorkerView>,
    pub(super) qdiscs: Vec<QdiscView>,
    pub(super) sas: Option<Vec<StateView>>,
    pub(super) caches: Option<CacheReport>,
    pub(super) statistics: Option<ConnectionStatistics>,
    pub(super) connections: Option<Vec<ConnectionView>>,
    /// How many SAs there are.
    pub(super) sa_count: u64,
}

impl Sample {
    /// Asks the daemon.
    pub(super) fn take(socket: &Path, view: View) -> anyhow::Result<Self> {
        let ask = |request: &Request| client::ask_within(socket, request, PATIENCE);
        let mut sample = Self {
            at: Instant::now(),
            ports: match ask(&Request::Ports)? {
                Reply::Ports(ports) => ports,
                other => return Err(client::unexpected(&other)),
            },
            drops: match ask(&Request::Drops)? {
                Reply::Drops(drops) => drops,
                other => return Err(client::unexpected(&other)),
            },
            workers: match ask(&Request::Workers)? {
                Reply::Workers(workers) => workers,
                other => return Err(client::unexpected(&other)),
            },
            qdiscs: Vec::new(),
            sas: None,
            caches: None,
            statistics: None,
            connections: None,
            sa_count: match ask(&Request::StateCount)? {
                Reply::Count(count) => count,
                other => return Err(client::unexpected(&other)),
            },
        };
        match view {
            View::Ports => {
                sample.qdiscs = match ask(&Request::QdiscList(QdiscFilter::default()))? {
                    Reply::Qdiscs(qdiscs) => qdiscs,
                    other => return Err(client::unexpected(&other)),
                }
            }
            View::Sas => match ask(&Request::StateList(StateList::default()))? {
                Reply::States(sas) => sample.sas = Some(sas),
                other => return Err(client::unexpected(&other)),
            },
            View::Cache => match ask(&Request::Caches)? {
                Reply::Caches(caches) => sample.caches = Some(caches),
                other => return Err(client::unexpected(&other)),
            },
            View::Connections => {
                match ask(&Request::ConnectionStatistics)? {
                    Reply::ConnectionStatistics(counted) => sample.statistics = Some(counted),
                    other => return Err(client::unexpected(&other)),
                }
                sample.connections = Some(connections(&ask)?);
            }
            View::Drops | View::Workers => {}
        }
        Ok(sample)
    }
}

/// The first connections, page by page.
fn connections(
    ask: &impl Fn(&Request) -> anyhow::Result<Reply>,
) -> anyhow::Result<Vec<ConnectionView>> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let query = ConnectionQuery { from, ..ConnectionQuery::default() };
        let page = match ask(&Request::ConnectionList(query))? {
            Reply::Connections(page) => page,
            other => return Err(client::unexpected(&other)),
        };
        all.extend(page.connections);
        match page.next {
            // A daemon that leads back is none.
            Some(next) if next > from && all.len() < MOST_CONNECTIONS => from = next,
            _ => return Ok(all),
        }
    }
}
