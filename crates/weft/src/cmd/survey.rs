//! `weft survey`: how fast each layer is, one at a time or all of them one above the other, and what each of them loses.

use std::path::PathBuf;
use std::time::Duration;

use proto::Nid;
use rpc::Key;
use rt::Rt;
use rt::os::Node;
use rt::os::process::Signals;
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::serving::{self, Protection};
use crate::size;
use crate::survey::{Bounds, DEPTHS, Data, PIECE, Speed, Way, client, disk, net, store};
use crate::{keys, table};

/// Measure a layer: pieces of 1 MiB are written and read, one at a time and eight at a time. What is written for that is removed.
/// MB are millions of bytes.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    layer: Layer,
    /// How much each measurement moves at most
    #[arg(long, global = true, value_name = "SIZE", default_value = "1G", value_parser = size::bytes)]
    size: u64,
    /// How long each measurement takes at most
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Layer {
    /// The device below a directory, past all caches
    Disk {
        /// A directory on the device
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// The store of a target, without a server
    Store {
        /// A directory on the device that targets are to lie on
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// A connection, without any storage: to another host, or within this one
    Net(NetArguments),
    /// A mount
    Client {
        /// A directory in the mount
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// All layers, from the device to the mount, and what each of them loses
    All {
        /// A directory on the device of the targets
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// A directory in the mount; without one, the ladder ends with the network
        #[arg(value_name = "MOUNTED")]
        mounted: Option<PathBuf>,
    },
}

#[derive(clap::Args)]
struct NetArguments {
    /// Where "weft survey net --listen" runs [default: in this process]
    #[arg(value_name = "ADDR@tcp", requires = "key")]
    nid: Option<Nid>,
    /// Be the other side: answer at this address until Ctrl-C
    #[arg(long, value_name = "ADDR@tcp", conflicts_with = "nid", requires = "key")]
    listen: Option<Nid>,
    /// A key that both sides have, such as the file system's
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    protection: Protection,
}

/// What was found of one layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Found {
    layer: &'static str,
    speeds: Vec<Speed>,
    /// Of a question that moves nothing, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ping_us: Option<f64>,
}

/// A step of the ladder.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Step {
    layer: &'static str,
    write_mb_per_s: f64,
    /// Of what the layers below leave, in percent; 0 if it is no slower than they are.
    write_lost_percent: f64,
    read_mb_per_s: f64,
    read_lost_percent: f64,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    // Before threads are started, which would end with the signal and leave files behind.
    let signals = serving::catch_signals()?;
    let (node, rt) = serving::start_runtime()?;
    let ended = || signals.count() > 0;
    let bounds = Bounds {
        bytes: (arguments.size / PIECE).max(1) * PIECE,
        time: Duration::from_secs(u64::from(arguments.seconds)),
        ended: &ended,
    };
    let surveyor = Surveyor { node: &node, rt: &rt, bounds, data: Data::new(&rt) };
    match &arguments.layer {
        Layer::Net(net) if net.listen.is_some() => surveyor.listen(net, &signals),
        Layer::All { dir, mounted } => surveyor.all(dir, mounted.as_deref(), arguments.json),
        layer => surveyor.one(layer, arguments.json),
    }
}

struct Surveyor<'a> {
    node: &'a Node,
    rt: &'a Rt,
    bounds: Bounds<'a>,
    data: Data,
}

impl Surveyor<'_> {
    fn one(&self, layer: &Layer, as_json: bool) -> Outcome {
        let found = match layer {
            Layer::Disk { dir } => self.disk(dir)?,
            Layer::Store { dir } => self.store(dir)?,
            Layer::Client { dir } => self.client(dir)?,
            Layer::Net(arguments) => self.net(arguments)?,
            Layer::All { .. } => return Err(Failure::usage("all layers are no single one")),
        };
        if as_json {
            out!("{}", json(&found)?);
        } else {
            out!("{}", render(&found).trim_end());
        }
        Ok(0)
    }

    fn all(&self, dir: &std::path::Path, mounted: Option<&std::path::Path>, as_json: bool) -> Outcome {
        let mut found = vec![self.disk(dir)?, self.store(dir)?, self.net(&NetArguments::here())?];
        if let Some(mounted) = mounted {
            found.push(self.client(mounted)?);
        }
        let steps = ladder(&found);
        if as_json {
            #[derive(Serialize)]
            struct All {
                ladder: Vec<Step>,
                layers: Vec<Found>,
            }
            out!("{}", json(&All { ladder: steps, layers: found })?);
        } else {
            out!("{}", render_ladder(&steps).trim_end());
            if mounted.is_none() {
                out!("Name a directory of a mount, too, and the ladder has its last step.");
            }
        }
        Ok(0)
    }

    fn disk(&self, dir: &std::path::Path) -> Result<Found, Failure> {
        let speeds = disk::measure((self.node, self.rt), dir, &self.bounds, &self.data)?;
        Ok(Found { layer: "disk", speeds, ping_us: None })
    }

    fn store(&self, dir: &std::path::Path) -> Result<Found, Failure> {
        let speeds = store::measure((self.node, self.rt), dir, &self.bounds, &self.data)?;
        Ok(Found { layer: "store", speeds, ping_us: None })
    }

    fn client(&self, dir: &std::path::Path) -> Result<Found, Failure> {
        let speeds = client::measure(dir, &self.bounds, &self.data)?;
        Ok(Found { layer: "client", speeds, ping_us: None })
    }

    fn net(&self, arguments: &NetArguments) -> Result<Found, Failure> {
        let peers = self.peers(arguments)?;
        let (speeds, ping) = net::measure((self.node, self.rt), &peers, &self.bounds, &self.data)?;
        Ok(Found { layer: "net", speeds, ping_us: Some(ping) })
    }

    fn listen(&self, arguments: &NetArguments, signals: &Signals) -> Outcome {
        let nid = arguments.listen.as_ref().ok_or_else(|| Failure::usage("--listen has no address"))?;
        net::serve((self.node, self.rt), nid, &self.peers(arguments)?, signals)?;
        Ok(0)
    }

    fn peers(&self, arguments: &NetArguments) -> Result<net::Peers, Failure> {
        let key = match &arguments.key {
            Some(file) => keys::read(file)?,
            None => Key::generate(self.rt),
        };
        Ok(net::Peers { nid: arguments.nid.clone(), key, protect: arguments.protection.protect.clone() })
    }
}

