//! Parameters of a mount, of its process and of targets, as control attributes and `lctl` say them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use client::posix::{Errno, Result};
use client::{Caller, Client, Setting};
use proto::TargetId;
use proto::parameters::{ClientPlaces, ClientTree, Parameter, Tree, shortened};
use proto::wire::messages as msg;
use serde::{Deserialize, Serialize};

use crate::control;
use crate::virtuals::{self, Mount, may_administrate};

/// The attribute: a [`Page`] of parameters. Whose they are ([`Owner`]), how many are known already and the pattern follow:
/// `weft.parameters.OST0001.0.*.brw_stats`. Everybody may ask for those of the mount, and only root and whom the mount belongs
/// to for others: a target tells a process that serves others who its clients are.
pub const PARAMETERS: &str = "weft.parameters.";
/// The same without values.
pub const NAMES: &str = "weft.parameter-names.";
/// Sets a parameter of the mount, whose whole name follows: `weft.parameter.llite.w-2155624f164a7fed.max_cached_mb`. For root, and
/// for whom the mount belongs to.
pub const PARAMETER: &str = "weft.parameter.";
/// An attribute to set: a parameter of a target, by the target and the parameter's whole name behind it
/// (`weft.parameter-of.OST0001.obdfilter.w-OST0001.degraded`). The target decides whether the process of the mount may.
pub const PARAMETER_OF: &str = "weft.parameter-of.";
/// What the parameters of one answer take, in bytes: it has to fit into an attribute.
const PAGE_BYTES_MAX: usize = 60 << 10;
/// Longest value of one that does not fit into a page otherwise, in bytes. JSON takes six for one at most.
const VALUE_BYTES_MAX: usize = 8 << 10;
/// How long the target may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// The MGS of a process that listens nowhere, as parameters are called.
const MGS_HERE: &str = "0@lo";

const MOUNT: &str = "mount";
const PROCESS: &str = "process";

/// Whose parameters are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Those of the mount: its client, and what the kernel asked for.
    Mount,
    /// Those that its process has, whatever it serves.
    Process,
    /// Those of a target that the process serves, or knows.
    Target(TargetId),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Mount => f.write_str(MOUNT),
            Owner::Process => f.write_str(PROCESS),
            Owner::Target(target) => target.fmt(f),
        }
    }
}

impl FromStr for Owner {
    type Err = <TargetId as FromStr>::Err;

    fn from_str(text: &str) -> std::result::Result<Owner, Self::Err> {
        Ok(match text {
            MOUNT => Owner::Mount,
            PROCESS => Owner::Process,
            target => Owner::Target(target.parse()?),
        })
    }
}

/// A question of a control attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Whose parameters.
    pub owner: Owner,
    /// Which of them; one pattern.
    pub read: msg::ReadParameters,
}

impl Asked {
    /// What the attribute `name` asks for; `None` if that is another one.
    pub(crate) fn parse(name: &str) -> Option<Asked> {
        let (names_only, asked) = match name.strip_prefix(NAMES) {
            Some(asked) => (true, asked),
            None => (false, name.strip_prefix(PARAMETERS)?),
        };
        let (owner, asked) = asked.split_once('.')?;
        let (skip, pattern) = asked.split_once('.')?;
        let read =
            msg::ReadParameters { patterns: vec![pattern.to_owned()], skip: skip.parse().ok()?, names_only };
        Some(Asked { owner: owner.parse().ok()?, read })
    }

    /// The attribute.
    pub fn attribute(&self) -> String {
        let msg::ReadParameters { patterns, skip, names_only } = &self.read;
        let prefix = if *names_only { NAMES } else { PARAMETERS };
        format!("{prefix}{}.{skip}.{}", self.owner, patterns.first().map_or("", String::as_str))
    }
}

/// Those that fit a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// In their owner's order.
    pub parameters: Vec<Shown>,
    /// There are more.
    pub more: bool,
}

