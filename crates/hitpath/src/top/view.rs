//! The views: what each shows of two samples.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::Hash;

use api::{CacheView, ConnectionView, Counters, PortStatistics, StateView, TupleView, WorkerView};

use super::sample::Sample;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum View {
    /// Ports: rates, losses, what waits
    Ports,
    /// Packets dropped, by reason
    Drops,
    /// Security associations: rates, errors, when each was used
    Sas,
    /// The decision cache: hit ratio, places
    Cache,
    /// Connections: state, age, rates
    Connections,
    /// Workers: packets, how full batches are
    Workers,
}

impl View {
    pub(super) const ALL: [Self; 6] =
        [Self::Ports, Self::Drops, Self::Sas, Self::Cache, Self::Connections, Self::Workers];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ports => "ports",
            Self::Drops => "drops",
            Self::Sas => "sas",
            Self::Cache => "cache",
            Self::Connections => "connections",
            Self::Workers => "workers",
        }
    }

    /// The column that rows are sorted by at first, and whether from the highest on.
    pub(super) const fn sorted_at_first(self) -> (usize, bool) {
        match self {
            Self::Ports | Self::Cache | Self::Workers => (0, false),
            Self::Drops => (1, true),
            Self::Sas => (4, true),
            Self::Connections => (5, true),
        }
    }
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    /// What it is sorted by, if that is not its text.
    number: Option<f64>,
}

impl Cell {
    fn text(text: impl Into<String>) -> Self {
        // What the daemon says is shown, and not carried out by the terminal.
        let text: String = text.into();
        Self { text: text.replace(char::is_control, "?"), number: None }
    }

    fn number(number: f64, text: String) -> Self {
        Self { text, number: Some(number) }
    }

    fn count(count: u64) -> Self {
        Self::number(count as f64, short(count as f64, ""))
    }

    fn rate(rate: Option<f64>, unit: &str) -> Self {
        match rate {
            Some(rate) => Self::number(rate, short(rate, unit)),
            None => Self::number(-1.0, "-".to_owned()),
        }
    }

    fn ratio(part: f64, whole: f64) -> Self {
        match whole > 0.0 {
            true => Self::number(part / whole, format!("{:.1}%", 100.0 * part / whole)),
            false => Self::number(-1.0, "-".to_owned()),
        }
    }

    /// The order of two cells of a column.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self.number, other.number) {
            (Some(one), Some(two)) => one.total_cmp(&two),
            _ => self.text.cmp(&other.text),
        }
    }

    pub(super) const fn is_number(&self) -> bool {
        self.number.is_some()
    }
}

/// What a view shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// What there is to say of all together.
    pub(super) summary: String,
}

/// When an object was seen at work, by its key: the daemon does not say it.
pub(super) type Used = HashMap<(String, u32), std::time::Instant>;

impl Table {
    /// Of what is there `now`; rates are since `before`.
    pub(super) fn new(view: View, now: &Sample, before: Option<&Sample>, used: &mut Used) -> Self {
        let since = Since {
            before,
            seconds: before.map(|before| (now.at - before.at).as_secs_f64()).filter(|it| *it > 0.0),
        };
        match view {
            View::Ports => ports(now, &since),
            View::Drops => drops(now, &since),
            View::Sas => sas(now, &since, used),
            View::Cache => cache(now, &since),
            View::Connections => connections(now, &since),
            View::Workers => workers(now, &since),
        }
    }

    /// The rows in which a column has `filter`, in the order of a column.
    pub(super) fn arrange(&mut self, filter: &str, by: usize, from_highest: bool) {
        let filter = filter.to_lowercase();
        let fits = |cell: &Cell| cell.text.to_lowercase().contains(&filter);
        self.rows.retain(|row| row.iter().any(fits));
        let order = |one: &Vec<Cell>, two: &Vec<Cell>| match (one.get(by), two.get(by)) {
            (Some(one), Some(two)) if from_highest => two.compare(one),
            (Some(one), Some(two)) => one.compare(two),
            _ => Ordering::Equal,
        };
        self.rows.sort_by(order);
    }
}

/// What was before, and how long ago.
struct Since<'s> {
    before: Option<&'s Sample>,
    seconds: Option<f64>,
}

