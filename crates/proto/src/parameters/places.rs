//! Where the parameters of a target, of a client and of a process are: the beginnings of Lustre's names, and trees in which each has to say
//! the last part alone.

use super::{Glob, Parameter, Tree};
use crate::{ClientId, TargetId, TargetKind};

/// What the places of disks begin with, as `osd-ldiskfs` and `osd-zfs` in Lustre.
const DISK: &str = "osd-weft";

/// Lustre's name of what serves a target of a kind.
pub fn device_type(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Mgs => "mgs",
        TargetKind::Mdt => "mdt",
        TargetKind::Ost => "obdfilter",
    }
}

/// What the device of a target is called: `w-OST0000`, or `MGS`.
pub fn device_name(fsname: &str, target: TargetId) -> String {
    if target == TargetId::MGS { "MGS".to_owned() } else { format!("{fsname}-{target}") }
}

/// The places of a target: all names of its parameters begin with one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetPlaces {
    /// `mdt.w-MDT0000`.
    pub device: String,
    /// `ldlm.namespaces.mdt-w-MDT0000_UUID`.
    pub locks: String,
    /// `mdd.w-MDT0000`, of MDTs: what Lustre's layer of directories has.
    pub directories: Option<String>,
    /// `lod.w-MDT0000-mdtlov`, of MDTs: what Lustre's layer of layouts has.
    pub layouts: Option<String>,
    /// `osd-weft.w-MDT0000`, but of MGSs: what Lustre's layer of disks has.
    pub disk: Option<String>,
}

impl TargetPlaces {
    /// Those of `target`.
    pub fn new(fsname: &str, target: TargetId) -> TargetPlaces {
        let name = device_name(fsname, target);
        let space = match target.kind {
            TargetKind::Ost => "filter",
            kind => device_type(kind),
        };
        TargetPlaces {
            device: format!("{}.{name}", device_type(target.kind)),
            locks: format!("ldlm.namespaces.{space}-{name}_UUID"),
            directories: (target.kind == TargetKind::Mdt).then(|| format!("mdd.{name}")),
            layouts: (target.kind == TargetKind::Mdt).then(|| format!("lod.{name}-mdtlov")),
            disk: (target.kind != TargetKind::Mgs).then(|| format!("{DISK}.{name}")),
        }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        [&self.device, &self.locks]
            .into_iter()
            .chain(&self.directories)
            .chain(&self.layouts)
            .chain(&self.disk)
    }

    /// What `pattern` means in this target, as well as that can be said without asking it.
    pub fn within(&self, pattern: &str) -> String {
        let glob = Glob::new(pattern);
        let is_meant = |place: &&String| glob.may_begin_with(&format!("{place}."));
        let place = self.all().find(is_meant).unwrap_or(&self.device);
        let parts = place.split('.').count();
        let rest = pattern.splitn(parts + 1, '.').nth(parts).unwrap_or("*");
        format!("{place}.{rest}")
    }

    /// Whether a name of the target may fit.
    pub fn may_fit(&self, pattern: &Glob) -> bool {
        self.all().any(|place| pattern.may_begin_with(&format!("{place}.")))
    }
}

/// The tree of one target, for those who register a last part only.
pub struct TargetTree<'a> {
    places: TargetPlaces,
    tree: Tree<'a>,
}

impl<'a> TargetTree<'a> {
    /// Has `tree` take what `target` registers.
    pub fn new(fsname: &str, target: TargetId, tree: Tree<'a>) -> TargetTree<'a> {
        TargetTree { places: TargetPlaces::new(fsname, target), tree }
    }

    /// Registers a parameter of its device: `mdt.w-MDT0000.NAME`.
    pub fn of_device(&mut self, parameter: Parameter<'a>) {
        self.tree.add(&self.places.device, parameter);
    }

    /// Registers a parameter of its locks: `ldlm.namespaces.mdt-w-MDT0000_UUID.NAME`.
    pub fn of_locks(&mut self, parameter: Parameter<'a>) {
        self.tree.add(&self.places.locks, parameter);
    }

    /// Registers a parameter of its directories, if it is an MDT: `mdd.w-MDT0000.NAME`.
    pub fn of_directories(&mut self, parameter: Parameter<'a>) {
        if let Some(place) = &self.places.directories {
            self.tree.add(place, parameter);
        }
    }

    /// Registers a parameter of its layouts, if it is an MDT: `lod.w-MDT0000-mdtlov.NAME`.
    pub fn of_layouts(&mut self, parameter: Parameter<'a>) {
        if let Some(place) = &self.places.layouts {
            self.tree.add(place, parameter);
        }
    }

    /// Registers a parameter of its disk, if it is no MGS: `osd-weft.w-MDT0000.NAME`.
    pub fn of_disk(&mut self, parameter: Parameter<'a>) {
        if let Some(place) = &self.places.disk {
            self.tree.add(place, parameter);
        }
    }

    /// Whether [`TargetTree::of_disk`] would take a parameter of this name: what costs much is not made for nobody.
    pub fn wants_of_disk(&self, name: &str) -> bool {
        self.places.disk.as_ref().is_some_and(|place| self.tree.wants(&format!("{place}.{name}")))
    }

    /// As [`Tree::has_values`].
    pub fn has_values(&self) -> bool {
        self.tree.has_values()
    }

    /// As [`Tree::says`].
    pub fn says(&self, word: &str) -> bool {
        self.tree.says(word)
    }

    /// What was found.
    pub fn into_tree(self) -> Tree<'a> {
        self.tree
    }
}

