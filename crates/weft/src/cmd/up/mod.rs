//! `weft up`: a whole file system in one process, made on first use.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::Client;
use fuse::control::{NotServed, Status};
use fuse::session::Locking;
use proto::{Fid, FsName, Nid, TargetId, TargetKind};
use rpc::{Hub, Keys, Role};
use rt::Rt;
use rt::wait::unless;
use server::owner::Supervised;
use store::Store;

use crate::cmd::format::{self, NewTarget, text};
use crate::cmd::mount::{self, MountOptions};
use crate::cmd::serve::no_label;
use crate::daemon::{self, Place};
use crate::failure::{Failure, Outcome};
use crate::instances::{self, Instance};
use crate::mountpoint::{self, Mount, State};
use crate::predecessor::Patience;
use crate::servers::{self, Announced, Server};
use crate::settings::{self, Found, LOG_FILE, Settings};
use crate::uring::Switch;
use crate::{keys, serving};

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
const OSS_DEFAULT: u32 = 2;
const OSTS_DEFAULT: u32 = 4;
const FSNAME_DEFAULT: &str = "weft";

/// What is to be started.
struct Plan {
    mountpoint: PathBuf,
    data: PathBuf,
    fsname: FsName,
    oss: u32,
    osts: u32,
    /// What the data directory held before; `None` for a new one.
    before: Option<Settings>,
    listen: Option<Nid>,
    options: MountOptions,
    /// Whether the machine may be told to use FUSE over io_uring.
    may_permit_uring: bool,
    /// The process that started this one has told it, and this one puts it back.
    uring_was_off: bool,
    place: Place,
}

/// Targets that cannot be served, and why.
type Missing = Vec<(TargetId, String)>;

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

fn resolve(arguments: Arguments, place: Place) -> Result<Plan, Failure> {
    let mountpoint = mountpoint::absolute(&arguments.mountpoint)?;
    // It is written down, so that the next `weft up` there finds the data again.
    text(&mountpoint)?;
    let known = if arguments.data.is_none() { instances::find(&mountpoint)? } else { None };
    let arguments = recalled(arguments, known)?;
    if arguments.listen.as_ref().is_some_and(Nid::is_lo) {
        return Err(Failure::usage("0@lo cannot be listened at; write --listen ADDRESS@tcp"));
    }
    let options = MountOptions::parse(&arguments.options, false)?;
    if options.client.key.is_some() {
        return Err(Failure::usage("a file system that is made here has keys of its own; leave key= out"));
    }
    let data = match &arguments.data {
        Some(data) => data.clone(),
        None => default_data(arguments.fsname.as_ref())?,
    };
    let data =
        std::path::absolute(&data).map_err(|error| Failure::new(format!("{}: {error}", data.display())))?;
    text(&data)?;
    let found = settings::read(&data)?;
    let (fsname, oss, osts) = reconcile(&arguments, &data, &found)?;
    let before = if let Found::Whole(before) = found { Some(before) } else { None };
    let (listen, may_permit_uring) = (arguments.listen, !arguments.no_uring && place != Place::Child);
    let uring_was_off = arguments.uring_was_off;
    Ok(Plan {
        mountpoint,
        data,
        fsname,
        oss,
        osts,
        before,
        listen,
        options,
        may_permit_uring,
        uring_was_off,
        place,
    })
}

/// The arguments with what is known of the mount point, unless they name other data.
fn recalled(arguments: Arguments, known: Option<Instance>) -> Result<Arguments, Failure> {
    let Some(known) = known.filter(|_| arguments.data.is_none()) else { return Ok(arguments) };
    if arguments.fsname.as_ref().is_some_and(|fsname| fsname.as_str() != known.fsname) {
        return Ok(arguments);
    }
    if !settings::are_in(&known.data) {
        return Err(Failure::new(format!(
            "file system {} was at {} before, and its data is not in {} now; mount the disk that has it, or name its directory with --data (an empty one is made a new file system)",
            known.fsname,
            known.mountpoint.display(),
            known.data.display()
        )));
    }
    let listen = known.listen.as_deref().map(str::parse).transpose();
    let listen = listen.map_err(|error| Failure::new(format!("{error}; name the address with --listen")))?;
    let options = if arguments.options.is_empty() { known.options } else { arguments.options };
    Ok(Arguments { data: Some(known.data), listen: arguments.listen.or(listen), options, ..arguments })
}

