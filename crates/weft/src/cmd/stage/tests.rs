//! A stager as a whole, and while others change the trees that it works with.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use super::*;

/// A source, a target, and what neither of them leads to.
struct Trees {
    dir: tempfile::TempDir,
}

impl Trees {
    fn new() -> Trees {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["source/d/e", "target", "outside/e"] {
            fs::create_dir_all(dir.path().join(name)).expect("directories");
        }
        let trees = Trees { dir };
        trees.write("source/d/file", "ours");
        trees.write("source/d/e/file", "ours");
        symlink("nowhere", trees.at("source/d/link")).expect("a link");
        trees
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file that was not changed for long.
    fn write(&self, name: &str, content: &str) {
        fs::write(self.at(name), content).expect("a file");
        self.set_time(name, SystemTime::now() - Duration::from_secs(1000));
    }

    fn set_time(&self, name: &str, time: SystemTime) {
        let file = fs::File::open(self.at(name)).expect("there");
        file.set_modified(time).expect("its time");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).expect("there")
    }

    fn names(&self, name: &str) -> Vec<String> {
        let names = fs::read_dir(self.at(name)).expect("a directory");
        let names = names.map(|name| name.expect("a name").file_name().to_string_lossy().into_owned());
        names.filter(|name| name != STATE).collect()
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.at(name)).expect("there").mode() & 0o7777
    }

    fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).expect("a mode");
    }

    /// Which file it is: a copy is another one.
    fn number(&self, name: &str) -> u64 {
        fs::metadata(self.at(name)).expect("there").ino()
    }

    /// Puts a link to what lies outside in place of a directory.
    fn exchange(&self, name: &str) {
        fs::rename(self.at(name), self.at("was")).expect("another name");
        symlink(self.at("outside"), self.at(name)).expect("a link");
    }

    fn tree(&self, name: &str) -> Tree {
        Tree::open(self.at(name).canonicalize().expect("there")).expect("a directory")
    }

    fn stage(&self) -> Outcome {
        let (source, target) = (self.at("source"), self.at("target"));
        let rest = Copy { source, target, list: None, state: None, streams: 2, no_verify: false, json: true };
        stage("in", &rest)
    }

    fn stage_all(&self) {
        assert_eq!(self.stage().map_err(|failure| failure.message), Ok(0));
    }

    /// A stager that has looked at the source, and goes on step by step.
    fn with_work(&self, act: impl FnOnce(&Work<'_>, &[Entry])) {
        let (source, target) = (self.tree("source"), self.tree("target"));
        let purpose = Purpose { source: source.path.clone(), target: target.path.clone(), list: 0 };
        let of = |failure: Failure| failure.message;
        let state = State::open_in(&target, STATE.as_ref()).map_err(of).expect("a state");
        let entries = scan::scan(&source, None).map_err(of).expect("it is there").into_entries();
        let records = state.take_records(&purpose, |_| true).map_err(of).expect("no records");
        let how = How { keeps_owner: false, reads_again: true };
        let (source, target) = (&source, &target);
        let work = Work { source, target, mark: "mark-", how, records: &records, state: &state };
        act(&work, &entries);
    }
}

fn failed(done: &Done) -> u64 {
    done.counts.failed.load(Ordering::Relaxed)
}

#[test]
fn a_link_in_the_target_is_not_followed() {
    let trees = Trees::new();
    trees.set_mode("source/d", 0o755);
    trees.set_mode("outside", 0o711);
    trees.write("outside/mark-1", "theirs");
    trees.with_work(|work, entries| {
        assert!(work.make_directories(entries).is_ok());
        trees.exchange("target/d");
        let done = work.copy(entries, 2);
        assert_eq!(failed(&done), 3);
        assert_eq!(work.end_directories(entries).len(), 2);
        assert!(work.make_directories(entries).is_err());
        assert_eq!(work.remove_leftovers(entries.iter()).map_err(|failure| failure.message), Ok(0));
    });
    assert_eq!(trees.mode("outside"), 0o711);
    assert_eq!(trees.names("outside").len(), 2);
    assert_eq!(trees.names("outside/e"), [""; 0]);
}

