//! What `lfs` and a mount say to each other: JSON in extended attributes whose names no listing shows.
//!
//! | attribute | on | get | set | remove |
//! |---|---|---|---|---|
//! | `weft.layout` | file | [`FileLayout`] | | |
//! | `weft.layout` | directory | [`DirLayout`] | [`Hint`]: new files get this | new files get what the directories above say |
//! | `weft.create.NAME` | directory | | [`Hint`]: make the file NAME with this layout | |
//! | `weft.create` | directory | | the same for a long name: [`Hint`], a NUL, the name | |
//! | `weft.fid` | any | the FID as text | | |
//! | `weft.som` | file | [`SizeOnMdt`] | | |
//! | `weft.paths.FID` | any | [`Paths`] | | |
//! | `weft.find.TOKEN` | any | a page of the search, as a message ([`crate::find`]) | what is searched, as a message | |
//! | `weft.config` | any | the first page of [`Configuration`] | | |
//! | `weft.config.TARGET` | any | the page behind this target | | |
//! | `weft.pools` | any | [`crate::pools::PoolNames`] | | |
//! | `weft.pool.NAME` | any | the first page of [`crate::pools::PoolMembers`] | | |
//! | `weft.pool.NAME.OST` | any | the page behind this OST | | |
//! | `weft.change-pool` | any | | [`crate::pools::PoolOrder`]: the MGS changes a pool | |
//! | `weft.space` | any | [`Spaces`], one for each target; those that do not answer have none | | |
//! | `weft.states` | any | [`crate::states::States`]: recovery and health of each target | | |
//! | `weft.status` | any | [`Status`] | | |
//! | `weft.counters` | any | an object of counters since the mount: requests by operation, locks | | |
//! | `weft.parameters.OWNER.SKIP.PATTERN` | any | [`crate::parameters::Page`]: parameters of the mount, its process, or a target | | |
//! | `weft.parameter-names.OWNER.SKIP.PATTERN` | any | the same without values | | |
//! | `weft.parameter.NAME` | any | | a parameter of the mount | |
//! | `weft.process.NAME` | any | a value of the process ([`PROCESS`]) | the value, or a parameter | |
//! | `weft.migrate.WORD` | file | "moved", when the data lies where it was set to | [`crate::moves::Move`] | |
//! | `weft.hsm` | file | [`crate::hsm::HsmFile`] | [`crate::hsm::HsmOrder`] | |
//! | `weft.advise` | file | | [`Advice`]: the OSTs are told | |
//! | `weft.sync` | any | | everything that this mount wrote is durable | |

use proto::layout::{self, Component, Layout, LayoutHint, Pattern, Shown};
use proto::wire::messages::{DefaultLayout, Space};
use proto::{ConfigCopy, OstIndex, TargetId, TargetKind};
use serde::{Deserialize, Serialize};

/// What all names of the control attributes begin with.
pub const PREFIX: &str = "weft.";
/// Layout of a file, default layout of a directory.
pub const LAYOUT: &str = "weft.layout";
/// The project of a file or directory, as [`crate::projects`] writes it.
pub const PROJECT: &str = "weft.project";
/// Makes a file with a layout.
pub const CREATE: &str = "weft.create";
/// Makes a file with a layout; the name follows.
pub const CREATE_NAME: &str = "weft.create.";
/// FID of a file.
pub const FID: &str = "weft.fid";
/// What the MDT alone knows of the size of a file.
pub const SOM: &str = "weft.som";
/// Paths of a FID, which follows.
pub const PATHS: &str = "weft.paths.";
/// A page of a search; a word that its user has chosen follows.
pub const FIND: &str = "weft.find.";
/// Targets of the file system; `weft.config.OST001f` begins behind that one.
pub const CONFIG: &str = "weft.config";
/// What the targets of one answer take, in bytes: it has to fit into an attribute.
const CONFIG_BYTES_MAX: usize = 48 << 10;
/// Space of every target.
pub const SPACE: &str = "weft.space";
/// What serves the mount.
pub const STATUS: &str = "weft.status";
/// How often what happened since the mount.
pub const COUNTERS: &str = "weft.counters";
/// Set: what will be done with a file.
pub const ADVISE: &str = "weft.advise";
/// Makes everything durable.
pub const SYNC: &str = "weft.sync";
/// Set: everything is written, and given back to the servers; EBUSY if something is in use. For root, and for whom the mount
/// belongs to.
pub const DRAIN: &str = "weft.drain";

/// What the process that serves the mount has besides parameters, its log; the name follows. Set: that, or a parameter of the process.
/// For root, and for whom the mount belongs to.
pub const PROCESS: &str = "weft.process.";

/// Permissions of a file that `weft.create` makes, if the hint says none.
pub const CREATE_MODE: u32 = 0o644;

