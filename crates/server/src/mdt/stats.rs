//! `md_stats`: what Lustre counts of an MDT's operations, and as what.

use proto::FileKind;
use proto::wire::Request;
use proto::wire::messages::{self as msg, OPEN_READ, OPEN_WRITE, Operation};
use service::{Counted, Stats};

/// A regular file that is made and not opened.
const MADE: usize = 0;
/// One that is made and opened, or opened because it is there.
const OPENED: usize = 1;
/// A directory, or the removal of one.
const DIRECTORY: usize = 2;
/// A device, a socket, a pipe, or a symbolic link.
const NODE: usize = 3;
/// From a directory to another one.
const CROSSES: usize = 1;

/// The rows are Lustre's, and `create` behind them, which counts all that gets an inode: `open` and `mkdir` are in it, as they are in rows
/// of their own, as `samedir_rename` is in `rename`.
pub(super) const STATS: Stats = Stats {
    name: "md_stats",
    moves_data: false,
    rows: &[
        ("open", &[(msg::Open::OPCODE, 0), (msg::Create::OPCODE, OPENED), (msg::CreateUnnamed::OPCODE, 0)]),
        ("close", &[(msg::Close::OPCODE, 0)]),
        ("mknod", &[(msg::Create::OPCODE, MADE), (msg::Create::OPCODE, NODE)]),
        ("link", &[(msg::Link::OPCODE, 0)]),
        ("unlink", &[(msg::Unlink::OPCODE, 0)]),
        ("mkdir", &[(msg::Create::OPCODE, DIRECTORY)]),
        ("rmdir", &[(msg::Unlink::OPCODE, DIRECTORY)]),
        ("rename", &[(msg::Rename::OPCODE, 0), (msg::Rename::OPCODE, CROSSES)]),
        ("getattr", &[(msg::GetAttr::OPCODE, 0), (msg::Lookup::OPCODE, 0)]),
        ("setattr", &[(msg::SetAttr::OPCODE, 0)]),
        ("getxattr", &[(msg::GetXattr::OPCODE, 0), (msg::ListXattr::OPCODE, 0)]),
        ("setxattr", &[(msg::SetXattr::OPCODE, 0), (msg::RemoveXattr::OPCODE, 0)]),
        ("statfs", &[(msg::Statfs::OPCODE, 0)]),
        ("sync", &[(msg::Sync::OPCODE, 0)]),
        ("samedir_rename", &[(msg::Rename::OPCODE, 0)]),
        ("crossdir_rename", &[(msg::Rename::OPCODE, CROSSES)]),
        (
            "create",
            &[
                (msg::Create::OPCODE, MADE),
                (msg::Create::OPCODE, OPENED),
                (msg::Create::OPCODE, DIRECTORY),
                (msg::Create::OPCODE, NODE),
                (msg::CreateUnnamed::OPCODE, 0),
            ],
        ),
    ],
    own: &["create"],
};

/// Which variant a request is.
pub(super) fn variant(request: &Request) -> usize {
    match request {
        Request::Create(create) => variant_of_create(create),
        Request::Unlink(unlink) => variant_of_unlink(unlink),
        Request::Rename(rename) if rename.parent != rename.new_parent => CROSSES,
        _ => 0,
    }
}

fn variant_of_create(create: &msg::Create) -> usize {
    match FileKind::from_mode(create.mode) {
        Some(FileKind::Dir) => DIRECTORY,
        Some(FileKind::File) if create.open & (OPEN_READ | OPEN_WRITE) != 0 => OPENED,
        Some(FileKind::File) => MADE,
        _ => NODE,
    }
}

fn variant_of_unlink(unlink: &msg::Unlink) -> usize {
    if unlink.directory { DIRECTORY } else { 0 }
}

/// What was told ahead counts as what it is.
pub(super) fn parts(request: &Request) -> Vec<Counted> {
    let Request::KeepPromises(request) = request else { return Vec::new() };
    let creates = request.promises.iter().filter_map(|promise| promise.create.as_ref());
    let creates = creates.map(|create| (msg::Create::OPCODE, variant_of_create(create)));
    let sets = request.promises.iter().filter(|promise| promise.set_attr.is_some());
    let removes = request.promises.iter().filter_map(|promise| promise.remove.as_ref());
    let removes = removes.map(|remove| (msg::Unlink::OPCODE, variant_of_unlink(&remove.unlink)));
    creates.chain(sets.map(|_| (msg::SetAttr::OPCODE, 0))).chain(removes).collect()
}

#[cfg(test)]
mod tests {
    use service::VARIANTS;

    use super::*;

    #[test]
    fn all_that_is_counted_has_a_place() {
        for (name, counted) in STATS.rows {
            assert!(counted.iter().all(|(_, variant)| *variant < VARIANTS), "{name}");
        }
    }
}
