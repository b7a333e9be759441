//! Files: which way an operation takes, and on which thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::Shared;
use super::direct::Pair;
use super::ring;

/// From this length on, an operation runs on the pool and past the page cache if it is aligned, in bytes.
const LARGE_BYTES: usize = 64 << 10;

/// An open file. Cheap to clone.
#[derive(Clone)]
pub struct File {
    shared: Arc<Shared>,
    inner: Arc<Inner>,
}

struct Inner {
    pair: Pair,
    /// A sync failed. The kernel says so only once and forgets what it could not write.
    poisoned: AtomicBool,
}

impl File {
    pub(super) fn new(shared: Arc<Shared>, buffered: OwnedFd, direct: Option<OwnedFd>) -> File {
        let inner = Inner { pair: Pair::new(buffered, direct), poisoned: AtomicBool::new(false) };
        File { shared, inner: Arc::new(inner) }
    }

    /// Whether `other` is a clone of this one.
    pub fn is_same(&self, other: &File) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Reads up to `len` bytes at `offset`; short only at the end of the file.
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.read_in(offset, len, len >= LARGE_BYTES).await
    }

    /// The same through the page cache, whatever `len` is.
    pub async fn read_cached_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.read_in(offset, len, false).await
    }

    /// Past the page cache if it `is_large`.
    async fn read_in(&self, offset: u64, len: usize, is_large: bool) -> io::Result<Bytes> {
        if !is_large && let Some(bytes) = self.inner.pair.read_cached(offset, len) {
            return Ok(bytes);
        }
        if let Some(reactors) = &self.shared.reactors
            && let Some(bytes) = ring::read(reactors, &self.inner.pair, (offset, len), is_large).await?
        {
            return Ok(bytes);
        }
        match is_large {
            true => self.run(move |inner| inner.pair.read_large(offset, len)).await,
            false => self.run(move |inner| inner.pair.read(offset, len)).await,
        }
    }

    /// Writes all of `slices`, one behind the other, at `offset`.
    pub async fn write_at(&self, offset: u64, slices: Vec<Bytes>) -> io::Result<()> {
        let total = slices.iter().map(Bytes::len).sum();
        if total < LARGE_BYTES {
            return self.inner.pair.write(offset, &slices);
        }
        // Not by a ring: a process that is killed ends before what its rings write does, and gives its directories to the next one.
        // With a thread that writes it does not end before.
        self.run(move |inner| inner.pair.write_large(offset, &slices, total)).await
    }

    /// The same through the page cache, whatever its length is.
    pub async fn write_cached_at(&self, offset: u64, slices: Vec<Bytes>) -> io::Result<()> {
        if slices.iter().map(Bytes::len).sum::<usize>() < LARGE_BYTES {
            return self.inner.pair.write(offset, &slices);
        }
        self.run(move |inner| inner.pair.write(offset, &slices)).await
    }

    /// Makes everything written before the call durable. After one failure all later ones fail too.
    pub async fn sync(&self) -> io::Result<()> {
        if self.inner.poisoned.load(Ordering::Acquire) {
            return Err(io::Error::other("an earlier sync of this file failed"));
        }
        let result = match &self.shared.reactors {
            Some(reactors) => ring::sync(reactors, &self.inner.pair).await,
            None => self.run(|inner| inner.pair.sync()).await,
        };
        result.inspect_err(|_| self.inner.poisoned.store(true, Ordering::Release))
    }

    /// Reserves space and grows the file.
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.run(move |inner| inner.pair.allocate(offset, len)).await
    }

    /// Gives space back; it reads as zeros.
    pub async fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.run(move |inner| inner.pair.punch(offset, len)).await
    }

    /// Gives all of its space back.
    pub async fn empty(&self) -> io::Result<()> {
        self.run(|inner| inner.pair.empty()).await
    }

    /// Bytes of the disk that the file takes.
    pub async fn space(&self) -> io::Result<u64> {
        self.inner.pair.space()
    }

    /// Bytes of the file.
    pub async fn len(&self) -> io::Result<u64> {
        self.inner.pair.len()
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let inner = self.inner.clone();
        self.shared.pool.run(move || work(&inner)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::AlignedBuf;
    use crate::os::Node;

    /// Runs `test` on an empty file; the second one is the same file without direct I/O.
    fn check(test: impl AsyncFn(File, File) -> io::Result<()>) {
        for node in [Node::start(1), Node::start_without_rings(1)] {
            check_on(&node.expect("a node starts"), &test);
        }
    }

    fn check_on(node: &Node, test: &impl AsyncFn(File, File) -> io::Result<()>) {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().to_str().expect("temporary directories have plain names");
        node.block_on(async {
            let dir = node.disk().open_dir(path).await?;
            let file = dir.create("file").await?;
            let fd: OwnedFd =
                std::fs::File::options().read(true).write(true).open(temp.path().join("file"))?.into();
            let plain = File::new(file.shared.clone(), fd, None);
            test(file, plain).await
        })
        .expect("no operation fails");
    }

    fn pattern(len: usize, seed: usize) -> Bytes {
        let mut buf = AlignedBuf::for_overwrite(len);
        buf.as_mut().iter_mut().enumerate().for_each(|(i, byte)| *byte = ((i * 31 + seed) % 251) as u8);
        buf.freeze()
    }

    #[test]
    fn all_ways_give_the_same_bytes() {
        check(async |file, plain| {
            // Offset, length, and how far the memory is off its alignment.
            let cases = [
                (0, 1 << 20, 0),
                (4096, 1 << 20, 0),
                (100, 1 << 20, 0),
                (8192, 1 << 20, 1),
                (0, (1 << 20) + 77, 0),
                (512, 65_536, 0),
                (0, 3, 0),
                (4095, 4098, 3),
                (1 << 20, 5 << 20, 7),
            ];
            for (seed, (offset, len, skew)) in cases.into_iter().enumerate() {
                let data = pattern(len + skew, seed).slice(skew..);
                file.write_at(offset, vec![data.clone()]).await?;
                assert!(file.read_at(offset, len).await? == data, "case {seed}");
                assert!(plain.read_at(offset, len).await? == data, "case {seed}, buffered");
                plain.write_at(offset, vec![data.slice(..len / 2), data.slice(len / 2..)]).await?;
                assert!(file.read_at(offset, len).await? == data, "case {seed}, written buffered");
            }
            file.sync().await
        });
    }

    #[test]
    fn reads_end_with_the_file() {
        check(async |file, plain| {
            let len = (1 << 20) + 4096 + 9;
            let data = pattern(len, 3);
            file.write_at(0, vec![data.clone()]).await?;
            for file in [&file, &plain] {
                assert!(file.read_at(0, 2 << 20).await? == data);
                assert!(file.read_at(1 << 20, 1 << 20).await? == data.slice(1 << 20..));
                assert!(file.read_at(len as u64 - 9, 100).await? == data.slice(len - 9..));
                assert!(file.read_at(len as u64, 1 << 20).await?.is_empty());
                assert!(file.read_at(8 << 20, 1 << 20).await?.is_empty());
                assert!(file.read_at(8 << 20, 10).await?.is_empty());
                assert!(file.read_at(0, 0).await?.is_empty());
                assert_eq!(file.len().await?, len as u64);
            }
            Ok(())
        });
    }

    #[test]
    fn what_is_read_through_the_page_cache_stays_there() {
        check(async |file, _plain| {
            let len = 1 << 20;
            let data = pattern(len, 5);
            file.write_at(0, vec![data.clone()]).await?;
            assert!(file.read_cached_at(0, len).await? == data);
            assert!(file.inner.pair.read_cached(0, len).is_some_and(|cached| cached == data));
            // What is written past it is not hidden by what is there.
            let other = pattern(len, 6);
            file.write_at(0, vec![other.clone()]).await?;
            assert!(file.read_cached_at(0, len).await? == other);
            Ok(())
        });
    }

    #[test]
    fn what_is_written_through_the_page_cache_stays_there() {
        check(async |file, plain| {
            let len = 1 << 20;
            let data = pattern(len, 7);
            file.write_cached_at(0, vec![data.clone()]).await?;
            assert!(file.inner.pair.read_cached(0, len).is_some_and(|cached| cached == data));
            assert!(file.read_at(0, len).await? == data, "a read past the cache finds it");
            file.sync().await?;
            assert!(plain.read_at(0, len).await? == data);
            file.write_cached_at(9, vec![Bytes::from_static(b"small")]).await?;
            assert_eq!(file.read_at(9, 5).await?.as_ref(), b"small");
            Ok(())
        });
    }

    #[test]
    fn many_slices_in_one_write() {
        check(async |file, plain| {
            let aligned: Vec<Bytes> = (0..1500).map(|i| pattern(4096, i)).collect();
            let small: Vec<Bytes> = (0..3000).map(|i| pattern(i % 7, i)).collect();
            for slices in [aligned, small] {
                file.write_at(0, slices.clone()).await?;
                let whole = slices.concat();
                assert!(plain.read_at(0, whole.len()).await? == whole);
            }
            file.write_at(0, Vec::new()).await?;
            file.write_at(0, vec![Bytes::new()]).await
        });
    }

    #[test]
    fn small_writes_are_done_at_the_first_poll() {
        check(async |file, plain| {
            let mut write = Box::pin(file.write_at(5, vec![Bytes::from_static(b"now")]));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(Future::poll(write.as_mut(), &mut cx).is_ready());
            assert_eq!(plain.read_at(0, 8).await?.as_ref(), b"\0\0\0\0\0now");
            Ok(())
        });
    }

    #[test]
    fn space_is_reserved_and_given_back() {
        check(async |file, plain| {
            file.allocate(0, 8 << 20).await?;
            assert_eq!(file.len().await?, 8 << 20);
            file.write_at(0, vec![pattern(1 << 20, 1)]).await?;
            file.punch(4096, 8192).await?;
            for file in [&file, &plain] {
                assert!(file.read_at(4096, 8192).await?.iter().all(|&byte| byte == 0));
                assert!(file.read_at(0, 4096).await? == pattern(1 << 20, 1).slice(..4096));
                assert!(file.read_at(2 << 20, 1 << 20).await?.iter().all(|&byte| byte == 0));
            }
            assert_eq!(file.len().await?, 8 << 20);
            Ok(())
        });
    }

    #[test]
    fn overlapping_operations() {
        check(async |file, _plain| {
            let (sender, mut receiver) = crate::sync::channel(64);
            std::thread::scope(|scope| {
                for i in 0..16u64 {
                    let (file, sender) = (file.clone(), sender.clone());
                    scope.spawn(move || {
                        let data = pattern(1 << 20, i as usize);
                        crate::os::tests::block_on_plain(async {
                            let result = file.write_at(i << 20, vec![data.clone()]).await;
                            let same = file.read_at(i << 20, 1 << 20).await.map(|read| read == data);
                            sender.send(result.and(same)).await.expect("the test waits");
                        });
                    });
                }
            });
            for _ in 0..16 {
                assert!(receiver.recv().await.expect("every thread sends")?);
            }
            Ok(())
        });
    }
}