impl<'s> Since<'s> {
    /// How much a count has grown a second. One that is less than before began again.
    fn rate(&self, now: u64, before: Option<u64>) -> Option<f64> {
        let grown = now.checked_sub(before?)?;
        Some(grown as f64 / self.seconds?)
    }

    /// What was before, by key.
    fn index<T, K: Eq + Hash>(
        &self,
        all: impl Fn(&'s Sample) -> &'s [T],
        key: impl Fn(&T) -> K,
    ) -> HashMap<K, &'s T> {
        let before = self.before.map(all).unwrap_or_default();
        before.iter().map(|one| (key(one), one)).collect()
    }
}

fn ports(now: &Sample, since: &Since<'_>) -> Table {
    let before = since.index(|sample| &sample.ports, |port| port.name.clone());
    let mut total = [0.0; 2];
    let mut rows = Vec::new();
    for port in &now.ports {
        let counted = port.statistics.unwrap_or_default();
        let old = before.get(&port.name).and_then(|port| port.statistics);
        let rate = |of: fn(&PortStatistics) -> u64| since.rate(of(&counted), old.as_ref().map(of));
        let (rx, tx) = (rate(|it| it.rx_packets), rate(|it| it.tx_packets));
        total[0] += rx.unwrap_or(0.0);
        total[1] += tx.unwrap_or(0.0);
        let lost = |it: &PortStatistics| it.rx_lost() + it.unsent();
        let waits = now.qdiscs.iter().filter(|qdisc| !qdisc.is_vrf && qdisc.dev == port.name);
        rows.push(vec![
            Cell::text(port.name.as_str()),
            Cell::text(crate::view::state(port)),
            Cell::text(port.vrf.as_str()),
            Cell::rate(rx, ""),
            Cell::rate(rate(|it| it.rx_bytes).map(|bytes| 8.0 * bytes), "b"),
            Cell::rate(tx, ""),
            Cell::rate(rate(|it| it.tx_bytes).map(|bytes| 8.0 * bytes), "b"),
            Cell::rate(rate(lost), ""),
            Cell::count(lost(&counted)),
            Cell::count(waits.map(|qdisc| qdisc.qlen).sum()),
        ]);
    }
    let columns = vec![
        "PORT", "STATE", "VRF", "RX/s", "RX bit/s", "TX/s", "TX bit/s", "LOST/s", "LOST", "QUEUE",
    ];
    let summary = match since.seconds {
        Some(_) => {
            format!("{} packets/s in, {} out", short(total[0], ""), short(total[1], ""))
        }
        None => "rates come with the next frame".to_owned(),
    };
    Table { columns, rows, summary }
}

fn drops(now: &Sample, since: &Since<'_>) -> Table {
    let before = since.index(|sample| &sample.drops, |drop| drop.reason.clone());
    let all: u64 = now.drops.iter().map(|drop| drop.packets).sum();
    let rows = now.drops.iter().filter(|drop| drop.packets > 0).map(|drop| {
        let old = before.get(&drop.reason).map(|drop| drop.packets);
        vec![
            Cell::text(drop.reason.as_str()),
            Cell::rate(since.rate(drop.packets, old), ""),
            Cell::count(drop.packets),
            Cell::text(drop.meaning.as_str()),
        ]
    });
    let summary = format!("{} packets dropped since the daemon began", short(all as f64, ""));
    Table { columns: vec!["REASON", "DROPS/s", "DROPS", "MEANING"], rows: rows.collect(), summary }
}