/// A parameter or statistic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Its whole name.
    pub name: String,
    /// Its value; empty if there is none, or nobody asked for it.
    pub value: String,
    /// It has a value.
    pub readable: bool,
    /// It can be set.
    pub settable: bool,
    /// `text`, `gauge`, `counter` or `histogram`.
    pub kind: String,
    /// What a number counts.
    pub unit: String,
    /// What it takes, for whoever sets it to something else.
    pub takes: String,
}

impl From<msg::ShownParameter> for Shown {
    fn from(shown: msg::ShownParameter) -> Shown {
        let msg::ShownParameter { name, value, access, kind, unit, takes } = shown;
        let kind = match kind {
            msg::PARAMETER_GAUGE => "gauge",
            msg::PARAMETER_COUNTER => "counter",
            msg::PARAMETER_HISTOGRAM => "histogram",
            _ => "text",
        };
        Shown {
            name,
            value,
            readable: access & msg::PARAMETER_READABLE != 0,
            settable: access & msg::PARAMETER_SETTABLE != 0,
            kind: kind.to_owned(),
            unit,
            takes,
        }
    }
}

impl From<msg::ParameterPage> for Page {
    fn from(page: msg::ParameterPage) -> Page {
        Page { parameters: page.parameters.into_iter().map(Shown::from).collect(), more: page.more }
    }
}

impl Page {
    /// As much of `told` as an attribute has room for; at least one, whose value is shortened if it has to be.
    fn fitting(told: msg::ParameterPage) -> Page {
        let mut page = Page { parameters: Vec::new(), more: told.more };
        let mut bytes = 0;
        for mut shown in told.parameters.into_iter().map(Shown::from) {
            let mut len = control::encode(&shown).len() + 1;
            if len > PAGE_BYTES_MAX {
                shown.value = shortened(shown.value, VALUE_BYTES_MAX);
                len = control::encode(&shown).len() + 1;
            }
            if bytes + len > PAGE_BYTES_MAX && !page.parameters.is_empty() {
                page.more = true;
                break;
            }
            bytes += len;
            page.parameters.push(shown);
        }
        page
    }
}

/// The value of an attribute: the same question as the one to a server, and the same answer.
pub(crate) async fn answer(mount: Mount<'_>, caller: &Caller, asked: &Asked) -> Result<Vec<u8>> {
    let page = match asked.owner {
        Owner::Mount => registered(mount, Tree::new(&asked.read)?).page(),
        Owner::Process => {
            may_administrate(caller)?;
            mount.client.admin().process_parameters(&asked.read)?
        }
        Owner::Target(target) => {
            may_administrate(caller)?;
            of_target(mount.client, target, &asked.read).await.ok_or(Errno::NO_ATTRIBUTE)?
        }
    };
    Ok(control::encode(&Page::fitting(page)))
}

/// All that a mount has.
fn registered<'a>(mount: Mount<'a>, tree: Tree<'a, Setting<'a>>) -> Tree<'a, Setting<'a>> {
    let Mount { client, stats, jobs, status, .. } = mount;
    let mgs = status.mgs.first().map_or(MGS_HERE, String::as_str);
    let places = ClientPlaces::new(&client.admin().fsname(), client.admin().id(), mgs);
    let mut tree = ClientTree::new(places, tree);
    client.admin().parameters(&mut tree);
    stats.parameters(&mut tree);
    jobs.parameters(&mut tree);
    tree.into_tree()
}

async fn of_target(
    client: &Client,
    target: TargetId,
    read: &msg::ReadParameters,
) -> Option<msg::ParameterPage> {
    if target != TargetId::MGS && !client.admin().targets().contains(&target) {
        return None;
    }
    client.admin().order(target, read.clone(), ANSWER_WAIT).await.ok()
}

/// Sets those of the mount whose names fit `pattern`; none behind one that is refused.
pub(crate) async fn set(mount: Mount<'_>, pattern: &str, value: &str) -> Result<()> {
    set_those(mount, (pattern, value), |_| true).await
}

