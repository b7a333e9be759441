//! Every operation: its number, its request and its reply.
//!
//! A number is never used again for something else. Bodies only grow at their end.

pub mod admin;
pub mod common;
pub mod flock;
pub mod lease;
pub mod lock;
pub mod mdt;
pub mod mgs;
pub mod ost;
pub mod owner;

use bytes::Bytes;

pub use admin::*;
pub use common::*;
pub use flock::*;
pub use lease::*;
pub use lock::*;
pub use mdt::*;
pub use mgs::*;
pub use ost::*;
pub use owner::*;

use super::codec::{Body, DecodeError, Reader};

/// Declares the operations: number, name, request type, reply type, whether it changes something (and so needs a
/// reply slot and gets a transno).
macro_rules! operations {
    ($($number:literal $name:ident($request:ty) -> $reply:ty, $changes:literal;)*) => {
        /// The body of a request.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Request { $($name($request),)* }

        /// The body of a reply.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Reply { $($name($reply),)* }

        impl Request {
            /// Number of the operation.
            pub fn opcode(&self) -> u16 { match self { $(Request::$name(_) => $number,)* } }
            /// Name of the operation, as statistics show it.
            pub fn name(&self) -> &'static str { match self { $(Request::$name(_) => stringify!($name),)* } }
            /// Name of operation `opcode`, if there is one.
            pub fn name_of(opcode: u16) -> Option<&'static str> {
                match opcode { $($number => Some(stringify!($name)),)* _ => None }
            }
            /// Whether the operation changes the target: then it has a reply slot and a transno.
            pub fn changes(&self) -> bool { match self { $(Request::$name(_) => $changes,)* } }
            /// Appends the encoded body.
            pub fn put_body(&self, out: &mut Vec<u8>) { match self { $(Request::$name(body) => body.put_fields(out),)* } }
            /// Decodes the body of operation `opcode`; what a newer peer added at its end is ignored.
            pub fn take_body(opcode: u16, body: Bytes) -> Result<Request, DecodeError> {
                let mut from = Reader::new(body);
                match opcode { $($number => Ok(Request::$name(Body::take_fields(&mut from)?)),)* n => Err(DecodeError::UnknownOperation(n)) }
            }
        }
        impl Reply {
            /// Number of the operation.
            pub fn opcode(&self) -> u16 { match self { $(Reply::$name(_) => $number,)* } }
            /// Appends the encoded body.
            pub fn put_body(&self, out: &mut Vec<u8>) { match self { $(Reply::$name(body) => body.put_fields(out),)* } }
            /// Decodes the body of the reply to operation `opcode`.
            pub fn take_body(opcode: u16, body: Bytes) -> Result<Reply, DecodeError> {
                let mut from = Reader::new(body);
                match opcode { $($number => Ok(Reply::$name(Body::take_fields(&mut from)?)),)* n => Err(DecodeError::UnknownOperation(n)) }
            }
        }
        $(impl From<$request> for Request { fn from(body: $request) -> Request { Request::$name(body) } })*
        $(impl Operation for $request {
            type Reply = $reply;
            const OPCODE: u16 = $number;
            const NAME: &'static str = stringify!($name);
            fn reply_of(reply: Reply) -> Option<$reply> {
                match reply { Reply::$name(body) => Some(body), _ => None }
            }
        })*
        #[cfg(test)]
        pub(crate) const OPCODES: &[u16] = &[$($number),*];
    };
}

/// Ties the body of a request to the body of its reply.
pub trait Operation: Into<Request> {
    /// What a target answers.
    type Reply;
    /// Number of the operation.
    const OPCODE: u16;
    /// Name of the operation, as statistics show it.
    const NAME: &'static str;
    /// The answer, if `reply` is one to this operation.
    fn reply_of(reply: Reply) -> Option<Self::Reply>;
}

