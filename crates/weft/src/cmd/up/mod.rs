//! `weft up`: a whole file system in one process, made on first use.

mod plan;
mod targets;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use client::Client;
use fuse::control::{NotServed, Status};
use fuse::session::Locking;
use proto::{Fid, FsName, Nid, TargetId, TargetKind};
use rpc::{Hub, Keys, Role};
use rt::wait::unless;
use server::owner::Supervised;

use crate::cmd::format;
use crate::cmd::mount;
use crate::daemon::{self, Place};
use crate::failure::{Failure, Outcome};
use crate::instances;
use crate::mountpoint::{self, Mount, State};
use crate::predecessor::Patience;
use crate::servers::{self, Announced, Server};
use crate::settings::LOG_FILE;
use crate::uring::Switch;
use crate::{keys, serving};
use plan::{Plan, resolve};
use targets::{Missing, begin, leave_out, make_targets};

/// Start a file system on this machine and mount it; everything that is missing is made.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where to mount it; made if missing
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
    /// Where its data lies [default: where it lay when it was mounted there before, else /var/lib/weft/FSNAME, for a user
    /// ~/.local/share/weft/FSNAME]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Its name [default: weft]
    #[arg(long, value_name = "NAME")]
    fsname: Option<FsName>,
    /// Object storage servers, over which the OSTs are spread [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=OSTS_MAX))]
    oss: Option<u32>,
    /// Object storage targets; may be more than before [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=OSTS_MAX))]
    osts: Option<u32>,
    /// Let clients on other machines mount it too, at this address
    #[arg(long, value_name = "ADDR@tcp")]
    listen: Option<Nid>,
    /// Mount options with commas between: ro, nosuid, nodev, noexec, noatime, fuse_engine=auto|uring|dev,
    /// max_cached_mb=N, max_dirty_mb=N, mem_limit_mb=N, protect=WAY
    #[arg(short, value_name = "OPTIONS", default_value = "")]
    options: String,
    /// Leave the machine's switch of FUSE over io_uring as it is; root switches it on where the kernel has it, until the file system
    /// is stopped
    #[arg(long)]
    no_uring: bool,
    /// Stay in front, and log to standard error
    #[arg(long)]
    foreground: bool,
    #[arg(long = "background-child", hide = true)]
    child: bool,
    /// For the child: the switch was off before
    #[arg(long, hide = true)]
    uring_was_off: bool,
}

/// Most OSTs of one process.
const OSTS_MAX: i64 = 256;
/// Runs the command.
pub fn run(arguments: Arguments) -> Outcome {
    let place = Place::from_flags(arguments.foreground, arguments.child);
    if place == Place::Child {
        place.enter()?;
    }
    let outcome = resolve(arguments, place).and_then(|plan| start(&plan));
    if let Err(failure) = &outcome {
        place.failed(failure);
    }
    outcome
}

fn start(plan: &Plan) -> Outcome {
    let name = plan.mountpoint.display();
    match mountpoint::state(&plan.mountpoint)? {
        State::Up(status) => return already_up(plan, &status),
        State::Foreign(entry) => {
            return Err(Failure::new(format!(
                "{} ({}) is mounted at {name}; name another mount point",
                entry.source, entry.kind
            )));
        }
        State::Silent => return Err(mountpoint::silent(&plan.mountpoint)),
        State::Dead => {
            fuse::session::detach(&plan.mountpoint).map_err(|error| {
                Failure::new(format!(
                    "the dead mount at {name} cannot be taken away: {error}; run \"umount -l {name}\""
                ))
            })?;
            tracing::info!(mountpoint = %name, "took a dead mount away");
        }
        State::Free => {}
    }
    refuse_second_use(plan)?;
    check_device()?;
    match fs::metadata(&plan.mountpoint) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            return Err(Failure::new(format!("{name} is not a directory; name a directory to mount on")));
        }
        Err(_) => fs::create_dir(&plan.mountpoint).map_err(|error| {
            Failure::new(format!(
                "{name} cannot be made: {}; name another mount point",
                crate::control::describe(&error)
            ))
        })?,
    }
    let switch = match plan.may_permit_uring {
        true => Switch::permit(plan.options.engine()?),
        false => Switch::taken_over(plan.uring_was_off),
    };
    let told = switch.told.clone();
    match plan.place {
        Place::Background => {
            let was_off = switch.was_off().then(|| "--uring-was-off".into());
            let arguments = plan.arguments().into_iter().chain(was_off).collect::<Vec<OsString>>();
            daemon::launch(&arguments, &plan.data.join(LOG_FILE))?;
            switch.hand_over();
            // The process says that it is ready; that the mount answers is for us to see.
            let State::Up(status) = mountpoint::state(&plan.mountpoint)? else {
                let log = plan.data.join(LOG_FILE);
                return Err(Failure::new(format!("{name} does not answer; see {}", log.display())));
            };
            out!("{}", greeting(plan));
            if let Some(told) = told {
                out!("{told}");
            }
            refuse_parts(plan, &status)
        }
        Place::Foreground => {
            plan.place.enter()?;
            if let Some(told) = told {
                tracing::info!("{told}");
            }
            serve(plan)
        }
        Place::Child => serve(plan),
    }
}

