//! What is written through open files, and made durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::wire::messages::SetAttr;
use proto::{Code, Layout, Timestamp};

use crate::data::{Call, FileRef, FileState, Span, Taking};
use crate::files::{OpenFile, Reopening};
use crate::names::{Names, Relaying, no_change};
use crate::targets::Targets;
use crate::{Caller, Error, Result};

/// Writes to files that are open.
pub(crate) struct Writer {
    targets: Arc<Targets>,
    names: Arc<Names>,
    reopening: Arc<Reopening>,
}

impl Writer {
    /// Nothing is written yet.
    pub(super) fn new(targets: Arc<Targets>, names: Arc<Names>, reopening: Arc<Reopening>) -> Writer {
        Writer { targets, names, reopening }
    }

    /// Writes at `offset`, or at the end of the file.
    pub(super) async fn write(
        &self,
        open: &OpenFile,
        (offset, appends): (u64, bool),
        data: &[u8],
    ) -> Result<u32> {
        let file = open.writable()?;
        u32::try_from(data.len()).map_err(|_| Error::Refused(Code::Invalid))?;
        file.take_full(&open.failure_seen)?;
        if data.is_empty() {
            return Ok(0);
        }
        self.reopening.open_to_write(open).await?;
        let time = self.names.clock.time();
        // What is rare is boxed, so that a write's future has no room for it.
        if open.drops_privileges() {
            Box::pin(self.drop_own_privileges(open, time)).await?;
        }
        let _taking = match open.is_limited() {
            true => {
                let span = Span { offset: (!appends).then_some(offset), len: data.len() as u64 };
                if !appends {
                    // Limits of pools depend on where it lies.
                    self.names.layouts.placed(file, (offset, span.len)).await?;
                }
                Some(Box::pin(self.permitted(file, span)).await?)
            }
            false => None,
        };
        // Before anything is stored: a close that tells no size has to say that there may be a new one.
        open.wrote.store(true, Ordering::Relaxed);
        let call = Call { sync: open.flags.sync, ..open.call(time) };
        let mut relaying = Relaying::default();
        let mut stored = 0;
        while stored < data.len() as u64 {
            let (at, rest) = (offset + stored, &data[stored as usize..]);
            let layout = match appends {
                true => file.layout()?,
                false => self.names.layouts.placed(file, (at, rest.len() as u64)).await?,
            };
            self.names.data.lacks_room(file, &layout, rest.len() as u64);
            let done = match appends {
                true => Box::pin(self.append_to(file, &layout, rest, call)).await,
                false => self.names.data.write_at(file, &layout, (at, rest), call).await,
            };
            match done {
                Ok(done) => stored += done,
                Err(error) if self.relaid(file, &layout, error, &mut relaying).await? => {}
                Err(error) if stored == 0 => return Err(error),
                Err(_) => break,
            }
            // What follows at the end may not be the end any more.
            if appends && stored > 0 {
                break;
            }
        }
        if open.flags.sync {
            Box::pin(self.sync_file(file, &open.failure_seen)).await?;
        } else if file.inner.lock().write_through {
            Box::pin(self.names.data.back.flush_file(file)).await;
            file.take_failure(&open.failure_seen)?;
            file.inner.lock().write_through = false;
        }
        Ok(stored as u32)
    }

    /// Takes what the limits of the file's owner have left for a write. Where that lies may depend on the end of the file, which is
    /// waited for while the file is being moved.
    pub(super) async fn permitted(&self, file: &FileRef, span: Span) -> Result<Taking<'_>> {
        let mut relaying = Relaying::default();
        loop {
            let layout = file.layout()?;
            match self.names.data.budgets.take(file, span).await {
                Err(error) if self.relaid(file, &layout, error, &mut relaying).await? => {}
                taken => return taken,
            }
        }
    }

    /// Whether the data is to be written again, under the layout that the file has now.
    pub(super) async fn relaid(
        &self,
        file: &FileRef,
        layout: &Arc<Layout>,
        error: Error,
        relaying: &mut Relaying,
    ) -> Result<bool> {
        Box::pin(self.names.layouts.relaid(file, layout, error, relaying)).await
    }

    /// Bytes written at the end of a file that has `layout`. Stale if it has more objects now.
    async fn append_to(&self, file: &FileRef, layout: &Arc<Layout>, data: &[u8], call: Call) -> Result<u64> {
        let _alone = file.alone().await?;
        loop {
            let pins = self.names.data.pin_whole(file, layout).await?;
            // Asked under the locks: whoever appends after this has waited for them.
            if self.names.layouts.has_grown(file, layout).await? {
                return Err(Error::Refused(Code::Stale));
            }
            let end = self.names.data.end_under(file, layout, &pins).await?;
            file.check_fence(call.fences)?;
            if !layout.is_placed(end, data.len() as u64) {
                drop(pins);
                self.names.layouts.placed(file, (end, data.len() as u64)).await?;
                return Err(Error::Refused(Code::Stale));
            }
            let stored = self.names.data.append_under(file, layout, (end, data), call, &pins).await?;
            if stored > 0 {
                return Ok(stored);
            }
        }
    }

    /// The first write through a handle takes capabilities away, whoever writes. What takes setuid and setgid away depends on who
    /// writes, and not on who opened the file ([`crate::Posix`]).
    pub(super) async fn drop_own_privileges(&self, open: &OpenFile, time: Timestamp) -> Result<()> {
        if open.drops_privileges() {
            // The superuser leaves the other bits.
            self.drop_privileges_of(open, &Caller::root(), time).await?;
        }
        open.wrote.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Takes privileges of the file away as a write of `caller` does.
    pub(super) async fn drop_privileges_of(
        &self,
        open: &OpenFile,
        caller: &Caller,
        time: Timestamp,
    ) -> Result<()> {
        let change =
            SetAttr { handle: Some(open.mdt_handle()), kill_privileges: true, ..no_change(open.fid, time) };
        let changing = self.names.meta.inodes.change(&[open.fid], &[]);
        let answered = self.targets.ask(open.fid, caller, |cred| SetAttr { cred, ..change.clone() }).await?;
        self.names.meta.answers.not_kept(&changing, &answered.reply);
        Ok(())
    }

    /// Makes `file` durable, its name and attributes too; `seen` is the failure mark of the handle that asks.
    pub(crate) async fn sync_file(&self, file: &Arc<FileState>, seen: &AtomicU64) -> Result<()> {
        self.names.data.back.flush_durably(file).await;
        let committed = self.names.data.back.commit_objects(file).await;
        file.take_failure(seen)?;
        committed?;
        if let Err(error) = self.names.meta.changes.commit_changes(file.fid).await {
            file.inner.lock().fail(error);
        }
        // Of a file that was made ahead it shows only now whether it is there.
        file.take_failure(seen)
    }
}

impl OpenFile {
    /// Whether the next write is the first one, and has privileges of the file to take away.
    pub(super) fn drops_privileges(&self) -> bool {
        self.xattrs && !self.wrote.load(Ordering::Relaxed)
    }
}
