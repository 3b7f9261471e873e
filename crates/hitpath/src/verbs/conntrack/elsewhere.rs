//! Options of conntrack-tools that are not here, and what there is in their place.

use clap::Args;

/// They are hidden, and each is refused by name.
#[derive(Args, Debug)]
pub(super) struct Elsewhere {
    #[arg(short = 'I', long, hide = true)]
    create: bool,
    #[arg(short = 'A', long, hide = true)]
    add: bool,
    #[arg(short = 'R', long, hide = true, value_name = "FILE")]
    load_file: Option<String>,
    #[arg(short, long, hide = true)]
    zero: bool,
    #[arg(short, long, hide = true, value_name = "LABEL")]
    label: Option<String>,
    #[arg(long, hide = true, value_name = "LABEL")]
    label_add: Option<String>,
    #[arg(long, hide = true, value_name = "LABEL", num_args = 0..=1)]
    label_del: Option<Option<String>>,
    #[arg(short, long, hide = true, value_name = "OCTETS")]
    buffer_size: Option<String>,
    #[arg(short = 'c', long, hide = true, value_name = "MARK")]
    secmark: Option<String>,
    #[arg(long, hide = true, value_name = "ADDRESS")]
    mask_src: Option<String>,
    #[arg(long, hide = true, value_name = "ADDRESS")]
    mask_dst: Option<String>,
    #[arg(long, hide = true, value_name = "ADDRESS")]
    tuple_src: Option<String>,
    #[arg(long, hide = true, value_name = "ADDRESS")]
    tuple_dst: Option<String>,
    #[arg(long, hide = true, value_name = "PORT")]
    tuple_port_src: Option<String>,
    #[arg(long, hide = true, value_name = "PORT")]
    tuple_port_dst: Option<String>,
    #[arg(long, hide = true, value_name = "ZONE")]
    orig_zone: Option<String>,
    #[arg(long, hide = true, value_name = "ZONE")]
    reply_zone: Option<String>,
    #[arg(long, hide = true, value_name = "TAG")]
    orig_vtag: Option<String>,
    #[arg(long, hide = true, value_name = "TAG")]
    reply_vtag: Option<String>,
    #[arg(long, hide = true, value_name = "ROLE")]
    role: Option<String>,
    #[arg(long, hide = true, value_name = "KEY")]
    srckey: Option<String>,
    #[arg(long, hide = true, value_name = "KEY")]
    dstkey: Option<String>,
}

impl Elsewhere {
    /// Why an option is not here, and what is, if one is given.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        let given = [
            (
                self.create || self.add || self.load_file.is_some(),
                "-I, -A and -R are not supported: packets make connections; -U changes those that \
                 there are",
            ),
            (
                self.zero,
                "-z is not supported: counters only grow; leave it out, and compare two lists",
            ),
            (
                self.label.is_some(),
                "-l is not supported: labels have no names; -o labels shows them, and -m MARK looks \
                 for a mark",
            ),
            (
                self.label_add.is_some() || self.label_del.is_some(),
                "labels cannot be changed by command: flows write them, as in \
                 ct(commit,exec(set_field:1->ct_label)); -m MARK changes a mark",
            ),
            (
                self.buffer_size.is_some(),
                "-b is not supported: the size of the queue is fixed, and what was lost is said when \
                 -E ends",
            ),
            (
                self.secmark.is_some(),
                "-c is not supported: connections have no security marks; -m MARK looks for a mark",
            ),
            (
                self.mask_src.is_some() || self.mask_dst.is_some(),
                "--mask-src and --mask-dst are not supported: -s and -d take prefixes, as in \
                 10.1.0.0/16",
            ),
            (
                [&self.tuple_src, &self.tuple_dst, &self.tuple_port_src, &self.tuple_port_dst]
                    .into_iter()
                    .any(Option::is_some),
                "--tuple-src, --tuple-dst and their ports are not supported: expectations are listed without \
                 conditions, conntrack -L expect",
            ),
            (
                self.orig_zone.is_some() || self.reply_zone.is_some(),
                "--orig-zone and --reply-zone are not supported: a connection has one zone for both \
                 directions, -w ZONE",
            ),
            (
                self.orig_vtag.is_some() || self.reply_vtag.is_some(),
                "--orig-vtag and --reply-vtag are not supported: addresses and ports name an \
                 association of SCTP",
            ),
            (
                self.role.is_some() || self.srckey.is_some() || self.dstkey.is_some(),
                "--role, --srckey and --dstkey are not supported: DCCP has ports, and GRE is a \
                 protocol without",
            ),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, why)| why)
    }
}
