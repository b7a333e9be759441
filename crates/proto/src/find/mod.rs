//! What a search of the name space asks of each file: an expression of tests, and what comes of it.
//!
//! An MDT and a client judge with the same code. What is not known yet (attributes that were not read, the size of a file that somebody
//! writes) makes a test neither true nor false: the expression says whether it matters. Nothing here reads anything.

mod codec;
mod glob;

use bytes::Bytes;

use crate::ids::OstIndex;
use crate::layout::{Component, Layout, Pattern, Shown};
use crate::time::Timestamp;
use crate::types::{Attr, FileKind, MODE_PERMISSIONS};

pub use codec::{QUERY_BYTES_MAX, QueryError};
pub use glob::Glob;

/// How deep expressions nest at most.
pub const DEPTH_MAX: usize = 32;
/// Tests, and what combines them, of one expression at most.
pub const NODES_MAX: usize = 512;

/// What is asked of each file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// All of them; with none it is true.
    All(Vec<Expr>),
    /// One of them at least; with none it is false.
    Any(Vec<Expr>),
    /// The contrary.
    Not(Box<Expr>),
    /// A test.
    Test(Test),
}

/// One test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// The last part of the path.
    Name(Glob),
    /// The whole path, as it is printed.
    Path(Glob),
    /// Kinds: bits by [`kind_bit`].
    Kind(u8),
    /// Bytes.
    Size(Span),
    /// One of the times.
    Time(TimeOf, TimeSpan),
    /// Permissions.
    Permissions(Permissions),
    /// Owner.
    Uid(Span),
    /// Group.
    Gid(Span),
    /// Project; 0 for none.
    Project(Span),
    /// Links.
    Links(Span),
    /// A regular file without a byte, or a directory without an entry.
    Empty,
    /// A regular file with a stripe on one of these OSTs.
    Osts(Vec<OstIndex>),
    /// The MDT that has the file, by its index, is one of these.
    Mdts(Vec<u32>),
    /// Stripes of a regular file.
    StripeCount(Span),
    /// Bytes of a stripe unit of a regular file.
    StripeSize(Span),
    /// How a regular file is laid out: `LAYOUT_*` bits, one of which it has.
    Layout(u8),
    /// The pool that the objects of a regular file were taken from.
    Pool(Bytes),
    /// Components of a regular file, as `lfs getstripe` shows them.
    ComponentCount(Span),
    /// Where one of them starts, in bytes.
    ComponentStart(Span),
    /// Where one of them ends, in bytes; [`u64::MAX`] for no end.
    ComponentEnd(Span),
    /// One of them has all of the flags, and none of the others: `COMPONENT_*` bits.
    ComponentFlags(u8, u8),
    /// Bytes by which one of them is extended.
    ExtensionSize(Span),
}

/// A component has objects.
pub const COMPONENT_INIT: u8 = 1 << 0;
/// It is space to extend into.
pub const COMPONENT_EXTENSION: u8 = 1 << 1;

/// One component, striped without objects that share an OST on purpose.
pub const LAYOUT_RAID0: u8 = 1 << 0;
/// Objects may share an OST.
pub const LAYOUT_OVERSTRIPED: u8 = 1 << 1;
/// Several components.
pub const LAYOUT_COMPOSITE: u8 = 1 << 2;
/// The first bytes lie on the MDT.
pub const LAYOUT_MDT: u8 = 1 << 3;
/// The data is in an archive alone.
pub const LAYOUT_RELEASED: u8 = 1 << 4;

/// Numbers from `min` to `max`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The smallest.
    pub min: u64,
    /// The largest; below `min` for none at all.
    pub max: u64,
}

/// Times from `from` to `until`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpan {
    /// The first.
    pub from: Timestamp,
    /// The last; before `from` for none at all.
    pub until: Timestamp,
}

/// A time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeOf {
    /// Last access.
    Access,
    /// Last change of the data.
    Modification,
    /// Last change of anything.
    Change,
    /// Creation.
    Birth,
}

/// Which permissions a file has to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permissions {
    /// These and no others.
    Exactly(u32),
    /// All of these.
    All(u32),
    /// One of these at least, if there are any.
    Any(u32),
}

/// What comes of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The file is one of those.
    Yes,
    /// It is not.
    No,
    /// That depends on what is not known.
    Open,
}

