//! What is foretold of a packet is what becomes of it.

use std::collections::BTreeMap;

use packet::DropReason;
use path::{Exit, Fate, Step, Verdict};
use pipeline::Action as PipelineAction;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tables::{
    Action, Direction, FieldsSelector, NextHopState, PolicySpec, PortSpec, Selector, Side,
    UpperSelector,
};
use wire::{PortId, VrfId};

use crate::packets::{Peers, Sending, sending};
use crate::twin::{Seen, Twin};
use crate::world::Act;
use crate::world::acts::act;
use crate::{before, drawn, more, reference};

/// What a trace was told that matters here.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Every step, in words.
    text: String,
    /// Senders that are told something.
    told: u64,
    /// Whether a queueing discipline or other copies have their own say.
    is_open: bool,
    /// Whether the packet opens a connection whose source is translated.
    is_translated: bool,
    /// Whether policies judge it as it is then.
    is_judged: bool,
    /// Whether it opens a connection.
    opens: bool,
    /// Whether the gateway makes a packet about it.
    is_answered: bool,
    /// Whether what is behind the flows refuses the packet.
    is_refused: bool,
    /// Whether its connection ends if it is refused for what flows say of it.
    ends: bool,
}

/// Whether flows themselves drop packets so.
fn is_of_flows(why: DropReason) -> bool {
    use DropReason as Why;
    let of_flows =
        [Why::FlowDrop, Why::FlowMiss, Why::FlowResubmits, Why::FlowUnsupported, Why::FlowZones];
    of_flows.contains(&why)
}

impl path::Trace for Told {
    fn step<'a>(&mut self, step: impl FnOnce() -> Step<'a>) {
        let step = step();
        self.text += &format!("{}: {step}\n", step.name());
        self.is_answered |= matches!(step, Step::Generated { .. });
        // What becomes of an answer to it says nothing of the packet.
        if let Step::Verdict { decision, .. } = &step
            && !self.is_answered
        {
            self.is_refused = match decision.verdict() {
                Verdict::Drop(why) | Verdict::Refuse(why, _) => !is_of_flows(why),
                _ => false,
            };
        }
        self.opens |= matches!(step, Step::Opens(_));
        let ending = PipelineAction::Rerouted { ends: true };
        self.ends |= matches!(&step, Step::Flow(pipeline::Step::Action { action, .. }, _) if **action == ending);
        match step {
            Step::Told(told) if told.from.is_ok() => self.told += 1,
            Step::Copies(_) => self.is_open = true,
            Step::Opens(opened) => self.is_translated |= opened.source.is_some(),
            Step::Policy { .. } => self.is_judged |= self.is_translated,
            Step::Verdict { exit: Some(Exit { state: NextHopState::Queued, .. }), .. } => {
                self.is_open = true;
            }
            _ => {}
        }
    }
}

/// What was counted between two looks.
struct Passed {
    drops: Vec<DropReason>,
    frames: usize,
    held: bool,
    counted: Vec<u64>,
}

/// Places in [`Seen::statistics`].
const FORWARDED: usize = 2;
const ENCRYPTED: usize = 3;
const DECRYPTED: usize = 4;
const CONSUMED: usize = 5;
const ECHO_REPLIES: usize = 6;
const ERRORS: usize = 7;
const RESETS: usize = 8;
const FRAGMENTED: usize = 11;

impl Passed {
    fn between(before: &Seen, after: &Seen) -> Self {
        let count = |seen: &Seen, reason| {
            seen.drops().iter().find(|(other, _)| *other == reason).map_or(0, |(_, count)| *count)
        };
        let is_new = |reason: &&DropReason| count(after, **reason) > count(before, **reason);
        let counted = after.statistics().iter().zip(before.statistics());
        Self {
            drops: DropReason::ALL.iter().filter(is_new).copied().collect(),
            frames: after.frames().iter().map(Vec::len).sum(),
            held: after.held() > before.held(),
            counted: counted.map(|(after, before)| after - before).collect(),
        }
    }

    /// Why it is not as was foretold.
    fn differs(&self, fate: Fate, told: &Told) -> Option<&'static str> {
        let count = |at: usize| self.counted[at];
        // What is inside may be anything, and the packet forged.
        if fate == Fate::Decrypted {
            let is_right = count(DECRYPTED) > 0 || self.held || !self.drops.is_empty();
            return (!is_right).then_some("not decrypted");
        }
        if count(ERRORS) + count(RESETS) != told.told {
            return Some("senders told");
        }
        if let Some(reason) = fate.reason() {
            // That is so once it has waited in vain.
            if reason == DropReason::NeighbourUnresolved && self.held {
                return None;
            }
            return (!self.drops.contains(&reason)).then_some("not dropped for that reason");
        }
        let is_dropped = !self.drops.is_empty();
        let is_right = match fate {
            Fate::SentInClear => count(FORWARDED) > 0 && self.frames > 0,
            Fate::SentUnchanged => count(FORWARDED) > 0 && self.frames > 0,
            Fate::SentEncrypted => count(ENCRYPTED) > 0 && self.frames > 0,
            Fate::SentOnceResolved => self.held,
            Fate::Answered => count(ECHO_REPLIES) > 0 && (self.frames > 0 || self.held),
            Fate::Delivered => count(CONSUMED) > 0,
            Fate::Decrypted => true,
            Fate::Reassembled => {
                // By itself, or too long for any buffer.
                let is_full = |why: &DropReason| *why == DropReason::ReassemblyTooBig;
                return (!self.held && !self.drops.iter().any(is_full)).then_some("not held");
            }
            Fate::LeftToSystem(_) | Fate::Dropped(_) => true,
        };
        match () {
            () if is_dropped => Some("dropped"),
            () if !is_right => Some("did not leave so"),
            () => None,
        }
    }
}