/// What is to be known of it later.
fn instance(plan: &Plan) -> Instance {
    Instance {
        mountpoint: plan.mountpoint.clone(),
        fsname: plan.fsname.to_string(),
        data: plan.data.clone(),
        listen: plan.listen.as_ref().map(ToString::to_string),
        options: plan.options.to_text(),
    }
}

/// What the options and what is there make together; an error if they contradict each other.
fn reconcile(arguments: &Arguments, data: &Path, found: &Found) -> Result<(FsName, u32, u32), Failure> {
    let data = data.display();
    let named = |settings: &Settings| {
        let fsname = settings.fsname.parse();
        fsname.map_err(|error| {
            Failure::new(format!("the settings in {data}: {error}; restore the file from a copy"))
        })
    };
    let (before, fsname) = match found {
        Found::Whole(before) => (before, named(before)?),
        Found::Nothing => return new(arguments, FSNAME_DEFAULT, OSS_DEFAULT, OSTS_DEFAULT),
        Found::Begun(begun) => {
            let fsname: FsName = named(begun)?;
            if arguments.fsname.as_ref().is_some_and(|wanted| *wanted != fsname) {
                return Err(Failure::new(format!(
                    "file system {fsname} was being made in {data}; leave --fsname out, remove that directory, or name another one with --data"
                )));
            }
            return new(arguments, &begun.fsname, begun.oss, begun.osts);
        }
    };
    match &arguments.fsname {
        Some(wanted) if *wanted != fsname => {
            return Err(Failure::new(format!(
                "{data} holds file system {fsname}, not {wanted}; leave --fsname out, or name another directory with --data"
            )));
        }
        _ => {}
    }
    match arguments.oss {
        Some(wanted) if wanted != before.oss => {
            return Err(Failure::new(format!(
                "{data} was made with --oss {}, which cannot become {wanted}; leave --oss out, or name another directory with --data",
                before.oss
            )));
        }
        _ => {}
    }
    match arguments.osts {
        Some(wanted) if wanted < before.osts => Err(Failure::new(format!(
            "{data} has {} OSTs, which cannot become {wanted}: OSTs can be added, not taken away; leave --osts out",
            before.osts
        ))),
        wanted => Ok((fsname, before.oss, wanted.unwrap_or(before.osts))),
    }
}

/// What a new file system is to be: as the options say, or else as is given.
fn new(arguments: &Arguments, fsname: &str, oss: u32, osts: u32) -> Result<(FsName, u32, u32), Failure> {
    let fsname = match &arguments.fsname {
        Some(fsname) => fsname.clone(),
        None => fsname.parse().map_err(|error| Failure::new(format!("{error}")))?,
    };
    let osts = arguments.osts.unwrap_or(osts);
    let oss = arguments.oss.unwrap_or(oss.min(osts));
    if oss > osts {
        return Err(Failure::usage(format!(
            "--oss {oss} servers have nothing to serve with {osts} OSTs; give each an OST with --osts {oss}, or take fewer servers"
        )));
    }
    Ok((fsname, oss, osts))
}

fn default_data(fsname: Option<&FsName>) -> Result<PathBuf, Failure> {
    Ok(instances::base()?.join(fsname.map_or(FSNAME_DEFAULT, FsName::as_str)))
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
            let arguments = arguments_of(plan).into_iter().chain(was_off).collect::<Vec<OsString>>();
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

fn arguments_of(plan: &Plan) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["up".into(), plan.mountpoint.clone().into()];
    arguments.extend(["--data".into(), plan.data.clone().into()]);
    arguments.extend(["--fsname".into(), plan.fsname.to_string().into()]);
    arguments.extend(["--oss".into(), plan.oss.to_string().into()]);
    arguments.extend(["--osts".into(), plan.osts.to_string().into()]);
    if let Some(listen) = &plan.listen {
        arguments.extend(["--listen".into(), listen.to_string().into()]);
    }
    arguments.extend(["-o".into(), plan.options.to_text().into()]);
    arguments
}

