//! `lctl pool_new`, `pool_add`, `pool_remove`, `pool_destroy` and `pool_list`: pools of OSTs, which the MGS keeps.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use fuse::control::{self, Kind};
use fuse::pools::{CHANGE_POOL, ORDER_OSTS_MAX, PoolOrder};
use fuse::session::MountEntry;
use proto::wire::messages as msg;
use proto::{Code, OstIndex, TargetId};
use rpc::AskError;

use super::orders::refused;
use super::params;
use super::reach::{Device, Reach};
use crate::ask;
use crate::failure::{Failure, Outcome};
use crate::pools::{self, Named, member};

/// How long the MGS may take.
const ORDER_WAIT: Duration = Duration::from_secs(10);
/// How long the MDTs may take to know of a change (Lustre's bound).
const KNOWN_WAIT: Duration = Duration::from_secs(12);
/// Pause between two questions.
const KNOWN_PAUSE: Duration = Duration::from_millis(50);

/// A pool.
#[derive(Args)]
pub struct Pool {
    /// Do not wait until the MDTs know of it
    #[arg(short = 'n', long)]
    nowait: bool,
    /// The file system and the pool, as in w.flash
    #[arg(value_name = "FS.POOL")]
    pool: String,
}

/// A pool and OSTs.
#[derive(Args)]
pub struct Members {
    /// Do not wait until the MDTs know of it
    #[arg(short = 'n', long)]
    nowait: bool,
    /// The file system and the pool, as in w.flash
    #[arg(value_name = "FS.POOL")]
    pool: String,
    /// OSTs, as in OST0003, w-OST[0-3,7], OST0000-OST0003 or 0,2-4
    #[arg(required = true, value_name = "OST")]
    osts: Vec<String>,
}

/// All pools, or one.
#[derive(Args)]
pub struct Listed {
    /// The file system, as in w, or a pool of it, as in w.flash
    #[arg(value_name = "FS[.POOL]")]
    named: String,
}

/// Who knows what the MGS of a file system keeps.
pub(super) enum Keeper<'a> {
    /// The MGS, over the network.
    Mgs(Device),
    /// A mount; that it is one of the MGS's own process shows when a pool is changed.
    Mount(&'a MountEntry),
}

/// What is known of pools.
struct Told {
    names: Vec<String>,
    osts: BTreeSet<u32>,
    unknown: BTreeSet<u32>,
}

/// What is wrong with one OST.
type Wrong = (String, i32);

/// `lctl pool_new`.
pub fn make(reach: &mut Reach, asked: &Pool) -> Outcome {
    let named = Named::parse("pool_new", &asked.pool)?;
    change(reach, "pool_new", &named, msg::POOL_NEW, &[])?;
    until_known(reach, &named, asked.nowait, |members| members.is_some());
    out!("Pool {} created", asked.pool);
    Ok(0)
}

/// `lctl pool_destroy`.
pub fn destroy(reach: &mut Reach, asked: &Pool) -> Outcome {
    let named = Named::parse("pool_destroy", &asked.pool)?;
    change(reach, "pool_destroy", &named, msg::POOL_DESTROY, &[])?;
    until_known(reach, &named, asked.nowait, |members| members.is_none());
    out!("Pool {} destroyed", asked.pool);
    Ok(0)
}

/// `lctl pool_add`. What can be added is, whatever is wrong with others.
pub fn add(reach: &mut Reach, asked: &Members) -> Outcome {
    let named = Named::parse("pool_add", &asked.pool)?;
    let osts = pools::osts("pool_add", &named.fsname, &asked.osts)?;
    let told = told(reach, &named, &osts)?;
    let (pool, fsname) = (&asked.pool, &named.fsname);
    let wrong = |ost: u32| {
        let name = member(fsname, ost);
        if told.unknown.contains(&ost) {
            Some((format!("OST {name} is not part of the '{fsname}' fs."), libc::ENOENT))
        } else {
            let is_member = told.osts.contains(&ost);
            is_member.then(|| (format!("OST {name} is already in pool {pool}"), libc::EEXIST))
        }
    };
    each(osts, wrong, |osts| {
        change(reach, "pool_add", &named, msg::POOL_ADD, osts)?;
        let all = |list: &BTreeSet<String>| osts.iter().all(|ost| list.contains(&member(fsname, *ost)));
        until_known(reach, &named, asked.nowait, |members| members.is_some_and(all));
        osts.iter().for_each(|ost| out!("OST {} added to pool {pool}", member(fsname, *ost)));
        Ok(())
    })
}

