//! The fields by name: where each is among the words, how wide it is, and what it needs.

use crate::fields::{Fields, IPV4, IPV6, LOCAL, NO_PORT, WORDS, bits, word};

/// A field that flows may match or set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // Open vSwitch's names: ovs-fields(7).
pub enum Field {
    InPort,
    /// The SA that decrypted the packet. Ours.
    Sa,
    /// Whether an SA has decrypted the packet. Ours.
    Decrypted,
    DlType,
    NwProto,
    /// The type of service octet without ECN.
    NwTos,
    /// The same bits as a number from 0 to 63.
    IpDscp,
    NwTtl,
    IpFrag,
    NwSrc,
    NwDst,
    Ipv6Src,
    Ipv6Dst,
    TcpSrc,
    TcpDst,
    UdpSrc,
    UdpDst,
    SctpSrc,
    SctpDst,
    TcpFlags,
    IcmpType,
    IcmpCode,
    Icmpv6Type,
    Icmpv6Code,
    /// The port that the packet would be routed to. Ours.
    Oif,
    CtState,
    CtZone,
    CtMark,
    CtLabel,
    CtNwProto,
    CtNwSrc,
    CtNwDst,
    CtIpv6Src,
    CtIpv6Dst,
    CtTpSrc,
    CtTpDst,
    Reg0,
    Reg1,
    Reg2,
    Reg3,
    Reg4,
    Reg5,
    Reg6,
    Reg7,
    PktMark,
}

/// What a packet must be to have a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Every packet has it.
    Nothing,
    /// IPv4 or IPv6.
    Ip,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// TCP, and no later fragment.
    Tcp,
    /// UDP, and no later fragment.
    Udp,
    /// SCTP, and no later fragment.
    Sctp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmpv6,
}

/// How a value of a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Decimal, masked in hexadecimal.
    Decimal,
    Hexadecimal,
    /// An EtherType: four hexadecimal digits.
    EtherType,
    Port,
    /// A port, the gateway itself, or nowhere.
    Exit,
    Sa,
    Ipv4,
    Ipv6,
    Fragment,
    CtState,
    TcpFlags,
}

/// What a packet's writers may do to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// Inside of `ct(exec(...))` alone.
    Exec,
}

pub(crate) struct Info {
    /// The name that is written, and others that are read.
    pub(crate) names: &'static [&'static str],
    /// Of NXM or OXM: in `load`, `move` and `zone`. The first is written.
    pub(crate) nxm: &'static [&'static str],
    word: usize,
    shift: u8,
    pub(crate) bits: u8,
    pub(crate) needs: Needs,
    pub(crate) access: Access,
    /// Whether some of the bits can be matched.
    pub(crate) maskable: bool,
    pub(crate) form: Form,
}

#[allow(clippy::too_many_arguments)] // One line for each field below.
const fn info(
    names: &'static [&'static str],
    nxm: &'static [&'static str],
    (word, shift, bits): (usize, u8, u8),
    needs: Needs,
    access: Access,
    maskable: bool,
    form: Form,
) -> Info {
    Info { names, nxm, word, shift, bits, needs, access, maskable, form }
}

macro_rules! fields {
    ($($field:ident => $info:expr;)+) => {
        impl Field {
            /// Every field.
            pub const ALL: &'static [Self] = &[$(Self::$field),+];

            pub(crate) const fn info(self) -> &'static Info {
                match self {
                    $(Self::$field => const { &$info }),+
                }
            }
        }
    };
}

macro_rules! register {
    ($number:literal, $name:literal, $nxm:literal) => {
        info(
            &[$name],
            &[$nxm],
            (word::REG + $number, 0, 32),
            Needs::Nothing,
            Access::Write,
            true,
            Form::Hexadecimal,
        )
    };
}

const READ: Access = Access::Read;
const WRITE: Access = Access::Write;