/// What is known of a file.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Last part of its path.
    pub name: &'a [u8],
    /// Its path, as it is printed.
    pub path: &'a [u8],
    /// Its kind.
    pub kind: FileKind,
    /// The MDT that has it.
    pub mdt: u32,
    /// Its attributes and, of a regular file, its layout.
    pub inode: Option<(&'a Attr, Option<&'a Layout>)>,
    /// Of a directory: whether it has no entries.
    pub is_bare: Option<bool>,
}

/// The bit of a kind in [`Test::Kind`].
pub fn kind_bit(kind: FileKind) -> u8 {
    1 << match kind {
        FileKind::File => 0,
        FileKind::Dir => 1,
        FileKind::Symlink => 2,
        FileKind::Fifo => 3,
        FileKind::Char => 4,
        FileKind::Block => 5,
        FileKind::Socket => 6,
    }
}

/// The path of something below the place where a search began, as find(1) prints it: `start` as its user wrote it.
pub fn path_below(start: &[u8], below: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(start.len() + 1 + below.len());
    path.extend_from_slice(start);
    if !below.is_empty() {
        if !start.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(below);
    }
    path
}

/// The last part of a path, as find(1) has it: slashes at its end do not count, unless there is nothing else.
pub fn last_part(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(path.len().min(1), |last| last + 1);
    let slash = path[..end].iter().rposition(|byte| *byte == b'/').filter(|_| end > 1);
    &path[slash.map_or(0, |slash| slash + 1)..end]
}

impl Span {
    /// Whether `number` is in it.
    pub fn holds(&self, number: u64) -> bool {
        (self.min..=self.max).contains(&number)
    }
}

impl TimeSpan {
    /// Whether `time` is in it.
    pub fn holds(&self, time: Timestamp) -> bool {
        (self.from..=self.until).contains(&time)
    }
}

impl Verdict {
    fn of(known: bool) -> Verdict {
        if known { Verdict::Yes } else { Verdict::No }
    }

    fn not(self) -> Verdict {
        match self {
            Verdict::Yes => Verdict::No,
            Verdict::No => Verdict::Yes,
            Verdict::Open => Verdict::Open,
        }
    }
}

impl Expr {
    /// What comes of it for `subject`. As deep as the expression nests, which [`DEPTH_MAX`] bounds where it is read.
    pub fn judge(&self, subject: &Subject<'_>) -> Verdict {
        match self {
            Expr::All(parts) => decide(parts, subject, Verdict::No, Verdict::Yes),
            Expr::Any(parts) => decide(parts, subject, Verdict::Yes, Verdict::No),
            Expr::Not(inner) => inner.judge(subject).not(),
            Expr::Test(test) => test.judge(subject),
        }
    }

    /// Whether `wanted` holds for one of its tests.
    pub fn has(&self, wanted: fn(&Test) -> bool) -> bool {
        match self {
            Expr::All(parts) | Expr::Any(parts) => parts.iter().any(|part| part.has(wanted)),
            Expr::Not(inner) => inner.has(wanted),
            Expr::Test(test) => wanted(test),
        }
    }
}

/// The first part that comes to `decisive` decides; else it is open if one is, and `otherwise` if none.
fn decide(parts: &[Expr], subject: &Subject<'_>, decisive: Verdict, otherwise: Verdict) -> Verdict {
    let mut found = otherwise;
    for part in parts {
        match part.judge(subject) {
            verdict if verdict == decisive => return decisive,
            Verdict::Open => found = Verdict::Open,
            _ => {}
        }
    }
    found
}

impl Test {
    /// Whether it is about where the data of a file lies.
    pub fn is_of_layout(&self) -> bool {
        use Test::{Layout, Osts, Pool, StripeCount, StripeSize};
        matches!(self, Osts(_) | StripeCount(_) | StripeSize(_) | Layout(_) | Pool(_))
            || self.is_of_component()
    }

    fn is_of_component(&self) -> bool {
        use Test::{ComponentCount, ComponentEnd, ComponentFlags, ComponentStart, ExtensionSize};
        let spans =
            matches!(self, ComponentCount(_) | ComponentStart(_) | ComponentEnd(_) | ExtensionSize(_));
        spans || matches!(self, ComponentFlags(..))
    }