fn check(
    twin: &mut Twin,
    port: PortId,
    packet: &[u8],
) -> Result<Option<(Fate, Told)>, TestCaseError> {
    // Nothing waits any more, and nobody is told too much.
    twin.receive(61_000, &[]);
    let before = twin.receive(5000, &[]);
    let mut told = Told::default();
    let Some(fate) = twin.foretell(port, packet, &mut told) else { return Ok(None) };
    let connections = twin.connections();
    let after = twin.receive(0, &[(port, packet.to_vec())]);
    if told.is_open {
        return Ok(None);
    }
    let is_rerouted = fate == Fate::Dropped(DropReason::ConnectionRerouted);
    if told.is_refused && !told.opens && !(is_rerouted && told.ends) {
        prop_assert_eq!(twin.connections(), connections, "{}", told.text);
    }
    let passed = Passed::between(&before, &after);
    if let Some(how) = passed.differs(fate, &told) {
        let Passed { drops, frames, held, counted } = passed;
        return Err(TestCaseError::fail(format!(
            "{how}: {fate:?}, {drops:?}, {frames} frames, held {held}, {counted:?}\n{}{packet:02x?}",
            told.text
        )));
    }
    let is_cut = told.text.contains("fragments of");
    let was_cut = passed.counted[FRAGMENTED] > 0;
    prop_assert!(is_cut == was_cut || fate == Fate::Decrypted, "{}", told.text);
    Ok(Some((fate, told)))
}

fn change() -> impl Strategy<Value = Vec<Act>> {
    prop::collection::vec(act(), 0..4)
}

proptest! {
    #![proptest_config(more(400))]

    #[test]
    fn every_packet_fares_as_foretold(
        before in before(),
        sendings in prop::collection::vec(sending(), 1..30),
        rounds in prop::collection::vec((change(), any::<Index>()), 1..40),
    ) {
        let (mut twin, mut peers) = (reference(), Peers::default());
        twin.publish(&before);
        for (acts, which) in &rounds {
            twin.publish(acts);
            let sending: &Sending = which.get(&sendings);
            // The parts of one are about each other.
            if let [packet] = &sending.packets(&mut peers)[..] {
                check(&mut twin, sending.port, packet)?;
            }
        }
    }
}

/// The law would say nothing of a fate that no packet meets.
#[test]
fn every_fate_is_met() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[17; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut met, mut peers) = (BTreeMap::<String, u32>::new(), Peers::default());
    for _ in 0..400 {
        let mut twin = reference();
        twin.publish(&drawn(&mut runner, before()));
        for _ in 0..40 {
            twin.publish(&drawn(&mut runner, change()));
            let sending = drawn(&mut runner, sending());
            if let [packet] = &sending.packets(&mut peers)[..]
                && let Some((fate, told)) = check(&mut twin, sending.port, packet).unwrap()
            {
                let reason = fate.reason().map_or("", DropReason::name);
                let said = format!("{} {reason}", fate.word());
                if told.is_judged {
                    *met.entry(format!("translated, {said}")).or_default() += 1;
                }
                *met.entry(said).or_default() += 1;
            }
        }
    }
    for fate in [
        "sent-in-clear ",
        "sent-encrypted ",
        "answered ",
        "decrypted ",
        "reassembled ",
        "dropped local_no_listener",
        "dropped local_icmp",
        "left-to-system local_ike",
        "dropped hop_limit",
        "dropped too_big",
        "dropped policy_no_match",
        "dropped no_route",
        "dropped esp_no_sa",
        "dropped connection_rerouted",
        "translated, dropped policy_no_match",
    ] {
        assert!(met.contains_key(fate), "no packet is {fate}: {met:#?}");
    }
}

/// Policies judge a packet that opens a connection as it leaves: with the source that it gets. One that
/// is sent in clear then is too rare to be met by chance.
#[test]
fn policies_judge_the_translated_source() {
    const RED: VrfId = VrfId(1);
    /// What begins anywhere leaves from 10.2.0.1.
    const TRANSLATED: usize = 4;
    let (inside, outside) = (PortId(2), PortId(3));
    let packet = Sending::udp(inside, "10.1.0.5", "10.3.0.5", 20).with_ports(1000, 53);
    for (source, fate) in [
        ("10.2.0.1/32", Fate::SentInClear),
        ("10.1.0.0/24", Fate::Dropped(DropReason::PolicyNoMatch)),
    ] {
        let mut twin = reference();
        twin.publish(&[Act::SetFlows(RED, TRANSLATED)]);
        twin.change(|world| {
            for (port, side) in [(inside, Side::Protected), (outside, Side::Unprotected)] {
                let spec = world.tables.port(port).unwrap().spec.clone();
                world.tables.update_port(port, PortSpec { side, ..spec }).unwrap();
            }
            let selector = Selector {
                source: source.parse().unwrap(),
                destination: "0.0.0.0/0".parse().unwrap(),
                protocol: None,
                upper: UpperSelector::Any,
                fields: FieldsSelector::ANY,
            };
            let (vrf, if_id, direction, priority) = (RED, None, Direction::Out, 1);
            let action = Action::Bypass;
            let spec = PolicySpec { vrf, if_id, direction, priority, selector, action };
            world.tables.add_policy(spec).unwrap();
        });
        let packet = packet.packets(&mut Peers::default()).remove(0);
        let (foretold, told) = check(&mut twin, inside, &packet).unwrap().unwrap();
        assert_eq!(foretold, fate, "{}", told.text);
        assert!(told.is_judged, "{}", told.text);
    }
}
