//! Names, attributes, extended attributes and space.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use client::{AttrChange, Handle};
use proto::FileKind;

use super::opens::noted;
use super::operations::Operations;
use super::told::{self, Named, Teller};
use super::{Asked, Dispatcher, done, owned};
use crate::interrupt::Ends;
use crate::kernel::reply::Answer;
use crate::kernel::request::SetAttr;
use crate::moves;
use crate::ops::{Move, NewFile, Ops, fid_of, mode_with_kind};
use client::posix::{Errno, Result};

/// A file that is to be made.
pub(super) struct New {
    /// Its kind and its permissions.
    mode: u32,
    rdev: u32,
    target: Bytes,
}

impl New {
    pub(super) fn node(mode: u32, rdev: u32) -> New {
        New { mode, rdev, target: Bytes::new() }
    }

    pub(super) fn dir(mode: u32) -> New {
        New::node(mode_with_kind(mode, FileKind::Dir), 0)
    }

    pub(super) fn symlink(target: &[u8]) -> New {
        New { mode: mode_with_kind(0o777, FileKind::Symlink), rdev: 0, target: owned(target) }
    }
}

impl Dispatcher {
    pub(super) fn get_attr(&self, Asked { node, pid, reply, .. }: Asked) {
        let (teller, reopens) = (self.teller.clone(), self.reopens.clone());
        teller.asked(fid_of(node), pid);
        self.operations.look(reply, pid, |ops| async move {
            let result = noted(&reopens, (pid, teller.rt()), ops.getattr(fid_of(node)).await);
            let on_its_way = teller.answers(fid_of(node), pid);
            let answer = attributes(&teller, result)?;
            Ok(match on_its_way {
                Some(on_its_way) => answer.holding(Arc::new(on_its_way)),
                None => answer,
            })
        });
    }

    pub(super) fn statx(&self, Asked { node, pid, reply, .. }: Asked) {
        let teller = self.teller.clone();
        self.operations.look(
            reply,
            pid,
            |ops| async move { Ok(teller.statx(ops.getattr(fid_of(node)).await?)) },
        );
    }

    /// sync(2) and syncfs(2), where the kernel passes them on.
    pub(super) fn sync_fs(&self, Asked { reply, .. }: Asked) {
        self.operations.run(reply, |ops| async move { done(ops.sync_all().await) });
    }

    pub(super) fn set_attr(&self, Asked { node, caller, reply, .. }: Asked, given: SetAttr) {
        let SetAttr { mode, uid, gid, size, atime, mtime, handle, .. } = given;
        let (atime, mtime) = (atime.map(told::time), mtime.map(told::time));
        let mode = mode.map(|mode| mode & 0o7777);
        let change = AttrChange { mode, uid, gid, size, atime, mtime, ..AttrChange::default() };
        let (handle, teller) = (handle.map(Handle), self.teller.clone());
        self.operations.run(reply, |ops| async move {
            attributes(&teller, ops.posix().setattr(&caller, fid_of(node), change, handle).await)
        });
    }

    pub(super) fn read_link(&self, Asked { node, pid, reply, .. }: Asked) {
        self.operations.look(
            reply,
            pid,
            |ops| async move { ops.readlink(fid_of(node)).await.map(Answer::Block) },
        );
    }

    pub(super) fn make(&self, Asked { node, pid, caller, reply }: Asked, name: &[u8], new: New) {
        let (name, teller) = (owned(name), self.teller.clone());
        let New { mode, rdev, target } = new;
        self.operations.run(reply, |ops| async move {
            let new = NewFile { parent: fid_of(node), name: &name, mode, rdev, target };
            let told = ops.make(&caller, new).await?;
            Ok(teller.entry(told, Named { dir: node, name: &name, thread: pid }))
        });
    }

    pub(super) fn unlink(&self, Asked { node, caller, reply, .. }: Asked, name: &[u8]) {
        let name = owned(name);
        self.operations.run(reply, |ops| async move { done(ops.unlink(&caller, fid_of(node), &name).await) });
    }

    pub(super) fn remove_dir(&self, Asked { node, caller, reply, .. }: Asked, name: &[u8]) {
        let name = owned(name);
        self.operations.run(reply, |ops| async move { done(ops.rmdir(&caller, fid_of(node), &name).await) });
    }

