//! `weft burst`: a file system over the machines of a job, for as long as the job lasts, as BeeOND makes them and as Fugaku's LLIO has them
//! as its shared temporary area (FEATURES J9). `docs/jobs.md#burst`.
//!
//! The first machine gets the MGS and the MDT, and each one an OST and a mount. This command tells each machine what to do, one step after
//! the other (`order`), over ssh or whatever reaches it (`remote`); the machine does it (`node`).

mod node;
mod nodes;
mod order;
mod remote;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use proto::FsName;
use rt::Rt;

use self::nodes::Node;
use self::order::{Mount, Order, Serve, Step};
use self::remote::Remote;
use crate::failure::{Failure, Outcome};
use crate::serving;

/// The hidden sub-command on each machine.
const ON_NODE: &str = "on-node";
/// A machine that is gone is not waited for when the file system ends: what it had is thrown away.
const UNMOUNT_WAIT: &str = "unmount_wait=10";

/// A file system over the machines of a job, for as long as the job lasts.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Burst,
}

#[derive(Subcommand)]
enum Burst {
    Start(Start),
    Stop(Stop),
    /// Do one step on this machine, as standard input says
    #[command(name = ON_NODE, hide = true)]
    OnNode,
}

/// What both need to know.
#[derive(clap::Args)]
struct Where {
    /// The machines, one on each line: a name, and behind it an address if others reach it by another one
    #[arg(long, value_name = "FILE")]
    nodes: PathBuf,
    /// Directory of each machine below which the data lies: a local disk, or memory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Name of the file system
    #[arg(long, value_name = "NAME", default_value = "burst")]
    fsname: FsName,
    /// Command that runs another one on a machine: it is given the machine's name, and then that
    #[arg(long, value_name = "COMMAND", default_value = "ssh -o BatchMode=yes")]
    remote: String,
    /// This program on the machines [default: where it is here]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// How long a machine may take for a step
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    wait: u32,
}

/// Make it, serve it and mount it on all machines.
#[derive(clap::Args)]
struct Start {
    #[command(flatten)]
    at: Where,
    /// Where it is mounted on each machine; made if missing
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
    /// OSTs of each machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    osts: u32,
    /// Port of the servers
    #[arg(long, value_name = "PORT", default_value_t = 7990, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Owner of its root directory [default: the user on the machines]
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<(u32, u32)>,
    /// Most memory of a server, in MiB
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(32..))]
    mem_limit_mb: Option<u32>,
    /// Mount options, as of "weft mount"
    #[arg(short, value_name = "OPTIONS", default_value = "")]
    options: String,
}

/// Unmount it everywhere, and throw it away.
#[derive(clap::Args)]
struct Stop {
    #[command(flatten)]
    at: Where,
    /// Even where it is in use
    #[arg(long)]
    force: bool,
}

fn owner(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    numbers.ok_or_else(|| "write two numbers, as in 1000:1000".to_owned())
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    match &arguments.command {
        Burst::Start(start) => run_start(start),
        Burst::Stop(stop) => run_stop(stop),
        Burst::OnNode => node::run(),
    }
}

/// The machines and the way to them.
struct Machines {
    nodes: Vec<Node>,
    remote: Remote,
    fsname: String,
    data: PathBuf,
    /// The start that the orders are about; any if there is none.
    start: Option<u64>,
    wait: Duration,
    rt: Rt,
}

impl Machines {
    fn of(at: &Where, rt: &Rt, start: Option<u64>) -> Result<Machines, Failure> {
        let data = std::path::absolute(&at.data)
            .map_err(|error| Failure::new(format!("{}: {error}", at.data.display())))?;
        let wait = Duration::from_secs(u64::from(at.wait));
        let remote = Remote::new(&at.remote, at.program.as_deref(), wait)?;
        let (nodes, fsname) = (nodes::read(&at.nodes)?, at.fsname.to_string());
        Ok(Machines { nodes, remote, fsname, data, start, wait, rt: rt.clone() })
    }

    /// Has some of the machines do a step; tells of those that do not, and gives one of them.
    fn step(&self, nodes: &[Node], step: impl Fn(usize) -> Step + Sync) -> Result<(), Failure> {
        let order = |at| Order {
            fsname: self.fsname.clone(),
            data: self.data.clone(),
            start: self.start,
            number: self.rt.random_u64(),
            wait_s: self.wait.as_secs(),
            step: step(at),
        };
        let mut failed = self.remote.all(nodes, order);
        let Some((node, why)) = failed.pop() else { return Ok(()) };
        for (node, why) in failed {
            err!("weft: {node}: {why}");
        }
        Err(Failure::new(format!("{node}: {why}")))
    }

    fn unmount(&self) -> Result<(), Failure> {
        self.step(&self.nodes, |_| Step::Unmount)
    }

    fn remove(&self) -> Result<(), Failure> {
        self.step(&self.nodes, |_| Step::Remove)
    }
}