fn greeting(plan: &Plan) -> String {
    let at = plan.mountpoint.display();
    format!(
        "File system {} is up at {at}: 1 MDT, {} OSTs on {} servers, data in {}.\n\
         Look at it:  weft status; weft lfs df -h {at}\n\
         Stop it:     weft down {at}   (the data stays; weft up {at} brings it back)",
        plan.fsname,
        plan.osts,
        plan.oss,
        plan.data.display()
    )
}

fn already_up(plan: &Plan, status: &Status) -> Outcome {
    let name = plan.mountpoint.display();
    if status.data.as_deref() != plan.data.to_str() {
        let served = status.data.as_deref().map_or_else(|| status.mgs.join(","), ToOwned::to_owned);
        return Err(Failure::new(format!(
            "file system {} of {served} is mounted at {name}; name another mount point, or run \"weft down {name}\" first",
            status.fsname
        )));
    }
    if plan.before.as_ref().is_some_and(|before| before.osts != plan.osts) {
        return Err(Failure::new(format!(
            "{name} is up already; run \"weft down {name}\" first, and then this command again adds the OSTs"
        )));
    }
    out!("File system {} is up at {name} already.", status.fsname);
    refuse_parts(plan, status)
}

/// A file system that is up without some of its targets is no success, though the others are used.
fn refuse_parts(plan: &Plan, status: &Status) -> Outcome {
    let missing: Vec<String> =
        status.not_served.iter().map(|one| format!("{} is not served: {}", one.target, one.why)).collect();
    match missing.as_slice() {
        [] => Ok(0),
        missing => {
            Err(Failure::new(format!("{}: FAILED: {}", plan.mountpoint.display(), missing.join("; "))))
        }
    }
}

/// One process at a time serves a data directory. The stores hold locks; this gives the better answer.
fn refuse_second_use(plan: &Plan) -> Result<(), Failure> {
    // The process that started this one has looked.
    if plan.place == Place::Child {
        return Ok(());
    }
    let mounts = mountpoint::usable()?;
    match mounts.iter().find(|mount| mount.status.data.as_deref() == plan.data.to_str()) {
        Some(Mount { entry, .. }) => Err(Failure::new(format!(
            "{} is up at {} already; run \"weft down {}\" first, or name other data with --data",
            plan.data.display(),
            entry.path.display(),
            entry.path.display()
        ))),
        None => Ok(()),
    }
}

fn check_device() -> Result<(), Failure> {
    match fs::metadata("/dev/fuse") {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::new(
            "this machine has no /dev/fuse; load the kernel module with \"modprobe fuse\", and in a container pass the device in",
        )),
    }
}

fn serve(plan: &Plan) -> Outcome {
    let signals = serving::catch_signals()?;
    fuse::session::flush_io_first();
    let (node, rt) = serving::start_runtime_within(plan.options.client.mem_limit_mb)?;
    node.block_on(async {
        let server_key = keys::resolve(None, &plan.fsname, Role::Server)?;
        let client_key = keys::resolve(None, &plan.fsname, Role::Client)?;
        begin(plan)?;
        // Before anything can be kept there: who does not find it again would make another, empty one. As long as this process serves it.
        let _registered = instances::register(&plan.instance())?;
        format::make_keys(&rt, &plan.fsname, None)?;
        let mut missing = make_targets(&rt, plan).await?;
        let keys = Keys { server: Some(keys::read(&server_key)?), client: Some(keys::read(&client_key)?) };
        let hub = serving::hub(&rt, &plan.fsname, keys, plan.options.client.protect.clone());
        let patience = Patience::new(&rt);
        let mut nids = Vec::new();
        if let Some(listen) = &plan.listen {
            nids = serving::listen(&hub, listen, &patience).await?;
        }
        let _announced = announce(plan, &nids, server_key);
        nids.push(Nid::lo());
        let running = start_targets(&hub, &patience, plan, &nids, &mut missing).await?;
        let outcome = serve_mount(&hub, plan, &nids, missing, &signals).await;
        serving::stop_supervised(running).await;
        hub.close().await;
        outcome
    })
}

