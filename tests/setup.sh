# shellcheck shell=bash
# What ./demo and ./test need on a machine, and how it gets there. To be sourced.

OLDEST_RUST=1.90
BUILD_PACKAGES="gcc libc6-dev"
TEST_PACKAGES="python3 python3-pytest python3-pytest-xdist python3-scapy python3-cryptography tshark tcpdump iperf3 iputils-ping traceroute iproute2 kmod procps util-linux openvswitch-switch vsftpd python3-pyftpdlib lftp curl chromium apache2-utils tftpd-hpa tftp-hpa nftables conntrack m4 ncat net-tools ethtool zsh fish python3-pexpect python3-pyte systemd man-db"
COUNT_PACKAGES="python3 valgrind"
DEMO_PACKAGES="iproute2 iputils-ping iperf3 tcpdump"

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' yellow=$'\e[33m' blue=$'\e[36m' plain=$'\e[0m'
else
    bold='' dim='' green='' red='' yellow='' blue='' plain=''
fi

# Those of the packages named that are not installed.
missing_packages() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
    done
}

# Runs a command as root: as we are, or through sudo where that asks for no password.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() {
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null
}

# Installs what is missing of the Debian packages named; where it may not, says how and fails.
need_packages() {
    command -v dpkg-query >/dev/null || { echo "${yellow}not a Debian system: please see that these are installed: $*${plain}" >&2; return 0; }
    local missing
    missing=$(missing_packages "$@" | tr '\n' ' ')
    [ -n "${missing// /}" ] || return 0
    if ! can_be_root; then
        echo "${yellow}missing: ${missing}${plain}" >&2
        echo "${yellow}install with:  sudo apt-get install --no-install-recommends ${missing}${plain}" >&2
        return 1
    fi
    echo "${dim}installing: ${missing}${plain}"
    as_root apt-get -qq update || true
    # shellcheck disable=SC2086 # A list of words.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y $missing >/dev/null
}

version_at_least() { # VERSION OLDEST
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

rust_is_new_enough() {
    command -v cargo >/dev/null && version_at_least "$(rustc --version 2>/dev/null | cut -d' ' -f2)" "$OLDEST_RUST"
}

# Sees to one of cargo's programs. Built with little optimisation: that takes longer than they run.
need_cargo_program() { # NAME
    cargo "$1" --version >/dev/null 2>&1 && return 0
    echo "${dim}installing cargo-$1 into ~/.cargo${plain}"
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo install --quiet --locked "cargo-$1" && return 0
    echo "${yellow}install with:  cargo install --locked cargo-$1${plain}" >&2
    return 1
}

# Sees to a Rust toolchain that is new enough: the one here, else Debian's, else rustup's.
need_rust() {
    [ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
    rust_is_new_enough && return 0
    local offered
    offered=$(apt-cache policy rustc 2>/dev/null | sed -n 's/ *Candidate: //p')
    if version_at_least "${offered:-0}" "$OLDEST_RUST" && need_packages rustc cargo && rust_is_new_enough; then
        return 0
    fi
    need_packages curl ca-certificates || return 1
    echo "${dim}installing Rust into ~/.cargo with rustup (https://rustup.rs)${plain}"
    if curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y -q --profile minimal -c rustfmt -c clippy; then
        . "$HOME/.cargo/env"
        rust_is_new_enough && return 0
    fi
    echo "${red}Rust $OLDEST_RUST or newer is needed, and could not be installed; https://rustup.rs says how.${plain}" >&2
    return 1
}