#[rustfmt::skip] // A table.
fields! {
    InPort => info(&["in_port"], &["NXM_OF_IN_PORT", "OXM_OF_IN_PORT"],
        (word::PORT, 0, 16), Needs::Nothing, READ, false, Form::Port);
    Sa => info(&["sa"], &[],
        (word::SA, 0, 32), Needs::Nothing, READ, false, Form::Sa);
    Decrypted => info(&["sa"], &[],
        (word::IP, 2, 1), Needs::Nothing, READ, false, Form::Sa);
    DlType => info(&["dl_type", "eth_type"], &["NXM_OF_ETH_TYPE", "OXM_OF_ETH_TYPE"],
        (word::PORT, 16, 16), Needs::Nothing, READ, false, Form::EtherType);
    NwProto => info(&["nw_proto", "ip_proto"], &["NXM_OF_IP_PROTO", "OXM_OF_IP_PROTO"],
        (word::IP, 24, 8), Needs::Ip, READ, false, Form::Decimal);
    NwTos => info(&["nw_tos"], &["NXM_OF_IP_TOS"],
        (word::IP, 16, 8), Needs::Ip, WRITE, false, Form::Decimal);
    IpDscp => info(&["ip_dscp"], &["OXM_OF_IP_DSCP"],
        (word::IP, 18, 6), Needs::Ip, WRITE, false, Form::Decimal);
    NwTtl => info(&["nw_ttl"], &["NXM_NX_IP_TTL"],
        (word::IP, 8, 8), Needs::Ip, WRITE, false, Form::Decimal);
    IpFrag => info(&["ip_frag", "nw_frag"], &["NXM_NX_IP_FRAG"],
        (word::IP, 0, 2), Needs::Ip, READ, true, Form::Fragment);
    NwSrc => info(&["nw_src", "ip_src"], &["NXM_OF_IP_SRC", "OXM_OF_IPV4_SRC"],
        (word::SOURCE + 3, 0, 32), Needs::Ipv4, WRITE, true, Form::Ipv4);
    NwDst => info(&["nw_dst", "ip_dst"], &["NXM_OF_IP_DST", "OXM_OF_IPV4_DST"],
        (word::DESTINATION + 3, 0, 32), Needs::Ipv4, WRITE, true, Form::Ipv4);
    Ipv6Src => info(&["ipv6_src"], &["NXM_NX_IPV6_SRC", "OXM_OF_IPV6_SRC"],
        (word::SOURCE, 0, 128), Needs::Ipv6, WRITE, true, Form::Ipv6);
    Ipv6Dst => info(&["ipv6_dst"], &["NXM_NX_IPV6_DST", "OXM_OF_IPV6_DST"],
        (word::DESTINATION, 0, 128), Needs::Ipv6, WRITE, true, Form::Ipv6);
    TcpSrc => info(&["tcp_src"], &["NXM_OF_TCP_SRC", "OXM_OF_TCP_SRC"],
        (word::TP, 16, 16), Needs::Tcp, WRITE, true, Form::Decimal);
    TcpDst => info(&["tcp_dst"], &["NXM_OF_TCP_DST", "OXM_OF_TCP_DST"],
        (word::TP, 0, 16), Needs::Tcp, WRITE, true, Form::Decimal);
    UdpSrc => info(&["udp_src"], &["NXM_OF_UDP_SRC", "OXM_OF_UDP_SRC"],
        (word::TP, 16, 16), Needs::Udp, WRITE, true, Form::Decimal);
    UdpDst => info(&["udp_dst"], &["NXM_OF_UDP_DST", "OXM_OF_UDP_DST"],
        (word::TP, 0, 16), Needs::Udp, WRITE, true, Form::Decimal);
    SctpSrc => info(&["sctp_src"], &["OXM_OF_SCTP_SRC"],
        (word::TP, 16, 16), Needs::Sctp, WRITE, true, Form::Decimal);
    SctpDst => info(&["sctp_dst"], &["OXM_OF_SCTP_DST"],
        (word::TP, 0, 16), Needs::Sctp, WRITE, true, Form::Decimal);
    TcpFlags => info(&["tcp_flags"], &["NXM_NX_TCP_FLAGS", "OXM_OF_TCP_FLAGS"],
        (word::STATE, 16, 8), Needs::Tcp, READ, true, Form::TcpFlags);
    IcmpType => info(&["icmp_type", "icmpv4_type"], &["NXM_OF_ICMP_TYPE", "OXM_OF_ICMPV4_TYPE"],
        (word::TP, 16, 8), Needs::Icmp, READ, false, Form::Decimal);
    IcmpCode => info(&["icmp_code", "icmpv4_code"], &["NXM_OF_ICMP_CODE", "OXM_OF_ICMPV4_CODE"],
        (word::TP, 0, 8), Needs::Icmp, READ, false, Form::Decimal);
    Icmpv6Type => info(&["icmpv6_type"], &["NXM_NX_ICMPV6_TYPE", "OXM_OF_ICMPV6_TYPE"],
        (word::TP, 16, 8), Needs::Icmpv6, READ, false, Form::Decimal);
    Icmpv6Code => info(&["icmpv6_code"], &["NXM_NX_ICMPV6_CODE", "OXM_OF_ICMPV6_CODE"],
        (word::TP, 0, 8), Needs::Icmpv6, READ, false, Form::Decimal);
    Oif => info(&["oif"], &[],
        (word::OUT, 0, 16), Needs::Nothing, READ, false, Form::Exit);
    CtState => info(&["ct_state"], &["NXM_NX_CT_STATE"],
        (word::STATE, 8, 8), Needs::Nothing, READ, true, Form::CtState);
    CtZone => info(&["ct_zone"], &["NXM_NX_CT_ZONE"],
        (word::CT_ZONE, 0, 16), Needs::Nothing, READ, false, Form::Decimal);
    CtMark => info(&["ct_mark"], &["NXM_NX_CT_MARK"],
        (word::CT_MARK, 0, 32), Needs::Nothing, Access::Exec, true, Form::Hexadecimal);
    CtLabel => info(&["ct_label"], &["NXM_NX_CT_LABEL"],
        (word::CT_LABEL, 0, 128), Needs::Nothing, Access::Exec, true, Form::Hexadecimal);
    CtNwProto => info(&["ct_nw_proto"], &["NXM_NX_CT_NW_PROTO"],
        (word::STATE, 0, 8), Needs::Ip, READ, false, Form::Decimal);
    CtNwSrc => info(&["ct_nw_src"], &["NXM_NX_CT_NW_SRC"],
        (word::CT_SOURCE + 3, 0, 32), Needs::Ipv4, READ, true, Form::Ipv4);
    CtNwDst => info(&["ct_nw_dst"], &["NXM_NX_CT_NW_DST"],
        (word::CT_DESTINATION + 3, 0, 32), Needs::Ipv4, READ, true, Form::Ipv4);
    CtIpv6Src => info(&["ct_ipv6_src"], &["NXM_NX_CT_IPV6_SRC"],
        (word::CT_SOURCE, 0, 128), Needs::Ipv6, READ, true, Form::Ipv6);
    CtIpv6Dst => info(&["ct_ipv6_dst"], &["NXM_NX_CT_IPV6_DST"],
        (word::CT_DESTINATION, 0, 128), Needs::Ipv6, READ, true, Form::Ipv6);
    CtTpSrc => info(&["ct_tp_src"], &["NXM_NX_CT_TP_SRC"],
        (word::CT_TP, 16, 16), Needs::Ip, READ, true, Form::Decimal);
    CtTpDst => info(&["ct_tp_dst"], &["NXM_NX_CT_TP_DST"],
        (word::CT_TP, 0, 16), Needs::Ip, READ, true, Form::Decimal);
    Reg0 => register!(0, "reg0", "NXM_NX_REG0");
    Reg1 => register!(1, "reg1", "NXM_NX_REG1");
    Reg2 => register!(2, "reg2", "NXM_NX_REG2");
    Reg3 => register!(3, "reg3", "NXM_NX_REG3");
    Reg4 => register!(4, "reg4", "NXM_NX_REG4");
    Reg5 => register!(5, "reg5", "NXM_NX_REG5");
    Reg6 => register!(6, "reg6", "NXM_NX_REG6");
    Reg7 => register!(7, "reg7", "NXM_NX_REG7");
    PktMark => info(&["pkt_mark"], &["NXM_NX_PKT_MARK"],
        (word::PKT_MARK, 0, 32), Needs::Nothing, WRITE, true, Form::Hexadecimal);
}

