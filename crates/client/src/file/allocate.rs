//! fallocate.

use std::ops::Range;
use std::sync::Arc;

use proto::layout::Place;
use proto::limits::FILE_BYTES_MAX;
use proto::wire::messages::{AllocateObject, ObjectAttr, SetAttr};
use proto::{Code, Layout, Timestamp};

use super::relaid::Relaying;
use super::table::{FileRef, OpenFile};
use crate::lock::{Eras, needs_of, surely};
use crate::namespace::no_change;
use crate::util::join_all;
use crate::{Allocation, Client, Error, Handle, Result, Shared};

impl Client {
    /// fallocate. Space that was reserved is there for later writes to it, however full the OSTs are then; behind the
    /// end of the file nothing is reserved.
    pub async fn allocate(&self, handle: Handle, offset: u64, len: u64, what: Allocation) -> Result<()> {
        let open = self.shared.handles.get(handle)?;
        let file = open.writable()?;
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Error::Refused(Code::TooLarge))?;
        if len == 0 {
            return Err(Error::Refused(Code::Invalid));
        }
        let (zero, keep_size) = match what {
            Allocation::PunchHole => return self.shared.punch_hole(&open, file, offset..end).await,
            Allocation::Reserve { keep_size } => (false, keep_size),
            Allocation::Zero { keep_size } => (true, keep_size),
        };
        if !keep_size {
            self.shared.grow(&open, file, end).await?;
        }
        self.shared.reserve_range(&open, file, offset..end, zero).await
    }
}

impl Shared {
    /// Makes a file at least `size` bytes long.
    async fn grow(self: &Arc<Self>, open: &OpenFile, file: &FileRef, size: u64) -> Result<()> {
        let mut relaying = Relaying::default();
        loop {
            let layout = file.layout()?;
            match self.true_size(file, &layout).await {
                Ok(true_size) if true_size >= size => return Ok(()),
                Ok(_) => break,
                Err(error) if self.relaid(file, &layout, error, &mut relaying).await? => {}
                Err(error) => return Err(error),
            }
        }
        let set = SetAttr {
            size: Some(size),
            handle: Some(open.mdt_handle),
            kill_privileges: open.opener.uid != 0,
            ..no_change(open.fid, self.time())
        };
        self.truncate(&open.opener, set, size).await.map(|_| ())
    }

    async fn punch_hole(self: &Arc<Self>, open: &OpenFile, file: &FileRef, range: Range<u64>) -> Result<()> {
        let time = self.time();
        self.drop_privileges(open, time).await?;
        let _alone = file.alone().await?;
        let mut relaying = Relaying::default();
        loop {
            let layout = file.layout()?;
            match self.punch_locked(file, &layout, range.clone(), time).await {
                Err(error) if self.relaid(file, &layout, error, &mut relaying).await? => {}
                done => return done,
            }
        }
    }

    async fn punch_locked(
        self: &Arc<Self>,
        file: &FileRef,
        layout: &Arc<Layout>,
        range: Range<u64>,
        time: Timestamp,
    ) -> Result<()> {
        let needs = surely(needs_of(layout, range.start, range.end - range.start));
        let locked = self.lock_change(file.fid, layout, &needs).await?;
        // A hole does not change the size: what only the cache has beyond the objects' end must arrive first.
        self.flush_file(file).await;
        file.inner.lock().untold = true;
        self.punch_stripes(file, layout, range, (time, &locked.eras)).await
    }

    async fn punch_stripes(
        &self,
        file: &FileRef,
        layout: &Layout,
        range: Range<u64>,
        (time, eras): (Timestamp, &Eras),
    ) -> Result<()> {
        let punches = parts(layout, range)
            .map(|(place, part)| self.punch(file, place, (part.start, part.end), (time, eras)));
        join_all(punches).await.into_iter().collect::<Result<Vec<ObjectAttr>>>()?;
        Ok(())
    }

    /// Reserves the space of `range`, as far as the file goes; with `zero`, what is there goes first.
    async fn reserve_range(
        self: &Arc<Self>,
        open: &OpenFile,
        file: &FileRef,
        range: Range<u64>,
        zero: bool,
    ) -> Result<()> {
        let time = self.time();
        self.drop_privileges(open, time).await?;
        let _alone = file.alone().await?;
        let mut relaying = Relaying::default();
        loop {
            let layout = self.placed(file).await?;
            match self.reserve_locked(file, &layout, range.clone(), zero, time).await {
                Err(error) if self.relaid(file, &layout, error, &mut relaying).await? => {}
                done => return done,
            }
        }
    }

    async fn reserve_locked(
        self: &Arc<Self>,
        file: &FileRef,
        layout: &Arc<Layout>,
        range: Range<u64>,
        zero: bool,
        time: Timestamp,
    ) -> Result<()> {
        let needs = surely(needs_of(layout, range.start, range.end - range.start));
        let locked = self.lock_change(file.fid, layout, &needs).await?;
        self.flush_file(file).await;
        let size = self.true_size(file, layout).await?;
        let range = range.start..range.end.min(size);
        if range.is_empty() {
            return Ok(());
        }
        file.inner.lock().untold = true;
        let eras = &locked.eras;
        if zero {
            self.punch_stripes(file, layout, range.clone(), (time, eras)).await?;
        }
        let reserved = parts(layout, range).map(|(place, part)| async move {
            // Of a sparse file an object may end before the file does: it grows, so that it can have the space.
            if self.object_attr(place).await?.size < part.end {
                self.punch(file, place, (part.end, u64::MAX), (time, eras)).await?;
            }
            self.allocate_object(file, place, part, (time, eras)).await
        });
        join_all(reserved).await.into_iter().collect::<Result<Vec<ObjectAttr>>>()?;
        Ok(())
    }

    async fn allocate_object(
        &self,
        file: &FileRef,
        place: Place,
        Range { start, end }: Range<u64>,
        (time, eras): (Timestamp, &Eras),
    ) -> Result<ObjectAttr> {
        let target = self.targets.data(place.target).await?;
        let _permit = target.writes.acquire().await.map_err(|_| Error::Closed)?;
        file.inner.lock().end.forget();
        let allocate = AllocateObject { object: place.object, start, end, time };
        match target.call_locked(eras.of(place.target), allocate, Vec::new()).await {
            Ok(answered) => {
                file.inner.lock().note(place.target, answered.transno);
                Ok(answered.reply)
            }
            Err(Error::Refused(Code::Gone)) => Err(Error::Refused(Code::Stale)),
            Err(error) => Err(error),
        }
    }
}

/// The part of each object that lies in `range` of the file, for those that have one.
fn parts(layout: &Layout, range: Range<u64>) -> impl Iterator<Item = (Place, Range<u64>)> + '_ {
    let part = move |object| layout.object_size(object, range.start)..layout.object_size(object, range.end);
    layout.places().map(move |place| (place, part(place.object))).filter(|(_, part)| !part.is_empty())
}