    fn judge(&self, subject: &Subject<'_>) -> Verdict {
        match self {
            Test::Name(glob) => Verdict::of(glob.matches(subject.name)),
            Test::Path(glob) => Verdict::of(glob.matches(subject.path)),
            Test::Kind(kinds) => Verdict::of(kinds & kind_bit(subject.kind) != 0),
            Test::Mdts(mdts) => Verdict::of(mdts.contains(&subject.mdt)),
            Test::Empty => judge_empty(subject),
            _ => match subject.inode {
                Some((attr, layout)) => self.judge_inode(subject.kind, attr, layout),
                None => Verdict::Open,
            },
        }
    }

    fn judge_inode(&self, kind: FileKind, attr: &Attr, layout: Option<&Layout>) -> Verdict {
        let data = |known: bool| if is_written(kind, attr) { Verdict::Open } else { Verdict::of(known) };
        match self {
            Test::Size(span) => data(span.holds(attr.size)),
            Test::Time(TimeOf::Modification, span) => data(span.holds(attr.mtime)),
            Test::Time(TimeOf::Change, span) => data(span.holds(attr.ctime)),
            Test::Time(TimeOf::Access, span) => Verdict::of(span.holds(attr.atime)),
            Test::Time(TimeOf::Birth, span) => Verdict::of(span.holds(attr.btime)),
            Test::Permissions(wanted) => Verdict::of(wanted.hold(attr.mode & MODE_PERMISSIONS)),
            Test::Uid(span) => Verdict::of(span.holds(attr.uid.into())),
            Test::Gid(span) => Verdict::of(span.holds(attr.gid.into())),
            Test::Project(span) => Verdict::of(span.holds(attr.project.into())),
            Test::Links(span) => Verdict::of(span.holds(attr.nlink.into())),
            _ => Verdict::of(layout.is_some_and(|layout| self.holds_of_layout(layout))),
        }
    }

    fn holds_of_layout(&self, layout: &Layout) -> bool {
        let last = layout.components.iter().rfind(|component| component.is_placed());
        let of_last = |holds: &dyn Fn(&Component) -> bool| last.is_some_and(holds);
        match self {
            Test::Osts(osts) => {
                let mut placed = layout.components.iter().filter(|component| component.is_placed());
                placed.any(|component| component.osts().any(|ost| osts.contains(&ost)))
            }
            Test::StripeCount(span) => of_last(&|last| span.holds(last.osts().count() as u64)),
            Test::StripeSize(span) => of_last(&|last| span.holds(last.stripe_size.into())),
            Test::Layout(bits) => bits & layout_bits(layout, last) != 0,
            Test::Pool(pool) => of_last(&|last| last.pool.as_bytes() == &pool[..]),
            Test::ComponentCount(span) => span.holds(layout.shown().count() as u64),
            _ => layout.shown().any(|shown| self.holds_of_component(&shown)),
        }
    }

    fn holds_of_component(&self, shown: &Shown<'_>) -> bool {
        match self {
            Test::ComponentStart(span) => span.holds(shown.component.start),
            Test::ComponentEnd(span) => span.holds(shown.end),
            Test::ComponentFlags(wanted, unwanted) => {
                let flags = component_flags(shown);
                flags & wanted == *wanted && flags & unwanted == 0
            }
            Test::ExtensionSize(span) => shown.extension > 0 && span.holds(shown.extension),
            _ => false,
        }
    }
}

fn component_flags(shown: &Shown<'_>) -> u8 {
    let init = if shown.is_init() { COMPONENT_INIT } else { 0 };
    init | if shown.extension > 0 { COMPONENT_EXTENSION } else { 0 }
}

/// Whether somebody writes the file: what the MDT says of its data is old then.
fn is_written(kind: FileKind, attr: &Attr) -> bool {
    kind == FileKind::File && !attr.size_known
}

fn judge_empty(subject: &Subject<'_>) -> Verdict {
    match (subject.kind, subject.inode) {
        (FileKind::Dir, _) => subject.is_bare.map_or(Verdict::Open, Verdict::of),
        (FileKind::File, Some((attr, _))) if attr.size_known => Verdict::of(attr.size == 0),
        (FileKind::File, _) => Verdict::Open,
        _ => Verdict::No,
    }
}