/// What the names of a process's own parameters begin with, as Lustre's do: `debug`, `debug_mb`, `memused`, `mem_limit_mb`.
pub const PROCESS_PLACES: [&str; 2] = ["debug", "mem"];

/// Whether some target, client or process may have a name that fits, whichever there are.
pub fn may_fit_any(pattern: &Glob) -> bool {
    let kinds = [TargetKind::Mgs, TargetKind::Mdt, TargetKind::Ost];
    let of_targets = kinds.map(device_type).into_iter().chain(["mdd", "lod", DISK]);
    ClientPlaces::may_fit(pattern)
        || PROCESS_PLACES.iter().any(|place| pattern.may_begin_with(place))
        || of_targets.map(|place| format!("{place}.")).any(|place| pattern.may_begin_with(&place))
}

/// What the names of a client's parameters begin with, whatever its file system.
const CLIENT_BEGINNINGS: [&str; 6] = ["llite.", "osc.", "mdc.", "mgc.MGC", "ldlm.namespaces.", "jobid_"];
/// Digits that tell several clients of one file system apart, as Lustre's addresses do.
const CLIENT_DIGITS: usize = 16;

/// The places of a client: all names of its parameters begin with one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientPlaces {
    fsname: String,
    digits: String,
    mgs: String,
}

impl ClientPlaces {
    /// Those of `client`, whose MGS has the address `mgs`.
    pub fn new(fsname: &str, client: ClientId, mgs: &str) -> ClientPlaces {
        let digits =
            format!("{client}").chars().filter(char::is_ascii_hexdigit).take(CLIENT_DIGITS).collect();
        ClientPlaces { fsname: fsname.to_owned(), digits, mgs: mgs.to_owned() }
    }

    /// Whether a name of any client may fit.
    pub fn may_fit(pattern: &Glob) -> bool {
        CLIENT_BEGINNINGS.iter().any(|beginning| pattern.may_begin_with(beginning))
    }

    /// `llite.w-2155624f164a7fed`.
    pub fn mount(&self) -> String {
        format!("llite.{}-{}", self.fsname, self.digits)
    }

    /// `osc.w-OST0000-osc-2155624f164a7fed`.
    pub fn device(&self, target: TargetId) -> String {
        format!("{}.{}", session_type(target.kind), self.session(target))
    }

    /// `ldlm.namespaces.w-OST0000-osc-2155624f164a7fed`.
    pub fn locks(&self, target: TargetId) -> String {
        format!("ldlm.namespaces.{}", self.session(target))
    }

    /// `mgc.MGC10.0.0.1@tcp`.
    pub fn mgs(&self) -> String {
        format!("mgc.MGC{}", self.mgs)
    }

    fn session(&self, target: TargetId) -> String {
        format!("{}-{}-{}", device_name(&self.fsname, target), session_type(target.kind), self.digits)
    }
}

/// Lustre's name of a client's session with a target of a kind.
fn session_type(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Mgs => "mgc",
        TargetKind::Mdt => "mdc",
        TargetKind::Ost => "osc",
    }
}

/// The tree of one client, for those who register a last part only.
pub struct ClientTree<'a, S> {
    places: ClientPlaces,
    tree: Tree<'a, S>,
}

