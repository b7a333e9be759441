//! The control attributes, on the mount's side; [`crate::control`] says what they are.

use std::time::Duration;

use client::{AskError, Caller, Client, Error};
use proto::{Code, Fid, FileKind, TargetId, TargetKind};
use rt::wait::join_all;

use crate::changelog;
use crate::control::{
    self, Advice, CREATE_MODE, Configuration, DirLayout, FileLayout, Hint, LayoutAnswer, Paths, SizeOnMdt,
    Spaces, Status, TargetSpace,
};
use crate::find::Questions;
use crate::hsm;
use crate::imports;
use crate::jobs::Jobs;
use crate::moves::{self, Moves};
use crate::parameters;
use crate::pools;
use crate::projects::{self, Project};
use crate::quotas;
use crate::settings;
use crate::states::{self, States, TargetState};
use crate::stats::Stats;
use client::posix::{Errno, Result};

/// How long a target may take to tell its space before it counts as inactive.
const SPACE_WAIT: Duration = Duration::from_secs(3);

/// Whether `name` is a control attribute.
pub fn is_virtual(name: &[u8]) -> bool {
    name.starts_with(control::PREFIX.as_bytes())
}

/// Whose attributes they are.
#[derive(Clone, Copy)]
pub struct Mount<'a> {
    /// What the mount offers to programs.
    pub client: &'a Client,
    /// What the kernel asked it for.
    pub stats: &'a Stats,
    /// To which jobs requests belong.
    pub jobs: &'a Jobs,
    /// What it says of itself.
    pub status: &'a Status,
    /// The searches that it is asked for.
    pub questions: &'a Questions,
    /// The moves that it is asked for.
    pub moves: &'a Moves,
}

/// Value of a control attribute.
pub async fn get(mount: Mount<'_>, caller: &Caller, fid: Fid, name: &[u8]) -> Result<Vec<u8>> {
    let Mount { client, status, .. } = mount;
    let name = std::str::from_utf8(name).map_err(|_| Errno::NO_ATTRIBUTE)?;
    match name {
        control::LAYOUT => layout(client, fid).await,
        hsm::HSM => Box::pin(hsm::get(client, fid)).await,
        control::FID => Ok(fid.to_string().into_bytes()),
        control::SOM => size_on_mdt(client, fid).await,
        control::PROJECT => {
            Ok(Project::of(&client.names().getattr(fid).await?.attr).to_string().into_bytes())
        }
        control::SPACE => Ok(control::encode(&spaces(client).await)),
        states::STATES => Ok(control::encode(&target_states(client).await)),
        imports::IMPORTS => Ok(control::encode(&imports::told(client))),
        control::STATUS => Ok(control::encode(status)),
        control::COUNTERS => Ok(control::encode(&client.admin().counters())),
        _ => {
            if let Some(text) = name.strip_prefix(control::PATHS) {
                paths(client, caller, text).await
            } else if let Some(name) = name.strip_prefix(control::PROCESS) {
                may_administrate(caller)?;
                client.admin().process_value(name).map(String::into_bytes).ok_or(Errno::NO_ATTRIBUTE)
            } else if let Some(token) = name.strip_prefix(control::FIND) {
                mount.questions.answer(client, caller, token).await
            } else if let Some(asked) = name.strip_prefix(changelog::CHANGELOG) {
                changelog::get(client, caller, asked).await
            } else if let Some(asked) = name.strip_prefix(quotas::QUOTA) {
                quotas::get(client, caller, asked).await
            } else if pools::is_asked(name) {
                Box::pin(pools::answer(client, name)).await
            } else if let Some(asked) = parameters::Asked::parse(name) {
                parameters::answer(mount, caller, &asked).await
            } else {
                let after = name.strip_prefix(control::CONFIG).and_then(behind).ok_or(Errno::NO_ATTRIBUTE)?;
                Ok(control::encode(&client.admin().with_config(|config| Configuration::of(config, after))))
            }
        }
    }
}

/// The target in `.OST001f`; `None` inside for nothing.
fn behind(text: &str) -> Option<Option<TargetId>> {
    if text.is_empty() { Some(None) } else { text.strip_prefix('.')?.parse().ok().map(Some) }
}

