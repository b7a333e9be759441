//! Writes past the pages that a kernel keeps, and may have changed through a mapping.

use std::sync::{Arc, Weak};
use std::time::Duration;

use client::{Client, Copies, Error, Forget, Handle};
use parking_lot::Mutex;
use proto::Code;
use rt::BoxFuture;

use crate::world::{World, create, join, read_write, root};

const PAGE_BYTES: usize = 4096;

/// A kernel with one page of one file, which was changed through a mapping: it writes it back before it forgets it.
struct Kernel {
    client: Weak<Client>,
    handle: Handle,
    /// The page as it was written back last; `None`: nothing is there to be forgotten.
    page: Mutex<Option<Vec<u8>>>,
}

struct Told(Arc<Kernel>);

impl Copies for Told {
    fn forget(&self, what: Vec<Forget>) -> BoxFuture<'static, ()> {
        let kernel = self.0.clone();
        Box::pin(async move {
            let is_page = |forget: &Forget| matches!(forget, Forget::Data(_, range) if range.start < 4096);
            if !what.iter().any(is_page) {
                return;
            }
            let page = kernel.page.lock().take();
            let (Some(page), Some(client)) = (page, kernel.client.upgrade()) else { return };
            let written = client.files().write_pages(kernel.handle, 0, &page).await;
            assert_eq!(written, Ok(page.len() as u32));
        })
    }
}

/// The page was written back, with the bytes of before, over what had been written past it.
#[test]
fn a_changed_page_is_written_back_before_a_write_past_it() {
    let world = World::new(1, 2);
    let client = world.mount();
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        client.files().write(handle, 0, &[1; PAGE_BYTES]).await.expect("there is room");
        let filled = client.files().read_pages(handle, 0, PAGE_BYTES as u32).await.expect("it is there");
        let mut page = join(&filled.slices);
        drop(filled);
        page[3000] = 2;
        let kernel = Kernel { client: Arc::downgrade(&client), handle, page: Mutex::new(Some(page)) };
        client.set_copies(Arc::new(Told(Arc::new(kernel))));
        assert_eq!(
            client.files().write_at_once(handle, 1000, &[3]),
            Ok(None),
            "the page is to be forgotten first"
        );
        assert_eq!(client.files().write(handle, 1000, &[3]).await, Ok(1));
        let read = join(&client.files().read(handle, 0, PAGE_BYTES as u32).await.expect("it is there"));
        assert_eq!((read[0], read[1000], read[3000]), (1, 3, 2), "both changes are there");
    });
}

/// A kernel that fills a page again as soon as it has forgotten it: says what the page had.
struct Refiller {
    client: Weak<Client>,
    handle: Handle,
    filled: Arc<Mutex<Option<rt::sync::oneshot::Receiver<Vec<u8>>>>>,
    rt: rt::Rt,
}

impl Copies for Refiller {
    fn forget(&self, _: Vec<Forget>) -> BoxFuture<'static, ()> {
        let (client, handle, rt, filled) =
            (self.client.upgrade(), self.handle, self.rt.clone(), self.filled.clone());
        Box::pin(async move {
            let Some(client) = client else { return };
            let (tell, told) = rt::sync::oneshot::channel();
            rt.spawn(async move {
                let pages =
                    client.files().read_pages(handle, 0, PAGE_BYTES as u32).await.expect("it is there");
                let _ = tell.send(join(&pages.slices));
            });
            *filled.lock() = Some(told);
            // It has begun before the write goes on.
            rt.sleep(Duration::from_millis(1)).await;
        })
    }
}

/// A page that is filled while a write past it is under way has what was written.
#[test]
fn no_page_is_filled_while_a_write_passes_it() {
    let world = World::new(1, 2);
    let client = world.mount();
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        client.files().write(handle, 0, &[1; PAGE_BYTES]).await.expect("there is room");
        drop(client.files().read_pages(handle, 0, PAGE_BYTES as u32).await.expect("it is there"));
        let filled = Arc::new(Mutex::default());
        let rt = world.hub.rt().clone();
        let refiller = Refiller { client: Arc::downgrade(&client), handle, filled: filled.clone(), rt };
        client.set_copies(Arc::new(refiller));
        assert_eq!(client.files().write(handle, 1000, &[3]).await, Ok(1));
        let told = filled.lock().take().expect("it was told to forget");
        assert_eq!(told.await.expect("the page is filled")[1000], 3);
    });
}