/// Lets `lctl` find the targets, if others can have sessions with them: the mount answers for the rest.
fn announce(plan: &Plan, nids: &[Nid], key: PathBuf) -> Option<Announced> {
    if nids.is_empty() {
        return None;
    }
    servers::announce(&Server {
        fsname: plan.fsname.to_string(),
        pid: std::process::id(),
        nids: nids.iter().map(ToString::to_string).collect(),
        key,
        targets: plan.targets().map(Into::into).collect(),
        mgs: nids.iter().map(ToString::to_string).collect(),
        directories: vec![plan.data.clone()],
        missing: Vec::new(),
    })
}

/// Starts every target but those that are `missing`; one that fails later is opened again. An OST that does not start is one more of
/// these; without the others there is no file system.
async fn start_targets(
    hub: &Hub,
    patience: &Patience,
    plan: &Plan,
    nids: &[Nid],
    missing: &mut Missing,
) -> Result<Vec<Arc<Supervised>>, Failure> {
    let mut running = Vec::new();
    for target in plan.targets() {
        if missing.iter().any(|(missing, _)| *missing == target) {
            continue;
        }
        let config = server::Config {
            path: plan.directory(target).to_string_lossy().into_owned(),
            nids: nids.to_vec(),
            server: plan.server_of(target),
        };
        match patience.attempt(serving::is_in_use, async || serving::start(hub, config.clone()).await).await {
            Ok(started) => {
                tracing::info!(%target, "serving");
                running.push(started);
            }
            Err(error) if target.kind == TargetKind::Ost && !serving::is_in_use(&error) => {
                leave_out(missing, target, serving::start_failure(error));
            }
            Err(error) => {
                serving::stop_supervised(running).await;
                return Err(serving::start_failure(error));
            }
        }
    }
    Ok(running)
}

async fn serve_mount(
    hub: &Hub,
    plan: &Plan,
    nids: &[Nid],
    missing: Missing,
    signals: &rt::os::process::Signals,
) -> Outcome {
    let limits = plan.options.client.limits(hub.rt().memory_bytes());
    // Its targets may wait for clients of before, for minutes.
    let client = unless(signals.wait(), Client::mount(hub, vec![Nid::lo()], limits)).await;
    let client = client
        .ok_or_else(mount::interrupted)?
        .map_err(|error| Failure::new(format!("the file system does not answer its own process: {error}")))?;
    if plan.place.is_abandoned() {
        let _ = client.unmount().await;
        return Err(mount::interrupted());
    }
    own_root(&client).await?;
    let mut status = serving::status(&plan.fsname, nids);
    status.data = plan.data.to_str().map(ToOwned::to_owned);
    let is_served = |target: &TargetId| missing.iter().all(|(missing, _)| missing != target);
    status.serves = plan.targets().filter(is_served).map(|target| plan.target_name(target)).collect();
    let not_served = |(target, why)| NotServed { target: plan.target_name(target), why };
    status.not_served = missing.into_iter().map(not_served).collect();
    let source = format!("{}:/{}", nids.first().cloned().unwrap_or_else(Nid::lo), plan.fsname);
    let mut options = plan.options.session(source)?;
    if plan.listen.is_none() && options.locking == Locking::Shared {
        // Nobody else can have a lock: the kernel's own are enough.
        options.locking = Locking::Local;
    }
    let mounted = match serving::mount(hub.rt(), &client, &plan.mountpoint, &options, status).await {
        Ok(mounted) => mounted,
        Err(failure) => {
            // Nothing was written, so nothing can be lost.
            let _ = client.unmount().await;
            return Err(failure);
        }
    };
    plan.place.ready(&greeting(plan));
    serving::serve_mount(hub.rt(), mounted, &client, signals, plan.options.unmount_wait()).await
}

/// Gives the root directory of a new file system to the user who runs it: nobody else could write to it.
async fn own_root(client: &Client) -> Result<(), Failure> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let failed = |error| Failure::new(format!("the root directory does not say whose it is: {error}"));
    if uid == 0 || client.names().getattr(Fid::ROOT).await.map_err(failed)?.uid != 0 {
        return Ok(());
    }
    serving::give_root(client, (uid, gid)).await
}
