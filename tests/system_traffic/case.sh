# What a translated case begins with. $SHIMS is in front of $PATH; this is a network namespace.
mount -t tmpfs tmpfs /run/netns || exit 99
ip link set lo up
have() { if "$@" > have.log 2>&1; then echo yes; else echo no; fi; }
HAVE_FTP=yes HAVE_TFTP=yes
HAVE_NC=$(have which nc) HAVE_TCPDUMP=$(have which tcpdump) HAVE_LFTP=$(have which lftp)
HAVE_PYTHON=yes HAVE_TC=yes HAVE_IPTABLES=no HAVE_NFT=no NC_EOF_OPT="--send-only -d 1" DP_TYPE=netdev
CURL_OPT='-g -v --max-time 1 --retry 2 --retry-delay 1 --connect-timeout 1'
on_exit() { :; }
# Of dumped flows what is the same each time: no times, no zeros, no table 0.
ofctl_strip() {
    sed -E -e 's/ \(xid=0x[0-9a-f]+\)//' -e 's/(cookie=0x0|table=0|duration=[0-9.]+s|n_packets=0|n_bytes=0|idle_age=[0-9]+|hard_age=[0-9]+), ?//g' -e 's/ +$//'
}
ofctl_strip_bytes() { sed -E 's/n_bytes=[0-9]+, ?//'; }
# Addresses are there at once: a ping before duplicate address detection has ended has another source.
ip() {
    command ip "$@" || return
    [ "$1 $2" != 'netns add' ] || command ip netns exec "$3" sysctl -qw net.ipv6.conf.default.accept_dad=0
}
at_fail() { [ -e left-out ] && exit 77; echo "FAILED: $*" >&2; ovs log >&2; exit 1; }
at_left_out() { echo "$*" >> left-out; exit 77; }
# How many pings without an answer two seconds have is the machine's.
counted() { sed 's/^[0-9]* packets transmitted, 0 received/N packets transmitted, 0 received/'; }
# Runs at-command and compares its exit code and what it prints with at-expected.
at_check() {
    local status=${1:-0} code=0
    ( . ./at-command ) > at-stdout 2> at-stderr < /dev/null || code=$?
    # Something in it is not asked of hitpath: the word of `ovs`.
    [ -e left-out ] && exit 77
    if [ "$status" != ignore ] && [ "$code" != "$status" ]; then
        at_fail "$(cat at-command; echo "exit code $code instead of $status"; cat at-stdout at-stderr)"
    fi
    local said; said=$(cat at-expected)
    case $said in
        ignore | ignore-nolog) ;;
        stdout) cp at-stdout stdout ;;
        expout) diff expout at-stdout > at-diff || at_fail "$(cat at-command at-diff)" ;;
        *) diff <(echo "$said" | counted) <(echo "$(cat at-stdout)" | counted) > at-diff || at_fail "$(cat at-command at-diff)" ;;
    esac
    cp at-stderr stderr
}
at_wait() {
    local end=$((SECONDS + 40)) code
    while [ $SECONDS -lt $end ]; do
        code=0
        ( . ./at-command ) > at-stdout 2>&1 < /dev/null || code=1
        [ "$code" = "$1" ] && return
        sleep 0.25
    done
    at_fail "$(echo 'waited for:'; cat at-command at-stdout)"
}
