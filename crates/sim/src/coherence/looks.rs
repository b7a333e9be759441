//! What every client does that looks: opens, names, modes and ranges, and what is noted of them.

use super::*;

/// Who only looks may be given up while it opens, and opens again.
pub(super) async fn open(client: &Client, file: Fid, flags: OpenFlags) -> Handle {
    loop {
        match client.files().open(&root(), file, flags).await {
            Err(Error::Refused(Code::Evicted)) if !flags.write => {}
            opened => return opened.expect("root may open"),
        }
    }
}

pub(super) async fn look_up(client: &Client, world: &World, (dir, name): (usize, u64)) {
    let start = world.history.lock().now();
    let text = format!("n{name}");
    let found = client.names().lookup(&root(), world.dirs[dir], text.as_bytes()).await;
    let seen = match found {
        Ok(told) => Some(told.fid),
        Err(error) => {
            assert_eq!(error, Error::Refused(Code::NotFound), "lookup of {text}");
            None
        }
    };
    let mut history = world.history.lock();
    let span = history.end(start);
    history.names.entry((dir, name)).or_default().ops.push((Effect::Seen(seen), span));
}

/// By what a file is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Name,
    Fid,
}

pub(super) async fn look_at_mode(client: &Client, world: &World, file: usize, by: By) {
    let start = world.history.lock().now();
    let name = format!("f{file}");
    let told = match by {
        By::Name => client.names().lookup(&root(), Fid::ROOT, name.as_bytes()).await,
        By::Fid => client.names().getattr(world.files[file]).await,
    };
    let told = told.expect("the file is there");
    assert_eq!((told.fid, told.nlink, told.size), (world.files[file], 1, FILE_BYTES), "{name}");
    let mut history = world.history.lock();
    let span = history.end(start);
    let read = (u64::from(told.mode & 0o777), span);
    history.modes.entry(file).or_default().reads.push(read);
}

pub(super) async fn read_range(client: &Client, world: &World, handle: Handle, file: usize, range: usize) {
    let (offset, len) = RANGES[range];
    let start = world.history.lock().now();
    let data =
        client.files().read(handle, offset, len as u32).await.expect("what is healthy can be read").concat();
    note_read(world, (file, range), start, &data);
}

pub(super) fn note_read(world: &World, (file, range): (usize, usize), start: u64, data: &[u8]) {
    let (offset, len) = RANGES[range];
    assert_eq!(data.len() as u64, len, "read of f{file} at {offset}: the file is longer");
    let mut history = world.history.lock();
    let span = history.end(start);
    for (at, end) in pieces(range) {
        let piece = &data[at as usize..end as usize];
        let tag = tag_of(piece, at).unwrap_or_else(|place| {
            panic!("read of f{file}: range {offset} is a mixture from {place} in {span:?}, {:?}", &piece[..8])
        });
        history.pieces.entry((file, range, at)).or_default().reads.push((tag, span.clone()));
    }
}

/// The pages that a range lies in, if each of its pieces lies in one: a mapping shows no more in one moment.
pub(super) fn in_pages(start: u64, end: u64) -> Option<Vec<Range<u64>>> {
    let border = end.min((start / PAGE_BYTES + 1) * PAGE_BYTES);
    let fits = border == end || border.is_multiple_of(STRIPE_BYTES) && end - border <= PAGE_BYTES;
    fits.then(|| [start..border, border..end].into_iter().filter(|part| !part.is_empty()).collect())
}

/// The parts of a range that lie in one stripe each, as places in the range.
pub(super) fn pieces(range: usize) -> Vec<(u64, u64)> {
    let (offset, len) = RANGES[range];
    let border = (offset / STRIPE_BYTES + 1) * STRIPE_BYTES - offset;
    if border >= len { vec![(0, len)] } else { vec![(0, border), (border, len)] }
}

pub(super) fn fill(tag: u64, len: u64) -> Vec<u8> {
    let tag = (tag as u32).to_le_bytes();
    (0..len as usize).map(|at| tag[at % 4]).collect()
}

/// The tag that all of a piece has, or where that ends.
pub(super) fn tag_of(piece: &[u8], at: u64) -> Result<u64, usize> {
    let mut tag = [0; 4];
    let place = |index: usize| (at as usize + index) % 4;
    for (index, byte) in piece.iter().take(4).enumerate() {
        tag[place(index)] = *byte;
    }
    match piece.iter().enumerate().position(|(index, byte)| *byte != tag[place(index)]) {
        Some(index) => Err(index),
        None => Ok(u64::from(u32::from_le_bytes(tag))),
    }
}

pub(super) fn log_record((client, number): (u32, u32)) -> Vec<u8> {
    let one = [(client + 1).to_le_bytes(), number.to_le_bytes()].concat();
    one.iter().copied().cycle().take(RECORD_BYTES).collect()
}
