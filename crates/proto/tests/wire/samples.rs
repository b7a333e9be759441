//! One message of each kind, every field with a value of its own.

use bytes::Bytes;
use proto::layout::{Component, LayoutHint, Spread};
use proto::wire::batch::{self, Member};
use proto::wire::header::{FLAG_REPLY, FLAG_RESENT, Header, Room, SLOT_NONE};
use proto::wire::messages::*;
pub use proto::wire::{Reply, Request};
use proto::{
    Attr, ClientId, Code, Cred, Fid, FileOwner, JobId, Layout, MdtIndex, Name, Nid, ObjectId, OstIndex,
    TargetId, Timestamp, Transno, Xid,
};

fn name(text: &str) -> Name {
    Name::new(Bytes::copy_from_slice(text.as_bytes())).expect("a plain name")
}

fn nid(text: &str) -> Nid {
    text.parse().expect("a plain NID")
}

pub fn fid(oid: u32) -> Fid {
    Fid { seq: 0x2_0000_0400, oid, ver: 0 }
}

fn time_of(n: u32) -> Timestamp {
    Timestamp { secs: 1_700_000_000 + i64::from(n), nanos: 100_000_000 + n }
}

fn cred() -> Cred {
    Cred { uid: 1000, gid: 1001, groups: Some(vec![4, 27]) }
}

fn cred_without_groups() -> Cred {
    Cred { uid: 1000, gid: 1001, groups: None }
}

fn object(oid: u32, stripe: u32) -> ObjectId {
    ObjectId { layout: fid(oid), stripe }
}

fn attr() -> Attr {
    Attr {
        fid: fid(1),
        mode: 0o100_640,
        nlink: 2,
        uid: 1000,
        gid: 1001,
        rdev: 0x0801,
        size: 0x1_0000_0001,
        blocks: 0x80_0001,
        atime: time_of(1),
        mtime: time_of(2),
        ctime: time_of(3),
        btime: Timestamp { secs: -1, nanos: 999_999_999 },
        size_known: true,
        version: 77,
        mtime_set: time_of(6),
        project: 0x1718,
        inherits: true,
    }
}

fn layout() -> Layout {
    let head = Component::on_mdt(fid(8), 1 << 16, MdtIndex(2));
    let tail = Component {
        start: 0x1_0000,
        overstriped: true,
        pool: "flash".into(),
        ..Component::striped(fid(9), 1 << 20, [5, 6, 0x1f].map(OstIndex))
    };
    Layout { generation: 3, components: [head, tail].into_iter().collect() }
}

fn hint() -> LayoutHint {
    LayoutHint {
        stripe_count: -1,
        stripe_size: 4 << 20,
        start_index: 2,
        osts: vec![OstIndex(2), OstIndex(3)],
        overstripe: true,
        pool: "flash".into(),
        parts: Vec::new(),
    }
}

fn find() -> Find {
    use proto::find::{Expr, Glob, Permissions, Span, Test, TimeOf, TimeSpan};
    let span = Span { min: 3901, max: u64::MAX };
    let glob = || Glob { pattern: Bytes::from_static(b"*01*"), ignores_case: true };
    let tests = [
        Test::Name(glob()),
        Test::Path(glob()),
        Test::Kind(1),
        Test::Size(span),
        Test::Time(TimeOf::Change, TimeSpan { from: time_of(1), until: time_of(2) }),
        Test::Permissions(Permissions::Any(0o022)),
        Test::Uid(span),
        Test::Gid(span),
        Test::Project(span),
        Test::Links(span),
        Test::Empty,
        Test::Osts(vec![OstIndex(0x1f)]),
        Test::Mdts(vec![0, 1]),
        Test::StripeCount(span),
        Test::StripeSize(span),
        Test::Layout(4),
        Test::Pool(Bytes::from_static(b"flash")),
    ];
    let all = Expr::All(tests.into_iter().map(Expr::Test).collect());
    Find {
        start: Fid::ROOT,
        path: Bytes::from_static(b"/mnt"),
        query: Expr::Any(vec![Expr::Not(Box::new(all))]).encode(),
        depth_min: 1,
        depth_max: 9,
        wants: FIND_ENTRY | FIND_TARGET,
        bytes_max: 1 << 16,
        snapshot: 0x7374,
        behind: Some(FindPlace { dir: fid(1), descends: true, name: Some(name("d")) }),
        cred: cred(),
    }
}

fn changelog_state() -> ChangelogState {
    let user = ChangelogUser { user: 3, index: 0x7778, number: 0x7879, idle_s: 60 };
    ChangelogState { last: 0x797a, oldest: 0x7779, mask: 0x7ffe, users: vec![user] }
}