/// What will be done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Advice {
    /// These bytes will be read.
    WillRead {
        /// First byte.
        start: u64,
        /// First byte behind the range.
        end: u64,
    },
}

/// Where a file's data lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLayout {
    /// Layout id, a FID as text.
    pub id: String,
    /// Generation of the layout.
    pub generation: u32,
    /// Bytes of one stripe unit.
    pub stripe_size: u32,
    /// Whether stripes may share an OST.
    pub overstriped: bool,
    /// The OST of each stripe.
    pub osts: Vec<u32>,
    /// The pool that the OSTs were taken from; empty for none.
    #[serde(default)]
    pub pool: String,
    /// Whether the bytes lie on the MDT.
    #[serde(default)]
    pub on_mdt: bool,
    /// For a file whose data is in an archive alone: how many stripes it is to have again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<i32>,
    /// The components, of a file that has several: then all else is about the last one that has objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<ComponentLayout>,
}

/// What the MDT alone knows of the size of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeOnMdt {
    /// Bytes.
    pub size: u64,
    /// Used space in units of 512 bytes.
    pub blocks: u64,
    /// Whether that is the truth. Otherwise it is what was, before those opened the file who may write it now.
    pub known: bool,
}

/// One of several components of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentLayout {
    /// First byte of the file.
    pub start: u64,
    /// First byte of the file behind it; 2^64 - 1 for no end.
    pub end: u64,
    /// Layout id, a FID as text; `None` as long as it has no objects.
    pub id: Option<String>,
    /// Stripes, as asked for as long as there are none.
    pub stripe_count: i32,
    /// Bytes of one stripe unit.
    pub stripe_size: u32,
    /// First OST; -1 as long as there is none.
    pub start_index: i32,
    /// Whether stripes may share an OST.
    pub overstriped: bool,
    /// The OST of each stripe.
    pub osts: Vec<u32>,
    /// The pool that the OSTs are taken from; empty for none.
    pub pool: String,
    /// Whether the bytes lie on the MDT.
    #[serde(default)]
    pub on_mdt: bool,
    /// Whether the data is in an archive alone.
    #[serde(default)]
    pub released: bool,
    /// Of what another component extends into: bytes that it takes over at a time; 0 for all else.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub extension: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A wish for a layout. Fields have the meaning of [`LayoutHint`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hint {
    /// Stripes; 0 for the default, -1 for all OSTs.
    pub stripe_count: i32,
    /// Bytes of one stripe unit; 0 for the default.
    pub stripe_size: u32,
    /// First OST; -1 for any.
    pub start_index: i32,
    /// The OST of each stripe; empty for any.
    pub osts: Vec<u32>,
    /// Whether stripes may share an OST.
    pub overstripe: bool,
    /// Pool to choose from; empty for none.
    pub pool: String,
    /// For a file of several components, each of them; all else is left out then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<HintPart>,
    /// Permissions of a file to make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// A wish for one of several components.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HintPart {
    /// First byte of the file behind it; 2^64 - 1 for no end.
    pub end: u64,
    /// What it is to be like; it has no parts of its own.
    pub hint: Hint,
    /// Whether the bytes lie on the MDT; then nothing is asked for.
    #[serde(default)]
    pub on_mdt: bool,
    /// Bytes that it gets at a time; 0 for all at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub extension: u64,
}

impl Default for Hint {
    fn default() -> Hint {
        Hint::from(&LayoutHint::default())
    }
}

/// Default layout of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirLayout {
    /// What the directory itself says, if anything.
    pub own: Option<Hint>,
    /// What new files in it get.
    pub effective: Hint,
}

/// Answer to `weft.layout`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayoutAnswer {
    /// Of a regular file.
    File(FileLayout),
    /// Of a directory.
    Directory(DirLayout),
}

/// Paths of a file below the root of the file system, without a leading slash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paths {
    /// One for each link. Bytes that are no text are replaced.
    pub paths: Vec<String>,
}

/// Kind of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Management.
    Mgs,
    /// Metadata.
    Mdt,
    /// Objects.
    Ost,
}

/// A target of the file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Kind.
    pub kind: Kind,
    /// Index among its kind.
    pub index: u32,
    /// The target's own name.
    pub uuid: String,
    /// Where it is served.
    pub nids: Vec<String>,
    /// The server that serves it.
    pub server: String,
}

/// The file system's targets, as the mount knows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Name of the file system.
    pub fsname: String,
    /// Grows with every change.
    pub version: u64,
    /// The targets, by kind and index.
    pub targets: Vec<Target>,
    /// There are more: `weft.config.OST001f` tells those behind that one.
    #[serde(default)]
    pub more: bool,
}

