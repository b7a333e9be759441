//! A kernel's page cache above a client: what reads and writes of mapped files come from.
//!
//! It does what Linux does, as far as a client can tell: a page is locked from the moment it is asked for until its bytes
//! are here, several neighbours are asked for at once, a mapped page is changed without a call, and a page that was changed
//! is written back, locked, before it is forgotten. I/O past the cache writes back, or drops, what the cache has of its
//! range first.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use client::{Client, Copies, Forget, Handle};
use parking_lot::Mutex;
use proto::Fid;
use rt::BoxFuture;
use rt::sync::Notify;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Neighbours that are asked for together with a page.
const AHEAD_MAX: u64 = 4;

#[derive(Debug, Default)]
struct Page {
    bytes: Vec<u8>,
    /// Being filled, written back, or forgotten.
    is_locked: bool,
    is_dirty: bool,
    /// What it was filled through, and is written back through.
    handle: Option<Handle>,
}

type Pages = BTreeMap<(Fid, u64), Page>;

/// The page cache of one mount.
pub struct Kernel {
    client: Weak<Client>,
    pages: Mutex<Pages>,
    changed: Notify,
}

/// The cache as the client knows it.
struct Told(Arc<Kernel>);

impl Copies for Told {
    fn forget(&self, what: Vec<Forget>) -> BoxFuture<'static, ()> {
        let kernel = self.0.clone();
        Box::pin(async move {
            for forget in what {
                if let Forget::Data(fid, range) = forget {
                    kernel.forget(fid, range).await;
                }
            }
        })
    }
}

/// How a mapping is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is looked at.
    Read,
    /// It is changed.
    Write,
}

/// What becomes of a page once it is written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Keep,
    Drop,
}

impl Kernel {
    /// A kernel that keeps pages of what `client` gives.
    pub fn above(client: &Arc<Client>) -> Arc<Kernel> {
        let kernel = Arc::new(Kernel {
            client: Arc::downgrade(client),
            pages: Mutex::default(),
            changed: Notify::new(),
        });
        client.set_copies(Arc::new(Told(kernel.clone())));
        kernel
    }

    fn client(&self) -> Arc<Client> {
        self.client.upgrade().expect("a kernel is used while its mount is there")
    }

    /// Whether the client's lease is over, and it may not have noticed: a machine that was stopped goes on.
    fn is_outdated(&self) -> bool {
        self.client().admin().lease().left == Some(Duration::ZERO)
    }

    /// What a mapping shows of `range`, which lies in one page; `use_page` sees it in one moment.
    ///
    /// A machine that goes on after it was stopped may show an old page until the mount has run (`docs/recovery.md#leases`). Here the
    /// mount always runs first, as histories cannot tell the difference from a fault.
    pub async fn map<T>(
        &self,
        (fid, handle): (Fid, Handle),
        range: &Range<u64>,
        mut use_page: impl FnMut(&mut [u8]) -> T,
        access: Access,
    ) -> T {
        let number = range.start / PAGE_BYTES;
        let within = (range.start % PAGE_BYTES) as usize..(range.end - number * PAGE_BYTES) as usize;
        loop {
            if self.is_outdated() {
                self.leave_page((fid, number), Then::Drop).await;
            }
            let changed = self.changed.notified();
            let absent = {
                let mut pages = self.pages.lock();
                match pages.get_mut(&(fid, number)) {
                    Some(page) if !page.is_locked => {
                        page.is_dirty |= access == Access::Write;
                        return use_page(&mut page.bytes[within]);
                    }
                    Some(_) => None,
                    None => Some(Kernel::lock_absent(&mut pages, (fid, number), handle)),
                }
            };
            match absent {
                Some(count) => self.fill((fid, number), count, handle).await,
                None => changed.await,
            }
        }
    }

    /// Puts locked pages where none are, from one on; returns how many.
    fn lock_absent(pages: &mut Pages, (fid, first): (Fid, u64), handle: Handle) -> u64 {
        let mut count = 0;
        while count < AHEAD_MAX && !pages.contains_key(&(fid, first + count)) {
            let page = Page { is_locked: true, handle: Some(handle), ..Page::default() };
            pages.insert((fid, first + count), page);
            count += 1;
        }
        count
    }

    async fn fill(&self, (fid, first): (Fid, u64), count: u64, handle: Handle) {
        let len = count * PAGE_BYTES;
        let filled = self.client().files().read_pages(handle, first * PAGE_BYTES, len as u32).await;
        // The answer is let go only when the pages have it.
        let filled = filled.expect("what is healthy can be read");
        let mut bytes = filled.slices.concat();
        bytes.resize(len as usize, 0);
        {
            let mut pages = self.pages.lock();
            for (number, bytes) in (first..).zip(bytes.chunks(PAGE_BYTES as usize)) {
                let page = pages.get_mut(&(fid, number)).expect("a locked page stays");
                (page.bytes, page.is_locked) = (bytes.to_vec(), false);
            }
        }
        self.changed.notify_waiters();
    }

    /// Writes back and drops the pages of a range.
    async fn forget(&self, fid: Fid, range: Range<u64>) {
        self.go_through(fid, range, Then::Drop).await;
    }

    /// Before a read past the cache: what was changed is written back.
    pub async fn write_back(&self, fid: Fid, range: Range<u64>) {
        self.go_through(fid, range, Then::Keep).await;
    }

    /// Before a write past the cache: what is here goes.
    pub async fn drop_pages(&self, fid: Fid, range: Range<u64>) {
        self.go_through(fid, range, Then::Drop).await;
    }

    async fn go_through(&self, fid: Fid, range: Range<u64>, then: Then) {
        let (mut number, end) = (range.start / PAGE_BYTES, range.end.div_ceil(PAGE_BYTES));
        while number < end {
            let Some(at) = self.pages.lock().range((fid, number)..(fid, end)).next().map(|(key, _)| key.1)
            else {
                return;
            };
            self.leave_page((fid, at), then).await;
            number = at + 1;
        }
    }

    async fn leave_page(&self, key: (Fid, u64), then: Then) {
        let dirty = loop {
            let changed = self.changed.notified();
            {
                let mut pages = self.pages.lock();
                let Some(page) = pages.get_mut(&key) else { return };
                if !page.is_locked {
                    page.is_locked = true;
                    break std::mem::take(&mut page.is_dirty).then(|| (page.handle, page.bytes.clone()));
                }
            }
            changed.await;
        };
        if let Some((handle, bytes)) = dirty {
            let handle = handle.expect("a changed page was filled through a handle");
            let written = self.client().files().write_pages(handle, key.1 * PAGE_BYTES, &bytes).await;
            assert_eq!(written, Ok(PAGE_BYTES as u32), "a page is written back");
        }
        {
            let mut pages = self.pages.lock();
            if then == Then::Drop {
                pages.remove(&key);
            } else if let Some(page) = pages.get_mut(&key) {
                page.is_locked = false;
            }
        }
        self.changed.notify_waiters();
    }
}