fn quota() -> QuotaState {
    QuotaState {
        inodes: QuotaUse {
            used: 0x7a7b,
            soft: 0x7b7c,
            hard: 0x7c7d,
            deadline_s: 0x7d7e,
            left_s: 0x7e7f,
            grace_s: 0x7f80,
            is_default: true,
        },
        bytes: Some(QuotaUse {
            used: 0x8081,
            soft: 0x8182,
            hard: 0x8283,
            deadline_s: 0x8384,
            left_s: 0x8485,
            grace_s: 0x8586,
            is_default: true,
        }),
        targets: vec![
            TargetUsage { target: MdtIndex(0).into(), bytes: Some(0x8687) },
            TargetUsage { target: OstIndex(3).into(), bytes: None },
        ],
    }
}

fn owner() -> FileOwner {
    FileOwner { uid: 0x0809, gid: 0x0910, version: 0x1011, project: 0x1112 }
}

fn changelog_record() -> proto::changelog::Record {
    proto::changelog::Record {
        index: 0x7a7b,
        kind: 8,
        flags: 1,
        time: Timestamp { secs: 0x1020, nanos: 7 },
        target: fid(1),
        parent: fid(2),
        name: Bytes::from_static(b"new"),
        source: fid(3),
        source_parent: fid(4),
        source_name: Bytes::from_static(b"old"),
        xattr: Bytes::from_static(b"user.a"),
        uid: 1000,
        gid: 100,
        nid: "10.1.1.2@tcp".into(),
        job: "4711.dd".into(),
    }
}

fn found_page() -> FoundPage {
    let found = Found {
        path: Bytes::from_static(b"a/b"),
        fid: fid(2),
        mode: 0o100_000,
        open: true,
        entry: Some(Box::new(entry())),
        target: Some(Bytes::from_static(b"../c")),
    };
    FoundPage {
        snapshot: 0x7374,
        found: vec![found],
        visited: 77,
        hidden: vec![Bytes::from_static(b"a/c")],
        next: Some(FindPlace { dir: fid(1), descends: false, name: None }),
    }
}

/// One of each kind.
fn promises() -> Vec<Promise> {
    let requests = mdt_requests_names().into_iter().chain(mdt_requests_files());
    let promise = |request| match request {
        Request::Create(create) => Some(Promise { create: Some(create), ..Promise::default() }),
        Request::SetAttr(set) => Some(Promise { set_attr: Some(set), ..Promise::default() }),
        Request::Unlink(unlink) => {
            Some(Promise { remove: Some(Remove { unlink, fid: fid(3) }), ..Promise::default() })
        }
        _ => None,
    };
    requests.filter_map(promise).collect()
}

fn kept() -> Vec<Kept> {
    let spread =
        Spread { stripe_size: 0x1_0000, stripe_count: 1, osts: vec![OstIndex(3)], first_sequence: 0x41 };
    let whole = Kept { status: 0, attr: Some(attr()), lock: granted(), spread: Some(spread) };
    vec![whole, Kept { status: Code::Exists.to_u32(), ..Kept::default() }]
}

fn granted() -> Granted {
    Granted { bits: LOCK_LOOKUP | LOCK_PERM, number: 0x6162 }
}

pub fn entry() -> Entry {
    Entry { attr: attr(), layout: Some(layout()), xattrs: true, lock: granted() }
}

fn size_update() -> SizeUpdate {
    SizeUpdate { size: 4097, blocks: 16, mtime: time_of(4), ctime: time_of(5) }
}

fn object_attr() -> ObjectAttr {
    ObjectAttr { size: 4097, blocks: 16, mtime: time_of(4), ctime: time_of(5) }
}

pub fn header() -> Header {
    Header {
        opcode: 24,
        flags: 0x0a,
        status: 2,
        xid: Xid(0x0102_0304_0506_0708),
        session: 0x1112_1314_1516_1718,
        session_epoch: 3,
        transno: Transno(0x2122),
        last_committed: Transno(0x2121),
        target: TargetId::ost(0x1f),
        slot: 7,
        body_len: 65_536,
        bulk_len: 4_194_304,
        body_crc: 0x3132_3334,
        bulk_crc: 0x4142_4344,
        room: Room(0x5152_5354),
        job: JobId::NONE,
    }
}

/// The same request, of a job.
pub fn header_of_job() -> Header {
    Header { job: JobId::named(b"4711.dd"), ..header() }
}