/// A kernel with threads that look at a mapping all the time: what it forgets it fills again, before it says that it is forgotten.
struct Greedy {
    client: Weak<Client>,
    handle: Handle,
    rt: rt::Rt,
}

impl Copies for Greedy {
    fn forget(&self, what: Vec<Forget>) -> BoxFuture<'static, ()> {
        let (client, handle, rt) = (self.client.upgrade(), self.handle, self.rt.clone());
        Box::pin(async move {
            let is_data = |forget: &Forget| matches!(forget, Forget::Data(..));
            let Some(client) = client.filter(|_| what.iter().any(is_data)) else { return };
            rt.spawn(async move {
                drop(client.files().read_pages(handle, 0, PAGE_BYTES as u32).await.expect("it is there"));
            });
            rt.sleep(Duration::from_millis(1)).await;
        })
    }
}

/// Another client waited as long as anybody here looked.
#[test]
fn what_is_looked_at_all_the_time_is_given_up() {
    let world = World::real(1, 1);
    let client = world.mount();
    world.run(async {
        let rt = world.hub.rt().clone();
        let (_, handle) = create(&client, b"f").await;
        client.files().write(handle, 0, &[1; PAGE_BYTES]).await.expect("there is room");
        client.files().fsync(handle).await.expect("the OST is there");
        drop(client.files().read_pages(handle, 0, PAGE_BYTES as u32).await.expect("it is there"));
        let greedy = Greedy { client: Arc::downgrade(&client), handle, rt: rt.clone() };
        client.set_copies(Arc::new(greedy));
        let other = world.mounted(client::Limits::default()).await;
        let fid = other.names().lookup(&root(), proto::Fid::ROOT, b"f").await.expect("it is there").fid;
        let there = other.files().open(&root(), fid, read_write()).await.expect("it is there");
        for round in 2..5 {
            let write = async {
                other.files().write(there, 0, &[round; PAGE_BYTES]).await?;
                other.files().fsync(there).await
            };
            assert_eq!(rt.timeout(Duration::from_secs(10), write).await, Some(Ok(())), "round {round}");
            let seen = client.files().read_pages(handle, 0, PAGE_BYTES as u32).await.expect("it is there");
            assert_eq!(join(&seen.slices), [round; PAGE_BYTES]);
        }
    });
}

/// A kernel with a page that was changed through a mapping before this client was evicted, which takes its time to forget it.
struct Slow {
    client: Weak<Client>,
    handle: Handle,
    /// How the page came back that was written back meanwhile.
    written: Arc<Mutex<Option<client::Result<u32>>>>,
    rt: rt::Rt,
}

impl Copies for Slow {
    fn forget(&self, _: Vec<Forget>) -> BoxFuture<'static, ()> {
        let (client, handle, rt, written) =
            (self.client.upgrade(), self.handle, self.rt.clone(), self.written.clone());
        Box::pin(async move {
            rt.sleep(Duration::from_millis(5)).await;
            let Some(client) = client.filter(|_| written.lock().is_none()) else { return };
            let outcome = client.files().write_pages(handle, 0, &[9; PAGE_BYTES]).await;
            *written.lock() = Some(outcome);
        })
    }
}

/// Others may have written where the page is: a lock that is granted anew says nothing of it.
#[test]
fn a_page_of_before_an_eviction_is_not_written_under_a_new_lock() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        let (_, handle) = create(&client, b"f").await;
        client.files().write(handle, 0, &[1; 2 * PAGE_BYTES]).await.expect("there is room");
        client.files().fsync(handle).await.expect("the OST is there");
        drop(client.files().read_pages(handle, 0, PAGE_BYTES as u32).await.expect("it is there"));
        let (rt, written) = (world.hub.rt().clone(), Arc::new(Mutex::default()));
        let slow = Slow { client: Arc::downgrade(&client), handle, written: written.clone(), rt };
        client.set_copies(Arc::new(slow));
        world.osts[0].evict();
        // Whatever asks the OST hears of it.
        let (_, other) = create(&client, b"g").await;
        client.files().write(other, 0, b"x").await.expect("there is room");
        let _ = client.files().fsync(other).await;
        let next = client.files().read_pages(handle, PAGE_BYTES as u64, PAGE_BYTES as u32).await;
        assert_eq!(join(&next.expect("it is there").slices), [1; PAGE_BYTES]);
        assert_eq!(*written.lock(), Some(Err(Error::Refused(Code::Evicted))));
    });
}