/// `lctl pool_remove`.
pub fn remove(reach: &mut Reach, asked: &Members) -> Outcome {
    let named = Named::parse("pool_remove", &asked.pool)?;
    let osts = pools::osts("pool_remove", &named.fsname, &asked.osts)?;
    let told = told(reach, &named, &osts)?;
    let (pool, fsname) = (&asked.pool, &named.fsname);
    let wrong = |ost: u32| {
        let is_member = told.osts.contains(&ost);
        (!is_member).then(|| (format!("OST {} not found in pool {pool}", member(fsname, ost)), libc::ENOENT))
    };
    each(osts, wrong, |osts| {
        change(reach, "pool_remove", &named, msg::POOL_REMOVE, osts)?;
        let none = |list: &BTreeSet<String>| !osts.iter().any(|ost| list.contains(&member(fsname, *ost)));
        until_known(reach, &named, asked.nowait, |members| members.is_none_or(none));
        osts.iter().for_each(|ost| out!("OST {} removed from pool {pool}", member(fsname, *ost)));
        Ok(())
    })
}

/// `lctl pool_list`.
pub fn list(reach: &mut Reach, asked: &Listed) -> Outcome {
    let text = match asked.named.split_once('.') {
        None => {
            let named = Named { fsname: asked.named.clone(), pool: String::new() };
            pools::list(&named.fsname, &read(reach, &named, &BTreeSet::new())?.names)
        }
        Some(_) => {
            let named = Named::parse("pool_list", &asked.named)?;
            let told = told(reach, &named, &BTreeSet::new())?;
            pools::one(&named.fsname, &named.pool, &told.osts.into_iter().collect::<Vec<_>>())
        }
    };
    crate::out::print(text);
    Ok(0)
}

/// Waits until each MDT that is reached from here has a pool as `fits` says of its members, or of none if it does not know the pool; not at all with
/// `nowait`. The pool has been changed, whatever becomes of this.
fn until_known(
    reach: &mut Reach,
    named: &Named,
    nowait: bool,
    fits: impl Fn(Option<&BTreeSet<String>>) -> bool,
) {
    let Named { fsname, pool } = named;
    let layouts = format!("lod.{fsname}-MDT*-mdtlov");
    let (count, members) = (format!("{layouts}.numobd"), format!("{layouts}.pools.{pool}"));
    let end = Instant::now() + KNOWN_WAIT;
    if nowait {
        return;
    }
    loop {
        let Ok([mdts, told]) =
            params::told(reach, &[&count]).and_then(|mdts| Ok([mdts, params::told(reach, &[&members])?]))
        else {
            err!("warning: pool {fsname}.{pool}: it is not known whether the MDTs know of the change");
            return;
        };
        let list = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let knowing = told.values.iter().filter(|(_, text)| fits(Some(&list(text)))).count();
        // Those that say nothing of the pool have none of that name.
        let others = if fits(None) { mdts.values.len().saturating_sub(told.values.len()) } else { 0 };
        let are_silent = !mdts.silent.is_empty() || !told.silent.is_empty();
        if !are_silent && knowing + others >= mdts.values.len() {
            return;
        }
        if Instant::now() >= end {
            err!("warning: pool {fsname}.{pool}: not every MDT says that it knows of the change yet");
            return;
        }
        std::thread::sleep(KNOWN_PAUSE);
        // An MDT that was silent is waited for, too.
        reach.ask_silent_again();
    }
}