/// Batches, of requests and of replies: header and messages.
pub fn batches() -> Vec<(&'static str, Header, Vec<Member>)> {
    let of = |flags| {
        let mut header = Header { flags, bulk_len: 0, ..header() };
        batch::mark(&mut header);
        header
    };
    let request = |xid, flags, slot, request: &Request| {
        let mut body = Vec::new();
        request.put_body(&mut body);
        let (opcode, status, transno) = (request.opcode(), 0, Transno(0));
        Member { opcode, flags, status, xid: Xid(xid), transno, slot, body: body.into() }
    };
    let sync: Request = Sync { transno: Transno(0x0102) }.into();
    let unlink = requests().into_iter().find(|(name, _)| *name == "Unlink").expect("there is one").1;
    let asked = vec![request(0x11, FLAG_RESENT, 3, &unlink), request(0x12, 0, SLOT_NONE, &sync)];
    let reply = |xid, status, transno, body: &'static [u8]| Member {
        opcode: unlink.opcode(),
        flags: 0,
        status,
        xid: Xid(xid),
        transno: Transno(transno),
        slot: SLOT_NONE,
        body: Bytes::from_static(body),
    };
    let answered = vec![reply(0x11, 0, 0x21, b"\x01\x02"), reply(0x12, 5, 0, b"")];
    let of_job = Header { job: header_of_job().job, ..of(0) };
    vec![
        ("requests", of(0), asked.clone()),
        ("replies", of(FLAG_REPLY), answered),
        ("requests-of-a-job", of_job, asked),
    ]
}

pub fn requests() -> Vec<(&'static str, Request)> {
    let all = [
        common_requests(),
        mgs_requests(),
        pool_requests(),
        mdt_requests_names(),
        mdt_requests_files(),
        vec![KeepPromises { promises: promises() }.into()],
        flock_requests(),
        super::hsm::requests(),
        ost_requests(),
        lock_requests(),
    ]
    .concat();
    all.into_iter().map(|request| (request.name(), request)).collect()
}

fn common_requests() -> Vec<Request> {
    vec![
        Connect {
            client: ClientId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
            features: 3,
            fsname: "weft".into(),
            boot: 5,
            session_epoch: 2,
            committed: Transno(0x1f20),
            proof: Bytes::from_static(&[9; 96]),
        }
        .into(),
        Disconnect {}.into(),
        Sync { transno: Transno(0x2122) }.into(),
        Statfs {}.into(),
        GetState {}.into(),
        AbortRecovery {}.into(),
        SetParameters { parameters: vec![parameter()] }.into(),
        ReadParameters { patterns: vec!["obdfilter.*.brw_stats".into()], skip: 3, names_only: true }.into(),
        DrainClient { client: ClientId(0x1314), nid: "10.1.1.2@tcp".into() }.into(),
        OrderChangelog { order: CHANGELOG_CLEAR, user: 3, number: 0x7576 }.into(),
        ReadChangelog { behind: 0x7677, bytes_max: 1 << 16 }.into(),
        ReadQuota { kind: QUOTA_GROUP | QUOTA_IN_POOL, id: 0x7778, pool: "flash".into() }.into(),
        SetQuota {
            kind: QUOTA_USER,
            id: 0x7879,
            inodes_soft: Some(0x797a),
            inodes_hard: None,
            inodes_grace_s: Some(0x7b7c),
            bytes_soft: Some(0x8788),
            bytes_hard: None,
            bytes_grace_s: Some(0x8889),
            forget: true,
            pool: "disk".into(),
        }
        .into(),
        Drain {}.into(),
    ]
}

fn mgs_requests() -> Vec<Request> {
    vec![
        Register {
            fsname: "weft".into(),
            target: TargetId::ost(0x1f),
            uuid: ClientId(0x1112),
            nids: vec![nid("10.1.1.2@tcp"), nid("10.1.2.2:7990@tcp")],
            server: "oss1".into(),
            epoch: 7,
            stands_in: true,
            replaces: true,
        }
        .into(),
        GetConfig { fsname: "weft".into(), known: 9, wait_ms: 10_000, pages: true, settings_only: true }
            .into(),
        MarkTarget { target: TargetId::ost(0x1f), uuid: ClientId(0x1112), degraded: true }.into(),
        RenewLease { lease: 0x1718, release: false, dropped: vec![3, 1 << 40] }.into(),
        AskLeases {
            target: TargetId::ost(0x1f),
            boot: 6,
            clients: vec![LeaseAsked { client: ClientId(0x1920), session: 0x2122, wish: ASKED_TO_FENCE }],
        }
        .into(),
        RenewTargets { server: "oss1".into(), instance: 0x1234, holds: vec![tenure()] }.into(),
        TakeTargets {
            server: "oss1".into(),
            instance: 0x1234,
            nids: vec![nid("10.1.1.3@tcp")],
            wanted: vec![Wanted { target: TargetId::ost(2), seen: 8, preferred: true }],
            wait_ms: 5000,
        }
        .into(),
        ReleaseTarget { server: "oss1".into(), instance: 0x1234, tenure: tenure(), to: "oss2".into() }.into(),
        HandOver { to: "10.1.1.4@tcp".into() }.into(),
        SettleTarget { server: "oss1".into(), instance: 0x1234, tenure: tenure() }.into(),
        Claim {
            fsname: "weft".into(),
            target: TargetId::ost(0x1f),
            uuid: ClientId(0x1112),
            nids: vec![nid("10.1.1.2@tcp")],
            instance: 0x1314,
            boot: 7,
            committed: Transno(0x1516),
            shared: true,
            replaces: true,
        }
        .into(),
    ]
}

