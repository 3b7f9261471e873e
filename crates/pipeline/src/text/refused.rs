//! What ovs-ofctl knows and we do not, by name, with what to use instead.

/// Why a field is not supported, if it is one of Open vSwitch's.
pub(crate) fn field(name: &str) -> Option<String> {
    let name = name.split('[').next().unwrap_or(name);
    let has_prefix = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let why = match name {
        "arp_spa" | "arp_tpa" | "arp_sha" | "arp_tha" | "arp_op" => {
            "flows match ARP packets as a whole, by `arp`"
        }
        "nd_target" | "nd_sll" | "nd_tll" | "nd_reserved" | "nd_options_type" => {
            "neighbour discovery is matched by `icmp6,icmp_type=135` and the like"
        }
        "nw_ecn" | "ip_ecn" => "decisions do not depend on ECN",
        "ipv6_label" => "decisions do not depend on the flow label",
        "vlan_tci" | "dl_vlan" | "dl_vlan_pcp" | "vlan_vid" | "vlan_pcp" | "vlan_tci1" => {
            "a VLAN is a port of its own: use `in_port`"
        }
        "metadata" => "use a register, reg0 to reg7",
        "in_phy_port" => "use `in_port`",
        "packet_type" | "eth" => "packets are IP or ARP over Ethernet",
        "dl_src" | "eth_src" => {
            "flows see what is behind the link header: use `in_port`, and nw_src or ipv6_src"
        }
        "dl_dst" | "eth_dst" => {
            "flows see what is behind the link header, of frames for the gateway: use nw_dst or ipv6_dst"
        }
        "mpls_label" | "mpls_tc" | "mpls_bos" | "mpls_ttl" => {
            "flows match MPLS packets as a whole, by `mpls`"
        }
        "conj_id" => "give a flow for each combination, or registers in several tables",
        "dp_hash" | "recirc_id" | "skb_priority" | "actset_output" => "",
        _ if has_prefix(&["reg", "xreg", "xxreg"])
            && name.trim_start_matches('x')[3..].bytes().all(|c| c.is_ascii_digit())
            && name.len() > 3 =>
        {
            "there are the registers reg0 to reg7"
        }
        _ if has_prefix(&["tun_", "tunnel", "gtpu_"]) => {
            "a packet's tunnel is matched by `sa` or by its `in_port`"
        }
        _ if has_prefix(&["nsh_", "NXM_", "OXM_", "NXOXM_", "ERICOXM_", "ONFOXM_"]) => "",
        _ => return None,
    };
    Some(because("the field", name, why))
}

/// Why an action is not supported, if it is one of Open vSwitch's.
pub(crate) fn action(name: &str) -> Option<String> {
    let why = match name.to_ascii_lowercase().as_str() {
        "controller" => "there is no controller; `drop` drops",
        "all" | "flood" => "name each port by `output`",
        "local" => "use `NORMAL`, which delivers to own addresses",
        "table" => "",
        "enqueue" | "set_queue" | "pop_queue" => {
            "a port has a queueing discipline: fq_codel gives flows queues of their own"
        }
        "mod_vlan_vid" | "mod_vlan_pcp" | "set_vlan_vid" | "set_vlan_pcp" | "strip_vlan"
        | "push_vlan" | "pop_vlan" => "a VLAN is a port of its own: use `output`",
        "mod_dl_src" | "mod_dl_dst" => "use `NORMAL`, which writes the link header",
        "mod_nw_ecn" => "ECN belongs to the ends and to tunnels",
        "set_tunnel" | "set_tunnel64" => "packets are encrypted by policies: use `NORMAL`",
        "meter" => "rates are limited by a qdisc",
        "group" | "bundle" | "bundle_load" | "multipath" => {
            "packets are spread by routes with several next hops: use `NORMAL`"
        }
        "write_metadata" => "use a register, reg0 to reg7",
        "conjunction" => "give a flow for each combination, or registers in several tables",
        "clone" => {
            "each `output` sends a copy of the packet as it is then: write back what was written"
        }
        "exit" => "actions end with the last: let `resubmit` be that",
        "check_pkt_larger" => {
            "use `NORMAL`, which knows how long packets may be, and tells their senders"
        }
        "fin_timeout" => "connections have timeouts by state: use `ct`",
        "sample" | "output_trunc" => "a tap copies packets, in full or their beginnings",
        "delete_field" => "use `ct_clear`, or write zero",
        "write_actions" | "clear_actions" => "actions are done where they stand",
        "push" | "pop" => "use a register, reg0 to reg7",
        "learn" => "what traffic opens is a connection: use `ct(commit)`",
        "push_mpls" | "pop_mpls" | "dec_mpls_ttl" | "set_mpls_ttl" | "set_mpls_label"
        | "set_mpls_tc" | "encap" | "decap" | "dec_nsh_ttl" | "output_reg" | "debug_recirc"
        | "debug_slow" | "unroll_xlate" => "",
        _ => return None,
    };
    Some(because("the action", name, why))
}

/// Why a word beside the match is not supported, if it is one of Open vSwitch's.
pub(crate) fn word(name: &str) -> Option<String> {
    let why = match name {
        "send_flow_rem" => "nobody is told of flows that go",
        "no_packet_counts" | "no_byte_counts" => "counters cost nothing",
        "importance" => "no flow is evicted for another",
        "out_group" => "there are no groups",
        _ => return None,
    };
    Some(because("", name, why))
}

fn because(kind: &str, name: &str, why: &str) -> String {
    let space = if kind.is_empty() { "" } else { " " };
    let colon = if why.is_empty() { "" } else { ": " };
    format!("{kind}{space}`{name}` is not supported{colon}{why}")
}
