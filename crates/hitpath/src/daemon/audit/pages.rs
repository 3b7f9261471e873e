//! Changes of connections that are asked for page by page, and are one record.

use std::time::{Duration, Instant};

use api::ConnectionPage;

use super::record::Record;

/// How long the next page is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most changes that are waited for at once.
const MOST: usize = 64;

/// A page of a change.
#[derive(Debug)]
pub(super) struct Page {
    /// Who asks for what.
    pub(super) head: Record,
    /// Where it begins.
    pub(super) from: u32,
    /// Where the next one begins, if there is one.
    pub(super) next: Option<u32>,
    /// Connections of it, and of the pages before.
    pub(super) count: u64,
}

impl Page {
    pub(super) fn new(head: Record, from: u32, page: &ConnectionPage) -> Self {
        Self { head, from, next: page.next, count: page.connections.len() as u64 }
    }

    /// Whether `self` goes on where `before` has ended, by the same client.
    fn follows(&self, before: &Self) -> bool {
        before.next == Some(self.from) && before.head.fields == self.head.fields
    }

    fn record(self) -> Record {
        self.head.with("count", self.count).with("outcome", "done")
    }
}

/// Changes whose next page is waited for, in the order in which the last one came.
#[derive(Debug, Default)]
pub(super) struct Pages(Vec<(Instant, Page)>);

impl Pages {
    /// Takes a page. Returns the record of a change that has ended.
    pub(super) fn take(&mut self, mut page: Page, now: Instant) -> Option<Record> {
        if let Some(at) = self.0.iter().position(|(_, before)| page.follows(before)) {
            let (_, before) = self.0.remove(at);
            page = Page { head: before.head, count: page.count + before.count, ..page };
        }
        if page.next.is_none() {
            return Some(page.record());
        }
        self.0.push((now, page));
        (self.0.len() > MOST).then(|| self.0.remove(0).1.record())
    }

    /// The record of a change whose next page has not come.
    pub(super) fn due(&mut self, now: Instant) -> Option<Record> {
        let (since, _) = self.0.first()?;
        (now.saturating_duration_since(*since) >= PATIENCE).then(|| self.0.remove(0).1.record())
    }

    /// The record of a change that is not waited for any longer.
    pub(super) fn give_up(&mut self) -> Option<Record> {
        (!self.0.is_empty()).then(|| self.0.remove(0).1.record())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Priority, Value};
    use super::*;

    fn page(pid: u32, from: u32, next: Option<u32>, count: u64) -> Page {
        let head = Record::now("change", Priority::Info).with("pid", pid);
        Page { head: head.with("command", "conntrack -F".to_owned()), from, next, count }
    }

    fn count(record: Option<Record>) -> Option<Value> {
        let fields = record?.fields;
        fields.into_iter().find(|(name, _)| *name == "count").map(|(_, value)| value)
    }

    #[test]
    fn the_pages_of_a_change_are_one_record_with_their_sum() {
        let (mut pages, now) = (Pages::default(), Instant::now());
        assert_eq!(count(pages.take(page(1, 0, Some(10), 5), now)), None);
        assert_eq!(count(pages.take(page(2, 0, Some(10), 7), now)), None);
        assert_eq!(count(pages.take(page(1, 10, Some(20), 0), now)), None);
        assert_eq!(count(pages.take(page(1, 20, None, 1), now)), Some(Value::Number(6)));
        assert_eq!(count(pages.take(page(2, 10, None, 0), now)), Some(Value::Number(7)));
        assert_eq!(count(pages.take(page(3, 0, None, 0), now)), Some(Value::Number(0)));
        assert!(pages.is_empty());
    }

    #[test]
    fn what_a_client_leaves_unfinished_is_written_all_the_same() {
        let (mut pages, now) = (Pages::default(), Instant::now());
        for pid in 0..MOST as u32 {
            assert_eq!(pages.take(page(pid, 0, Some(10), u64::from(pid)), now), None);
        }
        let one_more = pages.take(page(100, 0, Some(10), 9), now);
        assert_eq!(count(one_more), Some(Value::Number(0)), "the oldest makes room");
        assert_eq!(pages.due(now), None);
        assert_eq!(count(pages.due(now + PATIENCE)), Some(Value::Number(1)));
        // A page that comes later is a change of its own.
        assert_eq!(count(pages.take(page(1, 10, None, 3), now)), Some(Value::Number(3)));
        let left = core::iter::from_fn(|| pages.give_up());
        assert_eq!(left.count(), MOST - 1);
    }
}