fn pool_requests() -> Vec<Request> {
    vec![
        ChangePool {
            fsname: "weft".into(),
            name: "flash".into(),
            change: POOL_ADD,
            osts: vec![OstIndex(3), OstIndex(0x1f)],
        }
        .into(),
        RemoveTarget { fsname: "weft".into(), target: TargetId::ost(0x20), only_look: true, undo: true }
            .into(),
        ReadPools { fsname: "weft".into(), name: "flash".into(), osts: vec![OstIndex(3), OstIndex(9)] }
            .into(),
        ChangeSetting { fsname: "weft".into(), name: "osc.*.max_dirty_mb".into(), value: Some("64".into()) }
            .into(),
    ]
}

fn mdt_requests_names() -> Vec<Request> {
    let (cred, time) = (cred(), time_of(6));
    vec![
        GetSequence {}.into(),
        GetAttr { fid: fid(1) }.into(),
        Lookup { parent: Fid::ROOT, name: Some(name("hello")), cred: cred_without_groups() }.into(),
        ReadDir {
            fid: Fid::ROOT,
            cookie: 1 << 40,
            bytes_max: 65_536,
            plus: true,
            behind: Some("abc".into()),
        }
        .into(),
        Create {
            parent: Fid::ROOT,
            name: name("hello"),
            fid: fid(1),
            mode: 0o100_640,
            rdev: 0x0801,
            target: Bytes::from_static(b"../there"),
            open: OPEN_WRITE | OPEN_EXCLUSIVE,
            hint: Some(hint()),
            cred: cred.clone(),
            time,
            umask: 0o022,
            foretold: Some(Box::new(Foretold { handle: 0x7172, layout: Some(layout()) })),
        }
        .into(),
        Open { fid: fid(1), open: OPEN_READ, cred: cred.clone() }.into(),
        Close {
            fid: fid(1),
            handle: 0x5152,
            atime: Some(time_of(1)),
            size: Some(size_update()),
            wrote: true,
        }
        .into(),
        Unlink { parent: Fid::ROOT, name: name("hello"), directory: true, cred: cred.clone(), time }.into(),
        Rename {
            parent: Fid::ROOT,
            name: name("old"),
            new_parent: fid(2),
            new_name: name("new"),
            flags: RENAME_EXCHANGE,
            cred: cred.clone(),
            time,
        }
        .into(),
        Link { fid: fid(1), parent: Fid::ROOT, name: name("again"), cred, time }.into(),
    ]
}

fn mdt_requests_files() -> Vec<Request> {
    let (cred, time) = (cred(), time_of(6));
    let xattr = Bytes::from_static(b"user.mime");
    vec![
        SetAttr {
            fid: fid(1),
            mode: Some(0o600),
            uid: Some(7),
            gid: Some(8),
            size: Some(1 << 33),
            atime: Some(TimeChange { time, now: true }),
            mtime: Some(TimeChange { time, now: false }),
            handle: Some(0x5152),
            kill_privileges: true,
            cred: cred.clone(),
            time,
            project: Some(0x1920),
            inherits: Some(true),
        }
        .into(),
        SetSize { fid: fid(1), update: size_update(), cut: true, question: 7 }.into(),
        ReadLink { fid: fid(1) }.into(),
        GetXattr { fid: fid(1), name: xattr.clone(), cred: cred.clone() }.into(),
        SetXattr {
            fid: fid(1),
            name: xattr.clone(),
            value: Bytes::from_static(b"text/plain"),
            flags: XATTR_CREATE,
            cred: cred.clone(),
            time,
        }
        .into(),
        ListXattr { fid: fid(1) }.into(),
        RemoveXattr { fid: fid(1), name: xattr, cred: cred.clone(), time }.into(),
        SetLayout { fid: fid(1), hint: Some(hint()), cred: cred.clone(), time }.into(),
        GetDefaultLayout { fid: fid(1) }.into(),
        FidToPath { fid: fid(1), cred: cred.clone() }.into(),
        Access { fid: fid(1), mask: ACCESS_WRITE, cred: cred.clone() }.into(),
        CreateUnnamed {
            parent: Fid::ROOT,
            fid: fid(1),
            mode: 0o640,
            open: OPEN_WRITE | OPEN_EXCLUSIVE,
            hint: Some(hint()),
            cred,
            time,
            umask: 0o022,
        }
        .into(),
        RestateNames { restart: 3, kept: true }.into(),
        RestateAlone { dirs: vec![fid(1), fid(2)] }.into(),
        RestateOpens { opens: vec![OpenHeld { fid: fid(1), handle: 0x7170 }] }.into(),
        StateOpens { opens: vec![OpenHeld { fid: fid(1), handle: 0x7171 }] }.into(),
        SwapLayouts { fid: fid(1), with: fid(2), generation: 3, cred: Cred::root(), blocks: Some(0x2021) }
            .into(),
        PlaceData { fid: fid(1), offset: 1 << 20, len: 4096 }.into(),
        find().into(),
    ]
}