fn layout_bits(layout: &Layout, last: Option<&Component>) -> u8 {
    let released = if layout.is_released() { LAYOUT_RELEASED } else { 0 };
    shape_bits(layout, last) | released
}

fn shape_bits(layout: &Layout, last: Option<&Component>) -> u8 {
    let parts = layout.components.iter().filter(|component| component.pattern != Pattern::Nothing).count();
    let is_overstriped = last.is_some_and(|last| last.overstriped);
    let is_on_mdt = layout.components.first().is_some_and(|first| first.pattern == Pattern::Mdt);
    let on_mdt = if is_on_mdt { LAYOUT_MDT } else { 0 };
    match (parts > 1, is_overstriped) {
        (true, true) => LAYOUT_COMPOSITE | LAYOUT_OVERSTRIPED | on_mdt,
        (true, false) => LAYOUT_COMPOSITE | on_mdt,
        (false, true) => LAYOUT_OVERSTRIPED,
        (false, false) => {
            if is_on_mdt {
                on_mdt
            } else {
                LAYOUT_RAID0
            }
        }
    }
}

impl Permissions {
    fn hold(self, mode: u32) -> bool {
        match self {
            Permissions::Exactly(bits) => mode == bits,
            Permissions::All(bits) => mode & bits == bits,
            Permissions::Any(bits) => bits == 0 || mode & bits != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fid;
    use crate::layout::LayoutHint;

    /// As `lfs getstripe` shows it: one that extends, space for it, one without bytes, and space that nothing extends into yet.
    #[test]
    fn components_are_found_as_they_are_shown() {
        let id = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
        let first = Component { end: 64, extension: 16, ..Component::striped(id, 65_536, [OstIndex(0)]) };
        let space = |extent, extension| {
            let of = Component::without_objects(id, extent, Some(LayoutHint::default()));
            Component { extension, ..of }
        };
        let parts = [first, space((64, 1000), 16), space((1000, u64::MAX), 32)];
        let layout = Layout { generation: 0, components: parts.into_iter().collect() };
        let is = |number| Span { min: number, max: number };
        let holds = |test: Test| test.holds_of_layout(&layout);
        assert!(holds(Test::ComponentCount(is(4))) && !holds(Test::ComponentCount(is(3))));
        assert!(holds(Test::ComponentStart(is(1000))) && !holds(Test::ComponentStart(is(1))));
        assert!(holds(Test::ComponentEnd(is(1000))) && holds(Test::ComponentEnd(is(u64::MAX))));
        assert!(holds(Test::ExtensionSize(is(32))) && !holds(Test::ExtensionSize(is(0))));
        let flags = |wanted, unwanted| holds(Test::ComponentFlags(wanted, unwanted));
        assert!(flags(COMPONENT_INIT, 0) && flags(COMPONENT_EXTENSION, 0));
        assert!(!flags(COMPONENT_INIT | COMPONENT_EXTENSION, 0));
        assert!(flags(0, COMPONENT_INIT | COMPONENT_EXTENSION), "that without bytes");
    }

    fn attr(size_known: bool) -> Attr {
        let time = |secs| Timestamp { secs, nanos: 0 };
        Attr {
            fid: Fid::ROOT,
            mode: 0o100_640,
            nlink: 2,
            uid: 10,
            gid: 20,
            rdev: 0,
            size: 3901,
            blocks: 8,
            atime: time(1),
            mtime: time(2),
            ctime: time(3),
            btime: time(0),
            size_known,
            version: 1,
            mtime_set: time(2),
            project: 0,
            inherits: false,
        }
    }

    fn only(n: u64) -> Span {
        Span { min: n, max: n }
    }

    fn check(test: Test, size_known: bool, expected: Verdict) {
        let id = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
        let layout: Layout = Component::striped(id, 1 << 20, [3, 1].map(OstIndex)).into();
        let attr = attr(size_known);
        let subject = Subject {
            name: b"f",
            path: b"/d/f",
            kind: FileKind::File,
            mdt: 0,
            inode: Some((&attr, Some(&layout))),
            is_bare: None,
        };
        assert_eq!(Expr::Test(test.clone()).judge(&subject), expected, "{test:?}");
        let early = Expr::Test(test.clone()).judge(&Subject { inode: None, ..subject });
        assert!(early == Verdict::Open || early == expected, "{test:?} without attributes");
        let not = Expr::Not(Box::new(Expr::Test(test.clone()))).judge(&subject);
        assert_eq!(not, expected.not(), "not {test:?}");
    }

    #[test]
    fn tests_of_a_file() {
        use Verdict::{No, Open, Yes};
        let glob = |text: &'static str| Glob { pattern: Bytes::from(text), ignores_case: false };
        let times = |from, until| {
            let time = |secs| Timestamp { secs, nanos: 0 };
            TimeSpan { from: time(from), until: time(until) }
        };
        check(Test::Name(glob("?")), true, Yes);
        check(Test::Path(glob("/d*")), true, Yes);
        check(Test::Path(glob("/d")), true, No);
        check(Test::Kind(kind_bit(FileKind::Dir)), true, No);
        check(Test::Size(only(3901)), true, Yes);
        check(Test::Size(only(3901)), false, Open);
        check(Test::Size(Span { min: 1, max: 0 }), true, No);
        check(Test::Time(TimeOf::Modification, times(2, 9)), true, Yes);
        check(Test::Time(TimeOf::Modification, times(2, 9)), false, Open);
        check(Test::Time(TimeOf::Access, times(2, 9)), false, No);
        check(Test::Permissions(Permissions::Exactly(0o640)), true, Yes);
        check(Test::Permissions(Permissions::All(0o040)), true, Yes);
        check(Test::Permissions(Permissions::All(0o042)), true, No);
        check(Test::Permissions(Permissions::Any(0o042)), true, Yes);
        check(Test::Permissions(Permissions::Any(0)), true, Yes);
        check(Test::Uid(only(10)), false, Yes);
        check(Test::Project(only(0)), false, Yes);
        check(Test::Project(only(10)), true, No);
        check(Test::Links(Span { min: 3, max: u64::MAX }), true, No);
        check(Test::Empty, true, No);
        check(Test::Empty, false, Open);
        check(Test::Osts(vec![OstIndex(1)]), true, Yes);
        check(Test::Osts(vec![OstIndex(2)]), true, No);
        check(Test::Mdts(vec![0, 1]), true, Yes);
        check(Test::StripeCount(only(2)), true, Yes);
        check(Test::StripeSize(only(1 << 20)), true, Yes);
        check(Test::Layout(LAYOUT_RAID0), true, Yes);
        check(Test::Layout(LAYOUT_COMPOSITE | LAYOUT_OVERSTRIPED), true, No);
        check(Test::Pool(Bytes::new()), true, Yes);
    }

    #[test]
    fn what_is_open_matters_only_where_the_rest_does_not_decide() {
        let subject =
            Subject { name: b"f", path: b"f", kind: FileKind::File, mdt: 0, inode: None, is_bare: None };
        let (yes, no) = (Expr::All(vec![]), Expr::Any(vec![]));
        let open = Expr::Test(Test::Size(only(1)));
        for (expr, expected) in [
            (Expr::All(vec![open.clone(), no.clone()]), Verdict::No),
            (Expr::All(vec![open.clone(), yes.clone()]), Verdict::Open),
            (Expr::Any(vec![open.clone(), yes]), Verdict::Yes),
            (Expr::Any(vec![no, open.clone()]), Verdict::Open),
            (Expr::Not(Box::new(open)), Verdict::Open),
        ] {
            assert_eq!(expr.judge(&subject), expected, "{expr:?}");
        }
    }

    #[test]
    fn paths_begin_as_they_were_written() {
        assert_eq!(path_below(b"/mnt", b""), b"/mnt");
        assert_eq!(path_below(b"/mnt", b"a/b"), b"/mnt/a/b");
        assert_eq!(path_below(b"/mnt/", b"a"), b"/mnt/a");
        assert_eq!(path_below(b".", b"a"), b"./a");
        for (path, last) in
            [("/a/b", "b"), ("a/", "a"), ("a", "a"), ("/", "/"), ("//", "/"), (".", "."), ("", "")]
        {
            assert_eq!(last_part(path.as_bytes()), last.as_bytes(), "{path}");
        }
    }
}