/// Root, and whom the mount belongs to.
pub(crate) fn may_administrate(caller: &Caller) -> Result<()> {
    let is_own = caller.uid == 0 || caller.uid == rustix::process::geteuid().as_raw();
    if is_own { Ok(()) } else { Err(Code::NotPermitted.into()) }
}

/// What a target answered outside any session, for whoever asked the mount.
pub(crate) fn answer<T>(answer: std::result::Result<T, AskError>) -> Result<T> {
    answer.map_err(|error| match error {
        AskError::Refused(code) if !error.is_away() => code.into(),
        AskError::Refused(_) | AskError::Unanswered(_) => Errno(libc::EHOSTUNREACH),
    })
}

async fn layout(client: &Client, fid: Fid) -> Result<Vec<u8>> {
    let kind = client.names().getattr(fid).await?.kind();
    let answer = match kind {
        FileKind::Dir => LayoutAnswer::Directory(DirLayout::from(&client.names().default_layout(fid).await?)),
        FileKind::File => {
            let layout = client.names().layout(fid).await?.ok_or(Errno::NO_ATTRIBUTE)?;
            LayoutAnswer::File(FileLayout::of(&layout).ok_or(Errno::NO_ATTRIBUTE)?)
        }
        _ => return Err(Errno::NO_ATTRIBUTE),
    };
    Ok(control::encode(&answer))
}

async fn size_on_mdt(client: &Client, fid: Fid) -> Result<Vec<u8>> {
    let attr = client.names().attr_on_mdt(fid).await?;
    if attr.kind() != FileKind::File {
        return Err(Errno::NO_ATTRIBUTE);
    }
    Ok(control::encode(&SizeOnMdt { size: attr.size, blocks: attr.blocks, known: attr.size_known }))
}

async fn paths(client: &Client, caller: &Caller, text: &str) -> Result<Vec<u8>> {
    let fid: Fid = text.parse().map_err(|_| Errno::INVALID)?;
    let paths = client.names().fid_to_path(caller, fid).await?;
    let paths = paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    Ok(control::encode(&Paths { paths }))
}

/// Every target but the MGS, in order.
fn targets(client: &Client) -> Vec<TargetId> {
    let mut ids = client.admin().targets();
    ids.retain(|id| id.kind != TargetKind::Mgs);
    ids
}

async fn target_states(client: &Client) -> States {
    let ids = targets(client);
    let answers = join_all(ids.iter().map(|id| client.admin().target_state(*id, SPACE_WAIT))).await;
    let targets = ids.iter().zip(answers).map(|(id, answer)| TargetState {
        kind: id.kind.into(),
        index: id.index,
        state: answer.as_ref().map(Into::into),
    });
    States { fsname: client.admin().fsname(), targets: targets.collect() }
}

async fn spaces(client: &Client) -> Spaces {
    let ids = targets(client);
    let answers = join_all(ids.iter().map(|id| client.admin().target_space(*id, SPACE_WAIT))).await;
    let targets = ids.iter().zip(answers).map(|(id, answer)| TargetSpace {
        kind: id.kind.into(),
        index: id.index,
        space: answer.ok().flatten().as_ref().map(Into::into),
    });
    let mut targets: Vec<_> = targets.collect();
    let removed: Vec<_> = client.admin().with_config(|config| config.removed_since().collect());
    targets.extend(removed.iter().map(|id| TargetSpace {
        kind: id.kind.into(),
        index: id.index,
        space: None,
    }));
    targets.sort_by_key(|of| (of.kind == control::Kind::Ost, of.index));
    Spaces { fsname: client.admin().fsname(), targets }
}

/// Tells the OSTs what will be done with a file.
async fn advise(client: &Client, caller: &Caller, fid: Fid, value: &[u8]) -> Result<()> {
    let Advice::WillRead { start, end } = control::decode(value).map_err(|_| Errno::INVALID)?;
    client.will_read(caller, fid, start..end).await.map_err(|error| match error {
        // "Not supported" is what other file systems say of the attribute.
        Error::Refused(Code::NotSupported) => Errno::NO_ATTRIBUTE,
        error => error.into(),
    })
}