operations! {
    1 Connect(Connect) -> Connected, false;
    2 Disconnect(Disconnect) -> Done, false;
    3 Sync(Sync) -> Done, false;
    4 Statfs(Statfs) -> Space, false;
    5 GetState(GetState) -> TargetState, false;
    6 AbortRecovery(AbortRecovery) -> Done, false;
    7 Evict(Evict) -> Evicted, false;
    8 ListExports(ListExports) -> ExportPage, false;
    9 SetParameters(SetParameters) -> Parameters, false;

    10 Register(Register) -> Registered, true;
    11 GetConfig(GetConfig) -> Config, false;
    12 RenewTargets(RenewTargets) -> TargetsRenewed, false;
    13 TakeTargets(TakeTargets) -> TargetsTaken, false;
    14 ReleaseTarget(ReleaseTarget) -> Done, false;
    15 HandOver(HandOver) -> Done, false;
    16 RenewLease(RenewLease) -> LeaseRenewed, false;
    17 AskLeases(AskLeases) -> LeaseStates, false;
    18 SettleTarget(SettleTarget) -> Done, false;
    19 MarkTarget(MarkTarget) -> Done, true;

    20 GetSequence(GetSequence) -> Sequence, true;
    21 GetAttr(GetAttr) -> Entry, false;
    22 Lookup(Lookup) -> Entry, false;
    23 ReadDir(ReadDir) -> DirPage, false;
    24 Create(Create) -> Created, true;
    25 Open(Open) -> Opened, true;
    26 Close(Close) -> Settled, true;
    27 Unlink(Unlink) -> Unlinked, true;
    28 Rename(Rename) -> Renamed, true;
    29 Link(Link) -> Entry, true;
    30 SetAttr(SetAttr) -> Entry, true;
    31 SetSize(SetSize) -> Settled, true;
    32 ReadLink(ReadLink) -> LinkTarget, false;
    33 GetXattr(GetXattr) -> XattrValue, false;
    34 SetXattr(SetXattr) -> Done, true;
    35 ListXattr(ListXattr) -> XattrNames, false;
    36 RemoveXattr(RemoveXattr) -> Done, true;
    37 SetLayout(SetLayout) -> Entry, true;
    38 GetDefaultLayout(GetDefaultLayout) -> DefaultLayout, false;
    39 FidToPath(FidToPath) -> Paths, false;
    40 Access(Access) -> Done, false;
    47 SwapLayouts(SwapLayouts) -> Entry, true;
    48 CreateUnnamed(CreateUnnamed) -> Created, true;
    49 RestateOpens(RestateOpens) -> Done, false;

    50 Flock(Flock) -> Flocked, true;
    51 FlockWait(FlockWait) -> Flocked, false;
    52 FlockCancel(FlockCancel) -> Flocked, true;
    53 FlockTest(FlockTest) -> FlockFound, false;
    54 RestateFlocks(RestateFlocks) -> Done, false;

    59 SealLayout(SealLayout) -> Done, true;
    60 Write(Write) -> ObjectAttr, true;
    61 Read(Read) -> ReadDone, false;
    62 Punch(Punch) -> ObjectAttr, true;
    63 GetObjectAttr(GetObjectAttr) -> ObjectAttr, false;
    64 Destroy(Destroy) -> Done, true;
    65 ListObjects(ListObjects) -> Objects, false;
    66 SeekObject(SeekObject) -> Sought, false;
    67 AllocateObject(AllocateObject) -> ObjectAttr, true;
    68 CopyObject(CopyObject) -> ObjectAttr, true;
    69 WriteParts(WriteParts) -> ObjectAttr, true;

    70 Enqueue(Enqueue) -> Token, false;
    71 CancelRanges(CancelRanges) -> Done, false;
    72 CancelBits(CancelBits) -> Done, false;

    80 RevokeBits(RevokeBits) -> Done, false;
    81 RevokeRange(RevokeRange) -> RangeRevoked, false;
    82 Glimpse(Glimpse) -> Glimpsed, false;
    83 Drain(Drain) -> DrainDone, false;

    90 ReadParameters(ReadParameters) -> Parameters, false;
    91 DrainClient(DrainClient) -> Drained, false;
    92 Claim(Claim) -> Done, false;
}

impl Request {
    /// Whether the operation may wait at its target for as long as others like: it has limits of its own, so that
    /// those who wait do not take the room of those whom they wait for. It changes nothing, for its slot would be
    /// taken all that time.
    pub fn waits(&self) -> bool {
        match self {
            Request::Enqueue(enqueue) => !enqueue.restate,
            Request::FlockWait(_) => true,
            Request::GetConfig(get) => get.wait_ms > 0,
            Request::TakeTargets(take) => take.wait_ms > 0,
            Request::DrainClient(_) => true,
            _ => false,
        }
    }
}

impl Request {
    /// Whether the operation may have to wait until its target has called other clients back. Those may need the same
    /// room to answer, so a part of it is kept for operations that never do: data under a lock above all.
    pub fn contends(&self) -> bool {
        match self {
            Request::Connect(_) | Request::Disconnect(_) | Request::Sync(_) | Request::Statfs(_) => false,
            Request::GetState(_) | Request::AbortRecovery(_) => false,
            Request::Evict(_) | Request::ListExports(_) => false,
            Request::SetParameters(_) | Request::ReadParameters(_) => false,
            Request::RenewTargets(_) | Request::TakeTargets(_) => false,
            Request::ReleaseTarget(_) | Request::SettleTarget(_) | Request::HandOver(_) => false,
            Request::Register(_) | Request::MarkTarget(_) | Request::Claim(_) => false,
            Request::GetConfig(_) | Request::GetSequence(_) => false,
            Request::RenewLease(_) | Request::AskLeases(_) => false,
            Request::Write(write) => write.locked,
            Request::WriteParts(_) => false,
            Request::Read(read) => read.locked,
            Request::ListObjects(_) | Request::CancelRanges(_) | Request::CancelBits(_) => false,
            _ => true,
        }
    }
}

impl Request {
    /// Whether the operation is asked for outside any session.
    pub fn needs_no_session(&self) -> bool {
        matches!(
            self,
            Request::Connect(_)
                | Request::GetState(_)
                | Request::AbortRecovery(_)
                | Request::Evict(_)
                | Request::ListExports(_)
                | Request::SetParameters(_)
                | Request::ReadParameters(_)
                | Request::DrainClient(_)
                | Request::RenewTargets(_)
                | Request::TakeTargets(_)
                | Request::ReleaseTarget(_)
                | Request::SettleTarget(_)
                | Request::HandOver(_)
                | Request::Claim(_)
        )
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
