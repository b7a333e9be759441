//! Find: a page of a search, as the name space was at one moment.
//!
//! A search walks down from its start on a snapshot of the store. Of each directory it looks at all entries first, then at what lies in
//! the directories among them. Where it is, the request says; so a page can be asked for again. The reading goes in small jobs
//! away from the threads that serve, a few at the same time, and no guard is held. Entries come first; the inodes of those that their
//! names do not exclude are read for many of them together. What was found is taken in the order of the walk. What the page has no room
//! for is kept for the next one, if that comes soon; else it is found again.

mod candidate;
mod job;
mod page;
mod search;
mod walk;

use std::sync::Arc;

use proto::Code;
use proto::find::{Expr, QueryError, Test};
use proto::limits::NAME_BYTES_MAX;
use proto::wire::messages::{Find, Found, FoundPage};
use proto::wire::{Reply, Wire};
use service::Done;
use store::Snapshot;

use crate::mdt::{Mdt, Outcome, keys};
pub(in crate::mdt) use page::Progress;
use search::Search;
use walk::Walk;

/// Bytes of a page at most, and at least whatever the client says.
const PAGE_BYTES_MAX: usize = 900 << 10;
const PAGE_BYTES_MIN: usize = 4 << 10;
/// Entries that one job looks at, about. Few in tests, which have few files.
const JOB_ENTRIES: usize = if cfg!(test) { 32 } else { 4096 };
/// Jobs at the same time.
const JOBS_MAX: usize = 4;
/// How deep below its start a search goes at most.
const DEPTH_MAX: usize = 8192;
/// Bytes of a path below the start at most.
const PATH_BYTES_MAX: usize = 64 << 10;

pub(in crate::mdt) async fn find(mdt: &Mdt, request: &Find) -> Outcome {
    let query = Expr::decode(request.query.clone()).map_err(|error| match error {
        QueryError::Unknown(_) => Code::NotSupported,
        QueryError::TooLarge | QueryError::Damaged => Code::Invalid,
    })?;
    if request.path.len() > PATH_BYTES_MAX {
        return Err(Code::NameTooLong.into());
    }
    let (number, snapshot, _asked) = mdt.searches.snapshot(request.snapshot).await?;
    let page = mdt.stop.unless(page(mdt, (number, snapshot), query, request)).await;
    match page.ok_or(Code::TryAgain)? {
        Ok(page) => Ok(Done::unchanged(Reply::Find(page))),
        Err(code) => {
            // Nobody knows of it yet.
            if request.snapshot == 0 {
                mdt.searches.end(number);
            }
            Err(code.into())
        }
    }
}

async fn page(
    mdt: &Mdt,
    (number, snapshot): (u64, Arc<Snapshot>),
    query: Expr,
    request: &Find,
) -> Result<FoundPage, Code> {
    let is_one_file = request.depth_max == 0;
    let _turn = if is_one_file { None } else { mdt.searches.turn().await };
    let progress = match mdt.searches.take(number, |progress| progress.is_before(request)) {
        Some(progress) => progress,
        None => begun(mdt, snapshot, query, request).await?,
    };
    let bytes_max = (request.bytes_max as usize).clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX);
    let (page, progress) = progress.page(mdt, number, (bytes_max, mdt.searches.bytes_max())).await?;
    match (&page.next, progress) {
        (Some(_), Some(progress)) => mdt.searches.keep(number, progress),
        (Some(_), None) => {}
        (None, _) => mdt.searches.end(number),
    }
    Ok(page)
}

/// A search that goes on from where the request says.
async fn begun(mdt: &Mdt, snapshot: Arc<Snapshot>, query: Expr, request: &Find) -> Result<Progress, Code> {
    let judges_layouts = query.has(Test::is_of_layout);
    let judges_paths = query.has(|test| matches!(test, Test::Path(_)));
    let (request, mdt_index) = (request.clone(), mdt.store.label().target.index);
    let search = Search { snapshot, query, judges_layouts, judges_paths, request, mdt: mdt_index };
    let walk = mdt.rt.offload(move || Walk::new(Arc::new(search)).begun()).await?;
    Ok(Progress::new(walk))
}