impl<'a, S> ClientTree<'a, S> {
    /// Has `tree` take what a client registers.
    pub fn new(places: ClientPlaces, tree: Tree<'a, S>) -> ClientTree<'a, S> {
        ClientTree { places, tree }
    }

    /// Registers a parameter of the mount: `llite.w-2155624f164a7fed.NAME`.
    pub fn of_mount(&mut self, parameter: Parameter<'a, S>) {
        self.tree.add(&self.places.mount(), parameter);
    }

    /// Registers a parameter that a machine has one of in Lustre, whatever is mounted: `NAME`.
    pub fn of_client(&mut self, parameter: Parameter<'a, S>) {
        self.tree.add("", parameter);
    }

    /// Registers a parameter of the session with the MGS: `mgc.MGC10.0.0.1@tcp.NAME`.
    pub fn of_mgs(&mut self, parameter: Parameter<'a, S>) {
        self.tree.add(&self.places.mgs(), parameter);
    }

    /// Registers parameters of the session with `target`, if anybody may ask for them: `osc.w-OST0000-osc-2155624f164a7fed.NAME`.
    pub fn of_session<const N: usize>(
        &mut self,
        target: TargetId,
        parameters: impl FnOnce() -> [Parameter<'a, S>; N],
    ) {
        self.in_place(&self.places.device(target), parameters);
    }

    /// Registers parameters of the locks of `target`, if anybody may ask for them:
    /// `ldlm.namespaces.w-OST0000-osc-2155624f164a7fed.NAME`.
    pub fn of_locks<const N: usize>(
        &mut self,
        target: TargetId,
        parameters: impl FnOnce() -> [Parameter<'a, S>; N],
    ) {
        self.in_place(&self.places.locks(target), parameters);
    }

    /// There may be tens of thousands of sessions, and mostly nobody asks for what most of them have.
    fn in_place<const N: usize>(&mut self, place: &str, parameters: impl FnOnce() -> [Parameter<'a, S>; N]) {
        if self.tree.may_fit(place) {
            parameters().into_iter().for_each(|parameter| self.tree.add(place, parameter));
        }
    }

    /// What was found.
    pub fn into_tree(self) -> Tree<'a, S> {
        self.tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_asked_only_for_what_it_may_have() {
        let ost = TargetPlaces::new("w", TargetId::ost(1));
        assert_eq!(ost.device, "obdfilter.w-OST0001");
        assert_eq!(ost.locks, "ldlm.namespaces.filter-w-OST0001_UUID");
        for (pattern, may) in [
            ("*", true),
            ("obdfilter.*", true),
            ("obdfilter.w-OST0001.brw_stats", true),
            ("ldlm.namespaces.*.lru_size", true),
            ("*OST0001*", true),
            ("version", false),
            ("obdfilter.w-OST0002.*", false),
            ("ldlm.namespaces.mdt-*", false),
        ] {
            assert_eq!(ost.may_fit(&Glob::new(pattern)), may, "{pattern}");
        }
        for (pattern, name) in [
            ("obdfilter.*.num_exports", "obdfilter.w-OST0001.num_exports"),
            ("ldlm.namespaces.*.lru_size", "ldlm.namespaces.filter-w-OST0001_UUID.lru_size"),
            ("obdfilter.*.exports.*.uuid", "obdfilter.w-OST0001.exports.*.uuid"),
            ("*", "obdfilter.w-OST0001.*"),
        ] {
            assert_eq!(ost.within(pattern), name);
        }
        assert_eq!(TargetPlaces::new("w", TargetId::MGS).device, "mgs.MGS");
    }

    #[test]
    fn names_of_nobody_are_found_out() {
        for (pattern, may) in [
            ("osc.w-OST0009-*.max_dirty_mb", true),
            ("mdd.*.changelog_mask", true),
            ("lod.*.dom_stripesize", true),
            ("osd-weft.*.x", true),
            ("obdfilter.nonsense", true),
            ("*.x", true),
            ("debug", true),
            ("jobid_var", true),
            ("foo.bar", false),
            ("os.x", false),
            ("mdtx.*", false),
        ] {
            assert_eq!(may_fit_any(&Glob::new(pattern)), may, "{pattern}");
        }
    }

    #[test]
    fn clients_places_are_lustres() {
        let client = ClientId(0x2155_624f_164a_7fed_0000_0000_0000_0001);
        let places = ClientPlaces::new("w", client, "10.0.0.1@tcp");
        let (mdt, ost) = (TargetId::mdt(0), TargetId::ost(0x1f));
        let all = [
            (places.mount(), "llite.w-2155624f164a7fed"),
            (places.device(mdt), "mdc.w-MDT0000-mdc-2155624f164a7fed"),
            (places.device(ost), "osc.w-OST001f-osc-2155624f164a7fed"),
            (places.locks(ost), "ldlm.namespaces.w-OST001f-osc-2155624f164a7fed"),
            (places.mgs(), "mgc.MGC10.0.0.1@tcp"),
        ];
        for (place, name) in all {
            assert_eq!(place, name);
            assert!(ClientPlaces::may_fit(&Glob::new(&place)), "{place}");
        }
        for (pattern, may) in
            [("*", true), ("osc.*", true), ("*.lru_size", true), ("mdt.*", false), ("version", false)]
        {
            assert_eq!(ClientPlaces::may_fit(&Glob::new(pattern)), may, "{pattern}");
        }
    }
}
