//! Policies, which may be many: they are asked for and printed page by page.

use std::path::Path;

use api::{
    PolicyCounts, PolicyPage, PolicyPlace, PolicyView, Reply, Request, SpdBound, SpdFilter,
    SpdReport,
};
use runtime::output;
use serde_json::Value;

use crate::cli::Global;
use crate::client;
use crate::view::{Columns, LONG, POLICY_HEADING, head, policy_row, tail};

/// Policies of a page.
const PAGE: u32 = 1000;

/// Prints the databases that `filter` is about, with what there is to say of each, or their policies
/// alone.
pub(super) fn show(global: &Global, filter: SpdFilter, is_spd: bool) -> anyhow::Result<()> {
    let request = Request::Spd(SpdFilter { heads: true, ..filter });
    let reply = client::ask(global.socket(), &request)?;
    let Reply::Spd(report) = &reply else { return Err(client::unexpected(&reply)) };
    match (global.json, is_spd) {
        (true, _) => as_json(global.socket(), report, is_spd),
        (false, true) => as_databases(global.socket(), report),
        (false, false) => as_list(global.socket(), report),
    }
}

/// Gives the policies of a database to `each`, page by page.
fn pages(
    socket: &Path,
    bound: &SpdBound,
    mut each: impl FnMut(&[PolicyView]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let SpdBound { vrf, if_id, direction, .. } = bound;
        let page = PolicyPage {
            vrf: vrf.clone(),
            if_id: *if_id,
            direction: *direction,
            after,
            most: PAGE,
        };
        let reply = client::ask(socket, &Request::PolicyPage(page))?;
        let Reply::Policies(views) = &reply else { return Err(client::unexpected(&reply)) };
        if !views.is_empty() {
            each(views)?;
        }
        if output::has_gone() {
            return Ok(());
        }
        match views.last().filter(|_| views.len() as u64 >= PAGE.into()) {
            Some(last) => {
                after = Some(PolicyPlace { index: last.index, priority: last.spec.priority });
            }
            None => return Ok(()),
        }
    }
}

/// A table of policies that grows.
#[derive(Default)]
struct Table {
    columns: Option<Columns>,
    summary: Summary,
}

impl Table {
    fn print(&mut self, views: &[PolicyView]) -> anyhow::Result<()> {
        let rows: Vec<_> = views.iter().map(policy_row).collect();
        views.iter().for_each(|view| self.summary.add(view));
        output::text(&match &mut self.columns {
            Some(columns) => columns.rows(None, &rows),
            None => {
                let columns = self.columns.insert(Columns::of(&POLICY_HEADING, &rows));
                columns.rows(Some(&POLICY_HEADING), &rows)
            }
        })
    }
}

/// What there is to say of many policies.
#[derive(Default)]
struct Summary {
    counts: PolicyCounts,
    packets: u64,
    bytes: u64,
}

impl Summary {
    fn add(&mut self, view: &PolicyView) {
        let count = match view.spec.direction {
            api::Direction::In => &mut self.counts.inbound,
            api::Direction::Out => &mut self.counts.outbound,
            api::Direction::Fwd => &mut self.counts.forward,
        };
        *count += 1;
        self.packets += view.traffic.packets;
        self.bytes += view.traffic.bytes;
    }

    /// The last line of a long list.
    fn line(&self) -> Option<String> {
        let PolicyCounts { inbound, outbound, forward } = self.counts;
        let all = inbound + outbound + forward;
        (all > LONG).then(|| {
            let Self { packets, bytes, .. } = self;
            format!(
                "{all} policies: {inbound} in, {outbound} out, {forward} fwd; {packets} packets, \
                {bytes} bytes\n"
            )
        })
    }
}

fn as_databases(socket: &Path, report: &SpdReport) -> anyhow::Result<()> {
    let mut summary = Summary::default();
    for spd in &report.spds {
        output::text(&head(spd))?;
        let mut table = Table { summary, ..Table::default() };
        if spd.bound.policies > 0 {
            pages(socket, &spd.bound, |views| table.print(views))?;
        }
        summary = table.summary;
        output::text("\n")?;
    }
    let line = summary.line().map(|line| format!("{line}\n")).unwrap_or_default();
    output::text(&(line + &tail(report)))
}