/// Space of a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceValues {
    /// Bytes in all.
    pub bytes_total: u64,
    /// Bytes not used.
    pub bytes_free: u64,
    /// Bytes that a user can still write.
    pub bytes_available: u64,
    /// Files in all.
    pub files_total: u64,
    /// Files that can still be made.
    pub files_free: u64,
    /// Bits, as in Lustre's `os_state`: 1 degraded, 32 full.
    #[serde(default)]
    pub state: u32,
    /// Targets with the same number share a disk; 0 if the target does not tell.
    #[serde(default)]
    pub disk: u64,
    /// Of the bytes that are not used, those that no other target can use.
    #[serde(default)]
    pub bytes_own: u64,
}

/// Space of one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSpace {
    /// Kind.
    pub kind: Kind,
    /// Index among its kind.
    pub index: u32,
    /// `None`: it does not answer.
    pub space: Option<SpaceValues>,
}

/// Space of every target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spaces {
    /// Name of the file system.
    pub fsname: String,
    /// MDTs first, then OSTs, by index.
    pub targets: Vec<TargetSpace>,
}

/// What serves a mount.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Name of the file system.
    pub fsname: String,
    /// Version of the program.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// Where the MGS is.
    pub mgs: Vec<String>,
    /// Where the data of an all-in-one process lies; none for a client.
    pub data: Option<String>,
    /// Targets that the same process serves.
    pub serves: Vec<String>,
    /// How requests come from the kernel: `dev` or `uring`.
    #[serde(default)]
    pub fuse_engine: Option<String>,
    /// Targets that the same process should serve, and cannot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_served: Vec<NotServed>,
}

/// A target that is not served by its process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotServed {
    /// Its name.
    pub target: String,
    /// Why, in a sentence.
    pub why: String,
}

impl FileLayout {
    /// The layout of a file; `None` if there is none.
    pub fn of(layout: &Layout) -> Option<FileLayout> {
        let is_released = layout.is_released();
        let has_place =
            |component: &&Component| component.is_placed() || is_released && component.wanted.is_some();
        let component = layout.components.iter().rfind(has_place)?;
        let is_composite = layout.components.len() > 1;
        Some(FileLayout {
            id: component.id.to_string(),
            generation: layout.generation,
            stripe_size: component.stripe_size,
            overstriped: component.overstriped,
            osts: component.osts().map(|ost| ost.0).collect(),
            pool: component.pool.clone(),
            on_mdt: component.pattern == Pattern::Mdt,
            released: is_released.then(|| component.wish().stripe_count),
            components: layout.shown().filter(|_| is_composite).map(ComponentLayout::of).collect(),
        })
    }
}

impl ComponentLayout {
    fn of(shown: Shown<'_>) -> ComponentLayout {
        let Shown { component, end, extension } = shown;
        let osts: Vec<u32> = component.osts().map(|ost| ost.0).collect();
        let wanted = component.wanted.as_ref().map(|wanted| wanted.stripe_count);
        let first = osts.first().and_then(|ost| i32::try_from(*ost).ok());
        ComponentLayout {
            start: component.start,
            end,
            id: shown.is_init().then(|| component.id.to_string()),
            stripe_count: if extension > 0 { 0 } else { wanted.unwrap_or(osts.len() as i32) },
            stripe_size: component.stripe_size,
            start_index: first.unwrap_or(-1),
            overstriped: component.overstriped,
            osts,
            pool: component.pool.clone(),
            on_mdt: component.pattern == Pattern::Mdt,
            released: component.pattern == Pattern::Released,
            extension,
        }
    }
}

impl From<&layout::HintPart> for HintPart {
    fn from(part: &layout::HintPart) -> HintPart {
        let layout::HintPart { end, on_mdt, extension, .. } = *part;
        HintPart { end, hint: Hint::from(&part.hint()), on_mdt, extension }
    }
}

impl From<HintPart> for layout::HintPart {
    fn from(part: HintPart) -> layout::HintPart {
        let HintPart { end, hint, on_mdt, extension } = part;
        layout::HintPart { on_mdt, extension, ..layout::HintPart::new(end, hint.into()) }
    }
}

impl From<&LayoutHint> for Hint {
    fn from(hint: &LayoutHint) -> Hint {
        Hint {
            stripe_count: hint.stripe_count,
            stripe_size: hint.stripe_size,
            start_index: hint.start_index,
            osts: hint.osts.iter().map(|ost| ost.0).collect(),
            overstripe: hint.overstripe,
            pool: hint.pool.clone(),
            parts: hint.parts.iter().map(HintPart::from).collect(),
            mode: None,
        }
    }
}

impl From<Hint> for LayoutHint {
    fn from(hint: Hint) -> LayoutHint {
        LayoutHint {
            stripe_count: hint.stripe_count,
            stripe_size: hint.stripe_size,
            start_index: hint.start_index,
            osts: hint.osts.into_iter().map(OstIndex).collect(),
            overstripe: hint.overstripe,
            pool: hint.pool,
            parts: hint.parts.into_iter().map(layout::HintPart::from).collect(),
        }
    }
}