fn flock_requests() -> Vec<Request> {
    vec![
        Flock {
            fid: fid(1),
            owner: 0x6162_6364_6566_6768,
            pid: 4711,
            kind: FLOCK_POSIX,
            mode: FLOCK_WRITE,
            start: 4097,
            end: u64::MAX,
            wait: 12,
            known: vec![10, 11],
        }
        .into(),
        FlockWait { wait: 12, known: vec![11] }.into(),
        FlockCancel { wait: 12 }.into(),
        FlockTest {
            fid: fid(1),
            owner: 0x6162_6364_6566_6768,
            kind: FLOCK_WHOLE,
            mode: FLOCK_READ,
            start: 0,
            end: u64::MAX,
        }
        .into(),
        RestateFlocks {
            locks: vec![FlockHeld {
                fid: fid(1),
                owner: 0x6162_6364_6566_6768,
                pid: 4711,
                kind: FLOCK_POSIX,
                mode: FLOCK_WRITE,
                start: 4097,
                end: u64::MAX,
            }],
        }
        .into(),
    ]
}

fn ost_requests() -> Vec<Request> {
    vec![
        SealLayout { layout: fid(9), stripes: vec![0, 2], generation: 3, sealed: true }.into(),
        Write {
            object: object(9, 2),
            offset: 1 << 33,
            time: time_of(7),
            locked: true,
            sync: true,
            owner: owner(),
        }
        .into(),
        Read { object: object(9, 2), offset: 1 << 33, len: 1 << 20, locked: true }.into(),
        Punch { object: object(9, 2), start: 4097, end: u64::MAX, time: time_of(7) }.into(),
        GetObjectAttr { object: object(9, 2) }.into(),
        Destroy {
            objects: vec![object(9, 0), object(9, 1)],
            dead: vec![DeadRange { seq: 0x2_0000_0400, first: 3, last: 9 }],
        }
        .into(),
        SetOwners { objects: vec![OwnedObject { object: object(9, 2), owner: owner() }] }.into(),
        LoseBefore { sequence: 0x2_0000_0400 }.into(),
        ReadUsage { kind: QUOTA_GROUP, id: 0x1819 }.into(),
        InspectObjects {
            from: ObjectPlace { object: object(9, 2), offset: 1 << 33 },
            until: fid(10),
            verifies: true,
        }
        .into(),
        SeekObject { object: object(9, 2), offset: 1 << 33, hole: true }.into(),
        AdviseObject { object: object(9, 2), start: 4096, end: 1 << 24, advice: ADVICE_WILL_READ }.into(),
        AllocateObject { object: object(9, 2), start: 4097, end: 1 << 33, time: time_of(7), owner: owner() }
            .into(),
        CopyObject {
            source: object(9, 2),
            source_offset: 1 << 33,
            target: object(8, 1),
            target_offset: 4097,
            len: 1 << 20,
            time: time_of(7),
            owner: owner(),
        }
        .into(),
        WriteParts {
            object: object(5, 3),
            parts: vec![WritePart { offset: 13, len: 7 }, WritePart { offset: 1 << 33, len: 4096 }],
            time: time_of(9),
            sync: true,
            owner: owner(),
        }
        .into(),
    ]
}

fn lock_requests() -> Vec<Request> {
    let (object, number) = (object(9, 2), 0x6162);
    vec![
        Enqueue { object, write: true, start: 47_008, end: 94_016, restate: false }.into(),
        CancelRanges { ranges: vec![ObjectRange { object, start: 1, end: u64::MAX, number }] }.into(),
        CancelBits { locks: vec![BitLock { fid: fid(1), bits: LOCK_ALL, number }] }.into(),
        HoldSpace {
            uid: 0x1112,
            gid: 0x1213,
            held: 0x1314,
            least: 0x1415,
            most: 0x1516,
            project: 0x1617,
            pool: "flash".into(),
        }
        .into(),
        RevokeBits { fid: fid(1), bits: LOCK_UPDATE | LOCK_LAYOUT, number }.into(),
        RevokeRange { object, start: 1, end: 4097, number, keep_read: true, trim: false }.into(),
        Glimpse { object }.into(),
    ]
}