fn as_list(socket: &Path, report: &SpdReport) -> anyhow::Result<()> {
    let mut table = Table::default();
    // Those of several databases together, so that columns are as wide as all of a short list need.
    let mut waiting = Vec::new();
    for spd in report.spds.iter().filter(|spd| spd.bound.policies > 0) {
        pages(socket, &spd.bound, |views| {
            waiting.extend_from_slice(views);
            if waiting.len() >= PAGE as usize {
                table.print(&waiting)?;
                waiting.clear();
            }
            Ok(())
        })?;
    }
    if !waiting.is_empty() {
        table.print(&waiting)?;
    }
    match (&table.columns, table.summary.line()) {
        (None, _) => output::text(&crate::view::table(&POLICY_HEADING, &[])),
        (_, Some(line)) => output::text(&format!("\n{line}")),
        (_, None) => Ok(()),
    }
}

/// A policy. That of an xfrm link has its `if_id`, and is no VRF's; its template has the VRF of the
/// outer packets.
fn as_member(view: &PolicyView) -> serde_json::Result<String> {
    if view.spec.if_id == 0 {
        return serde_json::to_string(view);
    }
    let mut view = view.clone();
    if let Some(template) = &mut view.spec.template {
        template.vrf.get_or_insert_with(|| view.spec.vrf.clone());
    }
    let mut value = serde_json::to_value(view)?;
    value.as_object_mut().map(|members| members.remove("vrf"));
    serde_json::to_string(&value)
}

/// The same members as a reply with all policies would have, but for the VRF of a link's.
fn as_json(socket: &Path, report: &SpdReport, is_spd: bool) -> anyhow::Result<()> {
    output::text(if is_spd { "{\"spds\": [" } else { "[" })?;
    let mut is_first = true;
    for (at, spd) in report.spds.iter().enumerate() {
        if is_spd {
            let mut value = serde_json::to_value(spd)?;
            if let Value::Object(members) = &mut value {
                members.remove("list");
                if spd.bound.if_id != 0 {
                    members.remove("vrf");
                }
            }
            let text = value.to_string();
            let open = text.strip_suffix('}').unwrap_or(&text);
            let between = if at == 0 { "" } else { ",\n" };
            output::text(&format!("{between}{open}, \"list\": ["))?;
            is_first = true;
        }
        if spd.bound.policies > 0 {
            pages(socket, &spd.bound, |views| {
                let mut text = String::new();
                for view in views {
                    text.push_str(if is_first { "\n" } else { ",\n" });
                    text.push_str(&as_member(view)?);
                    is_first = false;
                }
                output::text(&text)
            })?;
        }
        if is_spd {
            output::text("]}")?;
        }
    }
    match is_spd {
        true => {
            let entries = serde_json::to_string(&report.flow_cache)?;
            output::line(&format!("],\n\"flow_cache\": {entries}}}"))
        }
        false => output::line("]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_of_a_link_is_no_vrfs() {
        let view = |if_id: u32, outer: Option<&str>| -> PolicyView {
            let mut value = serde_json::json!({
                "index": 9, "direction": "out", "action": "protect", "origin": "runtime",
                "packets": 0, "bytes": 0, "if_id": if_id,
                "template": { "destination": "192.0.2.2", "reqid": 7 },
            });
            if let Some(outer) = outer {
                value["template"]["vrf"] = outer.into();
            }
            serde_json::from_value(value).unwrap()
        };
        let row = |view: &PolicyView| {
            let row = policy_row(view);
            (row[0].clone(), row[10].clone())
        };
        let tunnel = "any > 192.0.2.2 reqid 7";
        assert_eq!(row(&view(0, None)), ("main".to_owned(), tunnel.to_owned()));
        assert_eq!(row(&view(0, Some("red"))), ("main".to_owned(), format!("{tunnel} vrf red")));
        let of_link = view(7, Some("main"));
        assert_eq!(row(&of_link), ("if_id 0x7".to_owned(), format!("{tunnel} vrf main")));
        let member: Value = serde_json::from_str(&as_member(&of_link).unwrap()).unwrap();
        assert_eq!((member.get("vrf"), &member["if_id"]), (None, &Value::from(7)));
        assert_eq!(member["template"]["vrf"], "main");
        // The same if it is not said.
        assert_eq!(row(&view(7, None)), row(&of_link));
        assert_eq!(as_member(&view(7, None)).unwrap(), as_member(&of_link).unwrap());
        let member: Value = serde_json::from_str(&as_member(&view(0, None)).unwrap()).unwrap();
        assert_eq!(member["vrf"], "main");
    }
}
