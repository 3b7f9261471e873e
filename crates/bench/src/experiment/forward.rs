//! `hitpath bench forward`: plain forwarding, from memory port to memory port, by the worker that
//! live traffic goes through.

use flow::CacheSettings;
use io::memory::{self, MemoryHandle, MemoryOptions, MemoryPort};
use packet::{BATCH, Batch, Pool, Port, Time};
use serde_json::json;

use crate::context::Context;
use crate::dut::{Clear, Dut, Feed};
use crate::frame::{Family, Frame};
use crate::measure::{Batches, Series, Stopwatch};
use crate::row::Row;
use crate::text;
use crate::topology::{self, IN, OUT, STATION};
use crate::traffic::{Spread, Traffic};

/// Length of every frame.
const FRAME: usize = 64;

/// What is to be measured.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// How many flows, each a series of its own
    #[arg(long, value_delimiter = ',', default_value = "1,1000,100000", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    flows: Vec<u32>,
}

/// The series: the ports alone, then forwarding with one flow and with many. A VRF without
/// policies, and no decision cache.
pub(crate) fn run(context: &Context, options: &Options) -> anyhow::Result<Vec<Row>> {
    let mut series: Vec<Box<dyn Series>> = vec![Box::new(PortsAlone::new())];
    let mut parameters = vec![json!({ "family": "ipv4", "flows": 1, "frame_bytes": FRAME })];
    for family in [Family::V4, Family::V6] {
        for &flows in &options.flows {
            let plural = if flows == 1 { "" } else { "s" };
            let title = if family == Family::V4 { "IPv4" } else { "IPv6" };
            let name = format!("{title}, {} flow{plural}", text::grouped(&flows.to_string()));
            let tables = topology::tables(1)?;
            series.push(Box::new(Dut::alone(
                name,
                tables,
                [CacheSettings::OFF; 4],
                feed(family, flows),
            )?));
            parameters
                .push(json!({ "family": family.name(), "flows": flows, "frame_bytes": FRAME }));
        }
    }
    let costs = context.measure("forward", &mut series)?;
    let rows = series.iter().zip(parameters).zip(costs);
    Ok(rows
        .map(|((series, parameters), cost)| {
            Row::new("forward", series.name(), parameters, Some(FRAME), cost)
        })
        .collect())
}

/// The table.
pub(crate) fn render(rows: &[&Row]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let cost = &row.cost;
            let cycles = [cost.cycles_per_packet, cost.cycles_min, cost.cycles_max]
                .map(|cycles| format!("{cycles:.0}"));
            let gbps = row.gbps.unwrap_or_default();
            let rates =
                [format!("{:.1}", cost.ns_per_packet), text::mpps(row), format!("{gbps:.2}")];
            [row.series.clone() + row.mark()].into_iter().chain(cycles).chain(rates).collect()
        })
        .collect();
    let title = format!("Forwarding, {FRAME}-byte frames, memory port to memory port");
    text::title(&title)
        + &text::table(&["series", "cycles", "least", "most", "ns", "Mpps", "Gbit/s"], &cells)
}

fn feed(family: Family, flows: u32) -> Clear {
    let traffic = Traffic::new(flows.into(), Spread::UNIFORM, 1);
    Clear { frame: Frame::new(family, FRAME, STATION, topology::mac(IN)), traffic }
}

/// What the memory ports themselves cost: receive a batch, transmit it, and nothing between.
struct PortsAlone {
    feed: Clear,
    input: MemoryHandle,
    receiver: MemoryPort,
    sender: MemoryPort,
    pool: Pool,
    out: MemoryHandle,
}

impl PortsAlone {
    fn new() -> Self {
        let (receiver, input) = memory::port(MemoryOptions::ethernet("in", IN), 2 * BATCH);
        let (sender, out) = memory::port(MemoryOptions::ethernet("out", OUT), 2 * BATCH);
        Self { feed: feed(Family::V4, 1), input, receiver, sender, pool: Pool::new(4 * BATCH), out }
    }
}

impl Batches for PortsAlone {
    fn name(&self) -> String {
        "ports alone".to_owned()
    }

    fn batch(&mut self, stopwatch: &mut Stopwatch<'_>) -> u64 {
        // It has room for a batch: the last one was received.
        let _ = self.feed.fill(&mut self.input);
        let mut batch = Batch::new();
        stopwatch.start();
        let received = self.receiver.receive(Time(0), &mut self.pool, &mut batch).unwrap_or(0);
        let sent = self.sender.transmit(Time(0), &mut self.pool, &mut batch);
        stopwatch.stop();
        let mut came = 0;
        while self.out.pop_with(|_| ()).is_some() {
            came += 1;
        }
        if sent.is_ok() { came.min(received as u64) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dut fails if a packet is lost; so a row is a proof.
    #[test]
    fn every_packet_of_the_bench_is_forwarded() {
        let rows = run(&Context::tiny(), &Options { flows: vec![1, 1000] }).unwrap();
        assert_eq!(rows.len(), 5);
        assert!(rows.iter().all(|row| row.cost.mpps > 0.0 && row.cost.hit_ratio.is_none()));
        assert!(render(&rows.iter().collect::<Vec<_>>()).contains("| IPv6, 1,000 flows "));
    }
}
