//! `--fence`: a program of the operator's that keeps a former owner from a target.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rt::BoxFuture;
use rt::os::process::{Program, RunError, run};
use server::owner::{Fence, FenceOrder};

use crate::failure::Failure;

/// Options about fencing.
#[derive(clap::Args)]
#[group(skip)]
pub struct Options {
    /// Program that keeps a former owner from a target (switches its machine off, takes its disk away) before this server
    /// takes over what that one did not give up in order. It is given TARGET SERVER NID... as arguments, and only its exit
    /// status 0 lets the target be served; see docs/operations.md
    #[arg(long, value_name = "CMD")]
    fence: Option<PathBuf>,
    /// Seconds after which that program is killed and has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    fence_timeout: u64,
}

impl Options {
    /// What fences; `None` if nothing does.
    pub fn fence(&self, node: &rt::os::Node) -> Result<Option<Arc<dyn Fence>>, Failure> {
        let Some(file) = &self.fence else { return Ok(None) };
        let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        let is_program =
            fs::metadata(&file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
        let text = file.to_str().map(str::to_owned);
        match text {
            Some(text) if is_program => Ok(Some(Arc::new(Command {
                node: node.clone(),
                file: text,
                time_max: Duration::from_secs(self.fence_timeout),
            }))),
            _ => Err(Failure::new(format!(
                "--fence {}: there is no such program that may be run",
                shown(&file)
            ))),
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

struct Command {
    node: rt::os::Node,
    file: String,
    time_max: Duration,
}

impl Fence for Command {
    fn fence(&self, order: FenceOrder) -> BoxFuture<'_, Result<(), String>> {
        let program = program(&self.file, &order);
        Box::pin(async move {
            let ended = run(&self.node, &program, self.time_max).await;
            ended.map_err(|error| failure(&program, &error, self.time_max))
        })
    }
}

fn program(file: &str, order: &FenceOrder) -> Program {
    let target = format!("{}-{}", order.fsname, order.target);
    let nids: Vec<String> = order.nids.iter().map(ToString::to_string).collect();
    let environment = [
        ("WEFT_FSNAME", order.fsname.to_string()),
        ("WEFT_TARGET", target.clone()),
        ("WEFT_DIRECTORY", order.directory.clone()),
        ("WEFT_EPOCH", order.epoch.to_string()),
        ("WEFT_FORMER_SERVER", order.server.clone()),
        ("WEFT_FORMER_NIDS", nids.join(" ")),
    ];
    let mut arguments = vec![target, order.server.clone()];
    arguments.extend(nids);
    Program {
        file: file.to_owned(),
        arguments,
        environment: environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    }
}

fn failure(program: &Program, error: &RunError, time_max: Duration) -> String {
    let took = match error {
        RunError::TooLong => format!(" ({} s; --fence-timeout sets it)", time_max.as_secs()),
        _ => String::new(),
    };
    format!(
        "{} {error}{took}; mend it, or see to it that {} is off and start that server again",
        program.file,
        program.arguments.get(1).map_or("the former owner", String::as_str)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_told_whom_to_keep_from_what() {
        let order = FenceOrder {
            fsname: "w".parse().expect("a name"),
            target: proto::TargetId::ost(3),
            directory: "/srv/ost3".into(),
            epoch: 7,
            server: "oss1".into(),
            nids: vec!["10.0.0.4@tcp".parse().expect("a NID"), "10.1.0.4@tcp".parse().expect("a NID")],
        };
        let program = program("/usr/bin/off", &order);
        assert_eq!(program.arguments, ["w-OST0003", "oss1", "10.0.0.4@tcp", "10.1.0.4@tcp"]);
        let of = |name: &str| program.environment.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        assert_eq!(of("WEFT_FORMER_NIDS").as_deref(), Some("10.0.0.4@tcp 10.1.0.4@tcp"));
        assert_eq!(of("WEFT_DIRECTORY").as_deref(), Some("/srv/ost3"));
        let said = failure(&program, &RunError::TooLong, Duration::from_secs(60));
        assert_eq!(
            said,
            "/usr/bin/off took too long and was killed (60 s; --fence-timeout sets it); mend it, or see to it that oss1 is off and start that server again"
        );
    }
}
