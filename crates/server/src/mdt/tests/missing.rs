//! One client of three is gone for good after a restart, as in Lustre's replay-vbr: what it takes along of others.
//!
//! Lustre keeps a version for each object, and evicts who has built on a change that is missing. Here nobody builds on a change that can
//! go missing (commit on share), so there is nothing to find out in the replay.

use proto::wire::messages::{self as msg, Operation};
use proto::{ClientId, Code, Cred, Fid, Transno};
use rpc::Answer;
use service::Watch;

use crate::mdt::testing::{Client, World, name};

/// What is there, durable, before; and names of files that nobody has made.
struct Tree {
    dir: Fid,
    file: Fid,
    other: Fid,
    fresh: Fid,
    sub: Fid,
}

/// The second client's change: done, or replayed after the restart.
struct Way<'a> {
    client: &'a Client<'a>,
    tree: &'a Tree,
    replay: Option<Transno>,
}

const XID: u64 = 100;

impl Way<'_> {
    fn send(&self, operation: impl Operation) -> Answer {
        match self.replay {
            Some(transno) => self.client.replay(XID, transno, operation),
            None => self.client.send(XID, operation),
        }
    }

    fn create(&self, parent: Fid, text: &str, mode: u32) -> Answer {
        self.send(msg::Create { fid: self.tree.fresh, ..self.client.create_request(parent, text, mode) })
    }

    fn remove(&self, parent: Fid, text: &str, directory: bool) -> Answer {
        let (cred, time) = (Cred::root(), self.client.time());
        self.send(msg::Unlink { parent, name: name(text), directory, cred, time })
    }

    fn rename(&self, from: &str, to: &str, flags: u32) -> Answer {
        self.send(msg::Rename {
            parent: self.tree.dir,
            name: name(from),
            new_parent: self.tree.dir,
            new_name: name(to),
            flags,
            cred: Cred::root(),
            time: self.client.time(),
        })
    }

    fn chmod(&self, fid: Fid, mode: u32) -> Answer {
        self.send(msg::SetAttr { mode: Some(mode), ..self.client.set_attr(fid, &Cred::root()) })
    }
}

