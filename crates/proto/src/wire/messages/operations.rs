//! The table of operations: for each its number, its request, its reply, and what a carrier or a target has to know of it before
//! its role does.
//!
//! A number is never used again for something else. A new operation is a row here; it does not compile before its role carries it out.

use bytes::Bytes;

use super::*;
use crate::wire::codec::{Body, DecodeError, Reader};

/// Whether an operation is asked for in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Session,
    /// Outside any session: by whoever has none yet, by operators, or between servers.
    Outside,
}

/// What an operation does to its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Nothing: it can be asked for again at will.
    Reads,
    /// It changes something, and is carried out when there is no space: it gives some back, or takes about as much as before.
    Frees,
    /// It changes something, and takes space.
    Takes,
}

/// The room that an operation takes of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Shared,
    /// Room that is kept for what lets others go on.
    Reserved,
    /// The same; and it is a sign of life, which is sent again soon if no answer comes.
    Pulse,
}

/// For the columns `waits` and `contends`.
fn always<T>(_: &T) -> bool {
    true
}

/// For the columns `waits` and `contends`.
fn never<T>(_: &T) -> bool {
    false
}

/// Declares the operations by role. The columns of a row: number, name, request type, reply type; where it is asked for
/// ([`Where`]); what it does ([`Effect`]); its room ([`Lane`]); whether it waits ([`Request::waits`]) and contends
/// ([`Request::contends`]), which may depend on the request.
macro_rules! operations {
    ($($(#[$role_doc:meta])* $role:ident {
        $($number:literal $name:ident($request:ty) -> $reply:ty:
            $place:ident, $effect:ident, $lane:ident, $waits:expr, $contends:expr;)*
    })*) => {
        /// The body of a request.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Request { $($($name($request),)*)* }

        /// The body of a reply.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Reply { $($($name($reply),)*)* }

        $(
            $(#[$role_doc])*
            #[derive(Debug, Clone, PartialEq, Eq)]
            #[allow(missing_docs)]
            pub enum $role { $($name($request),)* }

            impl TryFrom<Request> for $role {
                type Error = Request;

                /// The request, given back if it is another role's.
                fn try_from(request: Request) -> Result<$role, Request> {
                    match request { $(Request::$name(body) => Ok($role::$name(body)),)* other => Err(other) }
                }
            }
        )*

        impl Request {
            /// Number of the operation.
            pub fn opcode(&self) -> u16 { match self { $($(Request::$name(_) => $number,)*)* } }
            /// Name of the operation, as statistics show it.
            pub fn name(&self) -> &'static str { match self { $($(Request::$name(_) => stringify!($name),)*)* } }
            /// Name of operation `opcode`, if there is one.
            pub fn name_of(opcode: u16) -> Option<&'static str> {
                match opcode { $($($number => Some(stringify!($name)),)*)* _ => None }
            }
            fn place(&self) -> Where { match self { $($(Request::$name(_) => Where::$place,)*)* } }
            fn effect(&self) -> Effect { match self { $($(Request::$name(_) => Effect::$effect,)*)* } }
            fn lane(&self) -> Lane { match self { $($(Request::$name(_) => Lane::$lane,)*)* } }
            /// Whether the operation may wait at its target for as long as others like: it has limits of its own, so that
            /// those who wait do not take the room of those whom they wait for. It changes nothing, for its slot would be
            /// taken all that time.
            pub fn waits(&self) -> bool {
                match self { $($(Request::$name(body) => {
                    let waits: fn(&$request) -> bool = $waits;
                    waits(body)
                })*)* }
            }
            /// Whether the operation may have to wait until its target has called other clients back. Those may need the same
            /// room to answer, so a part of it is kept for operations that never do: data under a lock above all.
            pub fn contends(&self) -> bool {
                match self { $($(Request::$name(body) => {
                    let contends: fn(&$request) -> bool = $contends;
                    contends(body)
                })*)* }
            }
            /// Appends the encoded body.
            pub fn put_body(&self, out: &mut Vec<u8>) {
                match self { $($(Request::$name(body) => body.put_fields(out),)*)* }
            }
            /// Decodes the body of operation `opcode`; what a newer peer added at its end is ignored.
            pub fn take_body(opcode: u16, body: Bytes) -> Result<Request, DecodeError> {
                let mut from = Reader::new(body);
                match opcode {
                    $($($number => Ok(Request::$name(Body::take_fields(&mut from)?)),)*)*
                    n => Err(DecodeError::UnknownOperation(n)),
                }
            }
        }
        impl Reply {
            /// Number of the operation.
            pub fn opcode(&self) -> u16 { match self { $($(Reply::$name(_) => $number,)*)* } }
            /// Appends the encoded body.
            pub fn put_body(&self, out: &mut Vec<u8>) {
                match self { $($(Reply::$name(body) => body.put_fields(out),)*)* }
            }
            /// Decodes the body of the reply to operation `opcode`.
            pub fn take_body(opcode: u16, body: Bytes) -> Result<Reply, DecodeError> {
                let mut from = Reader::new(body);
                match opcode {
                    $($($number => Ok(Reply::$name(Body::take_fields(&mut from)?)),)*)*
                    n => Err(DecodeError::UnknownOperation(n)),
                }
            }
        }
        $($(impl From<$request> for Request { fn from(body: $request) -> Request { Request::$name(body) } })*)*
        $($(impl Operation for $request {
            type Reply = $reply;
            const OPCODE: u16 = $number;
            const NAME: &'static str = stringify!($name);
            const CHANGES: bool = !matches!(Effect::$effect, Effect::Reads);
            fn reply_of(reply: Reply) -> Option<$reply> {
                match reply { Reply::$name(body) => Some(body), _ => None }
            }
        })*)*
        #[cfg(test)]
        pub(crate) const OPCODES: &[u16] = &[$($($number),*),*];
    };
}

