//! Bytes of the kernel to a typed request. Every length is checked; no input panics.

use zerocopy::FromBytes;

use super::abi::{self, InHeader, fattr, opcode};
use super::request::{
    CopyRange, Dialect, Forgets, Lock, Malformed, Operation, Read, Request, SetAttr, SetTime, Write,
};

impl<'a> Request<'a> {
    /// A message as it is read from the device.
    pub fn parse(message: &'a [u8], dialect: Dialect) -> Result<Request<'a>, Malformed> {
        let (header, rest) = InHeader::read_from_prefix(message).map_err(|_| Malformed::Short)?;
        if header.len as usize != message.len() {
            return Err(Malformed::Length);
        }
        Request::from_parts(&header, Body { fixed: None, rest, opcode: header.opcode }, dialect)
    }

    /// A request as a ring entry has it: the operation's first structure at the start of `fixed`, whose length says
    /// nothing, and what follows it in `payload`.
    pub fn parse_split(
        header: &InHeader,
        fixed: &'a [u8],
        payload: &'a [u8],
        dialect: Dialect,
    ) -> Result<Request<'a>, Malformed> {
        Request::from_parts(
            header,
            Body { fixed: Some(fixed), rest: payload, opcode: header.opcode },
            dialect,
        )
    }

    fn from_parts(header: &InHeader, body: Body<'a>, dialect: Dialect) -> Result<Request<'a>, Malformed> {
        let InHeader { unique, nodeid: node, uid, gid, pid, .. } = *header;
        Ok(Request { unique, node, uid, gid, pid, operation: operation(body, dialect)? })
    }
}

/// What has not been taken apart yet.
struct Body<'a> {
    fixed: Option<&'a [u8]>,
    rest: &'a [u8],
    opcode: u32,
}

impl<'a> Body<'a> {
    /// The operation's first structure.
    fn fixed<T: FromBytes>(&mut self) -> Result<T, Malformed> {
        let from = self.fixed.unwrap_or(self.rest);
        let (value, rest) = T::read_from_prefix(from).map_err(|_| Malformed::Truncated(self.opcode))?;
        if self.fixed.is_none() {
            self.rest = rest;
        }
        Ok(value)
    }

    /// A name with a NUL behind it.
    fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(Malformed::Name(self.opcode))?;
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(name)
    }

    fn bytes(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed::Truncated(self.opcode))?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Truncated(self.opcode))?;
        self.rest = rest;
        Ok(bytes)
    }
}

fn operation<'a>(mut body: Body<'a>, dialect: Dialect) -> Result<Operation<'a>, Malformed> {
    let operation = match body.opcode {
        opcode::LOOKUP => Operation::Lookup { name: body.name()? },
        opcode::UNLINK => Operation::Unlink { name: body.name()? },
        opcode::RMDIR => Operation::RmDir { name: body.name()? },
        opcode::SYMLINK => Operation::Symlink { name: body.name()?, target: body.name()? },
        opcode::MKNOD => {
            let abi::MknodIn { mode, rdev, umask, .. } = body.fixed()?;
            Operation::MkNod { name: body.name()?, mode, rdev, umask }
        }
        opcode::MKDIR => {
            let abi::MkdirIn { mode, umask } = body.fixed()?;
            Operation::MkDir { name: body.name()?, mode, umask }
        }
        opcode::RENAME => {
            let abi::RenameIn { newdir } = body.fixed()?;
            Operation::Rename { name: body.name()?, new_parent: newdir, new_name: body.name()?, flags: 0 }
        }
        opcode::RENAME2 => {
            let abi::Rename2In { newdir, flags, .. } = body.fixed()?;
            Operation::Rename { name: body.name()?, new_parent: newdir, new_name: body.name()?, flags }
        }
        opcode::LINK => {
            let abi::LinkIn { oldnodeid } = body.fixed()?;
            Operation::Link { node: oldnodeid, name: body.name()? }
        }
        opcode::CREATE => {
            let abi::CreateIn { flags, mode, umask, .. } = body.fixed()?;
            Operation::Create { name: body.name()?, mode, umask, flags }
        }
        opcode::TMPFILE => {
            let abi::CreateIn { flags, mode, umask, .. } = body.fixed()?;
            Operation::TmpFile { mode, umask, flags }
        }
        opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
            attribute_operation(&mut body, dialect)?
        }
        opcode::GETATTR | opcode::SETATTR | opcode::STATX | opcode::ACCESS => status_operation(&mut body)?,
        opcode::READ | opcode::WRITE | opcode::FSYNC | opcode::FLUSH | opcode::OPEN | opcode::RELEASE => {
            file_operation(&mut body)?
        }
        opcode::FALLOCATE | opcode::LSEEK | opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            range_operation(&mut body)?
        }
        opcode::OPENDIR | opcode::READDIR | opcode::READDIRPLUS | opcode::RELEASEDIR | opcode::FSYNCDIR => {
            directory_operation(&mut body)?
        }
        opcode::GETLK => Operation::GetLock(lock(&mut body)?),
        opcode::SETLK => Operation::SetLock { lock: lock(&mut body)?, wait: false },
        opcode::SETLKW => Operation::SetLock { lock: lock(&mut body)?, wait: true },
        _ => connection_operation(&mut body)?,
    };
    Ok(operation)
}