#[test]
fn a_link_in_the_source_is_not_followed() {
    let trees = Trees::new();
    trees.write("outside/file", "theirs");
    trees.write("outside/e/file", "theirs");
    trees.with_work(|work, entries| {
        assert!(work.make_directories(entries).is_ok());
        trees.exchange("source/d");
        assert_eq!(failed(&work.copy(entries, 2)), 3);
        assert_eq!(work.end_directories(entries).len(), 2);
    });
    assert_eq!(trees.names("target/d"), ["e"]);
    assert_eq!(trees.names("target/d/e"), [""; 0]);
    // It is what it is, from the next run on.
    fs::remove_dir_all(trees.at("target/d")).expect("gone");
    trees.stage_all();
    assert_eq!(fs::read_link(trees.at("target/d")).expect("a link"), trees.at("outside"));
}

#[test]
fn a_file_with_a_name_elsewhere_is_replaced_and_not_changed() {
    let trees = Trees::new();
    trees.stage_all();
    fs::rename(trees.at("target/d/file"), trees.at("outside/file")).expect("another name");
    fs::hard_link(trees.at("outside/file"), trees.at("target/d/file")).expect("one more name");
    let number = trees.number("outside/file");
    // As long as there is nothing to change, it is as good as any.
    trees.stage_all();
    assert_eq!(trees.number("target/d/file"), number);
    trees.set_mode("source/d/file", 0o640);
    trees.stage_all();
    assert_ne!(trees.mode("outside/file"), 0o640);
    assert_eq!(trees.mode("target/d/file"), 0o640);
}

#[test]
fn a_program_that_runs_as_its_owner_is_copied_with_its_mode() {
    let trees = Trees::new();
    trees.stage_all();
    let number = trees.number("target/d/file");
    trees.set_mode("source/d/file", 0o750);
    trees.stage_all();
    assert_eq!((trees.number("target/d/file"), trees.mode("target/d/file")), (number, 0o750));
    trees.set_mode("source/d/file", 0o4750);
    trees.stage_all();
    assert_ne!(trees.number("target/d/file"), number);
    assert_eq!(trees.mode("target/d/file"), 0o4750);
}

#[test]
fn states_that_others_may_change_are_refused() {
    let trees = Trees::new();
    let state = format!("target/{STATE}");
    symlink(trees.at("outside/e"), trees.at(&state)).expect("a link");
    assert!(trees.stage().is_err());
    fs::remove_file(trees.at(&state)).expect("gone");
    fs::create_dir(trees.at(&state)).expect("a directory");
    trees.set_mode(&state, 0o770);
    assert!(trees.stage().is_err());
    trees.set_mode(&state, 0o700);
    trees.stage_all();
    assert_eq!(trees.names("outside/e"), [""; 0]);
}

#[test]
fn a_change_that_leaves_size_and_time_as_they_were() {
    let trees = Trees::new();
    // However long a run takes, none begins behind the step of the clock.
    let now = SystemTime::now() + Duration::from_secs(1000);
    fs::write(trees.at("source/fresh"), "one").expect("a file");
    trees.set_time("source/fresh", now);
    trees.stage_all();
    let number = trees.number("target/fresh");
    // The same is not copied again, though it is compared.
    trees.stage_all();
    assert_eq!(trees.number("target/fresh"), number);
    fs::write(trees.at("source/fresh"), "two").expect("written");
    trees.set_time("source/fresh", now);
    trees.stage_all();
    assert_eq!(trees.read("target/fresh"), "two");
    // The copy, too, may have been changed in the step of the clock in which it was made.
    fs::write(trees.at("target/fresh"), "six").expect("written");
    trees.set_time("target/fresh", now);
    trees.stage_all();
    assert_eq!(trees.read("target/fresh"), "two");
    // One that is older is believed.
    let number = trees.number("target/d/file");
    trees.stage_all();
    assert_eq!(trees.number("target/d/file"), number);
}

#[test]
fn a_tree_deeper_than_a_path_is_long() {
    const DEPTH: usize = 60;
    let trees = Trees::new();
    let name = "n".repeat(100);
    let source = trees.tree("source");
    let mut path = PathBuf::new();
    let mut way = source.way();
    for _ in 0..DEPTH {
        way.to(&path).and_then(|above| above.make(name.as_ref())).expect("a directory");
        path.push(&name);
    }
    assert!(path.as_os_str().len() > 4096);
    let deepest = way.to(&path).expect("a directory");
    deepest.create("file".as_ref()).and_then(|file| file.set_len(7)).expect("a file");
    for _ in 0..2 {
        trees.stage_all();
        let target = trees.tree("target");
        let copy = target.way().to(&path).and_then(|deepest| deepest.look("file".as_ref())).expect("a copy");
        assert_eq!(copy.metadata().expect("its size").len(), 7);
    }
}
