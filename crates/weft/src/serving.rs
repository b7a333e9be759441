//! What every process that serves targets or mounts has: a runtime, targets, and an end in order.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::{AttrChange, Caller, Client, TakenSettings};
use fuse::control::Status;
use fuse::ops::Ops;
use fuse::session::{self, Mounted};
use fuse::socket;
use proto::{Code, Fid, FsName, Nid, TargetKind};
use rpc::{Hub, Keys, Protect};
use rt::Rt;
use rt::os::process::Signals;
use rt::wait::{Either, join_all, race};
use server::StartError;
use server::owner::{Supervised, supervise};
use store::Store;

use crate::failure::{Failure, LOST, Outcome};
use crate::memory::Own;
use crate::predecessor::Patience;
use crate::{log, servers};

/// How long a process whose mount was taken away by force, or that is told to end a second time, tries to tell the servers
/// what it has, while nothing moves.
const FORCED_WAIT: Duration = Duration::from_secs(5);
/// How long the kernel may take to write back what was changed through mappings, when the process is told to end.
const WRITE_BACK_WAIT: Duration = Duration::from_secs(2);
/// Fewest threads of a runtime.
const THREADS_MIN: usize = 2;

/// Set to `no`, tasks run without io_uring: for kernels where it is permitted and does not work, and for comparing.
const RINGS_VARIABLE: &str = "WEFT_RINGS";

/// Starts the runtime of this process.
pub fn start_runtime() -> Result<(rt::os::Node, Rt), Failure> {
    let threads = std::thread::available_parallelism().map_or(THREADS_MIN, std::num::NonZero::get);
    let threads = threads.max(THREADS_MIN);
    let node = match std::env::var_os(RINGS_VARIABLE).is_some_and(|value| value == "no") {
        true => rt::os::Node::start_without_rings(threads),
        false => rt::os::Node::start(threads),
    };
    let node = node.map_err(|error| Failure::new(format!("the runtime does not start: {error}")))?;
    let rt = Rt::os(node.clone());
    Ok((node, rt))
}

/// Starts the runtime of this process, which may hold `mem_limit_mb` MiB; without it, what there is decides.
pub fn start_runtime_within(mem_limit_mb: Option<u32>) -> Result<(rt::os::Node, Rt), Failure> {
    let (node, rt) = start_runtime()?;
    if let Some(mb) = mem_limit_mb {
        node.block_on(rt.set_memory_limit(u64::from(mb) << 20));
    }
    Ok((node, rt))
}

/// How connections to other machines are protected.
#[derive(Debug, Default, clap::Args)]
pub struct Protection {
    /// How connections are protected: mac (every frame is authenticated), mac-crc (bulk data by a checksum only) or
    /// encrypt; then +ADDRESS/BITS=WAY for others with some addresses, where it may be none too [default: mac]
    #[arg(long, value_name = "WAY")]
    pub protect: Option<Protect>,
}

/// The services and imports of this process.
pub fn hub(rt: &Rt, fsname: &FsName, keys: Keys, protect: Option<Protect>) -> Hub {
    let hub = mounting::connect::hub(rt, fsname, keys, protect);
    hub.set_process(Arc::new(Own::new(rt.clone(), log::of_process())));
    hub
}

/// Takes the signals that tell the process to end. Call before threads are started.
pub fn catch_signals() -> Result<Signals, Failure> {
    Signals::catch().map_err(|error| Failure::new(format!("signals cannot be taken: {error}")))
}

/// Starts a target, and opens it again when it fails.
pub async fn start(hub: &Hub, config: server::Config) -> Result<Arc<Supervised>, StartError> {
    let label = Store::read_label(hub.rt(), &config.path).await;
    let label = label.map_err(|error| StartError::Store { path: config.path.clone(), error })?;
    supervise(hub, config, &label, None).await
}

