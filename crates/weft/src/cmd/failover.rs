//! `weft failover`: moves a target to another of its servers, in order.

use std::path::PathBuf;
use std::time::Duration;

use proto::wire::messages::{
    Config, GetConfig, GetState, HandOver, RECOVERY_RUNNING, RECOVERY_WAITING, TargetEntry,
};
use proto::{ClientId, Code, ConfigCopy, FsName, Nid, TargetId};
use rpc::{AskError, Hub, Import, Keys, Role, RpcError};
use rt::{Rt, Time};

use crate::failure::{Failure, Outcome};
use crate::{keys, mountpoint, nids, servers, serving};

/// Move a target that several servers may serve from the one that does to another one. Applications wait a moment.
#[derive(clap::Args)]
pub struct Arguments {
    /// The target, for example weft-OST0001
    #[arg(value_name = "TARGET")]
    target: String,
    /// Name or NID of the server that is to have it [default: whoever of the others wants it first]
    #[arg(long, value_name = "NODE")]
    to: Option<String>,
    /// Where the MGS is [default: as servers and mounts of this machine know]
    #[arg(long, value_name = "NID")]
    mgsnode: Option<String>,
    /// The servers' key [default: /etc/weft/FSNAME.server.key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// Time for the MGS, and for the target's server, to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Time for the other server to have taken the target.
const MOVE_WAIT: Duration = Duration::from_secs(60);
/// Time for clients to be back with it. A client that is gone for good is waited for.
const RECOVERY_WAIT: Duration = Duration::from_secs(60);
/// How often the new server is asked whether clients are back.
const TICK: Duration = Duration::from_millis(20);

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let (fsname, target) = parse(&arguments.target)?;
    let (mgs, key) = place(arguments, &fsname)?;
    let keys = Keys { server: Some(keys::read(&key)?), client: None };
    let (node, rt) = serving::start_runtime()?;
    node.block_on(async {
        let hub = Hub::new(rt.clone(), fsname.clone(), keys);
        let asker = ClientId(u128::from(rt.random_u64()) << 64 | u128::from(rt.random_u64()));
        let mgs = hub.import(TargetId::MGS, asker, Role::Server, mgs);
        let order = Order { rt, hub: hub.clone(), mgs, fsname, target, name: arguments.target.clone() };
        let done = order.give(arguments.to.as_deref().unwrap_or_default()).await;
        hub.close().await;
        done
    })
}

struct Order {
    rt: Rt,
    hub: Hub,
    mgs: std::sync::Arc<Import>,
    fsname: FsName,
    target: TargetId,
    name: String,
}

impl Order {
    async fn give(&self, to: &str) -> Outcome {
        let before = self.config(None, ANSWER_WAIT).await?;
        let (entry, (server, epoch)) = self.find(&before)?;
        if !to.is_empty() && server == to {
            return Err(Failure::new(format!("{} is served by {to} already", self.name)));
        }
        let began = self.rt.now();
        let order = HandOver { to: to.to_owned() };
        let answer = self.hub.ask(self.target, Role::Server, &entry.nids, order, ANSWER_WAIT).await;
        answer.map_err(|error| self.refused(&error))?;
        let (entry, new) = self.moved(began, before, epoch).await?;
        let at = entry.nids.first().map(ToString::to_string).unwrap_or_default();
        if new == server {
            return Err(Failure::new(format!(
                "{} is served by {server} again: no other server wanted it{}",
                self.name,
                if to.is_empty() {
                    String::new()
                } else {
                    format!("; is {to} serving the target's directory?")
                }
            )));
        }
        let back = self.recovered(&entry).await;
        let pause = self.rt.now() - began;
        out!("{} is served by {new} at {at}; the pause was {:.2} s", self.name, pause.as_secs_f64());
        if !back {
            out!("some clients are not back with it; see lctl get_param *.{}.recovery_status", self.name);
        }
        Ok(u8::from(!back))
    }