pub fn replies() -> Vec<(&'static str, Reply)> {
    let all = [
        common_replies(),
        pool_replies(),
        mdt_replies(),
        flock_replies(),
        super::hsm::replies(),
        ost_replies(),
        lock_replies(),
    ];
    all.concat()
}

fn space() -> Space {
    Space {
        bytes_total: 1 << 50,
        bytes_free: 1 << 49,
        bytes_available: 1 << 48,
        files_total: 1 << 40,
        files_free: 1 << 39,
        state: Space::DEGRADED,
        disk: 0x2122_2324_2526_2728,
        bytes_own: 1 << 20,
    }
}

fn config() -> Config {
    Config {
        version: 10,
        fsname: "weft".into(),
        targets: vec![TargetEntry {
            target: TargetId::mdt(0),
            uuid: ClientId(0x1112),
            nids: vec![nid("10.1.1.2@tcp")],
            server: "mds1".into(),
            replaces: true,
        }],
        owners: vec![TargetOwner { target: TargetId::mdt(0), server: "mds2".into(), epoch: 7 }],
        degraded: vec![TargetId::ost(0x1f)],
        newest: 11,
        pools: vec![PoolEntry { name: "flash".into(), osts: vec![OstIndex(3), OstIndex(0x1f)] }],
        pool_names: Some(vec!["disk".into(), "flash".into()]),
        settings: Some(vec![Setting { name: "osc.*.max_dirty_mb".into(), value: "64".into(), version: 9 }]),
        removed: vec![TargetId::ost(0x20)],
    }
}

fn common_replies() -> Vec<(&'static str, Reply)> {
    let connected = Connected {
        session: 0x1112_1314_1516_1718,
        features: 3,
        boot: 6,
        slots: 256,
        last_committed: Transno(0x2121),
        resumed: true,
    };
    vec![
        ("Connect", Reply::Connect(connected)),
        ("Disconnect", Reply::Disconnect(Done {})),
        ("Sync", Reply::Sync(Done {})),
        ("Statfs", Reply::Statfs(space())),
        ("GetState", Reply::GetState(target_state())),
        ("AbortRecovery", Reply::AbortRecovery(Done {})),
        ("SetParameters", Reply::SetParameters(Done {})),
        (
            "ReadParameters",
            Reply::ReadParameters(ParameterPage { parameters: vec![shown_parameter()], more: true }),
        ),
        ("DrainClient", Reply::DrainClient(Drained { clients: vec![drained()] })),
        ("OrderChangelog", Reply::OrderChangelog(changelog_state())),
        ("ReadChangelog", Reply::ReadChangelog(ChangelogPage { records: vec![changelog_record()] })),
        ("ReadQuota", Reply::ReadQuota(quota())),
        ("SetQuota", Reply::SetQuota(quota())),
        ("Drain", Reply::Drain(drained().left)),
        ("Register", Reply::Register(Registered { version: 10, told: true })),
        ("GetConfig", Reply::GetConfig(config())),
        ("MarkTarget", Reply::MarkTarget(Done {})),
        ("RenewLease", Reply::RenewLease(lease_renewed())),
        (
            "AskLeases",
            Reply::AskLeases(LeaseStates { states: vec![LEASE_LIVES, LEASE_OVER, LEASE_NOT_KNOWN] }),
        ),
        ("RenewTargets", Reply::RenewTargets(TargetsRenewed { ttl_ms: 3000, lost: vec![TargetId::ost(3)] })),
        (
            "TakeTargets",
            Reply::TakeTargets(TargetsTaken {
                ttl_ms: 3000,
                taken: vec![Taken { target: TargetId::ost(2), epoch: 9, before: 8, in_place: true }],
                former: vec![FormerOwner {
                    target: TargetId::ost(2),
                    server: "oss2".into(),
                    nids: vec![nid("10.1.1.4@tcp")],
                }],
            }),
        ),
        ("ReleaseTarget", Reply::ReleaseTarget(Done {})),
        ("HandOver", Reply::HandOver(Done {})),
        ("SettleTarget", Reply::SettleTarget(Done {})),
        ("Claim", Reply::Claim(Claimed { replaced: 0x0102_0304 })),
    ]
}

fn pool_replies() -> Vec<(&'static str, Reply)> {
    vec![
        ("ChangePool", Reply::ChangePool(PoolChanged { version: 12 })),
        ("RemoveTarget", Reply::RemoveTarget(TargetRemoved { version: 13, pools: vec!["flash".into()] })),
        (
            "ReadPools",
            Reply::ReadPools(PoolsTold {
                names: vec!["disk".into(), "flash".into()],
                osts: vec![OstIndex(3), OstIndex(0x1f)],
                unknown: vec![OstIndex(9)],
            }),
        ),
        ("ChangeSetting", Reply::ChangeSetting(SettingChanged { version: 13 })),
    ]
}