impl From<&DefaultLayout> for DirLayout {
    fn from(layout: &DefaultLayout) -> DirLayout {
        DirLayout { own: layout.own.as_ref().map(Hint::from), effective: Hint::from(&layout.effective) }
    }
}

impl From<TargetKind> for Kind {
    fn from(kind: TargetKind) -> Kind {
        match kind {
            TargetKind::Mgs => Kind::Mgs,
            TargetKind::Mdt => Kind::Mdt,
            TargetKind::Ost => Kind::Ost,
        }
    }
}

impl From<Kind> for TargetKind {
    fn from(kind: Kind) -> TargetKind {
        match kind {
            Kind::Mgs => TargetKind::Mgs,
            Kind::Mdt => TargetKind::Mdt,
            Kind::Ost => TargetKind::Ost,
        }
    }
}

impl Target {
    /// Kind and index.
    pub fn id(&self) -> TargetId {
        TargetId { kind: self.kind.into(), index: self.index }
    }
}

impl TargetSpace {
    /// Kind and index.
    pub fn id(&self) -> TargetId {
        TargetId { kind: self.kind.into(), index: self.index }
    }
}

impl Configuration {
    /// As many targets behind `after` as an attribute has room for.
    pub fn of(config: &ConfigCopy, after: Option<TargetId>) -> Configuration {
        let mut page = Configuration {
            fsname: config.fsname().to_owned(),
            version: config.version(),
            targets: Vec::new(),
            more: false,
        };
        let mut bytes = 0;
        for entry in config.targets_behind(after) {
            // Who serves it: its owner, where several servers may.
            let server = config.owner(entry.target).map_or(&entry.server, |owner| &owner.server);
            let target = Target {
                kind: entry.target.kind.into(),
                index: entry.target.index,
                uuid: entry.uuid.to_string(),
                nids: entry.nids.iter().map(ToString::to_string).collect(),
                server: server.clone(),
            };
            bytes += encode(&target).len() + 1;
            if bytes > CONFIG_BYTES_MAX && !page.targets.is_empty() {
                page.more = true;
                break;
            }
            page.targets.push(target);
        }
        page
    }
}

impl From<&Space> for SpaceValues {
    fn from(space: &Space) -> SpaceValues {
        SpaceValues {
            bytes_total: space.bytes_total,
            bytes_free: space.bytes_free,
            bytes_available: space.bytes_available,
            files_total: space.files_total,
            files_free: space.files_free,
            state: space.state,
            disk: space.disk,
            bytes_own: space.bytes_own,
        }
    }
}

impl From<&SpaceValues> for Space {
    fn from(space: &SpaceValues) -> Space {
        Space {
            bytes_total: space.bytes_total,
            bytes_free: space.bytes_free,
            bytes_available: space.bytes_available,
            files_total: space.files_total,
            files_free: space.files_free,
            state: space.state,
            disk: space.disk,
            bytes_own: space.bytes_own,
        }
    }
}

/// Bytes that are not a document of the wanted kind.
#[derive(Debug, thiserror::Error)]
#[error("not what was expected: {0}")]
pub struct DecodeError(#[from] serde_json::Error);

/// The bytes of a document.
pub fn encode<T: Serialize>(document: &T) -> Vec<u8> {
    serde_json::to_vec(document).expect("the documents hold only text, numbers and lists")
}

/// The document in `bytes`.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    Ok(serde_json::from_slice(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_may_leave_fields_out_but_not_invent_any() {
        let hint: Hint = decode(br#"{"stripe_count":-1}"#).expect("a short hint");
        assert_eq!(hint, Hint { stripe_count: -1, ..Hint::default() });
        assert_eq!(hint.start_index, -1, "any OST unless said");
        assert!(decode::<Hint>(br#"{"stripe_counts":1}"#).is_err());
        assert_eq!(decode::<Hint>(&encode(&hint)).expect("what was encoded"), hint);
    }

    #[test]
    fn the_layout_answer_says_what_it_is_of() {
        let layout = FileLayout {
            id: "[0x200000400:0x1:0x0]".into(),
            generation: 0,
            stripe_size: 1 << 20,
            overstriped: false,
            osts: vec![1],
            on_mdt: false,
            released: None,
            pool: String::new(),
            components: Vec::new(),
        };
        let bytes = encode(&LayoutAnswer::File(layout.clone()));
        assert!(bytes.starts_with(br#"{"file":{"id":"[0x200000400:0x1:0x0]""#));
        assert_eq!(decode::<LayoutAnswer>(&bytes).expect("what was encoded"), LayoutAnswer::File(layout));
    }
}
