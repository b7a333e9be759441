//! `obdfilter.*.stats`: what Lustre counts of an OST's operations, and as what.

use proto::wire::messages::{self as msg, Operation};
use service::Stats;

/// The rows are Lustre's. There is none for what an OST is not asked for here: objects come with their first write (`create`), and their
/// owners and times with it (`setattr`).
pub(super) const STATS: Stats = Stats {
    name: "stats",
    moves_data: true,
    rows: &[
        ("read", &[(msg::Read::OPCODE, 0)]),
        ("write", &[(msg::Write::OPCODE, 0), (msg::WriteParts::OPCODE, 0)]),
        ("getattr", &[(msg::GetObjectAttr::OPCODE, 0)]),
        ("punch", &[(msg::Punch::OPCODE, 0)]),
        ("sync", &[(msg::Sync::OPCODE, 0)]),
        ("destroy", &[(msg::Destroy::OPCODE, 0)]),
        ("statfs", &[(msg::Statfs::OPCODE, 0)]),
    ],
    own: &[],
};