fn lease_renewed() -> LeaseRenewed {
    let order = DropOrder { number: 7, target: TargetId::ost(0x1f), session: 0x2122, boot: 6 };
    let awaited = Awaited { target: TargetId::mdt(0), boot: 9 };
    LeaseRenewed { lease: 0x1718, known: true, ttl_ms: 15_000, orders: vec![order], awaited: vec![awaited] }
}

fn tenure() -> Tenure {
    Tenure { target: TargetId::ost(2), epoch: 9 }
}

fn target_state() -> TargetState {
    TargetState {
        recovery: RecoveryReport {
            state: RECOVERY_RUNNING,
            began_s: 1_620_919_072,
            duration_s: 31,
            remaining_s: 29,
            expected: 8,
            connected: 5,
            replaying: 2,
            unfinished: 3,
            completed: 4,
            evicted: 1,
            replayed: 0x1_0000_0003,
            queued: 6,
            next_transno: Transno(0x2_0000_0001),
        },
        sessions: 9,
        problems: vec!["a write to the disk failed".into()],
        missing: vec![MissingClient {
            client: ClientId(0x1718),
            nid: "10.1.1.2@tcp".into(),
            place: MISSING_RESTATING,
            quiet_s: 12,
            lives: true,
        }],
        missing_count: 17,
        flags: STATE_TOLD | STATE_VERSIONS,
    }
}

fn drained() -> DrainedClient {
    DrainedClient {
        client: ClientId(0x1718),
        nid: "10.1.1.2@tcp".into(),
        answered: true,
        locks: 5,
        left: DrainDone { unsent_bytes: 0x1_0000_0007, locks: 6, open_count: 8, open_files: vec![fid(9)] },
    }
}

fn parameter() -> Parameter {
    Parameter { name: "obdfilter.w-OST0000.sync_journal".into(), value: "1".into() }
}

fn shown_parameter() -> ShownParameter {
    ShownParameter {
        name: "obdfilter.w-OST0000.sync_journal".into(),
        value: "1".into(),
        access: PARAMETER_READABLE | PARAMETER_SETTABLE,
        kind: PARAMETER_GAUGE,
        unit: "s".into(),
        takes: "write 0 or 1".into(),
    }
}

fn dir_page() -> DirPage {
    DirPage {
        parent: Fid::ROOT,
        entries: vec![
            DirEntry { cookie: 17, name: name("a"), fid: fid(1), mode: 0o100_000, entry: Some(entry()) },
            DirEntry { cookie: 18, name: name("b"), fid: fid(2), mode: 0o040_000, entry: None },
        ],
        end: false,
        lock: granted(),
        splits: true,
    }
}

fn mdt_replies() -> Vec<(&'static str, Reply)> {
    let range = Token { number: 0x7172, write: true, start: 0, end: u64::MAX, contended: false };
    let created = Created {
        attr: attr(),
        layout: Some(layout()),
        handle: 0x5152,
        existed: true,
        xattrs: true,
        lock: granted(),
        range: Some(range),
        spread: Some(Spread {
            stripe_size: 1 << 20,
            stripe_count: 2,
            osts: vec![OstIndex(0), OstIndex(7)],
            first_sequence: 0x2_0000_0401,
        }),
    };
    let opened =
        Opened { attr: attr(), layout: None, handle: 0x5152, xattrs: false, lock: granted(), range: None };
    let default_layout = DefaultLayout { own: Some(hint()), effective: LayoutHint::default() };
    vec![
        ("GetSequence", Reply::GetSequence(Sequence { seq: 0x2_0000_0400 })),
        ("GetAttr", Reply::GetAttr(entry())),
        ("Lookup", Reply::Lookup(entry())),
        ("ReadDir", Reply::ReadDir(dir_page())),
        ("Create", Reply::Create(created.clone())),
        ("Open", Reply::Open(opened)),
        ("Close", Reply::Close(Settled { entry: Some(entry()), wants_size: false, question: 0 })),
        ("Unlink", Reply::Unlink(Unlinked { fid: fid(1), nlink: 1 })),
        ("Rename", Reply::Rename(Renamed { fid: fid(1), replaced: Some(fid(2)) })),
        ("Link", Reply::Link(entry())),
        (
            "SetAttr",
            Reply::SetAttr(Entry { attr: attr(), layout: None, xattrs: false, lock: Granted::default() }),
        ),
        ("SetSize", Reply::SetSize(Settled::asking(9))),
        ("ReadLink", Reply::ReadLink(LinkTarget { target: Bytes::from_static(b"../there") })),
        (
            "GetXattr",
            Reply::GetXattr(XattrValue { value: Bytes::from_static(b"text/plain"), lock: granted() }),
        ),
        ("SetXattr", Reply::SetXattr(Done {})),
        (
            "ListXattr",
            Reply::ListXattr(XattrNames { names: vec![Bytes::from_static(b"user.mime")], lock: granted() }),
        ),
        ("RemoveXattr", Reply::RemoveXattr(Done {})),
        ("SetLayout", Reply::SetLayout(entry())),
        ("GetDefaultLayout", Reply::GetDefaultLayout(default_layout)),
        ("FidToPath", Reply::FidToPath(Paths { paths: vec![Bytes::from_static(b"a/b")] })),
        ("Access", Reply::Access(Done {})),
        ("CreateUnnamed", Reply::CreateUnnamed(created)),
        ("RestateNames", Reply::RestateNames(Done {})),
        ("RestateAlone", Reply::RestateAlone(Done {})),
        ("RestateOpens", Reply::RestateOpens(Done {})),
        ("StateOpens", Reply::StateOpens(Done {})),
        ("SwapLayouts", Reply::SwapLayouts(entry())),
        ("PlaceData", Reply::PlaceData(entry())),
        ("Find", Reply::Find(found_page())),
    ]
}