/// Whether another process has the target.
pub fn is_in_use(error: &StartError) -> bool {
    matches!(error, StartError::Store { error: store::StoreError::Io(error), .. }
        if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Stops targets: the MDT while the OSTs can still be told what to destroy, the MGS last.
pub async fn stop_supervised(mut supervised: Vec<Arc<Supervised>>) {
    supervised.sort_by_key(|target| stop_order(target.target().kind));
    for of_a_kind in supervised.chunk_by(|one, other| one.target().kind == other.target().kind) {
        let stopping = of_a_kind.iter().map(|target| async move {
            target.stop().await;
            tracing::info!(target = %target.target(), "stopped");
        });
        join_all(stopping).await;
    }
}

fn stop_order(kind: TargetKind) -> u8 {
    match kind {
        TargetKind::Mdt => 0,
        TargetKind::Ost => 1,
        TargetKind::Mgs => 2,
    }
}

/// Why a target does not start, for a person.
pub fn start_failure(error: StartError) -> Failure {
    let in_use = is_in_use(&error);
    match error {
        StartError::Store { path, .. } if in_use => {
            Failure::new(format!("{path} is in use by another process; stop that one first"))
        }
        StartError::Store { path, error: store::StoreError::NotATarget(why) } => {
            Failure::new(format!("{path} cannot be served: {why}; \"weft format\" makes targets"))
        }
        StartError::NotAccepted { target, path, code: Code::Older } => Failure::new(format!(
            "{path} holds an older copy of {target}: the MGS has seen it at a later state. Serve the newer one; if that is lost, \
             \"weft check --accept-older-copy {path}\" has this one served (docs/operations.md#older)"
        )),
        StartError::NotAccepted { target, path, code: Code::Busy } => Failure::new(format!(
            "{path} holds a copy of {target}, which is being served at another address; stop that one first"
        )),
        StartError::NotAccepted { target, path, code: Code::IndexUsed } => Failure::new(format!(
            "the MGS refused {target}: its index is used by another target. Remove {path} and format it anew: with an index that is free, \
             or with --replace if the other one is lost and nobody serves it (docs/operations.md#replace)"
        )),
        StartError::NotAccepted { target, path, code: Code::Removed } => Failure::new(format!(
            "the MGS refused {target}: it was taken out of the file system. \"lctl del_ost --undo --target\" takes that back; if \
             nothing in {path} is needed, remove it, and format it with --replace (docs/operations.md#remove)"
        )),
        StartError::NotAccepted { target, path, code: Code::WrongFilesystem } => Failure::new(format!(
            "the MGS refused {target}: the target in {path} belongs to another file system than the MGS that it names"
        )),
        StartError::NotAccepted { target, code: Code::Forbidden, .. } => Failure::new(format!(
            "the MGS refused {target}: the servers' key is not the file system's; name the right one with --key"
        )),
        StartError::Refused { target, code: Code::IndexUsed } => Failure::new(format!(
            "the MGS refused {target}: its index is used by another target; format it anew with an index that is free, or with \
             --replace if that one is lost"
        )),
        StartError::Refused { target, code: Code::Forbidden } => Failure::new(format!(
            "the MGS refused {target}: the servers' key is not the file system's; name the right one with --key"
        )),
        other => Failure::new(other.to_string()),
    }
}

/// Listens at `listen`, as soon as a process that was there before is gone, and gives the NIDs under which others reach this process.
pub async fn listen(hub: &Hub, listen: &Nid, patience: &Patience) -> Result<Vec<Nid>, Failure> {
    let addr = rpc::dialled(listen).map_err(|error| Failure::usage(error.to_string()))?;
    let is_taken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
    let bound = patience.attempt(is_taken, async || hub.listen(&addr).await).await.map_err(|error| {
        Failure::new(format!(
            "{addr} cannot be listened at: {}; name an address of this machine and a free port with --listen",
            crate::control::describe(&error)
        ))
    })?;
    tracing::info!(%bound, "listening");
    let bound: std::net::SocketAddr = match bound.0.parse() {
        Ok(bound) => bound,
        Err(_) => return Ok(vec![listen.clone()]),
    };
    let addresses = if bound.ip().is_unspecified() { own_addresses()? } else { vec![bound.ip()] };
    Ok(addresses.into_iter().map(|ip| Nid { net: listen.net, ..nid(ip, bound.port()) }).collect())
}

fn nid(ip: IpAddr, port: u16) -> Nid {
    let host = match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let address =
        if port == proto::limits::PORT_DEFAULT && ip.is_ipv4() { host } else { format!("{host}:{port}") };
    Nid::tcp(address)
}

/// The addresses that others may know this machine by; its own loopback if it has no other.
fn own_addresses() -> Result<Vec<IpAddr>, Failure> {
    let mut addresses: Vec<IpAddr> = rt::os::process::addresses()
        .map_err(|error| {
            Failure::new(format!("this machine's addresses cannot be read: {error}; use --listen"))
        })?
        .into_iter()
        .filter(|ip| match ip {
            IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
            // Link-local addresses mean nothing without the interface.
            IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
        })
        .collect();
    // IPv4 first: it is what most clusters route.
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.dedup();
    addresses.truncate(proto::limits::NIDS_MAX);
    if addresses.is_empty() {
        addresses.push(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
    }
    Ok(addresses)
}

/// Gives the root directory, which is the superuser's in a new file system, to a user and group.
pub async fn give_root(client: &Client, (uid, gid): (u32, u32)) -> Result<(), Failure> {
    let failed = |error| Failure::new(format!("the root directory cannot be given to {uid}:{gid}: {error}"));
    let root = Caller { uid: 0, gid: 0, groups: Arc::new(Vec::new), umask: 0, gives_way: false };
    let change = AttrChange { uid: Some(uid), gid: Some(gid), ..AttrChange::default() };
    client.files().setattr(&root, Fid::ROOT, change, None).await.map_err(failed)?;
    client.sync_all().await.map_err(failed)
}

/// A mount, and what answers the tools.
pub struct Served {
    mounted: Mounted,
    control: Option<socket::Served>,
}

/// Mounts `client` at `path`.
pub async fn mount(
    rt: &Rt,
    client: &Arc<Client>,
    path: &Path,
    options: &session::Options,
    status: Status,
) -> Result<Served, Failure> {
    let ops = Arc::new(Ops::new(rt.clone(), client.clone(), status, options.access_times()));
    // Nobody uses it before it has what the MGS keeps for it.
    let mut taken = TakenSettings::default();
    ops.take_settings(&mut taken).await;
    let mounted = session::mount(rt.clone(), ops.clone(), path, options);
    let mounted = mounted.map_err(|error| Failure::new(error.to_string()))?;
    rt.spawn(ops.clone().follow_settings(taken));
    let control = mounted.device().and_then(|device| listen_to_tools(rt, ops, device));
    Ok(Served { mounted, control })
}

/// The control socket of the mount with this device. Tools do without: they ask through the mount then.
fn listen_to_tools(rt: &Rt, ops: Arc<Ops>, device: u32) -> Option<socket::Served> {
    let served = servers::directory().map_err(|failure| failure.message).and_then(|directory| {
        let path = socket::path(&directory, device);
        let served = servers::make(&directory).and_then(|()| socket::serve(rt.clone(), ops, &path));
        served.map_err(|error| format!("{}: {error}", path.display()))
    });
    served.inspect_err(|error| tracing::warn!(error, "tools ask this mount through the kernel")).ok()
}

/// Waits until the mount is taken away or the process is told to end, and then ends the client. It tries to tell the servers
/// what it still has, until nothing has moved for `patience`. Gives the exit status: 0 if all of it has reached them.
pub async fn serve_mount(
    rt: &Rt,
    served: Served,
    client: &Client,
    signals: &Signals,
    patience: Duration,
) -> Outcome {
    let Served { mut mounted, control } = served;
    mounted.guard();
    let told = race(mounted.ended(), signals.wait()).await;
    let mut forced = false;
    // From now on another mount may have the number.
    drop(control);
    match told {
        Either::First(Ok(())) => {
            forced = mounted.was_forced();
            tracing::info!(forced, "unmounted");
        }
        Either::First(Err(error)) => tracing::error!(%error, "the kernel ended the mount"),
        Either::Second(()) => {
            tracing::info!("told to end");
            if let Err(error) = mounted.unmount() {
                tracing::warn!(%error, "the mount point stays behind");
            }
            let _ = rt.timeout(WRITE_BACK_WAIT, client.files().write_mappings_back()).await;
            // Nothing is taken from now on that could not be written any more. Who still uses the mount gets an error.
            mounted.abort();
        }
    }
    let before = signals.count();
    let goes_on = |idle: Duration| {
        let hurried = forced || signals.count() > before;
        idle < if hurried { patience.min(FORCED_WAIT) } else { patience }
    };
    match client.unmount_while(goes_on).await {
        Ok(Ok(())) => return Ok(0),
        Ok(Err(error)) => tracing::error!(%error, "not everything that was written has reached the servers"),
        Err(lost) => tracing::error!("the servers do not answer: {lost}"),
    }
    Ok(LOST)
}

/// What a mount says of itself.
pub fn status(fsname: &FsName, mgs: &[Nid]) -> Status {
    Status {
        fsname: fsname.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        mgs: mgs.iter().map(ToString::to_string).collect(),
        data: None,
        serves: Vec::new(),
        fuse_engine: None,
        not_served: Vec::new(),
    }
}