/// What an MDT answers in sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MdtOrData {
    /// Of names and inodes.
    Mdt(MdtRequest),
    /// Of the objects that it has.
    Data(DataRequest),
}

impl TryFrom<Request> for MdtOrData {
    type Error = Request;

    fn try_from(request: Request) -> Result<MdtOrData, Request> {
        match MdtRequest::try_from(request) {
            Ok(request) => Ok(MdtOrData::Mdt(request)),
            Err(other) => Ok(MdtOrData::Data(DataRequest::try_from(other)?)),
        }
    }
}

/// No request: of roles that answer none outside sessions but what every target answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRequest {}

impl TryFrom<Request> for NoRequest {
    type Error = Request;

    fn try_from(request: Request) -> Result<NoRequest, Request> {
        Err(request)
    }
}

/// Ties the body of a request to the body of its reply.
pub trait Operation: Into<Request> {
    /// What a target answers.
    type Reply;
    /// Number of the operation.
    const OPCODE: u16;
    /// Name of the operation, as statistics show it.
    const NAME: &'static str;
    /// Whether it changes its target, as [`Request::changes`] says.
    const CHANGES: bool;
    /// The answer, if `reply` is one to this operation.
    fn reply_of(reply: Reply) -> Option<Self::Reply>;
}

operations! {
    /// What every target answers.
    TargetRequest {
        1 Connect(Connect) -> Connected: Outside, Reads, Reserved, never, never;
        2 Disconnect(Disconnect) -> Done: Session, Reads, Reserved, never, never;
        3 Sync(Sync) -> Done: Session, Reads, Reserved, never, never;
        4 Statfs(Statfs) -> Space: Session, Reads, Shared, never, never;
        5 GetState(GetState) -> TargetState: Outside, Reads, Reserved, never, never;
        6 AbortRecovery(AbortRecovery) -> Done: Outside, Reads, Reserved, never, never;
        9 SetParameters(SetParameters) -> Done: Outside, Reads, Reserved, never, never;
        15 HandOver(HandOver) -> Done: Outside, Reads, Shared, never, never;
        90 ReadParameters(ReadParameters) -> ParameterPage: Outside, Reads, Reserved, never, never;
        91 DrainClient(DrainClient) -> Drained: Outside, Reads, Shared, always, always;
    }
    /// What the MGS answers.
    MgsRequest {
        10 Register(Register) -> Registered: Session, Frees, Shared, never, never;
        11 GetConfig(GetConfig) -> Config: Session, Reads, Shared, |get| get.wait_ms > 0, never;
        16 RenewLease(RenewLease) -> LeaseRenewed: Session, Reads, Pulse, never, never;
        17 AskLeases(AskLeases) -> LeaseStates: Session, Reads, Reserved, never, never;
        19 MarkTarget(MarkTarget) -> Done: Session, Frees, Shared, never, never;
    }
    /// What the MGS answers servers, and who has their key, outside sessions: about who owns which target, about pools, and about
    /// parameters that are kept.
    OwnersRequest {
        12 RenewTargets(RenewTargets) -> TargetsRenewed: Outside, Reads, Shared, never, never;
        13 TakeTargets(TakeTargets) -> TargetsTaken: Outside, Reads, Shared, |take| take.wait_ms > 0, never;
        14 ReleaseTarget(ReleaseTarget) -> Done: Outside, Reads, Shared, never, never;
        18 SettleTarget(SettleTarget) -> Done: Outside, Reads, Shared, never, never;
        92 Claim(Claim) -> Claimed: Outside, Reads, Shared, never, never;
        93 ChangePool(ChangePool) -> PoolChanged: Outside, Reads, Shared, never, never;
        94 ReadPools(ReadPools) -> PoolsTold: Outside, Reads, Shared, never, never;
        74 RemoveTarget(RemoveTarget) -> TargetRemoved: Outside, Reads, Shared, never, never;
        97 ChangeSetting(ChangeSetting) -> SettingChanged: Outside, Reads, Shared, never, never;
    }
    /// What an MDT answers.
    MdtRequest {
        20 GetSequence(GetSequence) -> Sequence: Session, Frees, Shared, never, never;
        21 GetAttr(GetAttr) -> Entry: Session, Reads, Shared, never, always;
        22 Lookup(Lookup) -> Entry: Session, Reads, Shared, never, always;
        23 ReadDir(ReadDir) -> DirPage: Session, Reads, Shared, never, always;
        24 Create(Create) -> Created: Session, Takes, Shared, never, always;
        25 Open(Open) -> Opened: Session, Frees, Shared, never, always;
        26 Close(Close) -> Settled: Session, Frees, Reserved, never, Close::contends;
        27 Unlink(Unlink) -> Unlinked: Session, Frees, Shared, never, always;
        28 Rename(Rename) -> Renamed: Session, Frees, Shared, never, always;
        29 Link(Link) -> Entry: Session, Takes, Shared, never, always;
        30 SetAttr(SetAttr) -> Entry: Session, Frees, Shared, never, always;
        31 SetSize(SetSize) -> Settled: Session, Frees, Shared, never, always;
        32 ReadLink(ReadLink) -> LinkTarget: Session, Reads, Shared, never, always;
        33 GetXattr(GetXattr) -> XattrValue: Session, Reads, Shared, never, always;
        34 SetXattr(SetXattr) -> Done: Session, Takes, Shared, never, always;
        35 ListXattr(ListXattr) -> XattrNames: Session, Reads, Shared, never, always;
        36 RemoveXattr(RemoveXattr) -> Done: Session, Frees, Shared, never, always;
        37 SetLayout(SetLayout) -> Entry: Session, Takes, Shared, never, always;
        38 GetDefaultLayout(GetDefaultLayout) -> DefaultLayout: Session, Reads, Shared, never, always;
        39 FidToPath(FidToPath) -> Paths: Session, Reads, Shared, never, always;
        40 Access(Access) -> Done: Session, Reads, Shared, never, always;
        41 Find(Find) -> FoundPage: Session, Reads, Shared, never, never;
        47 SwapLayouts(SwapLayouts) -> Entry: Session, Frees, Shared, never, always;
        48 CreateUnnamed(CreateUnnamed) -> Created: Session, Takes, Shared, never, always;
        49 RestateOpens(RestateOpens) -> Done: Session, Reads, Shared, never, always;
        101 StateOpens(StateOpens) -> Done: Session, Reads, Reserved, never, never;
        50 Flock(Flock) -> Flocked: Session, Frees, Shared, never, always;
        51 FlockWait(FlockWait) -> Flocked: Session, Reads, Shared, always, always;
        52 FlockCancel(FlockCancel) -> Flocked: Session, Frees, Reserved, never, always;
        53 FlockTest(FlockTest) -> FlockFound: Session, Reads, Shared, never, always;
        54 RestateFlocks(RestateFlocks) -> Done: Session, Reads, Shared, never, always;
        55 PlaceData(PlaceData) -> Entry: Session, Takes, Shared, never, always;
        56 RestateNames(RestateNames) -> Done: Session, Reads, Reserved, never, never;
        75 RestateAlone(RestateAlone) -> Done: Session, Reads, Reserved, never, never;
        76 KeepPromises(KeepPromises) -> PromisesKept: Session, Frees, Shared, never, always;
        78 GetHsm(GetHsm) -> HsmState: Session, Reads, Shared, never, always;
        79 SetHsm(SetHsm) -> HsmState: Session, Frees, Shared, never, always;
        84 ReleaseData(ReleaseData) -> Entry: Session, Frees, Shared, never, always;
        85 AskHsm(AskHsm) -> HsmAsked: Session, Reads, Shared, never, never;
        86 TakeHsm(TakeHsm) -> HsmWork: Session, Reads, Shared, |take| take.wait_ms > 0, never;
        87 EndHsm(EndHsm) -> HsmAsked: Session, Reads, Shared, never, never;
        72 CancelBits(CancelBits) -> Done: Session, Reads, Reserved, never, never;
        73 HoldSpace(HoldSpace) -> SpaceHeld: Session, Reads, Shared, never, never;
    }
    /// What an MDT answers outside any session: of its changelog, and of quotas.
    MdtOutside {
        95 OrderChangelog(OrderChangelog) -> ChangelogState: Outside, Reads, Reserved, never, never;
        96 ReadChangelog(ReadChangelog) -> ChangelogPage: Outside, Reads, Shared, never, never;
        98 ReadQuota(ReadQuota) -> QuotaState: Outside, Reads, Shared, never, never;
        99 SetQuota(SetQuota) -> QuotaState: Outside, Reads, Reserved, never, never;
    }
    /// What is asked of objects: an OST answers it, and an MDT for the first bytes of files.
    DataRequest {
        57 ReadUsage(ReadUsage) -> Usage: Session, Reads, Shared, never, always;
        77 InspectObjects(InspectObjects) -> InspectedPage: Session, Reads, Shared, never, never;
        58 SetOwners(SetOwners) -> Done: Session, Reads, Shared, never, never;
        59 SealLayout(SealLayout) -> Done: Session, Takes, Shared, never, always;
        60 Write(Write) -> ObjectAttr: Session, Takes, Shared, never, |write| write.locked;
        61 Read(Read) -> ReadDone: Session, Reads, Shared, never, |read| read.locked;
        62 Punch(Punch) -> ObjectAttr: Session, Frees, Shared, never, always;
        63 GetObjectAttr(GetObjectAttr) -> ObjectAttr: Session, Reads, Shared, never, always;
        64 Destroy(Destroy) -> Done: Session, Frees, Shared, never, always;
        65 LoseBefore(LoseBefore) -> Done: Session, Reads, Reserved, never, never;
        66 SeekObject(SeekObject) -> Sought: Session, Reads, Shared, never, always;
        67 AllocateObject(AllocateObject) -> ObjectAttr: Session, Takes, Shared, never, always;
        68 CopyObject(CopyObject) -> ObjectAttr: Session, Takes, Shared, never, always;
        69 WriteParts(WriteParts) -> ObjectAttr: Session, Takes, Shared, never, never;
        70 Enqueue(Enqueue) -> Token: Session, Reads, Shared, |enqueue| !enqueue.restate, always;
        71 CancelRanges(CancelRanges) -> Done: Session, Reads, Reserved, never, never;
        100 AdviseObject(AdviseObject) -> Done: Session, Reads, Shared, never, always;
    }
    /// What a client answers: targets call it back.
    ClientRequest {
        80 RevokeBits(RevokeBits) -> Done: Session, Reads, Shared, never, always;
        81 RevokeRange(RevokeRange) -> RangeRevoked: Session, Reads, Shared, never, always;
        82 Glimpse(Glimpse) -> Glimpsed: Session, Reads, Shared, never, always;
        83 Drain(Drain) -> DrainDone: Session, Reads, Shared, never, always;
    }
}

impl Request {
    /// Whether the operation changes the target: then it has a reply slot and a transno.
    pub fn changes(&self) -> bool {
        self.effect() != Effect::Reads
    }

    /// Whether the operation gives space back, or takes about as much as before, and so is carried out when there is none.
    pub fn frees_space(&self) -> bool {
        self.effect() != Effect::Takes
    }

    /// Whether the operation is asked for outside any session.
    pub fn needs_no_session(&self) -> bool {
        self.place() == Where::Outside
    }

    /// Whether room of a connection is kept for the operation: it lets others go on.
    pub fn is_reserved(&self) -> bool {
        self.lane() != Lane::Shared
    }

    /// Whether the operation is a sign of life: it is sent again soon if no answer comes.
    pub fn pulses(&self) -> bool {
        self.lane() == Lane::Pulse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_are_distinct() {
        let mut sorted = OPCODES.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), OPCODES.len());
    }
}