impl NetArguments {
    /// Within this process.
    fn here() -> NetArguments {
        NetArguments { nid: None, listen: None, key: None, protection: Protection::default() }
    }
}

fn json(what: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(what)
        .map_err(|error| Failure::new(format!("the result is no JSON: {error}")))
}

/// The fastest that a layer is in one direction.
fn fastest(found: &Found, way: Way) -> f64 {
    let speeds = found.speeds.iter().filter(|speed| speed.way == way);
    speeds.map(|speed| speed.mb_per_s).fold(0.0, f64::max)
}

/// What each layer loses of what those below it leave. The network is a layer like the others: what is behind it cannot be faster.
fn ladder(found: &[Found]) -> Vec<Step> {
    let mut left = (f64::INFINITY, f64::INFINITY);
    let lost = |left: f64, speed: f64| {
        if left.is_finite() && left > speed { (left - speed) * 100.0 / left } else { 0.0 }
    };
    let step = |found: &Found| {
        let (write, read) = (fastest(found, Way::Write), fastest(found, Way::Read));
        let step = Step {
            layer: found.layer,
            write_mb_per_s: write,
            write_lost_percent: lost(left.0, write),
            read_mb_per_s: read,
            read_lost_percent: lost(left.1, read),
        };
        left = (left.0.min(write), left.1.min(read));
        step
    };
    found.iter().map(step).collect()
}

fn render(found: &Found) -> String {
    let of = |way: Way, depth: u64| {
        let speed = found.speeds.iter().find(|speed| speed.way == way && speed.depth == depth);
        speed.map_or(String::new(), |speed| format!("{:.1}", speed.mb_per_s))
    };
    let row = |depth: u64| vec![depth.to_string(), of(Way::Write, depth), of(Way::Read, depth)];
    let rows: Vec<Vec<String>> = DEPTHS.into_iter().map(row).collect();
    let mut text = table::render(&["AT A TIME", "WRITE MB/s", "READ MB/s"], &rows);
    if let Some(ping) = found.ping_us {
        text += &format!("A question that moves nothing: {ping:.1} us\n");
    }
    text
}

fn render_ladder(steps: &[Step]) -> String {
    let row = |(number, step): (usize, &Step)| {
        let lost = |percent: f64| if number == 0 { String::new() } else { format!("{percent:.0} %") };
        vec![
            step.layer.to_owned(),
            format!("{:.1}", step.write_mb_per_s),
            lost(step.write_lost_percent),
            format!("{:.1}", step.read_mb_per_s),
            lost(step.read_lost_percent),
        ]
    };
    let rows: Vec<Vec<String>> = steps.iter().enumerate().map(row).collect();
    table::render(&["LAYER", "WRITE MB/s", "LOST", "READ MB/s", "LOST"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(layer: &'static str, write: f64, read: f64) -> Found {
        let speed = |way, mb_per_s| Speed { way, depth: 8, bytes: 0, seconds: 1.0, mb_per_s };
        Found { layer, speeds: vec![speed(Way::Write, write), speed(Way::Read, read)], ping_us: None }
    }

    /// The network is faster than the store here, and loses nothing; the client loses of what the store leaves.
    #[test]
    fn each_step_loses_of_what_is_left() {
        let all = [
            found("disk", 1000.0, 2000.0),
            found("store", 920.0, 1800.0),
            found("net", 3000.0, 1600.2),
            found("client", 818.8, 1600.2),
        ];
        assert_eq!(
            render_ladder(&ladder(&all)),
            "\
LAYER   WRITE MB/s  LOST  READ MB/s  LOST
disk    1000.0            2000.0
store   920.0       8 %   1800.0     10 %
net     3000.0      0 %   1600.2     11 %
client  818.8       11 %  1600.2     0 %
"
        );
    }

    #[test]
    fn a_layer_is_shown_by_depth() {
        let found = Found { ping_us: Some(12.34), ..found("net", 10.0, 20.0) };
        assert_eq!(
            render(&found),
            "AT A TIME  WRITE MB/s  READ MB/s\n1\n8          10.0        20.0\nA question that moves nothing: 12.3 us\n"
        );
    }
}
