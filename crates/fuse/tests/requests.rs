//! Requests of a kernel, and what they mean: `vectors/requests.hex` and, line by line, `vectors/requests.txt`.

extern crate weft_fuse as fuse;

use fuse::kernel::abi::{self, InHeader};
use fuse::kernel::request::{Dialect, Malformed, Request};
use zerocopy::FromBytes;

/// What was agreed with the kernel that the requests come from.
const DIALECT: Dialect = Dialect { setxattr_ext: true };

fn recorded() -> Vec<Vec<u8>> {
    let lines = include_str!("../vectors/requests.hex").lines().filter(|line| !line.starts_with('#'));
    let bytes = lines.map(|line| {
        let digits: Vec<u32> =
            line.rsplit(' ').next().unwrap_or("").chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    });
    bytes.collect()
}

/// Bytes of the operation's first structure, which a ring entry has in a place of its own.
fn fixed_bytes(opcode: u32) -> usize {
    match opcode {
        abi::opcode::FORGET => size_of::<abi::ForgetIn>(),
        abi::opcode::BATCH_FORGET => size_of::<abi::BatchForgetIn>(),
        abi::opcode::GETATTR => size_of::<abi::GetattrIn>(),
        abi::opcode::SETATTR => size_of::<abi::SetattrIn>(),
        abi::opcode::MKNOD => size_of::<abi::MknodIn>(),
        abi::opcode::MKDIR => size_of::<abi::MkdirIn>(),
        abi::opcode::RENAME => size_of::<abi::RenameIn>(),
        abi::opcode::RENAME2 => size_of::<abi::Rename2In>(),
        abi::opcode::LINK => size_of::<abi::LinkIn>(),
        abi::opcode::OPEN | abi::opcode::OPENDIR => size_of::<abi::OpenIn>(),
        abi::opcode::CREATE | abi::opcode::TMPFILE => size_of::<abi::CreateIn>(),
        abi::opcode::READ | abi::opcode::READDIR | abi::opcode::READDIRPLUS => size_of::<abi::ReadIn>(),
        abi::opcode::WRITE => size_of::<abi::WriteIn>(),
        abi::opcode::RELEASE | abi::opcode::RELEASEDIR => size_of::<abi::ReleaseIn>(),
        abi::opcode::FSYNC | abi::opcode::FSYNCDIR => size_of::<abi::FsyncIn>(),
        abi::opcode::SETXATTR => size_of::<abi::SetxattrExtIn>(),
        abi::opcode::GETXATTR | abi::opcode::LISTXATTR => size_of::<abi::GetxattrIn>(),
        abi::opcode::FLUSH => size_of::<abi::FlushIn>(),
        abi::opcode::INIT => size_of::<abi::InitIn>(),
        abi::opcode::GETLK | abi::opcode::SETLK | abi::opcode::SETLKW => size_of::<abi::LkIn>(),
        abi::opcode::ACCESS => size_of::<abi::AccessIn>(),
        abi::opcode::INTERRUPT => size_of::<abi::InterruptIn>(),
        abi::opcode::FALLOCATE => size_of::<abi::FallocateIn>(),
        abi::opcode::LSEEK => size_of::<abi::LseekIn>(),
        abi::opcode::COPY_FILE_RANGE_64 => size_of::<abi::CopyFileRangeIn>(),
        abi::opcode::STATX => size_of::<abi::StatxIn>(),
        abi::opcode::SYNCFS => size_of::<abi::SyncfsIn>(),
        _ => 0,
    }
}

#[test]
fn recorded_requests_mean_what_they_did() {
    let meanings: Vec<String> =
        recorded().iter().map(|bytes| format!("{:?}", Request::parse(bytes, DIALECT))).collect();
    let expected: Vec<&str> = include_str!("../vectors/requests.txt").lines().collect();
    for (index, meaning) in meanings.iter().enumerate() {
        assert_eq!(Some(&meaning.as_str()), expected.get(index), "request {index}");
    }
    assert_eq!(meanings.len(), expected.len());
}

#[test]
fn both_engines_read_the_same() {
    for bytes in recorded() {
        let (header, rest) = InHeader::read_from_prefix(&bytes).expect("a recorded header");
        let (first, payload) = rest.split_at(fixed_bytes(header.opcode));
        let mut fixed = [0xaa; abi::URING_HEADER_PART_BYTES];
        fixed[..first.len()].copy_from_slice(first);
        assert_eq!(
            Request::parse_split(&header, &fixed, payload, DIALECT),
            Request::parse(&bytes, DIALECT),
            "operation {}",
            header.opcode
        );
    }
}

#[test]
fn a_cut_request_is_refused() {
    for bytes in recorded() {
        for len in 0..bytes.len() {
            let mut cut = bytes[..len].to_vec();
            assert!(Request::parse(&cut, DIALECT).is_err(), "the header says another length");
            if let Some(place) = cut.get_mut(..4) {
                place.copy_from_slice(&(len as u32).to_le_bytes());
            }
            // What is cut off may be padding, or fields of a younger kernel.
            let _ = Request::parse(&cut, DIALECT);
        }
        let (header, _) = InHeader::read_from_prefix(&bytes).expect("a recorded header");
        let needed = fixed_bytes(header.opcode);
        // INIT of an old kernel is shorter, and of SYNCFS nothing is read.
        if needed > 0 && ![abi::opcode::INIT, abi::opcode::SYNCFS].contains(&header.opcode) {
            let mut cut = bytes[..size_of::<InHeader>() + needed - 1].to_vec();
            let len = cut.len() as u32;
            cut[..4].copy_from_slice(&len.to_le_bytes());
            assert_eq!(Request::parse(&cut, DIALECT), Err(Malformed::Truncated(header.opcode)));
        }
    }
}

#[test]
fn a_name_without_an_end_is_refused() {
    let header = InHeader { len: 43, opcode: abi::opcode::LOOKUP, ..InHeader::default() };
    assert_eq!(
        Request::parse_split(&header, &[0; 128], b"abc", DIALECT),
        Err(Malformed::Name(abi::opcode::LOOKUP))
    );
}
