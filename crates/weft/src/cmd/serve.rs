//! `weft serve`: serves targets until it is told to end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto::{FsName, Nid};
use rpc::{Hub, Keys, Role};
use rt::Rt;
use rt::wait::unless;
use server::owner::{Fence, Me, MgsOwners, OwnerStore, Ownerships, Supervised, supervise};
use store::{Label, Store, StoreError};

use crate::cmd::format::text;
use crate::daemon::Place;
use crate::failure::{Failure, Outcome};
use crate::predecessor::Patience;
use crate::servers::{self, Served, Server};
use crate::{fence, keys, mountpoint, owners, serving};

/// Serve targets; runs until it is stopped.
#[derive(clap::Args)]
pub struct Arguments {
    /// Directories of targets, all of one file system. Those that other servers may serve too ("weft format
    /// --servicenode") are served as long as they are this server's
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Where to listen; 0.0.0.0 stands for every address of this machine
    #[arg(long, value_name = "ADDR@tcp", default_value = "0.0.0.0@tcp")]
    listen: Nid,
    /// Name of this server; targets of one server share its fate [default: the host's name]
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// The servers' key; the clients' key lies beside it [default: /etc/weft/FSNAME.server.key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Most memory that this process may hold, in MiB [default: half of the machine's, or of its memory group's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(32..))]
    mem_limit_mb: Option<u32>,
    #[command(flatten)]
    protection: serving::Protection,
    #[command(flatten)]
    owners: owners::Options,
    #[command(flatten)]
    fence: fence::Options,
    #[arg(long = "background-child", hide = true)]
    child: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Outcome {
    if arguments.listen.is_lo() {
        return Err(Failure::usage("0@lo cannot be listened at; write --listen ADDRESS@tcp"));
    }
    let place = Place::from_flags(true, arguments.child);
    place.enter()?;
    let outcome = serve(arguments, place);
    if let Err(failure) = &outcome {
        place.failed(failure);
    }
    outcome
}

fn serve(arguments: Arguments, place: Place) -> Outcome {
    let signals = serving::catch_signals()?;
    let (os, rt) = serving::start_runtime_within(arguments.mem_limit_mb)?;
    os.block_on(async {
        let (labels, missing) = labels(&rt, &arguments.directories).await?;
        let fsname = one_filesystem(&labels)?;
        let etcd = arguments.owners.etcd(&os, &rt, &fsname)?;
        let fence = arguments.fence.fence(&os)?;
        let hub = serving::hub(
            &rt,
            &fsname,
            read_keys(&fsname, arguments.key.as_deref())?,
            arguments.protection.protect,
        );
        let patience = Patience::new(&rt);
        let nids = serving::listen(&hub, &arguments.listen, &patience).await?;
        let server = arguments.server.unwrap_or_else(host_name);
        let names: Vec<String> =
            labels.iter().map(|(_, label)| format!("{fsname}-{}", label.target)).collect();
        let at: Vec<String> = nids.iter().map(ToString::to_string).collect();
        tracing::info!(targets = names.join(" "), nids = at.join(" "), server, "starting");
        // Before the targets start: an operator may ask while they wait for their MGS or for clients.
        let _announced = servers::announce(&Server {
            fsname: fsname.to_string(),
            pid: std::process::id(),
            nids: at.clone(),
            key: keys::resolve(arguments.key.as_deref(), &fsname, Role::Server).and_then(keys::absolute)?,
            targets: labels.iter().map(|(_, label)| served(label, &nids)).collect(),
            mgs: mgs_of(&labels, &nids).iter().map(ToString::to_string).collect(),
            directories: labels.iter().map(|(path, _)| path.into()).collect(),
            missing,
        });
        let node = Node { hub: hub.clone(), patience, nids, server, etcd, fence };
        if let Some(supervised) = start_unless_told(&node, &labels, &signals).await? {
            let names = supervised.iter().map(|target| format!("{fsname}-{}", target.target()));
            let names = names.collect::<Vec<_>>().join(" ");
            place.ready(&format!("serving {names} at {}", at.join(" ")));
            signals.wait().await;
            serving::stop_supervised(supervised).await;
        }
        hub.close().await;
        Ok(0)
    })
}

/// A target as the tools of this host are to know it.
fn served(label: &Label, nids: &[Nid]) -> Served {
    let elsewhere = label.service.iter().filter(|nid| !nids.contains(nid)).map(ToString::to_string);
    Served { elsewhere: elsewhere.collect(), ..label.target.into() }
}

/// This server.
struct Node {
    hub: Hub,
    patience: Patience,
    nids: Vec<Nid>,
    server: String,
    /// Who keeps the owners, if not the MGS.
    etcd: Option<Arc<dyn OwnerStore>>,
    fence: Option<Arc<dyn Fence>>,
}

impl Node {
    /// Starts all targets; those that others may serve too stand by until it is their turn. What does not start is left out, as
    /// long as something does.
    async fn start(&self, labels: &[(String, Label)]) -> Result<Vec<Arc<Supervised>>, Failure> {
        for (path, label) in labels {
            self.check(path, label)?;
        }
        let shared = labels.iter().find(|(_, label)| !label.service.is_empty());
        let ownerships = shared.map(|(_, label)| {
            let store =
                self.etcd.clone().unwrap_or_else(|| Arc::new(MgsOwners::new(&self.hub, label.mgs.clone())));
            let me = Me {
                server: self.server.clone(),
                instance: self.hub.rt().random_u64().max(1),
                nids: self.nids.clone(),
            };
            Ownerships::start(self.hub.rt(), me, store, self.fence.clone())
        });
        let mut supervised = Vec::new();
        let mut first = None;
        for (path, label) in labels {
            let config =
                server::Config { path: path.clone(), nids: self.nids.clone(), server: self.server.clone() };
            let ownerships = ownerships.clone().filter(|_| !label.service.is_empty());
            let supervised_now = self.patience.attempt(serving::is_in_use, async || {
                supervise(&self.hub, config.clone(), label, ownerships.clone()).await
            });
            match supervised_now.await {
                Ok(target) => supervised.push(target),
                Err(error) => {
                    let failure = serving::start_failure(error);
                    tracing::error!(target = %label.target, why = failure.message, "not served; files there wait");
                    first.get_or_insert(failure);
                }
            }
        }
        match first {
            Some(failure) if supervised.is_empty() => Err(failure),
            _ => Ok(supervised),
        }
    }