fn sas(now: &Sample, since: &Since<'_>, used: &mut Used) -> Table {
    let key = |sa: &StateView| (format!("{} {}", sa.vrf, sa.destination), sa.spi);
    let before = since.index(|sample| sample.sas.as_deref().unwrap_or_default(), key);
    let all = now.sas.as_deref().unwrap_or_default();
    let mut rows = Vec::new();
    for sa in all {
        let old = before.get(&key(sa));
        let traffic =
            |of: fn(&Counters) -> u64| since.rate(of(&sa.traffic), old.map(|sa| of(&sa.traffic)));
        let packets = traffic(|it| it.packets);
        if packets.is_some_and(|rate| rate > 0.0) {
            used.insert(key(sa), now.at);
        }
        let idle = used.get(&key(sa)).map(|at| now.at.saturating_duration_since(*at).as_secs());
        let errors = since.rate(sa.errors.packets, old.map(|sa| sa.errors.packets));
        rows.push(vec![
            Cell::text(format!("{:#010x}", sa.spi)),
            Cell::text(format!("{} > {}", sa.source, sa.destination)),
            Cell::number(sa.reqid.into(), sa.reqid.to_string()),
            Cell::text(if sa.newest { "newest" } else { "older" }),
            Cell::rate(packets, ""),
            Cell::rate(traffic(|it| it.bytes).map(|bytes| 8.0 * bytes), "b"),
            Cell::count(sa.traffic.packets),
            Cell::rate(errors, ""),
            Cell::count(sa.errors.packets),
            match idle {
                Some(seconds) => Cell::number(seconds as f64, duration(seconds)),
                None => Cell::number(f64::MAX, "-".to_owned()),
            },
            Cell::text(sa.vrf.as_str()),
        ]);
    }
    let there: std::collections::HashSet<_> = all.iter().map(key).collect();
    used.retain(|key, _| there.contains(key));
    let columns = vec![
        "SPI", "TUNNEL", "REQID", "STATE", "PKT/s", "bit/s", "PACKETS", "ERR/s", "ERRORS", "IDLE",
        "VRF",
    ];
    Table { columns, rows, summary: format!("{} security associations", all.len()) }
}

fn cache(now: &Sample, since: &Since<'_>) -> Table {
    let views = |sample: &Sample| {
        let all = sample.caches.iter().flat_map(|report| report.workers.iter());
        let key = |worker: usize, cache: &CacheView| (worker, cache.table.to_string());
        all.map(|one| (key(one.worker, &one.cache), one.cache.clone())).collect::<HashMap<_, _>>()
    };
    let before = since.before.map(views).unwrap_or_default();
    let mut rows = Vec::new();
    let misses =
        |it: &CacheView| it.misses.new + it.misses.stale + it.misses.evicted + it.misses.bypassed;
    for one in now.caches.iter().flat_map(|report| report.workers.iter()) {
        let cache = &one.cache;
        let name = cache.table.to_string();
        let old = before.get(&(one.worker, name.clone()));
        let rate = |of: &dyn Fn(&CacheView) -> u64| since.rate(of(cache), old.map(of));
        let (hits, missed) = (rate(&|it| it.hits), rate(&misses));
        // The last seconds' ratio, or that since the daemon began if nothing came.
        let (part, whole) = match (hits, missed) {
            (Some(hits), Some(missed)) if hits + missed > 0.0 => (hits, hits + missed),
            _ => (cache.hits as f64, (cache.hits + misses(cache)) as f64),
        };
        let state = serde_json::to_value(cache.state).ok();
        let state = state.as_ref().and_then(|state| state.as_str()).unwrap_or("-").to_owned();
        rows.push(vec![
            Cell::number(one.worker as f64, one.worker.to_string()),
            Cell::text(name),
            Cell::text(state),
            Cell::ratio(part, whole),
            Cell::rate(hits, ""),
            Cell::rate(missed, ""),
            Cell::rate(rate(&|it| it.evicted), ""),
            Cell::count(cache.live),
            Cell::count(cache.occupied),
            Cell::count(cache.buckets),
            Cell::ratio(cache.occupied as f64, cache.buckets as f64),
        ]);
    }
    let columns = vec![
        "WORKER", "TABLE", "STATE", "HIT", "HITS/s", "MISSES/s", "EVICT/s", "LIVE", "USED",
        "PLACES", "FULL",
    ];
    let live: u64 = now.caches.iter().flat_map(|it| it.totals.iter()).map(|it| it.live).sum();
    Table { columns, rows, summary: format!("{} flows are remembered", short(live as f64, "")) }
}

