//! The verbs that take iproute2's grammar: `xfrm`, `route`, `neigh`, `addr`, `link`, `vrf`,
//! `filter`. Their words go to [`control::grammar`]; here is only what teaches them.

use std::io::IsTerminal;

use api::{PolicyAdded, Reply};
use clap::{Args, CommandFactory};

use crate::cli::{Cli, Global};
use crate::client;
use crate::exit::Usage;
use crate::ip_options::ShowOptions;
use crate::{output, view};
use runtime::exit::Exit;

macro_rules! verbs {
    ($($(#[$attribute:meta])+ $name:ident = $object:literal,)+) => {
        $(
            #[derive(Args, Debug)]
            $(#[$attribute])+
            pub(crate) struct $name {
                /// The command, in iproute2's grammar
                #[arg(value_name = "WORD")]
                words: Vec<String>,

                /// Do not wait until a change is on the disk: it is in force, and lost with power
                #[arg(long)]
                no_sync: bool,

                #[command(flatten)]
                pub(crate) show: ShowOptions,
            }

            impl $name {
                pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
                    run($object, &self.words, !self.no_sync, &self.show, global)
                }
            }
        )+
    };
}

verbs! {
    /// Security associations and policies, as `ip xfrm` has them
    ///
    /// Policies take ranges beyond iproute2: `src 10.0.0.1-10.0.0.9`, `sport 1000-2000`; and
    /// `dscp`, `tcp-flags` and `ttl`.
    #[command(after_help = "\
Commands:
  hitpath xfrm state  { add | update } ID ALGORITHMS [ mode tunnel ] [ reqid N ]
                      [ replay-window N ] [ flag FLAGS ] [ vrf NAME [ vrf INNER ] ] [ if_id ID ]
                      (the first vrf is that of the outer packets, wherever it stands)
  hitpath xfrm state  { delete | get } ID [ vrf NAME ]
  hitpath xfrm state  { list | flush | count }
  hitpath xfrm policy { add | update } SELECTOR dir { in | out | fwd }
                      [ action { allow | block } ] [ priority N ] [ tmpl ... ] [ name NAME ]
  hitpath xfrm policy { delete | get } { SELECTOR | index N } dir DIR [ vrf NAME | if_id ID ]
  hitpath xfrm policy { list | flush } [ SELECTOR ] [ dir DIR ] [ name NAME ] ...
  hitpath xfrm policy { count | getdefault }
  hitpath xfrm policy setdefault { in | out | fwd } { accept | block } ...
  hitpath xfrm monitor [ all | SA | policy ] [ label ]

Examples, one direction of a tunnel:
  hitpath xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel reqid 1 \\
      aead 'rfc4106(gcm(aes))' 0x00112233445566778899aabbccddeeff01020304 128
  hitpath xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out \\
      tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel reqid 1

Beyond iproute2:
  hitpath xfrm policy add src 10.1.0.1-10.1.0.99 dst 10.2.0.0/16 \\
      proto udp dport 5000-5999 dir out action block
  hitpath xfrm policy add src 10.1.0.0/16 dscp ef dir out \\
      tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel reqid 2
  hitpath xfrm policy add proto tcp tcp-flags syn/syn,ack dir fwd action block
  hitpath xfrm policy add src 10.3.0.0/16 dst 10.4.0.0/16 dir out action block name berlin
  hitpath xfrm policy list name berlin
  hitpath -j xfrm state list                 as JSON; keys are shown to `keys` alone")]
    Xfrm = "xfrm",

    /// Routes, as `ip route` has them
    #[command(visible_aliases = ["ro", "r"], after_help = "\
Commands:
  hitpath route { add | replace | change } [ KIND ] PREFIX [ via ADDRESS ]
                [ dev PORT [ port-vrf NAME ] ] [ onlink ] [ src ADDRESS ] [ metric N ]
                [ proto PROTOCOL ] [ TABLE ] [ NEXTHOP ] ...
  hitpath route { add | replace | change } PREFIX via ADDRESS recursive [ metric N ] [ TABLE ]
  hitpath route { add | replace | change } PREFIX nexthop vrf VRF [ metric N ] [ TABLE ]
  hitpath route del [ KIND ] PREFIX [ via ADDRESS ] [ dev PORT ] [ metric N ] [ TABLE ]
  hitpath route get ADDRESS [ from ADDRESS ] [ iif { PORT | VRF | lo } ] [ mark N ] [ vrf NAME ]
  hitpath route { show | flush } [ [ root | match | exact ] PREFIX ] [ dev PORT ] [ via ADDRESS ]
                [ type KIND ] [ proto PROTOCOL ] [ TABLE | table all ]
  hitpath route monitor [ label ]

TABLE := vrf NAME | table N
KIND := unicast | blackhole | unreachable | prohibit
PROTOCOL := kernel | boot | static | bgp | ospf ... | N
NEXTHOP := nexthop { via ADDRESS [ dev PORT ] | dev PORT } [ weight N ]

Examples:
  hitpath route add 10.2.0.0/16 via 192.0.2.2
  hitpath route add default via 192.0.2.254 dev wan vrf blue
  hitpath route add 10.3.0.0/16 nexthop via 192.0.2.2 weight 3 nexthop via 192.0.2.3 weight 1
  hitpath route replace blackhole 10.9.0.0/16
  hitpath route del 10.2.0.0/16
  hitpath route get 10.2.3.4                 which route would it take?
  hitpath route show vrf blue
  hitpath route show table 10                with local routes")]
    Route = "route",

    /// Policy rules, as `ip rule` has them
    #[command(visible_aliases = ["ru"], after_help = "\
Commands:
  hitpath rule add SELECTOR [ priority N ] ACTION
  hitpath rule del SELECTOR [ priority N ] [ ACTION ]
  hitpath rule { show | flush } SELECTOR [ priority N ] [ ACTION ]
  hitpath rule monitor [ label ]

SELECTOR := [ from PREFIX ] [ to PREFIX ] [ iif { PORT | VRF | lo } ] [ oif VRF ]
            [ fwmark VALUE[/MASK] ] [ ipproto PROTOCOL ] [ sport PORT[-PORT] ]
            [ dport PORT[-PORT] ] [ dscp DSCP | tos OCTET ]
ACTION := lookup { N | VRF | l3mdev } [ suppress_prefixlength N ] | goto N |
          unreachable | prohibit | blackhole

Examples:
  hitpath rule add from 10.1.0.0/16 lookup 100
  hitpath rule add iif blue to 10.9.0.0/16 lookup red    out of the VRF blue into red
  hitpath rule add priority 500 ipproto tcp dport 80-89 iif lan lookup 101
  hitpath rule add fwmark 0x1/0xff prohibit
  hitpath rule show
  hitpath -6 rule show
  hitpath rule del priority 500")]
    Rule = "rule",

    /// Neighbours, as `ip neigh` has them
    #[command(visible_aliases = ["neighbour", "neighbor", "n"], after_help = "\
Commands:
  hitpath neigh { add | replace } ADDRESS lladdr MAC dev PORT [ nud permanent ]
  hitpath neigh { del | get } ADDRESS dev PORT
  hitpath neigh { show | flush } [ PREFIX ] [ dev PORT ] [ nud STATE ] [ vrf NAME ]
    flush takes at least one of these
  hitpath neigh monitor [ label ]

STATE := permanent | reachable | probe

Examples:
  hitpath neigh show
  hitpath neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev wan
  hitpath neigh del 192.0.2.2 dev wan
  hitpath neigh flush dev wan                forget what was learnt there")]
    Neigh = "neigh",

    /// The gateway's own addresses, as `ip addr` has them
    #[command(visible_aliases = ["address", "a"], after_help = "\
Commands:
  hitpath addr { add | replace | del } ADDRESS/LENGTH [ brd + ] [ scope SCOPE ] [ label PORT ]
               [ nodad ] dev PORT
  hitpath addr { show | flush } [ dev PORT ] [ to PREFIX ] [ vrf NAME ]
    flush takes at least one of these
  hitpath addr monitor [ label ]

SCOPE := link | global

Examples:
  hitpath addr show
  hitpath addr add 192.0.2.1/24 dev wan
  hitpath addr del 192.0.2.1/24 dev wan")]
    Addr = "addr",

    /// Ports, as `ip link` has interfaces
    #[command(visible_aliases = ["l"], after_help = "\
Commands:
  hitpath link add link PORT [ name ] NAME [ up ] [ mtu BYTES ] [ vrf NAME ]
               type vlan [ protocol { 802.1Q | 802.1ad } ] id ID
  hitpath link add [ name ] NAME [ up ] [ mtu BYTES ] [ vrf NAME ] type xfrm dev PORT if_id ID
  hitpath link add [ name ] NAME [ up ] type vrf table N
  hitpath link del NAME
  hitpath link set [ dev ] PORT { up | down | mtu BYTES | { vrf | master } NAME | nomaster |
               side SIDE | rpf MODE | mss MSS } ...
  hitpath link show [ LINK ] [ up ] [ { vrf | master } NAME ] [ type KIND ]
  hitpath link monitor [ label ]

SIDE := protected | unprotected | unset
MODE := off | strict | feasible | loose
MSS := off | pmtu | BYTES
KIND := vrf | vlan | xfrm | memory | pcap | tap | af-packet

Examples:
  hitpath link show
  hitpath link set wan down
  hitpath link set wan mtu 1400
  hitpath link add blue type vrf table 10    a VRF, and its routing table
  hitpath link set lan master blue           another VRF; its addresses go along
  hitpath link set lan nomaster              back to main
  hitpath -s link show type vrf              what passed each VRF
  hitpath link set lan side protected        inside the IPsec boundary
  hitpath link set wan rpf feasible          sources must be routed back
  hitpath link set wan mss pmtu              TCP announces no more than fits the way
  hitpath link add link wan name wan.100 type vlan id 100
  hitpath link set wan.100 up
  hitpath link del wan.100")]
    Link = "link",

    /// Queueing disciplines of ports and VRFs, as `tc qdisc` has them
    #[command(after_help = "\
Commands:
  hitpath qdisc { add | replace | change } dev NAME { root | parent 1: } [ handle 1: ]
                tbf rate RATE burst SIZE { latency TIME | limit SIZE }
              | fq_codel [ limit N ] [ flows N ] [ target TIME ] [ interval TIME ] [ quantum N ]
                         [ ecn | noecn ] [ ce_threshold TIME ] [ memory_limit SIZE ]
              | pfifo [ limit N ]
  hitpath qdisc del dev NAME { root | parent 1: }
  hitpath qdisc show [ dev NAME ] [ root | parent 1: ] [ handle 1: ]

Examples:
  hitpath qdisc add dev wan root handle 1: tbf rate 100mbit burst 32kb latency 50ms
  hitpath qdisc add dev wan parent 1: fq_codel       fair, and little delay, below the rate
  hitpath qdisc change dev wan root tbf rate 50mbit
  hitpath qdisc add dev blue root tbf rate 1gbit burst 128kb latency 20ms
                                             a VRF: all of its ports together
  hitpath qdisc show                         with statistics, as `tc -s qdisc show`
  hitpath qdisc del dev wan root")]
    Qdisc = "qdisc",

    /// Virtual routing and forwarding instances, as `ip vrf` has them
    #[command(after_help = "\
Commands:
  hitpath vrf add NAME [ table N ]
  hitpath vrf del NAME
  hitpath vrf set NAME [ ipsec { auto | off | required } ] [ ike { bypass | policy } ]
              [ highest-share PERCENT ]
  hitpath vrf show [ NAME ]

Examples:
  hitpath vrf show
  hitpath vrf add blue table 10
  hitpath vrf set blue ipsec required        nothing passes in clear while it has no policies
  hitpath vrf set blue ike policy            IKE for own addresses needs policies
  hitpath vrf del blue")]
    Vrf = "vrf",

    /// Filters of ports and VRFs, as `tc filter` has them with flower
    ///
    /// A filter is the ordered rules of a port or VRF, before routing (ingress) or after it
    /// (egress). The first rule that matches decides; a packet that matches none passes.
    #[command(after_help = "\
Commands:
  hitpath filter { add | replace | change } dev { PORT | VRF } { ingress | egress } [ pref N ]
                 [ protocol { ip | ipv6 | all } ] [ flower ] [ MATCH ... ] ACTION
  hitpath filter del dev { PORT | VRF } { ingress | egress } [ pref N ]
  hitpath filter { show | list } [ dev { PORT | VRF } ] [ ingress | egress ] [ pref N ]

MATCH := src_ip ADDRESSES | dst_ip ADDRESSES | ip_proto PROTOCOL | src_port PORTS |
         dst_port PORTS | type N | code N | tcp_flags FLAGS/MASK | ip_tos VALUE/MASK |
         dscp DSCP | ip_ttl N | mark VALUE[/MASK]
ACTION := [ action skbedit mark VALUE[/MASK] ] action { pass | drop | reject [ with HOW ] } [ log ]
HOW := icmp-admin-prohibited | icmp-port-unreachable | icmp-host-unreachable |
       icmp-net-unreachable | tcp-reset

Examples:
  hitpath filter add dev lan ingress pref 10 protocol ip flower \\
      src_ip 10.1.0.0/16 ip_proto tcp dst_port 22 action pass
  hitpath filter add dev lan ingress pref 20 ip_proto tcp dst_port 22 \\
      action reject with tcp-reset log
  hitpath filter add dev lan ingress pref 5 dscp ef action skbedit mark 1 action pass
  hitpath filter add vrf blue egress mark 1 action drop
  hitpath filter show -s dev lan ingress
  hitpath filter del dev lan ingress pref 20")]
    Filter = "filter",
}

fn run(
    object: &str,
    words: &[String],
    sync: bool,
    show: &ShowOptions,
    global: &Global,
) -> anyhow::Result<Exit> {
    if asks_for_help(object, words) {
        return help(object);
    }
    let look = show.look(std::io::stdout().is_terminal())?;
    if super::monitor::is_asked_for(words) {
        return super::monitor::run_of(object, words, (look.family, look.timestamp), global);
    }
    let words: Vec<&str> =
        std::iter::once(object).chain(words.iter().map(String::as_str)).collect();
    let (request, warnings) = control::grammar::parse_with_warnings(&words, look.family)
        .map_err(|refusal| Usage(refusal.to_string()))?;
    warnings.iter().for_each(|warning| output::say(&format!("warning: {warning}")));
    let reply = client::change(global.socket(), &request, sync)?;
    let links = client::links_of(global.socket(), &request, &reply)?;
    view::print_as_ip(&request, &reply, &links, global.json, look)?;
    if let Reply::PolicyAdded(added) = &reply
        && !global.json
    {
        tell(added, global.verbose > 0);
    }
    Ok(Exit::Done)
}

/// What iproute2 does not say of a policy that was added: the index if one wants to know it, and
/// in any case that lookups become slow.
fn tell(added: &PolicyAdded, verbose: bool) {
    if verbose {
        let PolicyAdded { index, worst_case_probes, worst_case_policies, .. } = added;
        output::say(&format!(
            "index {index}; a lookup is {worst_case_probes} probes and {worst_case_policies} \
            policies compared at worst"
        ));
    }
    if let Some(warning) = &added.warning {
        output::say(&format!("warning: {warning}"));
    }
}

/// As with `ip route help` and `ip xfrm state help`. Further on, `help` may be a name.
fn asks_for_help(object: &str, words: &[String]) -> bool {
    let at = if object == "xfrm" && words.len() > 1 { 1 } else { 0 };
    words.len() == at + 1 && words[at] == "help"
}

fn help(object: &str) -> anyhow::Result<Exit> {
    let mut all = Cli::command();
    all.build();
    if let Some(verb) = all.find_subcommand_mut(object) {
        output::text(&verb.render_long_help().to_string())?;
    }
    Ok(Exit::Done)
}
