//! copy_file_range(2).

use proto::Code;
use proto::limits::FILE_BYTES_MAX;

use crate::data::{Call, Copied, FileRef, Side, Span};
use crate::files::OpenFiles;
use crate::names::Relaying;
use crate::{Error, Handle, Result};

/// Most bytes of one call: a caller that wants more asks again, and can be interrupted in between.
const COPY_BYTES_MAX: u64 = 256 << 20;
/// The same if a quota may limit it: less than all of it may be left.
const LIMITED_BYTES_MAX: u64 = 4 << 20;

impl OpenFiles {
    /// Copies up to `len` bytes of `from` at `from_offset` to `to` at `to_offset`; says how many. Fewer at the end of
    /// `from`, or when it takes long. Ranges of one file must not overlap.
    pub async fn copy_range(
        &self,
        (from, from_offset): (Handle, u64),
        (to, to_offset): (Handle, u64),
        len: u64,
    ) -> Result<u64> {
        let (from, to) = (self.handles.get(from)?, self.handles.get(to)?);
        let (source, target) = (from.readable()?, to.writable()?);
        if to.flags.append {
            return Err(Error::BadHandle);
        }
        let len = len.min(COPY_BYTES_MAX);
        if from_offset.max(to_offset).saturating_add(len) > FILE_BYTES_MAX {
            return Err(Error::Refused(Code::TooLarge));
        }
        if source.fid == target.fid && from_offset.abs_diff(to_offset) < len {
            return Err(Error::Refused(Code::Invalid));
        }
        target.take_full(&to.failure_seen)?;
        self.reopening.open_to_write(&to).await?;
        let call = to.call(self.names.clock.time());
        self.writer.drop_own_privileges(&to, call.time).await?;
        let mut len = len;
        let _taking = match to.is_limited() {
            true => {
                // A caller that wants all of a file names the largest number there is.
                let size = self.names.layouts.true_size(source, &self.names.data.objects).await?;
                len = len.min(LIMITED_BYTES_MAX).min(size.saturating_sub(from_offset));
                Some(self.writer.permitted(target, Span::new(to_offset, len)).await?)
            }
            false => None,
        };
        let _alone = target.alone().await?;
        from.read.store(true, std::sync::atomic::Ordering::Relaxed);
        let mut copied = 0;
        // What fails behind a part that was copied, for one of several targets has restarted, is done again.
        loop {
            let offsets = (from_offset + copied, to_offset + copied);
            match self.copy_part((source, target), offsets, len - copied, call).await {
                Ok(Copied { bytes, is_all }) => {
                    copied += bytes;
                    if is_all {
                        break;
                    }
                }
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        if copied > 0 && to.flags.sync {
            self.writer.sync_file(target, &to.failure_seen).await?;
        }
        Ok(copied)
    }
    /// The first part of that, or all of it. The caller keeps others from changing the target through this client.
    async fn copy_part(
        &self,
        (source, target): (&FileRef, &FileRef),
        (from_offset, to_offset): (u64, u64),
        len: u64,
        call: Call,
    ) -> Result<Copied> {
        let mut relaying = Relaying::default();
        loop {
            self.names.layouts.current(target).await?;
            if !target.layout()?.is_placed(to_offset, len) {
                let size = self.names.layouts.true_size(source, &self.names.data.objects).await?;
                let len = len.min(size.saturating_sub(from_offset));
                self.names.layouts.placed(target, (to_offset, len)).await?;
            }
            self.names.layouts.current(source).await?;
            let from_layout = self.names.layouts.there(source).await?;
            let to_layout = self.names.data.back.placed(target).await?;
            let sides =
                (Side { file: source, layout: &from_layout }, Side { file: target, layout: &to_layout });
            match self.names.data.copy_locked(&sides, (from_offset, to_offset), len, call).await {
                // What was locked does not count any more: an OST has restarted, or ended the session.
                Err(Error::Refused(Code::TryAgain)) => {}
                Err(error) => {
                    let files = [(&**source, &*from_layout), (&**target, &*to_layout)];
                    if !self.names.layouts.relaid_one_of(&files, error, &mut relaying).await? {
                        return Err(error);
                    }
                }
                copied => return copied,
            }
        }
    }
}
