//! The decision cache.

use api::{CacheReport, CacheState, CacheView};

use super::table;

/// Three tables: how large, what it did, what it costs and saves. A line for each worker and table,
/// and one for all workers together if there are several.
pub(super) fn caches(report: &CacheReport) -> String {
    let several = report.workers.iter().any(|of| of.worker > 0);
    let rows: Vec<(String, &CacheView)> = report
        .workers
        .iter()
        .map(|of| (of.worker.to_string(), &of.cache))
        .chain(report.totals.iter().filter(|_| several).map(|total| ("all".to_owned(), total)))
        .collect();
    let used = || rows.iter().filter(|(_, cache)| cache.state != CacheState::Off);
    let mut text = table(
        &["WORKER", "TABLE", "MODE", "STATE", "BUCKETS", "WAYS", "BYTES", "OCCUPIED", "FULL"],
        &rows.iter().map(|(worker, cache)| size(worker, cache)).collect::<Vec<_>>(),
    );
    if used().next().is_none() {
        return text;
    }
    text.push('\n');
    text.push_str(&table(
        &[
            "WORKER",
            "TABLE",
            "HITS",
            "RATIO",
            "NEW",
            "STALE",
            "EVICTED",
            "BYPASSED",
            "RESTAMPED",
            "INSERTED",
            "REPLACED",
            "REFUSED",
        ],
        &used().map(|(worker, cache)| work(worker, cache)).collect::<Vec<_>>(),
    ));
    text.push('\n');
    text.push_str(&table(
        &["WORKER", "TABLE", "LOOK NS", "DECIDE NS", "KEEP NS", "SAVED NS"],
        &used().map(|(worker, cache)| costs(worker, cache)).collect::<Vec<_>>(),
    ));
    text
}

fn size(worker: &str, cache: &CacheView) -> Vec<String> {
    let full = (cache.buckets > 0).then(|| cache.occupied as f64 / cache.buckets as f64);
    vec![
        worker.to_owned(),
        cache.table.to_string(),
        cache.mode.to_string(),
        cache.state.to_string(),
        cache.buckets.to_string(),
        cache.associativity.to_string(),
        cache.bytes.to_string(),
        cache.occupied.to_string(),
        percent(full),
    ]
}

fn work(worker: &str, cache: &CacheView) -> Vec<String> {
    vec![
        worker.to_owned(),
        cache.table.to_string(),
        cache.hits.to_string(),
        percent(cache.hit_ratio),
        cache.misses.new.to_string(),
        cache.misses.stale.to_string(),
        cache.misses.evicted.to_string(),
        cache.misses.bypassed.to_string(),
        cache.restamped.to_string(),
        cache.inserted.to_string(),
        cache.evicted.to_string(),
        cache.refused.to_string(),
    ]
}

fn costs(worker: &str, cache: &CacheView) -> Vec<String> {
    let measured =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    let costs = &cache.costs;
    let mut row = vec![worker.to_owned(), cache.table.to_string()];
    row.extend([costs.look_ns, costs.decide_ns, costs.keep_ns, costs.saved_ns].map(measured));
    row
}

fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", 100.0 * ratio))
}

#[cfg(test)]
mod tests {
    use api::{CacheCosts, CacheMisses, CacheMode, CacheTable, WorkerCache};

    use super::*;

    #[test]
    fn a_table_that_is_off_is_told_by_its_size_alone() {
        let view = |table, state| CacheView {
            table,
            mode: CacheMode::Auto,
            state,
            buckets: 8,
            associativity: 4,
            bytes: 1024,
            occupied: 2,
            hits: 3,
            hit_ratio: Some(0.75),
            misses: CacheMisses { new: 1, ..CacheMisses::default() },
            restamped: 0,
            inserted: 1,
            evicted: 0,
            refused: 0,
            live: 1,
            costs: CacheCosts {
                look_ns: Some(10.04),
                saved_ns: Some(-2.5),
                ..CacheCosts::default()
            },
        };
        let of = |cache| WorkerCache { worker: 0, cache };
        let (on, off) = (
            view(CacheTable::V4Outbound, CacheState::InUse),
            view(CacheTable::V6Inbound, CacheState::Off),
        );
        let report = CacheReport {
            workers: vec![of(on.clone()), of(off.clone())],
            totals: vec![on, off.clone()],
        };
        let text = caches(&report);
        assert!(
            text.contains("25.0 %") && text.contains("75.0 %") && text.contains("10.0"),
            "{text}"
        );
        assert!(text.contains("-2.5") && !text.contains("all"), "{text}");
        assert_eq!(text.matches("ipv6-inbound").count(), 1, "{text}");
        let text = caches(&CacheReport { workers: vec![of(off.clone())], totals: vec![off] });
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
