m4_changecom([])m4_dnl
m4_divert(-1)
What Open vSwitch's system-traffic.at is written with, as programs of bash: autotest's macros and those
of m4sugar that it uses. The program `ovs` stands for ovs-vsctl, ovs-ofctl and ovs-appctl.
m4_define([dnl], [m4_dnl])
m4_define([m4_if], m4_defn([m4_ifelse]))
m4_define([_foreach], [m4_ifelse([$#], [2], [], [$#], [3], [m4_define([$1], [$3])$2[]],
  [m4_define([$1], [$3])$2[]_foreach([$1], [$2], m4_shift(m4_shift(m4_shift($@))))])])
m4_define([m4_foreach], [m4_pushdef([$1])_foreach([$1], [$3], $2)[]m4_popdef([$1])])
m4_define([AT_SETUP], [])
m4_define([AT_KEYWORDS], [])
m4_define([AT_BANNER], [])
m4_define([AS_BOX], [])
m4_define([AT_CLEANUP], [exit 0])
m4_define([AT_CAPTURE_FILE], [])
m4_define([OVS_START_SHELL_HELPERS], [m4_divert(-1)])
m4_define([OVS_END_SHELL_HELPERS], [m4_divert(0)])
m4_define([AT_DATA], [
cat > $1 <<'_AT_DATA_END'
$2[]_AT_DATA_END
])
m4_define([AT_CHECK], [
cat > at-command <<'_AT_COMMAND_END'
$1
_AT_COMMAND_END
cat > at-expected <<'_AT_EXPECTED_END'
$3
_AT_EXPECTED_END
at_check '$2' ])
m4_define([AT_SKIP_IF], [
if $1; then exit 77; fi
])
m4_define([AT_FAIL_IF], [
if $1; then at_fail 'AT_FAIL_IF'; fi
])
m4_define([OVS_WAIT_UNTIL], [
cat > at-command <<'_AT_COMMAND_END'
$1
_AT_COMMAND_END
at_wait 0
])
m4_define([OVS_WAIT_WHILE], [
cat > at-command <<'_AT_COMMAND_END'
$1
_AT_COMMAND_END
at_wait 1
])
m4_define([OVS_WAIT_UNTIL_EQUAL], [OVS_WAIT_UNTIL([test "$($1)" = "$2"])])
m4_define([OVS_TRAFFIC_VSWITCHD_START], [])
m4_define([OVS_TRAFFIC_VSWITCHD_STOP], [ovs stop || at_fail 'the gateway'])
m4_define([OVS_APP_EXIT_AND_WAIT], [])
m4_define([OVS_DAEMONIZE], [$1 & echo $! > $2])
m4_define([OVS_CHECK_FIREWALL], [])
m4_define([OVS_CHECK_GITHUB_ACTION], [])
m4_define([OVS_CHECK_CT_CLEAR], [])
m4_define([CONFIGURE_VETH_OFFLOADS], [ethtool -K $1 tx off > ethtool.log 2>&1])
m4_define([CHECK_CONNTRACK], [])
m4_define([CHECK_CONNTRACK_ALG], [])
m4_define([CHECK_CONNTRACK_NAT], [])
m4_define([CHECK_CONNTRACK_ZEROIP_SNAT], [])
m4_define([CHECK_CONNTRACK_SCTP], [])
m4_define([CHECK_CONNTRACK_SNAT_ICMP_ID], [])
m4_define([CHECK_CONNTRACK_FRAG_OVERLAP], [])
m4_define([CHECK_CONNTRACK_TIMEOUT], [])
m4_define([CHECK_CT_DPIF_PER_ZONE_LIMIT], [])
m4_define([CHECK_CT_DPIF_SET_GET_MAXCONNS], [])
m4_define([CHECK_CT_DPIF_GET_NCONNS], [])
m4_define([CHECK_NO_DPDK_OFFLOAD], [])
m4_define([CHECK_NO_TC_OFFLOAD], [])
m4_define([VSCTL_ADD_DATAPATH_TABLE], [])
m4_define([DPCTL_SET_MIN_FRAG_SIZE], [])
m4_define([DPCTL_MODIFY_FRAGMENTATION], [])
m4_define([DPCTL_CHECK_FRAGMENTATION_PASS], [])
m4_define([DPCTL_CHECK_FRAGMENTATION_FAIL], [])
m4_define([CHECK_CONNTRACK_LOCAL_STACK], [at_left_out 'the local stack'])
m4_define([CHECK_EXTERNAL_CT], [at_left_out 'connections of another tracker'])
m4_define([ADD_EXTERNAL_CT], [])
m4_define([ADD_OVS_TUNNEL], [at_left_out 'tunnels of OVS'])
m4_define([ADD_OVS_TUNNEL6], [at_left_out 'tunnels of OVS'])
m4_define([ADD_NATIVE_TUNNEL], [])
m4_define([ADD_NATIVE_TUNNEL6], [])
m4_define([OVS_CHECK_VXLAN], [])
m4_define([OVS_CHECK_VXLAN_UDP6ZEROCSUM], [])
m4_define([OVS_CHECK_8021AD], [at_left_out 'frames with VLAN tags'])
m4_define([ADD_VLAN], [at_left_out 'frames with VLAN tags'])
m4_define([ADD_CVLAN], [at_left_out 'frames with VLAN tags'])
m4_define([ADD_SVLAN], [at_left_out 'frames with VLAN tags'])
m4_define([OVS_CHECK_XT], [at_left_out 'iptables'])
m4_define([OVS_CHECK_MIN_KERNEL], [])
m4_define([OVS_CHECK_KERNEL_EXCL], [])
m4_define([CHECK_L3L4_CONNTRACK_REASM], [])
m4_define([CHECK_CONNTRACK_DUMP_EXPECTATIONS], [])
m4_define([OVS_CHECK_FRAG_LARGE], [])