fn flock_replies() -> Vec<(&'static str, Reply)> {
    let lock = FlockLock { start: 4097, end: 8191, mode: FLOCK_READ, pid: 4711, own: true };
    vec![
        ("KeepPromises", Reply::KeepPromises(PromisesKept { kept: kept(), most: 32 })),
        ("Flock", Reply::Flock(Flocked { state: FLOCK_WAITING, change: 0x7172 })),
        ("FlockWait", Reply::FlockWait(Flocked { state: FLOCK_GRANTED, change: 0x7173 })),
        ("FlockCancel", Reply::FlockCancel(Flocked { state: FLOCK_CANCELLED, change: 0x7174 })),
        ("FlockTest", Reply::FlockTest(FlockFound { lock: Some(lock) })),
        ("RestateFlocks", Reply::RestateFlocks(Done {})),
    ]
}

fn ost_replies() -> Vec<(&'static str, Reply)> {
    vec![
        ("SealLayout", Reply::SealLayout(Done {})),
        ("Write", Reply::Write(object_attr())),
        ("Read", Reply::Read(ReadDone { size: 1 << 34 })),
        ("Punch", Reply::Punch(object_attr())),
        ("GetObjectAttr", Reply::GetObjectAttr(object_attr())),
        ("Destroy", Reply::Destroy(Done {})),
        ("SetOwners", Reply::SetOwners(Done {})),
        ("LoseBefore", Reply::LoseBefore(Done {})),
        ("ReadUsage", Reply::ReadUsage(Usage { bytes: 0x1819 })),
        (
            "InspectObjects",
            Reply::InspectObjects(InspectedPage {
                objects: vec![InspectedObject {
                    object: object(9, 2),
                    size: 1 << 34,
                    damaged: vec![ByteRange { start: 4096, end: 8192 }],
                }],
                next: Some(ObjectPlace { object: object(9, 2), offset: 1 << 20 }),
                bytes: 1 << 20,
            }),
        ),
        ("SeekObject", Reply::SeekObject(Sought { offset: Some(1 << 34), more: true })),
        ("AdviseObject", Reply::AdviseObject(Done {})),
        ("AllocateObject", Reply::AllocateObject(object_attr())),
        ("CopyObject", Reply::CopyObject(object_attr())),
        ("WriteParts", Reply::WriteParts(object_attr())),
    ]
}

fn lock_replies() -> Vec<(&'static str, Reply)> {
    let token = Token { number: 0x6162, write: true, start: 0, end: u64::MAX, contended: false };
    let revoked = RangeRevoked { start: 0, end: 1 << 40, kept_read: true, number: 77 };
    vec![
        ("Enqueue", Reply::Enqueue(token)),
        ("CancelRanges", Reply::CancelRanges(Done {})),
        ("CancelBits", Reply::CancelBits(Done {})),
        (
            "HoldSpace",
            Reply::HoldSpace(SpaceHeld {
                bytes: 0x1617,
                free_ms: 0x1718,
                is_changing: true,
                pools: vec!["flash".into(), "disk".into()],
                pools_ms: 0x1819,
            }),
        ),
        ("RevokeBits", Reply::RevokeBits(Done {})),
        ("RevokeRange", Reply::RevokeRange(revoked)),
        ("Glimpse", Reply::Glimpse(Glimpsed { size: 4097, time: time_of(4) })),
    ]
}