fn attribute_operation<'a>(body: &mut Body<'a>, dialect: Dialect) -> Result<Operation<'a>, Malformed> {
    Ok(match body.opcode {
        opcode::SETXATTR => {
            let (size, flags, more) = if dialect.setxattr_ext {
                let given: abi::SetxattrExtIn = body.fixed()?;
                (given.size, given.flags, given.setxattr_flags)
            } else {
                let given: abi::SetxattrIn = body.fixed()?;
                (given.size, given.flags, 0)
            };
            let name = body.name()?;
            let kill_setgid = more & abi::SETXATTR_ACL_KILL_SGID != 0;
            Operation::SetXattr { name, value: body.bytes(size.into())?, flags, kill_setgid }
        }
        opcode::GETXATTR => {
            let abi::GetxattrIn { size, .. } = body.fixed()?;
            Operation::GetXattr { name: body.name()?, size }
        }
        opcode::LISTXATTR => {
            let abi::GetxattrIn { size, .. } = body.fixed()?;
            Operation::ListXattr { size }
        }
        _ => Operation::RemoveXattr { name: body.name()? },
    })
}

fn status_operation<'a>(body: &mut Body<'a>) -> Result<Operation<'a>, Malformed> {
    let named = |flags: u32, handle: u64| (flags & abi::GETATTR_FH != 0).then_some(handle);
    Ok(match body.opcode {
        opcode::GETATTR => {
            let abi::GetattrIn { getattr_flags, fh, .. } = body.fixed()?;
            Operation::GetAttr { handle: named(getattr_flags, fh) }
        }
        opcode::STATX => {
            let abi::StatxIn { getattr_flags, fh, sx_flags, sx_mask, .. } = body.fixed()?;
            Operation::Statx { handle: named(getattr_flags, fh), flags: sx_flags, mask: sx_mask }
        }
        opcode::ACCESS => {
            let abi::AccessIn { mask, .. } = body.fixed()?;
            Operation::Access { mask }
        }
        _ => Operation::SetAttr(changes(&body.fixed()?)),
    })
}

fn changes(given: &abi::SetattrIn) -> SetAttr {
    let has = |flag: u32| given.valid & flag != 0;
    let time = |set: u32, now: u32, secs: i64, nanos: u32| match (has(set), has(now)) {
        (true, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(secs, nanos)),
        (false, _) => None,
    };
    SetAttr {
        mode: has(fattr::MODE).then_some(given.mode),
        uid: has(fattr::UID).then_some(given.uid),
        gid: has(fattr::GID).then_some(given.gid),
        size: has(fattr::SIZE).then_some(given.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, given.atime, given.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, given.mtime, given.mtimensec),
        handle: has(fattr::FH).then_some(given.fh),
        kill_privileges: has(fattr::KILL_SUIDGID),
    }
}

fn file_operation<'a>(body: &mut Body<'a>) -> Result<Operation<'a>, Malformed> {
    Ok(match body.opcode {
        opcode::READ => {
            let abi::ReadIn { fh, offset, size, read_flags, flags, .. } = body.fixed()?;
            let fill = read_flags & abi::READ_LOCKOWNER == 0;
            Operation::Read(Read { handle: fh, offset, size, fill, flags })
        }
        opcode::WRITE => {
            let abi::WriteIn { fh, offset, size, write_flags, flags, .. } = body.fixed()?;
            Operation::Write(Write {
                handle: fh,
                offset,
                data: body.bytes(size.into())?,
                cached: write_flags & abi::WRITE_CACHE != 0,
                kill_privileges: write_flags & abi::WRITE_KILL_SUIDGID != 0,
                flags,
            })
        }
        opcode::FSYNC => {
            let abi::FsyncIn { fh, fsync_flags, .. } = body.fixed()?;
            Operation::Fsync { handle: fh, data_only: fsync_flags & abi::FSYNC_FDATASYNC != 0 }
        }
        opcode::FLUSH => {
            let abi::FlushIn { fh, lock_owner, .. } = body.fixed()?;
            Operation::Flush { handle: fh, owner: lock_owner }
        }
        opcode::OPEN => {
            let abi::OpenIn { flags, open_flags } = body.fixed()?;
            Operation::Open { flags, kill_privileges: open_flags & 1 != 0 }
        }
        _ => {
            let abi::ReleaseIn { fh, flags, release_flags, lock_owner } = body.fixed()?;
            let unlock = release_flags & abi::RELEASE_FLOCK_UNLOCK != 0;
            Operation::Release { handle: fh, flags, owner: lock_owner, unlock }
        }
    })
}