/// Sets a control attribute.
pub async fn set(mount: Mount<'_>, caller: &Caller, fid: Fid, name: &[u8], value: &[u8]) -> Result<()> {
    let client = mount.client;
    if name == control::LAYOUT.as_bytes() {
        let hint: Hint = control::decode(value).map_err(|_| Errno::INVALID)?;
        return Ok(client.names().set_layout(caller, fid, Some(hint.into())).await?);
    }
    if name == control::ADVISE.as_bytes() {
        return Box::pin(advise(client, caller, fid, value)).await;
    }
    if name == hsm::HSM.as_bytes() {
        return Box::pin(hsm::set(client, caller, fid, value)).await;
    }
    if name == control::SYNC.as_bytes() {
        client.files().write_mappings_back().await;
        return Ok(client.sync_all().await?);
    }
    if name == control::DRAIN.as_bytes() {
        may_administrate(caller)?;
        let left = client.drain().await?;
        let is_empty = (left.open_count, left.locks, left.unsent_bytes) == (0, 0, 0);
        return if is_empty { Ok(()) } else { Err(Code::Busy.into()) };
    }
    if name == settings::KEEP_PARAMETER.as_bytes() {
        return Box::pin(settings::change(client, caller, value)).await;
    }
    if name == pools::CHANGE_POOL.as_bytes() {
        return Box::pin(pools::change(client, caller, value)).await;
    }
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Errno::INVALID);
    if name == control::PROJECT.as_bytes() {
        return Box::pin(projects::set(client, caller, fid, text(value)?)).await;
    }
    if let Some(word) = name.strip_prefix(moves::MIGRATE.as_bytes()) {
        return mount.moves.wish(caller, fid, text(word)?, value);
    }
    if let Some(token) = name.strip_prefix(control::FIND.as_bytes()) {
        return mount.questions.ask(caller, text(token)?, value);
    }
    if let Some(name) = name.strip_prefix(control::PROCESS.as_bytes()) {
        may_administrate(caller)?;
        return Ok(client.admin().set_process_value(text(name)?, text(value)?)?);
    }
    if let Some(target) = name.strip_prefix(changelog::CHANGELOG.as_bytes()) {
        return changelog::set(client, caller, text(target)?, text(value)?).await;
    }
    if let Some(owner) = name.strip_prefix(quotas::QUOTA.as_bytes()) {
        return quotas::set(client, caller, text(owner)?, text(value)?).await;
    }
    if let Some(named) = name.strip_prefix(parameters::PARAMETER_OF.as_bytes()) {
        may_administrate(caller)?;
        return parameters::set_of_target(client, text(named)?, text(value)?).await;
    }
    if let Some(name) = name.strip_prefix(parameters::PARAMETER.as_bytes()) {
        may_administrate(caller)?;
        return parameters::set(mount, text(name)?, text(value)?).await;
    }
    let (json, new_name) = if name == control::CREATE.as_bytes() {
        let nul = value.iter().position(|byte| *byte == 0).ok_or(Errno::INVALID)?;
        (&value[..nul], &value[nul + 1..])
    } else {
        (value, name.strip_prefix(control::CREATE_NAME.as_bytes()).ok_or(Errno::NOT_SUPPORTED)?)
    };
    let hint: Hint = control::decode(json).map_err(|_| Errno::INVALID)?;
    let mode = FileKind::File.mode_bits() | (hint.mode.unwrap_or(CREATE_MODE) & 0o7777);
    client.names().create_with_layout(caller, fid, new_name, mode, hint.into()).await?;
    Ok(())
}

/// Takes a control attribute away.
pub async fn remove(client: &Client, caller: &Caller, fid: Fid, name: &[u8]) -> Result<()> {
    if name != control::LAYOUT.as_bytes() {
        return Err(Errno::NOT_SUPPORTED);
    }
    if client.names().getattr(fid).await?.kind() != FileKind::Dir {
        return Err(Errno::NOT_DIRECTORY);
    }
    Ok(client.names().set_layout(caller, fid, None).await?)
}
