//! Senders that mean harm: what they send must not harm anybody else.

mod fixture;

use fixture::*;

#[test]
fn packets_to_nobody_leave_buffers_for_everybody_else() {
    let mut tables = plain_tables();
    let mut spec = tables.port(LAN).unwrap().spec.clone();
    spec.addresses = vec![prefix("10.0.0.1/8")];
    tables.update_port(LAN, spec).unwrap();
    let mut gateway = Gateway::new(tables);
    for host in 0..200 {
        for _ in 0..40 {
            gateway.receive(WAN, &udp("8.8.8.8", &format!("10.1.1.{host}"), (1, 2), 10));
        }
        gateway.sent(LAN);
    }
    // The other port still resolves next hops, and packets still pass.
    gateway.change(|tables| _ = tables.remove_neighbour(WAN, ip("192.168.11.1")).unwrap());
    gateway.receive(LAN, &udp("10.0.0.5", "8.8.8.8", (1, 2), 10));
    gateway.sent_one(WAN);
    gateway.change(|tables| tables.set_neighbour(WAN, ip("192.168.11.1"), PEER_MAC).unwrap());
    gateway.poll();
    gateway.sent_one(WAN);
    assert!(gateway.worker.held() <= BUFFERS / 4, "{} held", gateway.worker.held());
    gateway.assert_nothing_lost();
}