impl Field {
    /// The name that is written.
    pub const fn name(self) -> &'static str {
        self.info().names[0]
    }

    /// What a packet must be to have it.
    pub const fn needs(self) -> Needs {
        self.info().needs
    }

    /// Whether some of its bits can be matched.
    pub const fn is_maskable(self) -> bool {
        self.info().maskable
    }

    /// Its highest value.
    pub const fn max(self) -> u128 {
        ones(self.info().bits)
    }

    /// Its value among words.
    pub(crate) fn get(self, words: &[u32; WORDS]) -> u128 {
        let info = self.info();
        match info.bits {
            128 => crate::fields::wide(words, info.word),
            bits => u128::from(words[info.word] >> info.shift) & ones(bits),
        }
    }

    /// Sets the bits of `mask` among words.
    pub(crate) fn set(self, words: &mut [u32; WORDS], value: u128, mask: u128) {
        let info = self.info();
        match info.bits {
            128 => {
                let old = crate::fields::wide(words, info.word);
                crate::fields::set_wide(words, info.word, old & !mask | value & mask);
            }
            bits => {
                let mask = ((mask & ones(bits)) as u32) << info.shift;
                let word = &mut words[info.word];
                *word = *word & !mask | (value as u32) << info.shift & mask;
            }
        }
    }

    /// Whether a packet has it, so that it may be written.
    pub(crate) fn is_in(self, fields: &Fields) -> bool {
        let ip = fields.words[word::IP];
        let is = |protocol: u32| ip >> 24 == protocol && ip & bits::LATER == 0;
        match (self.needs(), fields.dl_type()) {
            (Needs::Nothing, _) => true,
            (Needs::Ipv4, dl_type) => dl_type == IPV4,
            (Needs::Ipv6, dl_type) => dl_type == IPV6,
            (Needs::Ip, dl_type) => matches!(dl_type, IPV4 | IPV6),
            (Needs::Tcp, IPV4 | IPV6) => is(6),
            (Needs::Udp, IPV4 | IPV6) => is(17),
            (Needs::Sctp, IPV4 | IPV6) => is(132),
            (Needs::Icmp, IPV4) => is(1),
            (Needs::Icmpv6, IPV6) => is(58),
            _ => false,
        }
    }

    /// 0 if it is a source port, 1 if a destination port.
    pub(crate) const fn port_side(self) -> Option<usize> {
        match self {
            Self::TcpSrc | Self::UdpSrc | Self::SctpSrc => Some(0),
            Self::TcpDst | Self::UdpDst | Self::SctpDst => Some(1),
            _ => None,
        }
    }

    /// Whether the value names no port.
    pub(crate) fn is_no_port(self, value: u128) -> bool {
        matches!(self, Self::InPort | Self::Oif) && value == u128::from(NO_PORT)
    }

    /// Whether the value means the gateway itself.
    pub(crate) fn is_local(self, value: u128) -> bool {
        self == Self::Oif && value == u128::from(LOCAL)
    }
}

/// Some bits of a field, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subfield {
    /// The field.
    pub field: Field,
    /// The lowest of the bits.
    pub first: u8,
    /// How many bits.
    pub bits: u8,
}

impl Subfield {
    /// All bits of a field.
    pub const fn all(field: Field) -> Self {
        Self { field, first: 0, bits: field.info().bits }
    }

    /// The bits among those of the field.
    pub const fn mask(self) -> u128 {
        ones(self.bits) << self.first
    }

    /// The bits of a packet.
    pub(crate) fn get(self, fields: &Fields) -> u128 {
        self.field.get(&fields.words) >> self.first & ones(self.bits)
    }
}

/// A number with the lowest `bits` bits set.
pub(crate) const fn ones(bits: u8) -> u128 {
    match bits {
        0 => 0,
        bits => u128::MAX >> (128 - bits),
    }
}