    /// The configuration; after `known`, waits up to `wait` for a newer one. Who owns what may change without a newer one, so
    /// everything is asked for.
    async fn config(&self, known: Option<&ConfigCopy>, wait: Duration) -> Result<ConfigCopy, Failure> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        if let Some(known) = known {
            self.ask(known.question(wait_ms), wait).await?;
        }
        let mut config = ConfigCopy::new(self.fsname.as_str());
        while config.take(self.ask(config.question(0), Duration::ZERO).await?) && !config.is_whole() {}
        Ok(config)
    }

    async fn ask(&self, question: GetConfig, wait: Duration) -> Result<Config, Failure> {
        match self.rt.timeout(wait + ANSWER_WAIT, self.mgs.call(question)).await {
            Some(Ok(answered)) => Ok(answered.reply),
            Some(Err(RpcError::Refused(Code::Forbidden))) => Err(Failure::new(
                "the MGS does not accept the servers' key; name the right one with --key".to_owned(),
            )),
            Some(Err(error)) => Err(Failure::new(format!("the MGS: {error}"))),
            None => Err(Failure::new("the MGS does not answer; name its address with --mgsnode".to_owned())),
        }
    }

    /// The target, and who owns it in which epoch.
    fn find(&self, config: &ConfigCopy) -> Result<(TargetEntry, (String, u64)), Failure> {
        let entry =
            config.target(self.target).ok_or_else(|| Failure::new(format!("there is no {}", self.name)))?;
        let owner = config.owner(self.target).ok_or_else(|| {
            Failure::new(format!(
                "{} is served by nobody now, or by one server only; \"weft format --servicenode\" names several",
                self.name
            ))
        })?;
        Ok((entry.clone(), (owner.server.clone(), owner.epoch)))
    }

    /// Waits until the target has another owner; gives where it is and the owner's name.
    async fn moved(
        &self,
        began: Time,
        before: ConfigCopy,
        epoch: u64,
    ) -> Result<(TargetEntry, String), Failure> {
        let mut known = before;
        while self.rt.now() - began < MOVE_WAIT {
            known = self.config(Some(&known), TICK * 10).await?;
            if let Ok((entry, (server, now))) = self.find(&known)
                && now > epoch
                && self.state(&entry).await.is_some()
            {
                return Ok((entry, server));
            }
        }
        Err(Failure::new(format!("{} was stopped, and nobody has started it", self.name)))
    }

    async fn state(&self, entry: &TargetEntry) -> Option<u8> {
        let first = entry.nids.get(..1)?;
        let asked = self.hub.ask(self.target, Role::Server, first, GetState {}, ANSWER_WAIT);
        asked.await.ok().map(|state| state.recovery.state)
    }

    /// Waits until clients are back; false if it takes too long.
    async fn recovered(&self, entry: &TargetEntry) -> bool {
        let until = self.rt.now() + RECOVERY_WAIT;
        while self.rt.now() < until {
            match self.state(entry).await {
                Some(RECOVERY_WAITING | RECOVERY_RUNNING) | None => self.rt.sleep(TICK).await,
                Some(_) => return true,
            }
        }
        false
    }

    fn refused(&self, error: &AskError) -> Failure {
        let name = &self.name;
        Failure::new(match error {
            AskError::Refused(Code::Forbidden) => {
                format!("{name} does not accept the servers' key; name the right one with --key")
            }
            AskError::Refused(Code::NotSupported) => format!("{name} is served by one server only"),
            AskError::Refused(code) => format!("{name} refuses: {code}"),
            AskError::Unanswered(why) => format!("{name} does not answer ({why})"),
        })
    }
}

/// File system and target of `weft-OST0001`.
fn parse(text: &str) -> Result<(FsName, TargetId), Failure> {
    let wrong = || {
        Failure::usage(format!(
            "\"{text}\" names no target; write it as weft status does, for example weft-OST0001"
        ))
    };
    let (fsname, target) = text.rsplit_once('-').ok_or_else(wrong)?;
    let target = target.parse().map_err(|_| wrong())?;
    if target == TargetId::MGS {
        return Err(wrong());
    }
    Ok((fsname.parse().map_err(|_| wrong())?, target))
}

/// Where the MGS is, and the key.
fn place(arguments: &Arguments, fsname: &FsName) -> Result<(Vec<Nid>, PathBuf), Failure> {
    let here =
        servers::all()?.into_iter().find(|server| server.fsname == fsname.as_str() && !server.mgs.is_empty());
    let key = match (&arguments.key, &here) {
        (Some(key), _) => key.clone(),
        (None, Some(server)) => server.key.clone(),
        (None, None) => keys::resolve(None, fsname, Role::Server)?,
    };
    let known = |mgs: &[String]| mgs.iter().filter_map(|nid| nid.parse().ok()).collect();
    let mgs = match (&arguments.mgsnode, here) {
        (Some(text), _) => nids::parse_list(text)?,
        (None, Some(server)) => known(&server.mgs),
        (None, None) => {
            let mut statuses = mountpoint::usable()?.into_iter().map(|mount| mount.status);
            let status = statuses.find(|status| status.fsname == fsname.as_str());
            known(&status.map(|status| status.mgs).unwrap_or_default())
        }
    };
    if mgs.is_empty() {
        return Err(Failure::new(format!(
            "nothing on this machine says where the MGS of {fsname} is; name its address with --mgsnode"
        )));
    }
    Ok((mgs, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_named_as_status_shows_them() {
        let (fsname, target) = parse("my-fs-OST001f").expect("a target");
        assert_eq!((fsname.as_str(), target), ("my-fs", TargetId::ost(0x1f)));
        assert_eq!(parse("w-MDT0000").expect("a target").1, TargetId::mdt(0));
        for bad in ["", "OST0000", "w-", "w-OSTx", "MGS", "w-MGS"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