    pub(super) fn rename(
        &self,
        Asked { node, caller, reply, .. }: Asked,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) {
        let (name, new_name, teller) = (owned(name), owned(new_name), self.teller.clone());
        self.operations.run(reply, |ops| async move {
            let what = Move {
                parent: fid_of(node),
                name: &name,
                new_parent: fid_of(new_parent),
                new_name: &new_name,
                flags,
            };
            ops.rename(&caller, what).await?;
            let exchange = flags & libc::RENAME_EXCHANGE != 0;
            teller.moved(&(node, name), &(new_parent, new_name), exchange);
            Ok(Answer::Done)
        });
    }

    pub(super) fn link(&self, Asked { node: parent, pid, caller, reply }: Asked, node: u64, name: &[u8]) {
        let (name, teller) = (owned(name), self.teller.clone());
        self.operations.run(reply, |ops| async move {
            let told = ops.link(&caller, fid_of(node), fid_of(parent), &name).await?;
            Ok(teller.entry(told, Named { dir: parent, name: &name, thread: pid }))
        });
    }

    pub(super) fn access(&self, Asked { node, pid, caller, reply }: Asked, mask: u32) {
        self.operations.look(
            reply,
            pid,
            |ops| async move { done(ops.access(&caller, fid_of(node), mask).await) },
        );
    }

    pub(super) fn stat_fs(&self, Asked { node, pid, reply, .. }: Asked) {
        self.operations.look(reply, pid, |ops| async move {
            Ok(Answer::Statfs(told::space(&ops.statfs(fid_of(node)).await?)))
        });
    }

    pub(super) fn set_xattr(
        &self,
        Asked { node, caller, reply, .. }: Asked,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) {
        let (name, value) = (owned(name), owned(value));
        self.operations.run(reply, |ops| async move {
            done(ops.set_xattr(&caller, fid_of(node), &name, value, flags).await)
        });
    }

    pub(super) fn get_xattr(&self, Asked { node, pid, caller, reply }: Asked, name: &[u8], size: u32) {
        if let Some(word) = name.strip_prefix(moves::MIGRATE.as_bytes()) {
            let asked = Asked { node, pid, caller, reply };
            return carry_out_move(&self.operations, asked, owned(word), size);
        }
        let name = owned(name);
        self.operations.look(reply, pid, |ops| async move {
            sized(size, ops.get_xattr(&caller, fid_of(node), &name).await?)
        });
    }

    pub(super) fn list_xattr(&self, Asked { node, pid, reply, .. }: Asked, size: u32) {
        self.operations
            .look(reply, pid, |ops| async move { sized(size, ops.list_xattr(fid_of(node)).await?.into()) });
    }

    pub(super) fn remove_xattr(&self, Asked { node, caller, reply, .. }: Asked, name: &[u8]) {
        let name = owned(name);
        self.operations
            .run(reply, |ops| async move { done(ops.remove_xattr(&caller, fid_of(node), &name).await) });
    }
}

/// It is no look: what has begun goes on without the process.
fn carry_out_move(
    operations: &Operations,
    Asked { node, pid, caller, reply }: Asked,
    word: Bytes,
    size: u32,
) {
    let has_begun = Arc::new(AtomicBool::new(false));
    let begins = has_begun.clone();
    let carry_out = |ops: Arc<Ops>| async move {
        let told = ops.carry_out_move(&caller, (fid_of(node), &word), &begins).await?;
        sized(size, told.into())
    };
    operations.interruptible(reply, pid, Ends::Death, carry_out, move |_, rest| async move {
        if has_begun.load(Ordering::Acquire) {
            // Nobody is there to be told.
            _ = rest.await;
        }
    });
}

fn attributes(teller: &Teller, result: Result<client::Told>) -> Result<Answer> {
    result.map(|told| teller.attributes(told))
}

/// A caller that offers no room asks for the size.
fn sized(room: u32, value: Bytes) -> Result<Answer> {
    match u32::try_from(value.len()) {
        Ok(len) if room == 0 => Ok(Answer::Size(len)),
        Ok(len) if len <= room => Ok(Answer::Block(value)),
        Ok(_) => Err(Errno::RANGE),
        Err(_) => Err(Errno::TOO_BIG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_given_its_size_is_told_or_it_is_refused() {
        let value = Bytes::from_static(b"four");
        assert!(matches!(sized(0, value.clone()), Ok(Answer::Size(4))));
        assert!(matches!(sized(4, value.clone()), Ok(Answer::Block(_))));
        assert_eq!(sized(3, value).map(|_| ()), Err(Errno::RANGE));
    }
}