/// Tells what is wrong with which of `osts`, and does something with the others, as many at a time as one order has.
fn each(
    osts: BTreeSet<u32>,
    wrong: impl Fn(u32) -> Option<Wrong>,
    mut act: impl FnMut(&[u32]) -> Result<(), Failure>,
) -> Outcome {
    let (mut status, mut fine) = (0, Vec::new());
    for ost in osts {
        match wrong(ost) {
            Some((why, number)) => {
                err!("{why}");
                status = number as u8;
            }
            None => fine.push(ost),
        }
    }
    fine.chunks(ORDER_OSTS_MAX).try_for_each(&mut act)?;
    Ok(status)
}

/// A pool that there is.
fn told(reach: &mut Reach, named: &Named, osts: &BTreeSet<u32>) -> Result<Told, Failure> {
    let told = read(reach, named, osts)?;
    if told.names.contains(&named.pool) { Ok(told) } else { Err(missing(named)) }
}

fn missing(named: &Named) -> Failure {
    let Named { fsname, pool } = named;
    Failure {
        message: format!(
            "Pool {fsname}.{pool} does not exist: 'lctl pool_list {fsname}' lists those that there are"
        ),
        status: libc::ENOENT as u8,
    }
}

impl Reach {
    pub(super) fn keeper(&self, fsname: &str) -> Result<Keeper<'_>, Failure> {
        let is_meant = |device: &&Device| device.target == TargetId::MGS && device.fsname == fsname;
        match self.devices.iter().find(is_meant) {
            Some(device) if !device.is_mounted() => return Ok(Keeper::Mgs(device.clone())),
            _ => {}
        }
        // The MGS's own process first.
        let mut mounts: Vec<_> = self.mounts.iter().filter(|mount| mount.status.fsname == fsname).collect();
        mounts.sort_by_key(|mount| !mount.status.serves.iter().any(|name| name == "MGS"));
        mounts.first().map(|mount| Keeper::Mount(&mount.entry)).ok_or_else(|| {
            Failure::new(format!(
                "no MGS of a file system '{fsname}' is reached from here: run this on its host, as root"
            ))
        })
    }
}

fn read(reach: &mut Reach, named: &Named, osts: &BTreeSet<u32>) -> Result<Told, Failure> {
    let device = match reach.keeper(&named.fsname)? {
        Keeper::Mount(mount) => return at_mount(mount, named, osts).map_err(|error| unread(mount, &error)),
        Keeper::Mgs(device) => device,
    };
    let read = msg::ReadPools {
        fsname: named.fsname.clone(),
        name: named.pool.clone(),
        osts: osts.iter().copied().map(OstIndex).collect(),
    };
    let told = reach.ask(&device, read, ORDER_WAIT)?.map_err(|error| refused(&device, &error))?;
    let plain = |osts: Vec<OstIndex>| osts.into_iter().map(|ost| ost.0).collect();
    Ok(Told { names: told.names, osts: plain(told.osts), unknown: plain(told.unknown) })
}

fn at_mount(mount: &MountEntry, named: &Named, osts: &BTreeSet<u32>) -> io::Result<Told> {
    let names = pools::names(mount)?.names;
    let members = pools::members(mount, &named.pool)?.unwrap_or_default();
    let targets = ask::configuration(mount)?.targets;
    let known = targets.iter().filter(|target| target.kind == Kind::Ost).map(|target| target.index);
    let unknown = osts.difference(&known.collect()).copied().collect();
    Ok(Told { names, osts: members.into_iter().collect(), unknown })
}

fn unread(mount: &MountEntry, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {}", mount.path.display(), crate::control::describe(error)))
}

/// Has the MGS change a pool.
fn change(reach: &mut Reach, command: &str, named: &Named, change: u8, osts: &[u32]) -> Result<(), Failure> {
    let Named { fsname, pool } = named.clone();
    let refusal = match reach.keeper(&fsname)? {
        Keeper::Mount(mount) => {
            let order = PoolOrder { name: pool, change, osts: osts.to_vec() };
            match ask::set(mount, CHANGE_POOL, &control::encode(&order)) {
                Ok(()) => return Ok(()),
                Err(error) => of_error(&error).ok_or_else(|| unread(mount, &error))?,
            }
        }
        Keeper::Mgs(device) => {
            let osts = osts.iter().copied().map(OstIndex).collect();
            let order = msg::ChangePool { fsname, name: pool, change, osts };
            match reach.ask(&device, order, ORDER_WAIT)? {
                Ok(_) => return Ok(()),
                Err(AskError::Refused(code)) if is_refusal(code) => code,
                Err(error) => return Err(refused(&device, &error)),
            }
        }
    };
    Err(sentence(command, named, refusal))
}

