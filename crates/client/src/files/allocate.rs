//! fallocate(2).

use std::ops::Range;

use proto::Code;
use proto::limits::FILE_BYTES_MAX;
use proto::wire::messages::SetAttr;

use crate::data::{FileRef, Resize, Span};
use crate::files::{OpenFile, OpenFiles};
use crate::names::{Relaying, no_change};
use crate::{Allocation, AttrChange, Caller, Error, Forget, Handle, Result, TimeSet};

impl OpenFiles {
    /// fallocate. Space that was reserved is there for later writes to it, however full the OSTs are then; behind the
    /// end of the file nothing is reserved.
    pub async fn allocate(&self, handle: Handle, offset: u64, len: u64, what: Allocation) -> Result<()> {
        let open = self.handles.get(handle)?;
        let file = open.writable()?;
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Error::Refused(Code::TooLarge))?;
        if len == 0 {
            return Err(Error::Refused(Code::Invalid));
        }
        self.reopening.open_to_write(&open).await?;
        let (zero, keep_size) = match what {
            Allocation::PunchHole => return self.punch_hole(&open, file, offset..end).await,
            Allocation::Reserve { keep_size } => (false, keep_size),
            Allocation::Zero { keep_size } => (true, keep_size),
        };
        let _taking = match open.is_limited() {
            true => Some(self.writer.permitted(file, Span::new(offset, len)).await?),
            false => None,
        };
        let has_grown = !keep_size && self.grow(&open, file, end).await?;
        let reserved = self.reserve_range(&open, file, offset..end, zero).await;
        if reserved.is_err() && has_grown {
            // The kernel learns a new size from what succeeds alone.
            self.names.meta.kernel.copies.forget(vec![Forget::SizeAndTimes(open.fid)]).await;
        }
        reserved?;
        if !has_grown {
            // As on local file systems, the times change even where nothing of the data does.
            let change = AttrChange { mtime: Some(TimeSet::Now), ..AttrChange::default() };
            drop(self.names.setattr(&Caller::root(), open.fid, change, None).await?);
        }
        Ok(())
    }

    /// Makes a file at least `size` bytes long. Whether it was shorter.
    async fn grow(&self, open: &OpenFile, file: &FileRef, size: u64) -> Result<bool> {
        let mut relaying = Relaying::default();
        loop {
            let layout = self.names.layouts.current(file).await?;
            match self.names.data.objects.true_size(file, &layout).await {
                Ok(true_size) if true_size >= size => return Ok(false),
                // Somebody else may make it longer until the locks are had: only what is missing then is added.
                Ok(_) => break,
                Err(error) if self.names.layouts.relaid(file, &layout, error, &mut relaying).await? => {}
                Err(error) => return Err(error),
            }
        }
        let set = SetAttr {
            size: Some(size),
            handle: Some(open.mdt_handle()),
            kill_privileges: open.opener.uid != 0,
            ..no_change(open.fid, self.names.clock.time())
        };
        self.names
            .sizes
            .truncate(&open.opener, (set, Some(open.fences)), Resize::AtLeast(size))
            .await
            .map(|_| true)
    }

    async fn punch_hole(&self, open: &OpenFile, file: &FileRef, range: Range<u64>) -> Result<()> {
        let call = open.call(self.names.clock.time());
        self.writer.drop_own_privileges(open, call.time).await?;
        let _alone = file.alone().await?;
        let mut relaying = Relaying::default();
        loop {
            let layout = self.names.layouts.current(file).await?;
            match self.names.data.extents.punch_locked(file, &layout, range.clone(), call).await {
                Err(error) if self.names.layouts.relaid(file, &layout, error, &mut relaying).await? => {}
                done => return done,
            }
        }
    }

    /// Reserves the space of `range`, as far as the file goes; with `zero`, what is there goes first.
    async fn reserve_range(
        &self,
        open: &OpenFile,
        file: &FileRef,
        range: Range<u64>,
        zero: bool,
    ) -> Result<()> {
        let call = open.call(self.names.clock.time());
        self.writer.drop_own_privileges(open, call.time).await?;
        let _alone = file.alone().await?;
        let mut relaying = Relaying::default();
        loop {
            self.names.layouts.placed(file, (range.start, range.end - range.start)).await?;
            self.names.layouts.current(file).await?;
            let layout = self.names.data.back.placed(file).await?;
            // It may have been moved since, to where it has no objects yet.
            if !layout.is_placed(range.start, range.end - range.start) {
                continue;
            }
            match self.names.data.extents.reserve_locked(file, &layout, range.clone(), zero, call).await {
                Err(error) if self.names.layouts.relaid(file, &layout, error, &mut relaying).await? => {}
                done => return done,
            }
        }
    }
}
