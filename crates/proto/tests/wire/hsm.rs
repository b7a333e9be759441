//! Samples of what is asked of files that have a copy in an archive.

use proto::hsm::{Action, ActionState, flag};
use proto::wire::messages::{
    AskHsm, EndHsm, GetHsm, HSM_END_ARCHIVE, HsmAsked, HsmItem, HsmProgress, HsmState, HsmWork, ReleaseData,
    SetHsm, SizeUpdate, TakeHsm,
};
use proto::wire::{Reply, Request};
use proto::{Code, Cred, Timestamp};

use super::samples::{entry, fid};

fn time(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0x0102 }
}

pub fn requests() -> Vec<Request> {
    vec![
        GetHsm { fid: fid(1) }.into(),
        SetHsm {
            fid: fid(1),
            change: HSM_END_ARCHIVE,
            set: flag::NORELEASE,
            clear: flag::NOARCHIVE,
            archive: 3,
            cookie: 0x2223,
            copy: 0x2324,
            cred: Cred::root(),
            time: time(5),
        }
        .into(),
        ReleaseData {
            fid: fid(1),
            with: fid(2),
            generation: 7,
            cred: Cred::root(),
            size: SizeUpdate { size: 0x2425, blocks: 0x2526, mtime: time(6), ctime: time(7) },
        }
        .into(),
        AskHsm { fid: fid(1), action: Action::Restore as u8, archive: 2, cookie: 0x2627, cred: Cred::root() }
            .into(),
        TakeHsm {
            agent: "copytool".into(),
            archives: vec![1, 2],
            working: vec![HsmProgress { cookie: 0x2728, done: 0x2829 }],
            max: 12,
            wait_ms: 0x292a,
        }
        .into(),
        EndHsm { cookie: 0x2a2b, agent: "copytool".into(), code: Code::NoSpace.to_u32() }.into(),
    ]
}

pub fn replies() -> Vec<(&'static str, Reply)> {
    let state = HsmState {
        flags: flag::EXISTS | flag::ARCHIVED,
        archive: 3,
        action: Action::Archive as u8,
        state: ActionState::Started as u8,
        done: 0x3132,
        copy: 0x3233,
        replaced: 0x3334,
    };
    let asked = HsmAsked { cookie: 0x3435, state: ActionState::Failed as u8, code: Code::Io.to_u32() };
    let item = HsmItem { cookie: 0x3536, fid: fid(1), action: Action::Remove as u8, archive: 4 };
    vec![
        ("GetHsm", Reply::GetHsm(state.clone())),
        ("SetHsm", Reply::SetHsm(state)),
        ("ReleaseData", Reply::ReleaseData(entry())),
        ("AskHsm", Reply::AskHsm(asked.clone())),
        ("TakeHsm", Reply::TakeHsm(HsmWork { actions: vec![item], canceled: vec![0x3637] })),
        ("EndHsm", Reply::EndHsm(asked)),
    ]
}