/// Sets a parameter of a target, with the rights that the process of the mount has there. `named` is the target and the parameter's name.
pub(crate) async fn set_of_target(client: &Client, named: &str, value: &str) -> Result<()> {
    let (target, name) = named.split_once('.').ok_or(Errno::INVALID)?;
    let target: TargetId = target.parse().map_err(|_| Errno::INVALID)?;
    let parameter = msg::Parameter { name: name.to_owned(), value: value.to_owned() };
    let order = msg::SetParameters { parameters: vec![parameter] };
    virtuals::answer(client.admin().order(target, order, ANSWER_WAIT).await).map(|_| ())
}

/// Sets those of the mount whose names fit what the MGS keeps, and are `meant`.
pub(crate) async fn set_kept(
    mount: Mount<'_>,
    (pattern, value): (&str, &str),
    meant: impl Fn(&str) -> bool,
) -> Result<()> {
    set_those(mount, (pattern, value), |parameter| parameter.is_kept() && meant(parameter.name())).await
}

async fn set_those<'a>(
    mount: Mount<'a>,
    (pattern, value): (&str, &str),
    wanted: impl FnMut(&Parameter<'a, Setting<'a>>) -> bool,
) -> Result<()> {
    for setting in begin_set(mount, (pattern, value), wanted)? {
        setting.await?;
    }
    Ok(())
}

/// What has to be waited for until they are set.
fn begin_set<'a>(
    mount: Mount<'a>,
    (pattern, value): (&str, &str),
    wanted: impl FnMut(&Parameter<'a, Setting<'a>>) -> bool,
) -> Result<Vec<Setting<'a>>> {
    let found = registered(mount, Tree::to_set(pattern)?).found()?.into_iter().filter(wanted);
    found.map(|parameter| Ok(parameter.set(value)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_says_whose_and_which() {
        let patterns = vec!["obdfilter.*.brw_stats".to_owned()];
        let read = msg::ReadParameters { patterns, skip: 7, names_only: false };
        let of_target = Asked { owner: Owner::Target(TargetId::ost(0x1f)), read: read.clone() };
        let names = msg::ReadParameters { names_only: true, ..read.clone() };
        for (asked, name) in [
            (of_target, "weft.parameters.OST001f.7.obdfilter.*.brw_stats"),
            (Asked { owner: Owner::Mount, read }, "weft.parameters.mount.7.obdfilter.*.brw_stats"),
            (
                Asked { owner: Owner::Process, read: names },
                "weft.parameter-names.process.7.obdfilter.*.brw_stats",
            ),
        ] {
            assert_eq!(asked.attribute(), name);
            assert_eq!(Asked::parse(name), Some(asked));
        }
        for bad in ["OST001f", "OST001f.7", "OST001f.x.*", "XST0000.0.*", "mount.", "process.-1.*"] {
            assert_eq!(Asked::parse(&format!("{PARAMETERS}{bad}")), None, "{bad}");
        }
        assert_eq!(Asked::parse("weft.parameter.llite.*"), None);
    }

    /// JSON takes more bytes than the answer of a server, which may be longer than an attribute in any case.
    #[test]
    fn a_page_fits_into_an_attribute() {
        let shown = |number: usize, value: String| msg::ShownParameter {
            name: format!("obdfilter.w-OST0000.n{number}"),
            value,
            access: msg::PARAMETER_READABLE,
            kind: msg::PARAMETER_TEXT,
            unit: String::new(),
            takes: String::new(),
        };
        let values = ["7\n", "\u{1}\n"].map(|line| line.repeat(24 << 10));
        for value in [&values[0], &values[1], "1"] {
            let told = (0..4096).map(|number| shown(number, value.to_owned())).collect();
            let page = Page::fitting(msg::ParameterPage { parameters: told, more: false });
            let len = control::encode(&page).len();
            assert!((1..=proto::limits::XATTR_BYTES_MAX).contains(&len), "{len} bytes");
            assert!(page.more && !page.parameters.is_empty());
            assert!(page.parameters.iter().all(|one| !one.value.is_empty()));
        }
    }
}
