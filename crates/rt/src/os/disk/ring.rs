//! Reads and syncs by the ring of the core that wants them. What does not go this way whole is left to the pool.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::direct::Pair;
use crate::buf::{ALIGN, AlignedBuf};
use crate::os::reactor::{Reactors, Want};

/// Reads `place`, an offset and a length; past the page cache if it `is_large`. `None` if it is to be tried in another way: at the
/// end of the file, at an offset that is not aligned, after an error.
pub(super) async fn read(
    reactors: &Arc<Reactors>,
    pair: &Pair,
    place: (u64, usize),
    is_large: bool,
) -> io::Result<Option<Bytes>> {
    let (offset, len) = place;
    if !is_large {
        let (result, (buf, _)) =
            reactors.begin(Want::read(pair.buffered().clone(), offset, vec![0; len])).await;
        return Ok(result.ok().filter(|count| *count == len).map(|_| Bytes::from(buf)));
    }
    let Some(fd) = pair.direct().filter(|_| offset.is_multiple_of(ALIGN as u64)) else { return Ok(None) };
    let buf = AlignedBuf::for_overwrite(len.next_multiple_of(ALIGN));
    let (result, (mut buf, _)) = reactors.begin(Want::read(fd.clone(), offset, buf)).await;
    if !result.is_ok_and(|count| count >= len) {
        return Ok(None);
    }
    buf.truncate(len);
    Ok(Some(buf.freeze()))
}

/// Makes what was written durable.
pub(super) async fn sync(reactors: &Arc<Reactors>, pair: &Pair) -> io::Result<()> {
    loop {
        match reactors.begin(Want::sync(pair.buffered().clone())).await {
            (Err(error), _) if error.kind() == io::ErrorKind::Interrupted => {}
            (result, _) => return result.map(|_| ()),
        }
    }
}