fn run_start(start: &Start) -> Outcome {
    let (_runtime, rt) = serving::start_runtime()?;
    let machines = Machines::of(&start.at, &rt, Some(rt.random_u64()))?;
    let mountpoint = std::path::absolute(&start.mountpoint)
        .map_err(|error| Failure::new(format!("{}: {error}", start.mountpoint.display())))?;
    let plan = Plan::of(start, &machines, &rt)?;
    if let Err(failure) = start_all(&machines, &plan, &mountpoint) {
        // All of it or nothing; what does not go either is told of.
        if let Err(left) = machines.remove() {
            err!("weft: {}; \"weft burst stop --force\" takes away what is left there", left.message);
        }
        return Err(failure);
    }
    let (count, at) = (machines.nodes.len(), mountpoint.display());
    let osts = count * start.osts as usize;
    out!("File system {} is up at {at} on {count} machines: {osts} OSTs.", machines.fsname);
    Ok(0)
}

/// What the machines are told at a start.
struct Plan<'a> {
    start: &'a Start,
    nids: Vec<String>,
    server_key: String,
    client_key: String,
}

impl Plan<'_> {
    fn of<'a>(start: &'a Start, machines: &Machines, rt: &Rt) -> Result<Plan<'a>, Failure> {
        let nids = machines.nodes.iter().map(|node| Ok(node.nid(start.port)?.to_string()));
        let key = || {
            let mut bytes = [0; 32];
            rt.random_bytes(&mut bytes);
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        Ok(Plan { start, nids: nids.collect::<Result<_, Failure>>()?, server_key: key(), client_key: key() })
    }

    /// For the machine with this number.
    fn serve(&self, at: usize, name: &str) -> Step {
        let each = self.start.osts;
        let first = u32::try_from(at).unwrap_or(u32::MAX).saturating_mul(each);
        Step::Serve(Serve {
            server: name.to_owned(),
            nid: self.nids[at].clone(),
            mgs: (at > 0).then(|| self.nids[0].clone()),
            osts: (first..first.saturating_add(each)).collect(),
            server_key: self.server_key.clone(),
            client_key: self.client_key.clone(),
            mem_limit_mb: self.start.mem_limit_mb,
        })
    }

    fn mount(&self, mountpoint: &Path, is_first: bool) -> Step {
        Step::Mount(Mount {
            mgs: self.nids[0].clone(),
            mountpoint: mountpoint.to_owned(),
            options: format!("{UNMOUNT_WAIT},{}", self.start.options),
            owner: self.start.owner,
            gives_root: is_first,
        })
    }
}

/// The MGS before those that register with it, and all servers before the mounts.
fn start_all(machines: &Machines, plan: &Plan<'_>, mountpoint: &Path) -> Result<(), Failure> {
    let (first, others) = machines.nodes.split_at(1);
    machines.step(first, |_| plan.serve(0, &first[0].name))?;
    machines.step(others, |at| plan.serve(at + 1, &others[at].name))?;
    machines.step(first, |_| plan.mount(mountpoint, true))?;
    machines.step(others, |_| plan.mount(mountpoint, false))
}

fn run_stop(stop: &Stop) -> Outcome {
    let (_runtime, rt) = serving::start_runtime()?;
    let machines = Machines::of(&stop.at, &rt, None)?;
    // As long as somebody uses it nothing is thrown away.
    if !stop.force {
        machines.unmount()?;
    }
    machines.remove()?;
    out!("File system {} is gone from {} machines.", machines.fsname, machines.nodes.len());
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_machine_has_the_mgs_and_all_have_osts() {
        let at = |nodes: &str| Where {
            nodes: nodes.into(),
            data: "/local".into(),
            fsname: "b".parse().expect("a name"),
            remote: "ssh".into(),
            program: None,
            wait: 1,
        };
        let start = Start {
            at: at("/n"),
            mountpoint: "/b".into(),
            osts: 2,
            port: 7990,
            owner: Some((7, 8)),
            mem_limit_mb: None,
            options: "noatime".into(),
        };
        let plan = Plan {
            start: &start,
            nids: vec!["10.0.0.1:7990@tcp".into(), "10.0.0.2:7990@tcp".into()],
            server_key: "s".into(),
            client_key: "c".into(),
        };
        let (Step::Serve(first), Step::Serve(second)) = (plan.serve(0, "a"), plan.serve(1, "b")) else {
            panic!("they serve")
        };
        assert_eq!((first.mgs, first.osts), (None, vec![0, 1]));
        assert_eq!((second.mgs.as_deref(), second.osts), (Some("10.0.0.1:7990@tcp"), vec![2, 3]));
        let Step::Mount(mount) = plan.mount(Path::new("/b"), false) else { panic!("it is mounted") };
        assert_eq!((mount.options.as_str(), mount.gives_root), ("unmount_wait=10,noatime", false));
        assert_eq!((owner("1:2"), owner("1").is_err(), owner("x:y").is_err()), (Ok((1, 2)), true, true));
    }
}
