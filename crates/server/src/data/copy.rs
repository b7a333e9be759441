//! CopyObject: bytes go from one object to another without crossing the network.
//!
//! The reply waits until the copy is durable. A copy is therefore never replayed, and what it read, which lies before
//! it in the log, is durable too: after a crash it is there as it was answered, or was never answered and is made again.

use bytes::Bytes;
use proto::Code;
use proto::limits::BULK_BYTES_MAX;
use proto::wire::Reply;
use proto::wire::messages::CopyObject;
use service::{Ctx, Done, code_of};
use store::object::By;

use super::{Data, check_id, check_time, record};

/// What the source does not have, in pieces of this many bytes.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

impl Data {
    pub(super) async fn copy<S>(&self, ctx: &Ctx<S>, copy: CopyObject) -> Result<Done, Code> {
        check_id(copy.source)?;
        check_id(copy.target)?;
        check_time(copy.time)?;
        self.in_force(ctx, copy.source)?;
        self.in_force(ctx, copy.target)?;
        if copy.len as usize > BULK_BYTES_MAX {
            return Err(Code::TooBig);
        }
        let ends = [copy.source_offset, copy.target_offset].map(|at| at.checked_add(u64::from(copy.len)));
        if ends.iter().any(|end| end.is_none_or(|end| end > self.bytes_max)) {
            return Err(Code::TooLarge);
        }
        let read = self.objects.read(copy.source, copy.source_offset, copy.len).await;
        let (mut data, _) = read.map_err(|error| code_of(&error))?;
        let have: usize = data.iter().map(Bytes::len).sum();
        fill(&mut data, (copy.len as usize).saturating_sub(have));
        let extra = record(ctx, Reply::CopyObject);
        let by = By { time: copy.time, owner: copy.owner };
        let written = self.objects.write(copy.target, copy.target_offset, data, by, ctx.replay, extra).await;
        let (attr, transno) = written.map_err(|error| code_of(&error))?;
        self.store.committed(transno).await.map_err(|error| code_of(&error))?;
        Ok(Done::changed(Reply::CopyObject(attr), transno))
    }
}

/// Adds `len` zeros.
fn fill(data: &mut Vec<Bytes>, len: usize) {
    let mut left = len;
    while left > 0 {
        let part = left.min(ZEROS.len());
        data.push(Bytes::from_static(&ZEROS[..part]));
        left -= part;
    }
}
