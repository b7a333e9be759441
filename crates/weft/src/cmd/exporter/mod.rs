//! `weft exporter`: what the targets and mounts of a host count, for Prometheus.

pub mod collect;
mod metrics;
mod text;

use std::net::SocketAddr;
use std::path::PathBuf;

use rt::os::web::{Asked, Page};

use crate::daemon::Place;
use crate::failure::Outcome;
use crate::lctl::reach::Reach;
use crate::turns::{self, Turn};
use crate::{keys, serving};
use collect::Most;

/// Kind of the text, as Prometheus asks for it.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answer Prometheus: statistics of the targets and mounts of this machine, by the names of lustrefs-exporter.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where to listen; everybody who reaches it can read the statistics
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:32221")]
    listen: SocketAddr,
    /// Print the statistics once instead
    #[arg(long, conflicts_with = "listen")]
    once: bool,
    /// Jobs of each target that are shown one by one: those that have done most. The others are one job, "other"
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    jobs_max: usize,
    /// Users, groups and projects of each target that are shown: those that have most space. With 0 targets are not asked for them
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    owners_max: usize,
    /// The servers' key: ask the servers of every file system that is mounted here, too
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

impl Arguments {
    fn most(&self) -> Most {
        Most { jobs: self.jobs_max, owners: self.owners_max }
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    if let Some(key) = &arguments.key {
        // A wrong one is told of now, and not when there is something to use it for.
        keys::read(key)?;
    }
    let mut reach = Reach::new(arguments.key.as_deref())?;
    if arguments.once {
        crate::out::print(collect::collect(&mut reach, arguments.most())?);
        return Ok(0);
    }
    Place::Foreground.enter()?;
    let (node, _) = serving::start_runtime()?;
    let (server, addr) = turns::listen(&node, arguments.listen)?;
    let (turn, asked) = turns::turns();
    node.spawn_apart(Box::pin(server.run(move |asked| answer(asked, turn.clone()))));
    Place::Foreground.ready(&format!("metrics at http://{addr}/metrics"));
    for question in asked {
        let page = match reach.look_again(arguments.key.as_deref()) {
            Ok(()) => collect::collect(&mut reach, arguments.most()),
            Err(failure) => Err(failure),
        };
        // Prometheus may have gone.
        let _ = question.send(match page {
            Ok(body) => Page { status: 200, kind: METRICS, body },
            Err(failure) => Page { status: 500, kind: TEXT, body: format!("{}\n", failure.message) },
        });
    }
    Ok(0)
}

async fn answer(asked: Asked, turn: Turn) -> Page {
    match asked.path.as_str() {
        "/metrics" => turn.ask().await,
        "/" => Page { status: 200, kind: TEXT, body: "weft exporter: /metrics\n".to_owned() },
        _ => Page { status: 404, kind: TEXT, body: "only /metrics is here\n".to_owned() },
    }
}