    /// A target may be served here.
    fn check(&self, path: &str, label: &Label) -> Result<(), Failure> {
        if label.service.is_empty() {
            return Ok(());
        }
        if label.service.iter().any(|nid| self.nids.contains(nid)) {
            return match mountpoint::entry(Path::new(path))? {
                Some(entry) if mounts_once(&entry.kind, &entry.source) => Err(Failure::new(format!(
                    "{path} is a file system of its own ({} on {}), which only one machine may mount at a time, and has several service nodes; weft does not see to that: use a file system that all of them may mount, or format the target without --servicenode",
                    entry.kind, entry.source
                ))),
                _ => Ok(()),
            };
        }
        let text = |nids: &[Nid]| nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Err(Failure::new(format!(
            "{path} may be served at {}, and this server is at {}; name its address with --listen",
            text(&label.service),
            text(&self.nids)
        )))
    }
}

/// Whether a file system is on a block device and not made for several machines.
fn mounts_once(kind: &str, source: &str) -> bool {
    source.starts_with("/dev/") && !["gfs2", "ocfs2"].contains(&kind)
}

/// Where the MGS is, as far as the targets know.
fn mgs_of(labels: &[(String, Label)], nids: &[Nid]) -> Vec<Nid> {
    let told = labels.iter().find(|(_, label)| !label.mgs.is_empty());
    told.map_or_else(|| nids.to_vec(), |(_, label)| label.mgs.clone())
}

/// Starts targets; `None` if the process is told to end before (a target waits for its MGS for ever).
async fn start_unless_told(
    node: &Node,
    labels: &[(String, Label)],
    signals: &rt::os::process::Signals,
) -> Result<Option<Vec<Arc<Supervised>>>, Failure> {
    unless(signals.wait(), node.start(labels)).await.transpose()
}

/// The targets in `directories`, and a sentence for each that holds none. An error if there is no target at all.
async fn labels(rt: &Rt, directories: &[PathBuf]) -> Result<(Vec<(String, Label)>, Vec<String>), Failure> {
    let (mut labels, mut missing) = (Vec::new(), Vec::new());
    for directory in directories {
        let path = std::path::absolute(directory)
            .map_err(|error| Failure::new(format!("{}: {error}", directory.display())))?;
        let path = text(&path)?.to_owned();
        match Store::read_label(rt, &path).await.map_err(|error| no_label(&path, error)) {
            Ok(label) => labels.push((path, label)),
            Err(failure) => {
                tracing::error!(why = failure.message, "not served");
                missing.push(failure.message);
            }
        }
    }
    if let ([], [first, ..]) = (labels.as_slice(), missing.as_slice()) {
        return Err(Failure::new(first.clone()));
    }
    // The MGS first: the others wait for it.
    labels.sort_by_key(|(_, label)| label.target);
    Ok((labels, missing))
}

/// Why a directory cannot be used as a target.
pub fn no_label(path: &str, error: StoreError) -> Failure {
    match error {
        StoreError::Io(error) => Failure::new(format!("{path}: {}", crate::control::describe(&error))),
        other => Failure::new(format!(
            "{path} holds no target that can be served: {other}; \"weft format\" makes targets"
        )),
    }
}

fn one_filesystem(labels: &[(String, Label)]) -> Result<FsName, Failure> {
    let (first_path, first) =
        labels.first().ok_or_else(|| Failure::usage("name the directory of a target"))?;
    match labels.iter().find(|(_, label)| label.fsname != first.fsname) {
        Some((path, label)) => Err(Failure::new(format!(
            "{first_path} belongs to file system {}, and {path} to {}; serve them with two commands",
            first.fsname, label.fsname
        ))),
        None => Ok(first.fsname.clone()),
    }
}

/// A server has both keys: it proves the one and checks the other.
fn read_keys(fsname: &FsName, server_key: Option<&Path>) -> Result<Keys, Failure> {
    let server = keys::resolve(server_key, fsname, Role::Server)?;
    let client = keys::path(server.parent().unwrap_or(Path::new("/")), fsname, Role::Client);
    Ok(Keys { server: Some(keys::read(&server)?), client: Some(keys::read(&client)?) })
}

pub(super) fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "server".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_one_machine_may_mount() {
        assert!(mounts_once("ext4", "/dev/sdb1") && mounts_once("xfs", "/dev/mapper/ost0"));
        assert!(!mounts_once("nfs4", "10.0.0.9:/ost0") && !mounts_once("gfs2", "/dev/sdb1"));
        assert!(!mounts_once("tmpfs", "tmpfs"));
    }
}