fn serve(plan: &Plan) -> Outcome {
    let signals = serving::catch_signals()?;
    let (node, rt) = serving::start_runtime_within(plan.options.client.mem_limit_mb)?;
    node.block_on(async {
        let server_key = keys::resolve(None, &plan.fsname, Role::Server)?;
        let client_key = keys::resolve(None, &plan.fsname, Role::Client)?;
        begin(plan)?;
        // Before anything can be kept there: who does not find it again would make another, empty one. As long as this process serves it.
        let _registered = instances::register(&instance(plan))?;
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
        targets: targets(plan).map(Into::into).collect(),
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
    for target in targets(plan) {
        if missing.iter().any(|(missing, _)| *missing == target) {
            continue;
        }
        let config = server::Config {
            path: directory(plan, target).to_string_lossy().into_owned(),
            nids: nids.to_vec(),
            server: server_of(plan, target),
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

/// Goes on without an OST.
fn leave_out(missing: &mut Missing, target: TargetId, failure: Failure) {
    tracing::error!(%target, why = failure.message, "not served; files there wait");
    missing.push((target, failure.message));
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
    status.serves = targets(plan).filter(is_served).map(|target| target_name(plan, target)).collect();
    let not_served = |(target, why)| NotServed { target: target_name(plan, target), why };
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

/// Every target, in the order of starting: the MGS first, which the others register with.
fn targets(plan: &Plan) -> impl Iterator<Item = TargetId> {
    [TargetId::MGS, TargetId::mdt(0)].into_iter().chain((0..plan.osts).map(TargetId::ost))
}

fn directory(plan: &Plan, target: TargetId) -> PathBuf {
    plan.data.join(target.to_string())
}

fn target_name(plan: &Plan, target: TargetId) -> String {
    if target == TargetId::MGS { "MGS".into() } else { format!("{}-{target}", plan.fsname) }
}

/// Neighbours share a server, as with OSTs 0 and 1 on the first of two servers and 2 and 3 on the second.
fn server_of(plan: &Plan, target: TargetId) -> String {
    match target.kind {
        TargetKind::Ost => {
            let oss = u64::from(target.index) * u64::from(plan.oss.min(plan.osts)) / u64::from(plan.osts);
            format!("oss{oss}")
        }
        _ => "mds0".into(),
    }
}

fn settings(plan: &Plan) -> Settings {
    Settings { fsname: plan.fsname.to_string(), oss: plan.oss, osts: plan.osts }
}

/// Says that a new file system is being made, before anything of it is.
fn begin(plan: &Plan) -> Result<(), Failure> {
    if plan.before.is_some() {
        return Ok(());
    }
    settings::begin(&plan.data, &settings(plan)).map_err(|error| settings::unwritten(&plan.data, &error))
}

/// Makes what is missing of a new file system. What was begun before a crash is finished. Gives the OSTs of an old one that are not
/// there, or not what they were.
async fn make_targets(rt: &Rt, plan: &Plan) -> Result<Missing, Failure> {
    let mut missing = Missing::new();
    for target in targets(plan) {
        let made = match existed(plan, target) {
            true => check_target(rt, plan, target).await,
            false => make_target(rt, plan, target).await,
        };
        match made {
            Err(failure) if target.kind == TargetKind::Ost && existed(plan, target) => {
                leave_out(&mut missing, target, failure);
            }
            made => made?,
        }
    }
    let written = match &plan.before {
        None => settings::finish(&plan.data),
        Some(before) if *before != settings(plan) => settings::change(&plan.data, &settings(plan)),
        Some(_) => Ok(()),
    };
    written.map_err(|error| settings::unwritten(&plan.data, &error))?;
    Ok(missing)
}

/// Whether the settings promise the target: they are written when all are made.
fn existed(plan: &Plan, target: TargetId) -> bool {
    let before = plan.before.as_ref();
    before.is_some_and(|before| target.kind != TargetKind::Ost || target.index < before.osts)
}

/// A target that is to be there already. A new one in its place would be empty.
async fn check_target(rt: &Rt, plan: &Plan, target: TargetId) -> Result<(), Failure> {
    let path = directory(plan, target);
    if is_empty(&path) {
        return Err(Failure::new(format!(
            "{} is empty or not there; mount the disk that holds {}, or bring its directory back, and start again",
            path.display(),
            target_name(plan, target)
        )));
    }
    let path = text(&path)?;
    let label = Store::read_label(rt, path).await.map_err(|error| no_label(path, error))?;
    if label.fsname != plan.fsname || label.target != target {
        return Err(Failure::new(format!(
            "{path} holds {}-{}, not {}; put the right directory there",
            label.fsname,
            label.target,
            target_name(plan, target)
        )));
    }
    Ok(())
}

async fn make_target(rt: &Rt, plan: &Plan, target: TargetId) -> Result<(), Failure> {
    let path = directory(plan, target);
    // A label comes last and at once. Without one, what is there is left of a making that was broken off, or formatting refuses it.
    if Store::read_label(rt, text(&path)?).await.is_ok() {
        return check_target(rt, plan, target).await;
    }
    let mgs = if target == TargetId::MGS { Vec::new() } else { vec![Nid::lo()] };
    let new = NewTarget { fsname: plan.fsname.clone(), target, mgs, service: Vec::new() };
    format::format(rt, &path, new).await?;
    tracing::info!(target = target_name(plan, target), "formatted");
    Ok(())
}

/// Whether nothing is in a directory, or it is not there.
fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn check(line: &str, before: Option<(&str, u32, u32)>) -> Result<(String, u32, u32), String> {
        let line = Line::try_parse_from(line.split(' ')).expect("a line that parses");
        let settings = |(fsname, oss, osts): (&str, _, _)| Settings { fsname: fsname.into(), oss, osts };
        let found = before.map_or(Found::Nothing, |before| Found::Whole(settings(before)));
        let result = reconcile(&line.arguments, Path::new("/d"), &found);
        result.map(|(fsname, oss, osts)| (fsname.to_string(), oss, osts)).map_err(|failure| failure.message)
    }

    #[test]
    fn options_and_data_are_reconciled() {
        assert_eq!(check("up /m", None), Ok(("weft".into(), 2, 4)));
        assert_eq!(check("up /m --osts 1", None), Ok(("weft".into(), 1, 1)));
        assert_eq!(check("up /m", Some(("a", 3, 9))), Ok(("a".into(), 3, 9)));
        assert_eq!(check("up /m --osts 10", Some(("a", 3, 9))), Ok(("a".into(), 3, 10)));
        let message = check("up /m --oss 5 --osts 2", None).expect_err("three servers without an OST");
        assert!(message.contains("--osts 5"), "{message}");
        for (line, said) in [
            ("up /m --osts 8", "has 9 OSTs"),
            ("up /m --oss 2", "--oss 3"),
            ("up /m --fsname b", "holds file system a, not b"),
        ] {
            let message = check(line, Some(("a", 3, 9))).expect_err("a contradiction");
            assert!(message.contains(said), "{message}");
        }
    }

    #[test]
    fn what_was_there_before_is_recalled() {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path().to_owned();
        let known = Instance {
            mountpoint: "/m".into(),
            fsname: "x".into(),
            data: data.clone(),
            listen: Some("127.0.0.1:7001@tcp".into()),
            options: "nosuid".into(),
        };
        let recall = |line: &str| {
            let line = Line::try_parse_from(line.split(' ')).expect("a line that parses");
            recalled(line.arguments, Some(known.clone())).map_err(|failure| failure.message)
        };
        let gone = recall("up /m").err().expect("there is no data");
        assert!(gone.contains("file system x was at /m before"), "{gone}");
        settings::begin(&data, &Settings { fsname: "x".into(), oss: 1, osts: 1 }).expect("a file");
        for line in ["up /m", "up /m --fsname x"] {
            let again = recall(line).expect("it is there");
            assert_eq!((again.data.as_ref(), again.options.as_str()), (Some(&data), "nosuid"), "{line}");
            assert_eq!(again.listen.map(|nid| nid.to_string()), known.listen, "{line}");
        }
        let other = recall("up /m --listen 127.0.0.1:7002@tcp -o ro").expect("it is there");
        assert_eq!((other.data, other.options.as_str()), (Some(data), "ro"));
        for line in ["up /m --data /elsewhere", "up /m --fsname y"] {
            let new = recall(line).expect("it is another one");
            assert!(new.listen.is_none() && new.options.is_empty(), "{line}");
        }
    }

    fn plan(oss: u32, osts: u32) -> Plan {
        Plan {
            mountpoint: PathBuf::new(),
            data: PathBuf::new(),
            fsname: "weft".parse().expect("a name"),
            oss,
            osts,
            before: None,
            listen: None,
            options: MountOptions::default(),
            may_permit_uring: false,
            uring_was_off: false,
            place: Place::Foreground,
        }
    }

    /// A start that was killed while it made the targets left a directory that every later start refused as somebody else's. Here the
    /// making ends after each number of steps, until it comes to its end.
    #[test]
    fn what_was_broken_off_while_it_was_made_is_made_again() {
        let temporary = tempfile::tempdir().expect("a directory");
        let make = |plan: &Plan, steps_max| {
            let (node, rt) = serving::start_runtime().expect("a runtime");
            let made = node.block_on(ends_after(steps_max, async {
                begin(plan).expect("it can be written");
                make_targets(&rt, plan).await.map_err(|failure| failure.message)
            }));
            // What the disk was told last is done then.
            node.stop(Duration::from_secs(60));
            made
        };
        let mut steps = 0;
        loop {
            let data = temporary.path().join(steps.to_string());
            let plan = Plan { data: data.clone(), ..plan(1, 2) };
            if make(&plan, steps).is_some() {
                break;
            }
            let found = settings::read(&data).expect("it is ours");
            let line = Line::try_parse_from(["up", "/m"]).expect("a line that parses");
            let (_, oss, osts) = reconcile(&line.arguments, &data, &found).expect("it can be made");
            match found {
                Found::Nothing => assert_eq!(steps, 0),
                Found::Begun(_) => assert_eq!((oss, osts), (1, 2), "as it was begun"),
                Found::Whole(_) => break,
            }
            assert_eq!(make(&plan, usize::MAX), Some(Ok(Missing::new())), "{steps}");
            assert_eq!(settings::read(&data), Ok(Found::Whole(settings(&plan))));
            steps += 1;
        }
        assert!(steps > 10, "{steps} steps");
    }

    /// The future's value, or `None` if it has not come to its end after so many steps.
    async fn ends_after<T>(steps_max: usize, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut steps = 0;
        std::future::poll_fn(|cx| {
            if steps == steps_max {
                return std::task::Poll::Ready(None);
            }
            steps += 1;
            future.as_mut().poll(cx).map(Some)
        })
        .await
    }

    #[test]
    fn neighbouring_osts_share_a_server() {
        let servers = |oss, osts| {
            let plan = plan(oss, osts);
            (0..osts).map(|index| server_of(&plan, TargetId::ost(index))).collect::<Vec<_>>()
        };
        assert_eq!(servers(2, 4), ["oss0", "oss0", "oss1", "oss1"]);
        assert_eq!(servers(2, 5), ["oss0", "oss0", "oss0", "oss1", "oss1"]);
        assert_eq!(servers(2, 1), ["oss0"]);
    }
}