fn range_operation<'a>(body: &mut Body<'a>) -> Result<Operation<'a>, Malformed> {
    Ok(match body.opcode {
        opcode::FALLOCATE => {
            let abi::FallocateIn { fh, offset, length, mode, .. } = body.fixed()?;
            Operation::Allocate { handle: fh, offset, len: length, mode }
        }
        opcode::LSEEK => {
            let abi::LseekIn { fh, offset, whence, .. } = body.fixed()?;
            Operation::Seek { handle: fh, offset, whence }
        }
        _ => {
            let given: abi::CopyFileRangeIn = body.fixed()?;
            Operation::CopyRange(CopyRange {
                handle_in: given.fh_in,
                offset_in: given.off_in,
                node_out: given.nodeid_out,
                handle_out: given.fh_out,
                offset_out: given.off_out,
                len: given.len,
                flags: given.flags,
                wide: body.opcode == opcode::COPY_FILE_RANGE_64,
            })
        }
    })
}

fn directory_operation<'a>(body: &mut Body<'a>) -> Result<Operation<'a>, Malformed> {
    Ok(match body.opcode {
        opcode::OPENDIR => {
            let abi::OpenIn { flags, .. } = body.fixed()?;
            Operation::OpenDir { flags }
        }
        opcode::READDIR | opcode::READDIRPLUS => {
            let abi::ReadIn { fh, offset, size, .. } = body.fixed()?;
            Operation::ReadDir { handle: fh, offset, size, plus: body.opcode == opcode::READDIRPLUS }
        }
        opcode::RELEASEDIR => {
            let abi::ReleaseIn { fh, .. } = body.fixed()?;
            Operation::ReleaseDir { handle: fh }
        }
        _ => {
            let abi::FsyncIn { fh, fsync_flags, .. } = body.fixed()?;
            Operation::FsyncDir { handle: fh, data_only: fsync_flags & abi::FSYNC_FDATASYNC != 0 }
        }
    })
}

fn lock(body: &mut Body<'_>) -> Result<Lock, Malformed> {
    let abi::LkIn { fh, owner, lk, lk_flags, .. } = body.fixed()?;
    let abi::FileLock { start, end, kind, pid } = lk;
    Ok(Lock { handle: fh, owner, start, end, kind, pid, flock: lk_flags & abi::LK_FLOCK != 0 })
}

fn connection_operation<'a>(body: &mut Body<'a>) -> Result<Operation<'a>, Malformed> {
    Ok(match body.opcode {
        opcode::FORGET => {
            let abi::ForgetIn { nlookup } = body.fixed()?;
            Operation::Forget { lookups: nlookup }
        }
        opcode::BATCH_FORGET => {
            let abi::BatchForgetIn { count, .. } = body.fixed()?;
            let len = u64::from(count) * size_of::<abi::ForgetOne>() as u64;
            Operation::BatchForget { forgets: Forgets(body.bytes(len)?) }
        }
        opcode::INTERRUPT => {
            let abi::InterruptIn { unique } = body.fixed()?;
            Operation::Interrupt { unique }
        }
        opcode::INIT => {
            // A kernel older than INIT_EXT sends the first four fields only.
            let rest = body.fixed.unwrap_or(body.rest);
            let (first, _) =
                <[u32; 4]>::read_from_prefix(rest).map_err(|_| Malformed::Truncated(opcode::INIT))?;
            let [major, minor, max_readahead, flags] = first;
            let flags2 = rest.get(16..20).and_then(|bytes| u32::read_from_bytes(bytes).ok()).unwrap_or(0);
            Operation::Init(abi::InitIn { major, minor, max_readahead, flags, flags2, unused: [0; 11] })
        }
        opcode::READLINK => Operation::ReadLink,
        opcode::STATFS => Operation::StatFs,
        opcode::SYNCFS => Operation::SyncFs,
        opcode::DESTROY => Operation::Destroy,
        opcode::IOCTL => Operation::Ioctl,
        opcode::POLL => Operation::Poll,
        opcode::NOTIFY_REPLY => Operation::NotifyReply,
        other => Operation::Unknown(other),
    })
}
