//! AdviseObject: a client says which bytes will be read, and the OST reads them into its page cache (`lfs ladvise -a willread`).

use proto::Code;
use proto::limits::BULK_BYTES_MAX;
use proto::wire::Reply;
use proto::wire::messages::{ADVICE_WILL_READ, ADVISE_BYTES_MAX, AdviseObject, Done as Nothing};
use service::{Ctx, Done, code_of};
use store::object::Via;

use super::{Data, check_id};

impl Data {
    /// Answers when the bytes are there. Nobody is told them, so no lock is taken.
    pub(super) async fn advise<S>(&self, ctx: &Ctx<S>, advise: AdviseObject) -> Result<Done, Code> {
        let AdviseObject { object, start, end, advice } = advise;
        check_id(object)?;
        if end.saturating_sub(start) > ADVISE_BYTES_MAX {
            return Err(Code::TooBig);
        }
        self.in_force(ctx, object)?;
        // Without a cache it would be work for nothing.
        let size = self.objects.attr(object).map_err(|error| code_of(&error))?.size;
        if advice != ADVICE_WILL_READ || self.objects.page_cache().of_read(size, 0) != Via::PageCache {
            return Err(Code::NotSupported);
        }
        let mut at = start;
        while at < end {
            let step = (end - at).min(BULK_BYTES_MAX as u64);
            let read = self.objects.read(object, at, step as u32).await;
            let (_, size) = read.map_err(|error| code_of(&error))?;
            at += step;
            if at >= size {
                break;
            }
        }
        Ok(Done::unchanged(Reply::AdviseObject(Nothing {})))
    }
}