/// What it takes of a page.
fn bytes_of(found: &Found) -> usize {
    let mut encoded = Vec::with_capacity(128);
    found.put(&mut encoded);
    encoded.len()
}

/// The first key behind `key`.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The name in the key of an entry.
fn name_in(key: &[u8]) -> Option<&[u8]> {
    key.get(keys::ENTRY_NAME_AT..).filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()))
}

fn path_below_start(below: &[u8], name: &[u8]) -> Vec<u8> {
    if below.is_empty() { name.to_vec() } else { [below, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use bytes::Bytes;
    use proto::find::{Glob, Span};
    use proto::wire::messages::{FIND_ENTRY, FindPlace, Link, OPEN_WRITE};
    use proto::{Cred, Fid};

    use super::*;
    use crate::mdt::testing::{Client, World, name, user};

    fn find(start: Fid, query: Expr) -> Find {
        Find {
            start,
            path: Bytes::from_static(b"/m"),
            query: query.encode(),
            depth_min: 0,
            depth_max: u32::MAX,
            wants: 0,
            bytes_max: 0,
            snapshot: 0,
            behind: None,
            cred: Cred::root(),
        }
    }

    fn all() -> Expr {
        Expr::All(vec![])
    }

    fn named(pattern: &'static str) -> Expr {
        Expr::Test(Test::Name(Glob { pattern: Bytes::from(pattern), ignores_case: false }))
    }

    fn text(path: &Bytes) -> String {
        String::from_utf8_lossy(path).into_owned()
    }

    /// Everything that a search finds, page by page; between the pages `meanwhile` happens.
    fn search(client: &Client<'_>, find: &Find, meanwhile: impl Fn(usize)) -> Result<FoundPage, Code> {
        let mut find = find.clone();
        let mut sum = client.call(find.clone())?;
        for round in 0.. {
            let Some(next) = sum.next.take() else { break };
            meanwhile(round);
            (find.snapshot, find.behind) = (sum.snapshot, Some(next));
            // What was found ahead is used up then, and is found again.
            let page = client.call(find.clone())?;
            let told = page.found.iter().map(bytes_of).chain(page.hidden.iter().map(|below| below.len() + 4));
            assert!(told.sum::<usize>() < PAGE_BYTES_MIN.max(find.bytes_max as usize) + 1000);
            if page.next.is_some() {
                assert_eq!(client.call(find.clone())?, page, "a page can be asked for again");
            }
            sum.found.extend(page.found);
            sum.hidden.extend(page.hidden);
            (sum.visited, sum.next) = (sum.visited + page.visited, page.next);
        }
        Ok(sum)
    }

    fn paths(page: &FoundPage) -> Vec<String> {
        let mut paths: Vec<String> = page.found.iter().map(|found| text(&found.path)).collect();
        paths.sort();
        paths
    }

    fn check(client: &Client<'_>, find: &Find, expected: &[&str]) {
        let page = search(client, find, |_| ()).expect("it is found");
        assert_eq!(paths(&page), expected);
    }

    /// A tree of 3 directories of 400 files each, one of them below another one, 200 directories of 1 or 30 files each, and a deep chain; all paths.
    fn tree(client: &Client<'_>) -> BTreeSet<String> {
        let mut all = BTreeSet::from([String::new()]);
        let mut fill = |dir: Fid, below: &str| {
            all.insert(below.to_owned());
            for n in 0..400 {
                client.file(dir, &format!("file{n:03}"));
                all.insert(format!("{below}/file{n:03}"));
            }
        };
        let a = client.mkdir(Fid::ROOT, "a");
        fill(a, "a");
        fill(client.mkdir(a, "inner"), "a/inner");
        fill(client.mkdir(Fid::ROOT, "b"), "b");
        let many = client.mkdir(Fid::ROOT, "many");
        all.insert("many".to_owned());
        for n in 0..200 {
            let dir = client.mkdir(many, &format!("{n}"));
            all.insert(format!("many/{n}"));
            for m in 0..if n % 9 == 0 { 30 } else { 1 } {
                client.file(dir, &format!("{m}"));
                all.insert(format!("many/{n}/{m}"));
            }
        }
        let (mut dir, mut below) = (Fid::ROOT, String::new());
        for n in 0..30 {
            dir = client.mkdir(dir, &format!("deep{n}"));
            below = if below.is_empty() { "deep0".to_owned() } else { format!("{below}/deep{n}") };
            all.insert(below.clone());
        }
        all
    }

    #[test]
    fn all_of_a_tree_is_found_once_page_by_page() {
        let world = World::new();
        let client = world.client(1);
        let expected = tree(&client);
        let page = search(&client, &find(Fid::ROOT, all()), |_| ()).expect("it is found");
        assert_eq!(page.visited, expected.len() as u64);
        assert_eq!(paths(&page), expected.iter().cloned().collect::<Vec<_>>());
        assert_eq!(world.target.handler().searches.count(), 0, "it has come to its end");
        let with_entries = Find { wants: FIND_ENTRY, ..find(Fid::ROOT, all()) };
        let page = search(&client, &with_entries, |_| ()).expect("it is found");
        assert_eq!(page.found.len(), expected.len());
        assert!(
            page.found.iter().all(|found| found.entry.as_ref().is_some_and(|of| of.attr.fid == found.fid))
        );
        let first = client.call(find(Fid::ROOT, all())).expect("a page");
        assert!(first.next.is_some() && first.found.len() < 300, "{} in a page", first.found.len());
        assert_eq!(world.target.handler().searches.count(), 1);
    }

    /// A page may wait long for its turn: the search is not given up meanwhile.
    #[test]
    fn a_search_whose_page_is_waited_for_is_not_idle() {
        let world = World::new();
        let (searches, rt) = (world.target.handler().searches.clone(), world.sim.rt("observer"));
        world.sim.run(async move {
            let (number, _, asked) = searches.snapshot(0).await.expect("it is the first one");
            rt.sleep(Duration::from_secs(600)).await;
            assert_eq!(searches.count(), 1);
            drop(asked);
            rt.sleep(Duration::from_secs(30)).await;
            drop(searches.snapshot(number).await.expect("somebody asked for it half a minute ago"));
            rt.sleep(Duration::from_secs(120)).await;
            assert_eq!(searches.count(), 0);
        });
    }

    /// What cannot be read is come by ahead, with what lies before it, and that is told first.
    #[test]
    fn what_lies_before_an_error_is_found() {
        let world = World::new();
        let client = world.client(1);
        let mut dir = client.mkdir(Fid::ROOT, "a");
        for n in 0..400 {
            client.file(dir, &format!("file{n:03}"));
        }
        for _ in 0..PATH_BYTES_MAX / 250 {
            dir = client.mkdir(dir, &"d".repeat(255));
        }
        let (mut request, mut found) = (Find { bytes_max: 1 << 20, ..find(Fid::ROOT, all()) }, Vec::new());
        let error = loop {
            match client.call(request.clone()) {
                Ok(page) => {
                    found.extend(page.found);
                    assert!(page.next.is_some() && page.next != request.behind, "it gets on");
                    (request.snapshot, request.behind) = (page.snapshot, page.next);
                }
                Err(code) => break code,
            }
        };
        assert_eq!(error, Code::NameTooLong);
        let files = found.iter().filter(|found| found.path.starts_with(b"a/file")).count();
        let deep = found.iter().filter(|found| found.path.starts_with(b"a/d")).count();
        assert!(files == 400 && deep > 250, "{files} and {deep}");
    }

    /// Whatever happens between its pages, a search finds what there was when it began.
    #[test]
    fn a_search_sees_one_moment() {
        let world = World::new();
        let client = world.client(1);
        let expected = tree(&client);
        let b = client.lookup(Fid::ROOT, "b").expect("it was made").fid;
        let a = client.lookup(Fid::ROOT, "a").expect("it was made").fid;
        let meanwhile = |round: usize| {
            for n in 0..20 {
                let n = (round * 20 + n) % 400;
                let _ = client.unlink(b, &format!("file{n:03}"));
                client.file(a, &format!("new{round}-{n}"));
            }
            if round == 1 {
                client.rename((Fid::ROOT, "b"), (a, "moved"), 0, &Cred::root()).expect("a directory moves");
            }
            world.store.forget_known();
        };
        let page = search(&client, &find(Fid::ROOT, all()), meanwhile).expect("it is found");
        assert_eq!(paths(&page), expected.into_iter().collect::<Vec<_>>());
        let now = search(&client, &find(Fid::ROOT, named("new*")), |_| ()).expect("it is found");
        assert!(now.found.len() >= 40, "the next search sees what was made meanwhile");
    }

    #[test]
    fn depths_and_starts() {
        let world = World::new();
        let client = world.client(1);
        let a = client.mkdir(Fid::ROOT, "a");
        let b = client.mkdir(a, "b");
        let file = client.file(b, "c");
        let limited = |start, depth_min, depth_max| Find { depth_min, depth_max, ..find(start, all()) };
        check(&client, &limited(Fid::ROOT, 0, 0), &[""]);
        check(&client, &limited(Fid::ROOT, 0, 1), &["", "a"]);
        check(&client, &limited(Fid::ROOT, 2, 9), &["a/b", "a/b/c"]);
        check(&client, &limited(a, 1, 1), &["b"]);
        check(&client, &find(file, all()), &[""]);
        check(&client, &find(Fid::ROOT, named("m")), &[""]);
        check(&client, &find(Fid::ROOT, Expr::Test(Test::Empty)), &["a/b/c"]);
        client.unlink(b, "c").expect("it was made");
        check(&client, &find(Fid::ROOT, Expr::Test(Test::Empty)), &["a/b"]);
        let gone = client.call(find(file, all()));
        assert_eq!(gone, Err(Code::Stale));
    }

    #[test]
    fn what_the_caller_may_not_see_is_not_told() {
        let world = World::new();
        let client = world.client(1);
        let root = Cred::root();
        let closed = client.make(Fid::ROOT, "closed", 0o040_700, &root).expect("root may").fid;
        let inner = client.make(closed, "inner", 0o040_755, &root).expect("root may").fid;
        let file = client.make(inner, "secret", 0o100_644, &root).expect("root may").fid;
        client.make(Fid::ROOT, "open", 0o100_600, &root).expect("root may");
        let as_user = |start| Find { cred: user(5), ..find(start, all()) };
        let page = search(&client, &as_user(Fid::ROOT), |_| ()).expect("the root is for all");
        assert_eq!(paths(&page), ["", "closed", "open"]);
        assert_eq!(page.hidden, [Bytes::from_static(b"closed")]);
        for start in [inner, file] {
            assert_eq!(client.call(as_user(start)), Err(Code::AccessDenied), "it lies below what is closed");
        }
        let page = search(&client, &as_user(closed), |_| ()).expect("its name is for all");
        assert_eq!((paths(&page), page.hidden), (vec![String::new()], vec![Bytes::new()]));
        let without_groups = Cred { groups: None, ..user(5) };
        client.chmod(closed, 0o750);
        assert_eq!(client.call(Find { cred: without_groups, ..as_user(Fid::ROOT) }), Err(Code::NeedGroups));
        // A place that nobody gave out is no way around.
        let behind = Some(FindPlace { dir: inner, descends: false, name: None });
        assert_eq!(client.call(Find { behind, ..as_user(Fid::ROOT) }), Err(Code::AccessDenied));
    }

    /// Pages end in the middle of what was looked at together: nothing is told twice, and nothing is left out.
    #[test]
    fn names_of_one_file_and_what_is_hidden_come_once_page_by_page() {
        let world = World::new();
        let client = world.client(1);
        let root = Cred::root();
        let (mut expected, mut hidden) = (BTreeSet::from([String::new()]), BTreeSet::new());
        for n in 0..60 {
            let dir = format!("dir{n:02}");
            let open = client.make(Fid::ROOT, &dir, 0o040_755, &root).expect("root may").fid;
            for m in 0..if n % 7 == 0 { 40 } else { 3 } {
                let file = client.file(open, &format!("file{m:02}"));
                let (name, cred, time) = (name(&format!("also{m:02}")), root.clone(), client.time());
                client.call(Link { fid: file, parent: open, name, cred, time }).expect("it exists");
                expected.extend([format!("{dir}/file{m:02}"), format!("{dir}/also{m:02}")]);
            }
            for m in 0..n % 3 {
                let closed = format!("closed{m}");
                let at = client.make(open, &closed, 0o040_700, &root).expect("root may").fid;
                client.file(at, "secret");
                expected.insert(format!("{dir}/{closed}"));
                hidden.insert(format!("{dir}/{closed}"));
            }
            expected.insert(dir);
        }
        let of_root = Expr::Test(Test::Uid(Span { min: 0, max: 0 }));
        for (query, bytes_max) in
            (4096..8192).step_by(91).flat_map(|max| [(all(), max), (of_root.clone(), max)])
        {
            let as_user = Find { cred: user(5), bytes_max, ..find(Fid::ROOT, query) };
            let pages = std::cell::Cell::new(0);
            let page = search(&client, &as_user, |_| pages.set(pages.get() + 1)).expect("it is found");
            assert_eq!(paths(&page), expected.iter().cloned().collect::<Vec<_>>());
            let mut told: Vec<_> = page.hidden.iter().map(text).collect();
            told.sort();
            assert_eq!(told, hidden.iter().cloned().collect::<Vec<_>>());
            assert_eq!(page.visited, expected.len() as u64);
            assert!(pages.get() > 3, "{} pages", pages.get());
        }
    }

    #[test]
    fn much_that_is_hidden_comes_in_pages() {
        let world = World::new();
        let client = world.client(1);
        for n in 0..500 {
            let name = format!("a directory that is closed {n}");
            client.make(Fid::ROOT, &name, 0o040_700, &Cred::root()).expect("root may");
        }
        let as_user = Find { cred: user(5), ..find(Fid::ROOT, named("none")) };
        let pages = std::cell::Cell::new(0);
        let page = search(&client, &as_user, |_| pages.set(pages.get() + 1)).expect("it is found");
        assert_eq!((page.found.len(), page.visited), (0, 501));
        let hidden: BTreeSet<_> = page.hidden.iter().collect();
        assert_eq!((hidden.len(), page.hidden.len()), (500, 500));
        assert!(pages.get() >= 3, "{} pages", pages.get());
    }

    #[test]
    fn what_somebody_writes_is_told_apart() {
        let world = World::new();
        let client = world.client(1);
        let file = client.file(Fid::ROOT, "f");
        client.file(Fid::ROOT, "other");
        let sized = |size| Expr::Test(Test::Size(Span { min: size, max: size }));
        let handle = client.open(file, OPEN_WRITE, &Cred::root()).expect("a file").handle;
        let page = client.call(find(Fid::ROOT, sized(9))).expect("it is found");
        let open: Vec<_> = page.found.iter().map(|found| (text(&found.path), found.open)).collect();
        assert_eq!(open, [("f".to_owned(), true)]);
        assert!(page.found[0].entry.as_ref().is_some_and(|entry| entry.layout.is_some()));
        client.close(file, handle, true, Some(9));
        let page = client.call(find(Fid::ROOT, sized(9))).expect("it is found");
        assert_eq!(page.found.iter().map(|found| found.open).collect::<Vec<_>>(), [false]);
        assert_eq!(page.found[0].entry, None, "nobody has asked for it");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let world = World::new();
        let client = world.client(1);
        let asked =
            |query: &'static [u8]| Find { query: Bytes::from_static(query), ..find(Fid::ROOT, all()) };
        assert_eq!(client.call(asked(&[99])), Err(Code::NotSupported));
        assert_eq!(client.call(asked(&[])), Err(Code::Invalid));
        assert_eq!(client.call(Find { snapshot: 7, ..find(Fid::ROOT, all()) }), Err(Code::Gone));
        let file = client.file(Fid::ROOT, "f");
        let behind = |dir| Some(FindPlace { dir, descends: false, name: None });
        assert_eq!(client.call(Find { behind: behind(file), ..find(Fid::ROOT, all()) }), Err(Code::Stale));
        let a = client.mkdir(Fid::ROOT, "a");
        let elsewhere = Find { behind: behind(Fid::ROOT), ..find(a, all()) };
        assert_eq!(client.call(elsewhere), Err(Code::Stale));
    }
}
