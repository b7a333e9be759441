use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use proto::layout::Component;
use proto::wire::messages::{Entry, Granted};
use proto::{Attr, Layout, OstIndex};

use super::super::rule::Limits;
use super::*;

fn fid(n: u64) -> Fid {
    Fid { seq: 0x2_0000_0400, oid: u32::try_from(n).expect("a small number") + 1, ver: 0 }
}

/// File `n`, of 4096 bytes on OST `n % 4`, accessed at `accessed`.
fn found(n: u64, accessed: i64) -> Found {
    let time = |secs| Timestamp { secs, nanos: 0 };
    let attr = Attr {
        fid: fid(n),
        mode: 0o100_644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 4096,
        blocks: 8,
        atime: time(accessed),
        mtime: time(0),
        ctime: time(0),
        btime: time(0),
        size_known: true,
        version: 1,
        mtime_set: time(0),
        project: 0,
        inherits: false,
    };
    let layout = Layout::from(Component::striped(fid(n), 1 << 20, [OstIndex(n as u32 % 4)]));
    Found {
        path: Bytes::from(format!("d/{n}")),
        fid: fid(n),
        mode: 0o100_000,
        open: false,
        entry: Some(Box::new(Entry { attr, layout: Some(layout), xattrs: false, lock: Granted::default() })),
        target: None,
    }
}

/// What a search says, in order.
struct Script(VecDeque<Result<FoundPage, Error>>);

impl Pages for Script {
    fn next_page(&mut self) -> Result<Option<FoundPage>, Error> {
        self.0.pop_front().transpose()
    }
}

fn page(found: impl IntoIterator<Item = Found>) -> Result<FoundPage, Error> {
    Ok(FoundPage {
        snapshot: 1,
        found: found.into_iter().collect(),
        visited: 0,
        hidden: Vec::new(),
        next: None,
    })
}

fn rule(order: Option<Order>) -> Rule {
    Rule {
        name: "r".to_owned(),
        below: None,
        files: String::new(),
        action: Action::Purge,
        order,
        when: None,
        every: None,
        limits: Limits { bytes_per_second: None, files_per_second: None, at_once: 1 },
    }
}

fn filter<'a>(rule: &'a Rule, measured: Option<&[u32]>) -> Filter<'a> {
    Filter { rule, wanted: None, measured: measured.map(|osts| osts.iter().copied().collect()) }
}

const ALL: Room = Room { memory: usize::MAX, frees: None };

/// Numbers of the files of each batch, until there is none.
fn batches(collector: &mut Collector<'_>, room: Room) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    loop {
        let batch = collector.next_batch(room, &Stop::never()).expect("a batch");
        if batch.is_empty() {
            return all;
        }
        all.push(batch.iter().map(|of| of.fid.oid - 1).collect());
    }
}

#[test]
fn without_an_order_pages_come_until_there_is_no_room() {
    let rule = rule(None);
    let script = || {
        let pages = (0..5)
            .map(|page| (page * 3, page * 3 + 3))
            .map(|(from, to)| page((from..to).map(|n| found(n, 0))));
        Box::new(Script(pages.collect())) as Box<dyn Pages>
    };
    let mut collector = Collector::new(filter(&rule, None), script);
    // Two pages are more than that.
    let room = Room { memory: 4 * (size_of::<Candidate>() + OVERHEAD), frees: None };
    let expected: Vec<Vec<u32>> = vec![(0..6).collect(), (6..12).collect(), (12..15).collect()];
    assert_eq!(batches(&mut collector, room), expected);
    assert_eq!((collector.tally.matched, collector.tally.bytes), (15, 15 * 4096));
    assert!(collector.is_over());
    let mut collector = Collector::new(filter(&rule, None), script);
    let expected: Vec<Vec<u32>> = (0..5).map(|page| (3 * page..3 * page + 3).collect()).collect();
    assert_eq!(batches(&mut collector, Room { memory: usize::MAX, frees: Some(4096 * 3) }), expected);
}

