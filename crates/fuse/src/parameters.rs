//! Parameters of targets, as a control attribute and `lctl` say them.

use std::time::Duration;

use client::Client;
use proto::TargetId;
use proto::wire::messages as msg;
use serde::{Deserialize, Serialize};

/// The attribute: a [`Page`] of a target that the process of the mount serves, or knows. Its name, how many are known
/// already and the pattern follow: `weft.parameters.OST0001.0.*.brw_stats`. For root, and for whom the mount belongs to: a target
/// tells a process that serves others who its clients are.
pub const PARAMETERS: &str = "weft.parameters.";
/// How long the target may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// Those that fit a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// In the target's order.
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

/// The attribute of a target.
pub fn attribute(target: TargetId, skip: usize, pattern: &str) -> String {
    format!("{PARAMETERS}{target}.{skip}.{pattern}")
}

/// Its value, of what follows [`PARAMETERS`].
pub(crate) async fn of_target(client: &Client, asked: &str) -> Option<Page> {
    let (target, skip, pattern) = parse(asked)?;
    if target != TargetId::MGS && !client.admin().targets().contains(&target) {
        return None;
    }
    let read = msg::ReadParameters { patterns: vec![pattern.to_owned()], skip, names_only: false };
    client.admin().order(target, read, ANSWER_WAIT).await.ok().map(Page::from)
}

fn parse(asked: &str) -> Option<(TargetId, u32, &str)> {
    let (target, asked) = asked.split_once('.')?;
    let (skip, pattern) = asked.split_once('.')?;
    Some((target.parse().ok()?, skip.parse().ok()?, pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_says_whose_and_which() {
        let name = attribute(TargetId::ost(0x1f), 7, "obdfilter.*.brw_stats");
        assert_eq!(name, "weft.parameters.OST001f.7.obdfilter.*.brw_stats");
        let asked = name.strip_prefix(PARAMETERS).and_then(parse);
        assert_eq!(asked, Some((TargetId::ost(0x1f), 7, "obdfilter.*.brw_stats")));
        for bad in ["OST001f", "OST001f.7", "OST001f.x.*", "XST0000.0.*"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
