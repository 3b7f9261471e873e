//! VRFs in iproute2's words.

use super::{Control, show as shown};

fn gateway() -> Control {
    super::running(
        "[[port]]
        name = \"lan\"
        kind = \"memory\"
        mac = \"02:00:00:00:01:01\"
        addresses = [\"192.0.2.1/24\"]",
    )
}

#[track_caller]
fn run(control: &mut Control, line: &str) {
    super::run(control, line).unwrap_or_else(|refusal| panic!("{line}: {refusal}"));
}

#[track_caller]
fn refused(control: &mut Control, line: &str) -> api::Refusal {
    super::run(control, line).expect_err(line)
}

#[test]
fn a_vrf_as_with_linux() {
    let mut control = gateway();
    run(&mut control, "link add blue type vrf table 10");
    run(&mut control, "link set blue up");
    assert!(shown(&mut control, "vrf show").contains("blue                 10  auto"));
    assert!(
        shown(&mut control, "link show type vrf").contains("blue: <NOARP,MASTER,UP> mtu 65575")
    );
    run(&mut control, "link set lan master blue");
    assert!(shown(&mut control, "link show lan").contains("master blue"));
    assert!(shown(&mut control, "link show master blue").contains(": lan:"));
    // Local and connected routes stand in the VRF's table, and are shown with its number alone.
    let all = shown(&mut control, "route show table 10");
    assert!(all.contains("local 192.0.2.1") || all.contains("local "), "{all}");
    assert!(!shown(&mut control, "route show vrf blue").contains("local "));
    run(&mut control, "route add blackhole 10.9.0.0/16 table 10");
    assert!(shown(&mut control, "route show vrf blue").contains("blackhole 10.9.0.0/16"));
    for (line, says) in [
        ("link add red type vrf table 10", "table 10 is that of VRF 'blue'"),
        ("link add blue type vrf table 11", "a VRF 'blue' exists"),
        ("link add lan type vrf table 11", "a port 'lan' exists"),
        ("link set blue down", "a VRF is always up"),
        ("link set blue mtu 1400", "blue is a VRF, which has no MTU"),
        ("link set blue master blue", "a VRF is not in another one"),
        ("link del main", "cannot be removed"),
        ("link show nothing", "there is no port 'nothing'"),
        ("vrf show nothing", "there is no VRF 'nothing'"),
    ] {
        let refusal = refused(&mut control, line).to_string();
        assert!(refusal.contains(says), "{line}: {refusal}");
    }
    run(&mut control, "link set lan nomaster");
    assert!(!shown(&mut control, "link show lan").contains("master"));
}

#[test]
fn a_vrf_that_goes_leaves_its_ports_down_and_bare() {
    let mut control = gateway();
    run(&mut control, "link add blue type vrf table 10");
    run(&mut control, "link set lan master blue");
    run(&mut control, "xfrm policy add dir out action block vrf blue");
    let refusal = refused(&mut control, "link del blue").to_string();
    assert!(refusal.contains("policies") && refusal.contains("xfrm policy flush vrf blue"));
    assert!(shown(&mut control, "link show lan").contains("master blue"), "nothing half done");
    run(&mut control, "xfrm policy flush vrf blue");
    run(&mut control, "route add blackhole 10.9.0.0/16 vrf blue");
    run(&mut control, "link del blue");
    let lan = shown(&mut control, "link show lan");
    assert!(lan.contains("state DOWN") && !lan.contains("master"), "{lan}");
    assert!(!shown(&mut control, "addr show dev lan").contains("inet "));
    assert!(!shown(&mut control, "route show table all").contains("10.9.0.0"));
}

#[test]
fn a_table_may_come_before_its_vrf() {
    let mut control = gateway();
    run(&mut control, "route add blackhole 10.9.0.0/16 table 10");
    run(&mut control, "route add 10.8.0.0/16 dev lan table 10");
    assert_eq!(
        shown(&mut control, "route show table 10"),
        "10.8.0.0/16 dev lan scope link\nblackhole 10.9.0.0/16\n"
    );
    assert!(!shown(&mut control, "route show").contains("10.9.0.0"), "no VRF has it");
    assert!(shown(&mut control, "route show table all").contains("10.9.0.0/16 table 10"));
    assert!(shown(&mut control, "route get 10.9.1.1 table 10").contains("10.9.1.1"));
    run(&mut control, "link add blue type vrf table 10");
    // That by a port which is not in the VRF waits for it.
    let blue = shown(&mut control, "route show vrf blue");
    assert!(blue.contains("10.8.0.0/16 dev lan scope link vrf blue dead"), "{blue}");
    run(&mut control, "link set lan master blue");
    assert!(!shown(&mut control, "route show vrf blue").contains("dead"));
    run(&mut control, "route delete 10.9.0.0/16 table 10");
    assert!(!shown(&mut control, "route show vrf blue").contains("10.9.0.0"));
}

#[test]
fn two_vrfs_with_the_same_addresses_and_spis() {
    let mut control = gateway();
    for (vrf, vlan) in [("red", 1), ("blue", 2)] {
        run(&mut control, &format!("vrf add {vrf}"));
        let port = format!("lan.{vlan}");
        run(&mut control, &format!("link add link lan {port} up vrf {vrf} type vlan id {vlan}"));
        run(&mut control, &format!("addr add 10.77.0.1/24 dev {port}"));
        run(&mut control, &format!("neigh add 10.77.0.2 lladdr 02:00:00:00:00:0{vlan} dev {port}"));
        run(&mut control, &format!("route add default via 10.77.0.2 vrf {vrf}"));
        run(
            &mut control,
            &format!(
                "xfrm state add src 10.77.0.2 dst 10.77.0.1 proto esp spi 9 mode tunnel reqid 1 \
                aead rfc4106(gcm(aes)) 0x001122334455667788990011223344556677889{vlan} 128 vrf {vrf}"
            ),
        );
        run(&mut control, &format!("xfrm policy add dir in action block vrf {vrf}"));
    }
    run(&mut control, "xfrm policy setdefault out accept vrf red");
    for (vrf, mac, other) in [("red", "00:01", "00:02"), ("blue", "00:02", "00:01")] {
        let neighbours = shown(&mut control, &format!("neigh show vrf {vrf}"));
        assert!(neighbours.contains(mac) && !neighbours.contains(other), "{neighbours}");
        assert_eq!(shown(&mut control, &format!("route show vrf {vrf}")).lines().count(), 2);
    }
    let defaults = |control: &mut Control, vrf: &str| {
        let all = shown(control, &format!("xfrm policy getdefault vrf {vrf}"));
        all.replace(vrf, "")
    };
    assert_ne!(defaults(&mut control, "red"), defaults(&mut control, "blue"));
    run(&mut control, "xfrm policy flush vrf red");
    run(&mut control, "xfrm state flush vrf red");
    assert!(shown(&mut control, "xfrm state list vrf blue").contains("spi 0x00000009"));
}