/// What the MGS said, as a mount passed it on.
pub(super) fn of_error(error: &io::Error) -> Option<Code> {
    Some(match error.raw_os_error()? {
        libc::ENOENT => Code::NotFound,
        libc::EEXIST => Code::Exists,
        libc::ENOTEMPTY => Code::NotEmpty,
        libc::EINVAL => Code::Invalid,
        libc::E2BIG => Code::TooBig,
        libc::EPERM | libc::EACCES => Code::Forbidden,
        // Through the kernel the one is said as the other.
        libc::EOPNOTSUPP | libc::ENOTTY => Code::NotSupported,
        _ => return None,
    })
}

fn is_refusal(code: Code) -> bool {
    matches!(code, Code::NotFound | Code::Exists | Code::NotEmpty | Code::Invalid | Code::TooBig)
}

/// What a refusal means, and what can be done.
fn sentence(command: &str, named: &Named, code: Code) -> Failure {
    let Named { fsname, pool } = named;
    let (why, status) = match code {
        Code::NotFound => return missing(named),
        Code::Exists => (format!("Pool {fsname}.{pool} already exists"), libc::EEXIST),
        Code::NotEmpty => (
            format!("Pool {fsname}.{pool} not empty, please remove all members with 'lctl pool_remove'"),
            libc::ENOTEMPTY,
        ),
        Code::TooBig => (
            format!("{command}: {fsname} has as many pools, or members of pools, as it can have"),
            libc::E2BIG,
        ),
        Code::Forbidden => (
            format!("{command}: Permission denied: pools are changed by root, on the host of the MGS"),
            libc::EACCES,
        ),
        Code::NotSupported => (
            format!("{command}: no MGS of {fsname} is reached from here: run this on its host, as root"),
            libc::EOPNOTSUPP,
        ),
        _ => (
            format!("{command}: the MGS refuses: {code}; 'lctl dl' lists the OSTs that there are"),
            libc::EINVAL,
        ),
    };
    Failure { message: why, status: status as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_one_ost_keeps_no_other_out() {
        let mut added = Vec::new();
        let wrong = |ost: u32| (ost == 2).then(|| ("it is there".to_owned(), libc::EEXIST));
        let status = each([1, 2, 3].into(), wrong, |osts| {
            added.extend_from_slice(osts);
            Ok(())
        });
        assert_eq!((status, added), (Ok(libc::EEXIST as u8), vec![1, 3]));
        let all_wrong = |_: u32| Some(("no".to_owned(), libc::ENOENT));
        let status = each([1].into(), all_wrong, |_| Err(Failure::new("nothing is left to do")));
        assert_eq!(status, Ok(libc::ENOENT as u8));
    }

    #[test]
    fn refusals_say_what_to_do() {
        let named = Named { fsname: "w".into(), pool: "flash".into() };
        for (code, text, status) in [
            (Code::Exists, "Pool w.flash already exists", libc::EEXIST),
            (
                Code::NotEmpty,
                "Pool w.flash not empty, please remove all members with 'lctl pool_remove'",
                libc::ENOTEMPTY,
            ),
            (
                Code::NotFound,
                "Pool w.flash does not exist: 'lctl pool_list w' lists those that there are",
                libc::ENOENT,
            ),
        ] {
            let failure = sentence("pool_new", &named, code);
            assert_eq!((failure.message.as_str(), i32::from(failure.status)), (text, status));
            let error = io::Error::from_raw_os_error(status);
            assert_eq!(of_error(&error), Some(code));
        }
    }
}