struct Case {
    what: &'static str,
    /// By the client that is gone afterwards.
    first: fn(&Client<'_>, &Tree),
    second: fn(&Way<'_>) -> Answer,
    /// Whether the second change is there, as somebody else sees it.
    is_there: fn(&Client<'_>, &Tree) -> bool,
    /// Whether the second change rests on the first one.
    rests: bool,
}

fn finds(client: &Client<'_>, tree: &Tree, text: &str, fid: Fid) -> bool {
    client.lookup(tree.dir, text).is_ok_and(|attr| attr.fid == fid)
}

fn misses(client: &Client<'_>, tree: &Tree, text: &str) -> bool {
    client.lookup(tree.dir, text) == Err(Code::NotFound)
}

fn made(client: &Client<'_>, tree: &Tree) {
    client.file(tree.dir, "new");
}

fn removed(client: &Client<'_>, tree: &Tree) {
    client.unlink(tree.dir, "f").expect("it exists");
}

fn moved(client: &Client<'_>, tree: &Tree) {
    client.rename((tree.dir, "f"), (tree.dir, "g"), 0, &Cred::root()).expect("it exists");
}

fn linked(client: &Client<'_>, tree: &Tree) {
    let (parent, name, cred, time) = (tree.dir, name("g"), Cred::root(), client.time());
    client.call(msg::Link { fid: tree.file, parent, name, cred, time }).expect("it exists");
}

fn shut(client: &Client<'_>, tree: &Tree) {
    client.chmod(tree.file, 0o600);
}

const CASES: &[Case] = &[
    Case {
        what: "a file in a directory that was made",
        first: |c, t| {
            let made = c.call(msg::Create { fid: t.sub, ..c.create_request(t.dir, "sub", 0o040_755) });
            made.map(drop).expect("it is new");
        },
        second: |way| way.create(way.tree.sub, "x", 0o100_644),
        is_there: |c, t| c.lookup(t.sub, "x").is_ok() && finds(c, t, "sub", t.sub),
        rests: true,
    },
    Case {
        what: "a name of a file that was made",
        first: made,
        second: |way| way.rename("new", "g", 0),
        is_there: |c, t| misses(c, t, "new") && c.lookup(t.dir, "g").is_ok(),
        rests: true,
    },
    Case {
        what: "a file that was made, removed",
        first: made,
        second: |way| way.remove(way.tree.dir, "new", false),
        is_there: |c, t| misses(c, t, "new"),
        rests: true,
    },
    Case {
        what: "a file in the place of one that was removed",
        first: removed,
        second: |way| way.create(way.tree.dir, "f", 0o100_644),
        is_there: |c, t| finds(c, t, "f", t.fresh),
        rests: true,
    },
    Case {
        what: "a file in the place of one that was renamed",
        first: moved,
        second: |way| way.create(way.tree.dir, "f", 0o100_644),
        is_there: |c, t| finds(c, t, "f", t.fresh) && finds(c, t, "g", t.file),
        rests: true,
    },
    Case {
        what: "a file that was renamed, renamed back",
        first: moved,
        second: |way| way.rename("g", "f", 0),
        is_there: |c, t| finds(c, t, "f", t.file) && misses(c, t, "g"),
        rests: true,
    },
    Case {
        what: "a file over one that was made",
        first: made,
        second: |way| way.rename("f", "new", 0),
        is_there: |c, t| finds(c, t, "new", t.file) && misses(c, t, "f"),
        rests: false,
    },
    Case {
        what: "a file and one that was made, exchanged",
        first: made,
        second: |way| way.rename("f", "new", msg::RENAME_EXCHANGE),
        is_there: |c, t| finds(c, t, "new", t.file) && c.lookup(t.dir, "f").is_ok_and(|a| a.fid != t.file),
        rests: true,
    },
    Case {
        what: "the last name but one that was linked",
        first: linked,
        second: |way| way.remove(way.tree.dir, "f", false),
        is_there: |c, t| misses(c, t, "f") && finds(c, t, "g", t.file),
        rests: true,
    },
    Case {
        what: "a directory in the place of one that was removed",
        first: |c, t| drop(c.rmdir(t.dir, "empty")),
        second: |way| way.create(way.tree.dir, "empty", 0o040_755),
        is_there: |c, t| finds(c, t, "empty", t.fresh),
        rests: true,
    },
    Case {
        what: "a mode after another one",
        first: shut,
        second: |way| way.chmod(way.tree.file, 0o640),
        is_there: |c, t| c.attr(t.file).is_ok_and(|attr| attr.mode & 0o777 == 0o640),
        rests: false,
    },
    Case {
        what: "another name in one directory",
        first: made,
        second: |way| way.create(way.tree.dir, "beside", 0o100_644),
        is_there: |c, t| finds(c, t, "beside", t.fresh),
        rests: false,
    },
    Case {
        what: "the mode of another file",
        first: shut,
        second: |way| way.chmod(way.tree.other, 0o640),
        is_there: |c, t| c.attr(t.other).is_ok_and(|attr| attr.mode & 0o777 == 0o640),
        rests: false,
    },
    Case {
        what: "another file, removed",
        first: removed,
        second: |way| way.remove(way.tree.dir, "other", false),
        is_there: |c, t| misses(c, t, "other"),
        rests: false,
    },
];

/// Whether the second client's change is there after the first client has gone with its own, as its replay and as a third one says.
fn survives(case: &Case, commits_on_share: bool) -> bool {
    let world = World::new();
    let (gone, b) = (world.client(1), world.client(2));
    let dir = gone.mkdir(Fid::ROOT, "d");
    let [file, other] = ["f", "other"].map(|text| gone.file(dir, text));
    gone.mkdir(dir, "empty");
    let tree = Tree { dir, file, other, fresh: b.new_fid(), sub: gone.new_fid() };
    b.skip_to(XID - 10);
    let value = if commits_on_share { "1" } else { "0" };
    Watch::set_parameter(&*world.target, "*.commit_on_sharing", value).expect("it is one");
    world.sync();
    let boot = world.store.boot();
    (case.first)(&gone, &tree);
    let answer = (case.second)(&Way { client: &b, tree: &tree, replay: None });
    assert!(answer.result.is_ok(), "{}: {answer:?}", case.what);
    let world = world.crash();
    let b = world.connect(ClientId(2), boot, 2).expect("a known client");
    let replayed = (case.second)(&Way { client: &b, tree: &tree, replay: Some(answer.transno) }).result;
    b.skip_to(XID + 10);
    let somebody = world.client(3);
    replayed.is_ok() && (case.is_there)(&somebody, &tree)
}

#[test]
fn nobody_loses_a_change_because_another_client_is_gone() {
    for case in CASES {
        assert!(survives(case, true), "{}", case.what);
    }
}

/// Without commit on share that holds only for what does not rest on the change that is gone.
#[test]
fn without_commit_on_share_unrelated_changes_survive() {
    for case in CASES {
        assert_eq!(survives(case, false), !case.rests, "{}", case.what);
    }
}