#[test]
fn with_an_order_each_batch_follows_the_one_before() {
    let rule = rule(Some(Order::Accessed));
    // Those accessed last come first.
    let script = || {
        let pages = (0..10u64).map(|at| page((at * 10..at * 10 + 10).map(|n| found(n, 1000 - n as i64))));
        Box::new(Script(pages.collect())) as Box<dyn Pages>
    };
    let mut collector = Collector::new(filter(&rule, None), script);
    let all: Vec<u32> = (0..100).rev().collect();
    assert_eq!(batches(&mut collector, ALL), std::slice::from_ref(&all));
    let mut collector = Collector::new(filter(&rule, None), script);
    let one = size_of::<Candidate>() + OVERHEAD + 4;
    let some = batches(&mut collector, Room { memory: 7 * one + one / 2, frees: None });
    assert!(some.iter().all(|batch| batch.len() <= 8) && some.len() > 10, "{some:?}");
    assert_eq!(some.concat(), all);
    assert_eq!((collector.tally.matched, collector.tally.bytes), (100, 100 * 4096));
    // Three files free as much as is wanted.
    let mut collector = Collector::new(filter(&rule, None), script);
    let batch = collector.next_batch(Room { memory: usize::MAX, frees: Some(2 * 4096 + 1) }, &Stop::never());
    let first: Vec<u32> = batch.expect("a batch").iter().map(|of| of.fid.oid - 1).collect();
    assert_eq!(first, [99, 98, 97]);
}

#[test]
fn only_what_lies_where_a_rule_measures_is_given() {
    let rule = rule(None);
    let script = || Box::new(Script([page((0..8).map(|n| found(n, 0)))].into())) as Box<dyn Pages>;
    let mut collector = Collector::new(filter(&rule, Some(&[1, 3])), script);
    assert_eq!(batches(&mut collector, ALL), [[1, 3, 5, 7]]);
    assert_eq!(collector.tally.matched, 4);
    // A file with another name keeps its data when one is removed.
    let linked = || {
        let mut file = found(1, 0);
        file.entry.iter_mut().for_each(|entry| entry.attr.nlink = 2);
        Box::new(Script([page([file])].into())) as Box<dyn Pages>
    };
    let mut collector = Collector::new(filter(&rule, Some(&[1])), linked);
    assert_eq!(batches(&mut collector, ALL), Vec::<Vec<u32>>::new());
}

#[test]
fn what_lies_there_is_counted() {
    let hint = fuse::control::Hint { start_index: 1, ..fuse::control::Hint::default() };
    let rule = rule(Some(Order::Size));
    let wanted = Wanted::for_test(&hint, (0..4).map(|ost| (ost, true)).collect(), BTreeMap::new());
    let filter = Filter { wanted: Some(&wanted), ..filter(&rule, None) };
    let mut collector =
        Collector::new(filter, || Box::new(Script([page((0..8).map(|n| found(n, 0)))].into())));
    assert_eq!(batches(&mut collector, ALL), [[0, 2, 3, 4, 6, 7]]);
    assert_eq!((collector.tally.matched, collector.tally.there), (8, 2));
}

#[test]
fn a_search_goes_on_or_begins_again() {
    let rule = rule(None);
    let begun = std::cell::Cell::new(0);
    let script = || {
        begun.set(begun.get() + 1);
        let pages: VecDeque<_> = match begun.get() {
            1 => [page([found(0, 0)]), Err(Error::Ended), page([found(1, 0)]), Err(Error::Gone)].into(),
            _ => [page([found(2, 0)])].into(),
        };
        Box::new(Script(pages)) as Box<dyn Pages>
    };
    let mut collector = Collector::new(filter(&rule, None), script);
    assert_eq!(batches(&mut collector, ALL), [[0, 1, 2]]);
    assert_eq!(begun.get(), 2);
    let mut collector = Collector::new(filter(&rule, None), || Box::new(Script([Err(Error::Gone)].into())));
    let why = collector.next_batch(ALL, &Stop::never()).expect_err("it goes again and again");
    assert_eq!(why, "it was removed or moved away during the search");
}

#[test]
fn no_more_is_kept_than_is_needed() {
    let candidate =
        |frees| Candidate { key: (1, 0), fid: fid(1), below: b"a".to_vec().into(), bytes: 7, frees };
    let check = |frees, count, room| is_too_much(&candidate(10), (1000, frees), count, room);
    let room = |memory, frees| Room { memory, frees };
    // With the last one 30, without it 20.
    assert!(check(30, 3, room(9999, Some(20))));
    assert!(!check(30, 3, room(9999, Some(21))));
    assert!(!check(30, 3, room(1000, None)));
    assert!(check(30, 3, room(999, None)));
    // One there is always, or nothing would ever come of it.
    assert!(!check(10, 1, room(1, Some(0))));
}