fn connections(now: &Sample, since: &Since<'_>) -> Table {
    let all = now.connections.as_deref().unwrap_or_default();
    let before = since.index(
        |sample| sample.connections.as_deref().unwrap_or_default(),
        |connection| (connection.id, ends(&connection.original)),
    );
    let packets = |it: &ConnectionView| Some(it.original.packets? + it.reply.packets?);
    let bytes = |it: &ConnectionView| Some(it.original.bytes? + it.reply.bytes?);
    let rows = all.iter().map(|connection| {
        let old = before.get(&(connection.id, ends(&connection.original)));
        let rate = |of: &dyn Fn(&ConnectionView) -> Option<u64>| {
            since.rate(of(connection)?, old.and_then(|old| of(old)))
        };
        vec![
            Cell::text(connection.protocol.to_string()),
            Cell::text(connection.state.clone().unwrap_or_else(|| "-".to_owned())),
            Cell::text(end(connection.original.source, connection.original.source_port)),
            Cell::text(end(connection.original.destination, connection.original.destination_port)),
            Cell::number(connection.age as f64, duration(connection.age)),
            Cell::rate(rate(&packets), ""),
            Cell::rate(rate(&bytes).map(|bytes| 8.0 * bytes), "b"),
            Cell::number(connection.timeout as f64, duration(connection.timeout)),
        ]
    });
    let counted = now.statistics.clone().unwrap_or_default();
    let mut summary = match counted.most {
        0 => "connections are not tracked".to_owned(),
        most => format!("{} of {most} connections", counted.connections),
    };
    if all.len() < counted.connections as usize {
        summary += &format!(", {} of them looked at", all.len());
    }
    let unaccounted = all.iter().any(|connection| connection.original.packets.is_none());
    if unaccounted {
        summary += "; rates need `accounting` of [conntrack]";
    }
    let columns = vec!["PROTO", "STATE", "SOURCE", "DESTINATION", "AGE", "PKT/s", "bit/s", "ENDS"];
    Table { columns, rows: rows.collect(), summary }
}

fn workers(now: &Sample, since: &Since<'_>) -> Table {
    let before = since.index(|sample| &sample.workers, |worker| worker.index);
    let rows = now.workers.iter().map(|worker| {
        let old = before.get(&worker.index);
        let rate = |of: fn(&WorkerView) -> u64| since.rate(of(worker), old.map(|old| of(old)));
        let (packets, batches) = (rate(|it| it.packets), rate(|it| it.batches));
        let rounds = rate(|it| it.rounds);
        let processor = worker.processor.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let a_batch = packets.zip(batches).filter(|(_, batches)| *batches > 0.0);
        let busy = batches.zip(rounds).unwrap_or_default();
        vec![
            Cell::number(worker.index as f64, worker.index.to_string()),
            Cell::text(processor),
            Cell::rate(packets, ""),
            Cell::rate(batches, ""),
            match a_batch.map(|(packets, batches)| packets / batches) {
                Some(each) => Cell::number(each, format!("{each:.1}")),
                None => Cell::number(-1.0, "-".to_owned()),
            },
            Cell::ratio(busy.0.min(busy.1), busy.1),
            Cell::rate(rate(|it| it.drops), ""),
            Cell::count(worker.drops),
            Cell::count(worker.packets),
        ]
    });
    let columns = vec![
        "WORKER",
        "CPU",
        "PKT/s",
        "BATCH/s",
        "PKT/BATCH",
        "BUSY",
        "DROPS/s",
        "DROPS",
        "PACKETS",
    ];
    let summary = "BUSY is the share of rounds with packets".to_owned();
    Table { columns, rows: rows.collect(), summary }
}

/// What tells a connection from another one that had its number before.
fn ends(tuple: &TupleView) -> (String, String) {
    (end(tuple.source, tuple.source_port), end(tuple.destination, tuple.destination_port))
}

fn end(address: std::net::IpAddr, port: Option<u16>) -> String {
    match port {
        Some(port) => std::net::SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    }
}

/// A number in at most five characters, in powers of 1000.
pub(super) fn short(number: f64, unit: &str) -> String {
    let (mut number, mut power) = (number, 0);
    while number >= 999.5 && power < 5 {
        number /= 1000.0;
        power += 1;
    }
    let letter = ["", "k", "M", "G", "T", "P"][power];
    match number {
        _ if number == 0.0 => "0".to_owned(),
        _ if power == 0 && number >= 9.95 => format!("{number:.0}{unit}"),
        _ if number < 9.95 && (power > 0 || number.fract() != 0.0) => {
            format!("{number:.1}{letter}{unit}")
        }
        _ => format!("{number:.0}{letter}{unit}"),
    }
}

/// Seconds, in at most six characters.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}
