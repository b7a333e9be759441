//! `lctl lfsck_start`, `lfsck_stop` and `lfsck_query`: checks of a file system that is in use (`docs/operations.md#lfsck`).

use std::thread::sleep;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::orders::{self, Set};
use super::params;
use super::reach::{Device, Reach};
use crate::failure::{Failure, Outcome};
use crate::size;

/// How often somebody who waits looks again.
const LOOK_TICK: Duration = Duration::from_millis(500);
/// The states that Lustre's command counts, in its order.
const STATES: [&str; 13] = [
    "init",
    "scanning-phase1",
    "scanning-phase2",
    "completed",
    "failed",
    "stopped",
    "paused",
    "crashed",
    "partial",
    "co-failed",
    "co-stopped",
    "co-paused",
    "unknown",
];

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Names and inodes.
    Namespace,
    /// Which objects belong to which files.
    Layout,
    /// The data of objects against its checksums.
    Scrub,
    /// All three.
    All,
}

/// The MDT.
#[derive(Args)]
pub struct At {
    /// The MDT, as in w-MDT0000 [default: the one that --device names, or the only one]
    #[arg(short = 'M', value_name = "DEVICE")]
    device: Option<String>,
}

/// A check.
#[derive(Args)]
pub struct Start {
    #[command(flatten)]
    at: At,
    /// What is checked
    #[arg(short = 't', long = "type", value_delimiter = ',', default_values = ["namespace", "layout"])]
    types: Vec<Kind>,
    /// Change nothing; so it is without --delete-orphans
    #[arg(short = 'n', long, conflicts_with = "delete_orphans")]
    dryrun: bool,
    /// Destroy objects that belong to no file; without it nothing is changed
    #[arg(long)]
    delete_orphans: bool,
    /// Bytes that all targets together read in a second at most, as in 100M; 0 for any number
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = size::count)]
    rate: u64,
}

/// A question.
#[derive(Args)]
pub struct Query {
    #[command(flatten)]
    at: At,
    /// Wait until nothing is being checked
    #[arg(short = 'w', long)]
    wait: bool,
}

impl At {
    /// The MDT that is meant. `named` is what --device says.
    fn device(&self, reach: &Reach, named: Option<&str>) -> Result<Device, Failure> {
        if let Some(name) = self.device.as_deref().or(named) {
            return super::devices::find(reach, name);
        }
        let mut mdts = reach.devices.iter().filter(|device| device.kind() == "mdt");
        match (mdts.next(), mdts.next()) {
            (Some(device), None) => Ok(device.clone()),
            (None, _) => {
                Err(Failure::new("no MDT is served here: run this on its host, or add --key".to_owned()))
            }
            (Some(_), Some(_)) => Err(Failure::usage("there are several MDTs here: name one with -M")),
        }
    }
}

/// Starts a check.
pub fn start(reach: &mut Reach, asked: &Start, named: Option<&str>) -> Outcome {
    let device = asked.at.device(reach, named)?;
    order(reach, &device, &words(asked)?)?;
    out!("Started LFSCK on the device {}: {}", device.name, kinds(&asked.types).join(" "));
    Ok(0)
}

/// Ends a check.
pub fn stop(reach: &mut Reach, at: &At, named: Option<&str>) -> Outcome {
    let device = at.device(reach, named)?;
    order(reach, &device, "stop")?;
    out!("Stopped LFSCK on the device {}.", device.name);
    Ok(0)
}

/// Exit status if the MDT could not be asked: not that of findings.
const NOT_ASKED: u8 = 4;

/// Says how far checks are, and what they found. Exit status 1 if they found something, or could not end.
pub fn query(reach: &mut Reach, asked: &Query, named: Option<&str>) -> Outcome {
    let device = asked.at.device(reach, named);
    let told = device.and_then(|device| tell(reach, asked, &device));
    told.map_err(|failure| Failure { status: NOT_ASKED, ..failure })
}

fn tell(reach: &mut Reach, asked: &Query, device: &Device) -> Outcome {
    let values =
        |reach: &mut Reach, name: &str| params::values(reach, &format!("mdd.{}.{name}", device.name));
    loop {
        let mut all = Vec::new();
        for kind in ["namespace", "layout"] {
            let text = values(reach, &format!("lfsck_{kind}"))?.join("\n");
            all.push((kind, line(&text, "status").unwrap_or("unknown").to_owned(), text));
        }
        if asked.wait && all.iter().any(|(_, status, _)| status.starts_with("scanning")) {
            sleep(LOOK_TICK);
            continue;
        }
        for (kind, status, _) in &all {
            let is_known = STATES.contains(&status.as_str());
            for state in STATES {
                let is_it = *status == state || (!is_known && state == "unknown");
                out!("{kind}_mdts_{state}: {}", u8::from(is_it));
            }
        }
        for (kind, status, text) in &all {
            if let Some(reason) = line(text, "reason").filter(|_| status == "failed") {
                out!("{kind}: {reason}");
            }
        }
        let found = values(reach, "lfsck_findings")?;
        let found: Vec<&String> = found.iter().filter(|part| !part.is_empty()).collect();
        found.iter().for_each(|part| out!("{part}"));
        let has_failed = all.iter().any(|(_, status, _)| status == "failed");
        return Ok(u8::from(has_failed || !found.is_empty()));
    }
}

fn line<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn order(reach: &mut Reach, device: &Device, order: &str) -> Result<(), Failure> {
    let name = format!("mdd.{}.lfsck", device.name);
    match orders::set(reach, device, &name, order)? {
        Set::Done => Ok(()),
        Set::Refused => Err(Failure::new(format!("{}: it knows no such check", device.name))),
        Set::NotFound => Err(Failure::new(format!("{}: it is no MDT", device.name))),
    }
}

fn kinds(types: &[Kind]) -> Vec<&'static str> {
    let is_asked = |kind| types.contains(&kind) || types.contains(&Kind::All);
    let all = [(Kind::Namespace, "namespace"), (Kind::Layout, "layout"), (Kind::Scrub, "scrub")];
    all.into_iter().filter(|(kind, _)| is_asked(*kind)).map(|(_, name)| name).collect()
}

/// The order, as the MDT takes it.
fn words(asked: &Start) -> Result<String, Failure> {
    let kinds = kinds(&asked.types);
    if asked.delete_orphans && !kinds.contains(&"layout") {
        return Err(Failure::usage("--delete-orphans is for -t layout"));
    }
    let delete = if asked.delete_orphans { " delete_orphans" } else { "" };
    Ok(format!("start {}{delete} rate={}", kinds.join(" "), asked.rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(types: &[Kind], delete_orphans: bool) -> Start {
        Start { at: At { device: None }, types: types.to_vec(), dryrun: false, delete_orphans, rate: 7 }
    }

    #[test]
    fn orders_are_those_that_the_mdt_takes() {
        let order = |types: &[Kind], delete| words(&asked(types, delete)).ok();
        assert_eq!(
            order(&[Kind::All], true).as_deref(),
            Some("start namespace layout scrub delete_orphans rate=7")
        );
        assert_eq!(
            order(&[Kind::Scrub, Kind::Namespace], false).as_deref(),
            Some("start namespace scrub rate=7")
        );
        assert_eq!(order(&[Kind::Scrub], true), None);
    }

    #[test]
    fn a_line_is_found_by_its_name() {
        let text = "name: lfsck_layout\nstatus: failed\nreason: it: is so";
        assert_eq!(
            (line(text, "status"), line(text, "reason"), line(text, "stat")),
            (Some("failed"), Some("it: is so"), None)
        );
    }
}
