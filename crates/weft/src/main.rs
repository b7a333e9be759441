//! The weft binary: `weft`, and the same file called as `lfs`, `lctl`, `lljobstat`, `mount.weft` and `umount.fuse.weft`.

// The program is an edge: it starts processes and reads files of its user.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

// Before the others, which have its macros.
#[macro_use]
mod out;

mod ask;
mod changelog;
mod cmd;
mod control;
mod daemon;
mod endpoint;
mod failure;
mod fence;
mod instances;
mod lctl;
mod lfs;
mod limit;
mod lljobstat;
mod log;
mod memory;
mod mountpoint;
mod owners;
mod pools;
mod predecessor;
mod schedulers;
mod servers;
mod serving;
mod settings;
mod size;
mod statistics;
mod survey;
mod table;
mod turns;
mod uring;
mod usage;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use mounting::{keys, source as nids};

/// Counts what is allocated, for `memused`.
#[global_allocator]
static HEAP: rt::os::heap::Heap = rt::os::heap::Heap;

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    // `weft lfs ...` works where nobody has made the links yet.
    let called_as_tool = matches!(
        program(&arguments).as_str(),
        "lfs" | "lctl" | "lljobstat" | "mount.weft" | "mount.fuse.weft" | "umount.weft" | "umount.fuse.weft"
    );
    if !called_as_tool
        && arguments.get(1).is_some_and(|word| word == "lfs" || word == "lctl" || word == "lljobstat")
    {
        arguments.remove(0);
    }
    // What mount(8) calls where mount.weft is not in /sbin: the helper of FUSE runs "weft NID:/FSNAME DIR -o OPTIONS".
    let called_by_mount = program(&arguments) == "weft"
        && arguments.get(1).is_some_and(|word| nids::Source::parse(&word.to_string_lossy()).is_ok());
    match program(&arguments).as_str() {
        _ if called_by_mount => cmd::mount_helper::main(arguments),
        "lfs" => lfs::main(arguments),
        "lctl" => lctl::main(arguments),
        "lljobstat" => lljobstat::main(arguments),
        "mount.weft" | "mount.fuse.weft" => cmd::mount_helper::main(arguments),
        "umount.weft" | "umount.fuse.weft" => cmd::umount_helper::main(arguments),
        _ => cmd::main(arguments),
    }
}

/// The name that the program was called by.
fn program(arguments: &[OsString]) -> String {
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    name.map_or_else(|| "weft".to_owned(), |name| name.to_string_lossy().into_owned())
}
