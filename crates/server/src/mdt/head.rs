//! What of a file lies on the MDT comes along with the answers about its name: a create grants it, an open brings it.
//!
//! So a small file that is made, written and closed, or opened, read and closed, needs no question for its data
//! (`docs/locks.md#heads`). What is recorded for a client that asks again has none of it.

use proto::layout::Pattern;
use proto::limits::HEAD_BYTES_MAX;
use proto::lock::range::Mode;
use proto::wire::Reply;
use proto::wire::messages::{MdtRequest, OPEN_RANGE, OPEN_READ, OPEN_WRITE};
use proto::{Layout, ObjectId};
use service::Done;

use super::inode::Inode;
use super::{Ctx, Mdt};

/// The object of the first bytes of a file, if it lies on the MDT.
fn head_of(layout: Option<&Layout>) -> Option<ObjectId> {
    let head = layout?.components.first()?;
    (head.pattern == Pattern::Mdt).then(|| head.object(0))
}

/// The object whose bytes an answer to an open may bring, and whether the file was opened to write as well.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    object: ObjectId,
    mode: Mode,
}

/// What `done` may bring; `None` for all but opens of small files by clients that want it.
pub(super) fn wanted(ctx: &Ctx, request: &MdtRequest, done: &Done) -> Option<Wanted> {
    let (MdtRequest::Open(open), Reply::Open(opened)) = (request, &done.reply) else { return None };
    let reads = OPEN_RANGE | OPEN_READ;
    let is_wanted = open.open & reads == reads && opened.attr.size <= HEAD_BYTES_MAX && ctx.keeps();
    let object = head_of(opened.layout.as_ref()).filter(|_| is_wanted)?;
    Some(Wanted { object, mode: Mode::of(open.open & OPEN_WRITE != 0) })
}

impl Mdt {
    /// Whoever makes a file may write its first bytes without asking for them.
    pub(super) fn grant_head(&self, ctx: &Ctx, inode: &Inode, done: &mut Done) {
        let Some(object) = head_of(inode.layout.as_ref()).filter(|_| ctx.keeps()) else { return };
        ctx.record(done);
        if let Reply::Create(created) = &mut done.reply {
            created.range = self.data.locks().grant_new(ctx.session().handle(), object);
        }
    }

    /// Whoever opens a small file to read it, and perhaps to write it too, gets its bytes with the answer.
    pub(super) async fn bring_head(&self, ctx: &Ctx<'_>, wanted: Wanted, done: &mut Done) {
        let Wanted { object, mode } = wanted;
        ctx.record(done);
        let session = ctx.session().handle();
        let brought = self.data.grant_and_read(session, object, mode, HEAD_BYTES_MAX as u32).await;
        if let (Some((token, bytes)), Reply::Open(opened)) = (brought, &mut done.reply) {
            opened.range = Some(token);
            done.bulk = bytes;
        }
    }
}
