//! The machine's switch of FUSE over io_uring, which only root may set.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fuse::engine::Choice;
use fuse::engine::uring::ENABLED;

/// The switch, from where it is looked at until this is dropped: then it is off again, if it was switched on here.
///
/// Mounts that have begun with FUSE over io_uring go on with it: the kernel asks for the switch when it begins.
pub struct Switch {
    path: PathBuf,
    was_off: bool,
    /// What is to be told.
    pub told: Option<String>,
}

impl Switch {
    /// Switches it on where the kernel has it and it is off, if `engine` leaves the choice.
    pub fn permit(engine: Choice) -> Switch {
        permit_at(Path::new(ENABLED), engine)
    }

    /// It is left as it is; `was_off`: another process has switched it on for this one.
    pub fn taken_over(was_off: bool) -> Switch {
        Switch { path: ENABLED.into(), was_off, told: None }
    }

    /// Whether it was switched on here.
    pub fn was_off(&self) -> bool {
        self.was_off
    }

    /// Another process puts it back.
    pub fn hand_over(mut self) {
        self.was_off = false;
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if self.was_off
            && let Err(error) = write(&self.path, "N\n")
        {
            tracing::warn!(%error, switch = %self.path.display(), "FUSE over io_uring stays on");
        }
    }
}

fn permit_at(path: &Path, engine: Choice) -> Switch {
    let mut switch = Switch { path: path.to_owned(), was_off: false, told: None };
    if engine != Choice::Auto || !fs::read_to_string(path).is_ok_and(|text| text.trim() == "N") {
        return switch;
    }
    let name = path.display();
    switch.was_off = write(path, "Y\n").is_ok();
    switch.told = Some(if switch.was_off {
        format!(
            "FUSE over io_uring is on until this file system is stopped ({name}); with --no-uring it is left as it is"
        )
    } else {
        format!("FUSE over io_uring is faster, and off: as root run \"echo Y > {name}\", then mount again")
    });
    switch
}

fn write(switch: &Path, text: &str) -> io::Result<()> {
    // The file is the kernel's: it is there, or nothing is made.
    io::Write::write_all(&mut fs::File::options().write(true).open(switch)?, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_switched_on_only_if_nobody_chose_and_put_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let switch = directory.path().join("enable_uring");
        let value = || fs::read_to_string(&switch).expect("a file");
        assert_eq!(permit_at(&switch, Choice::Auto).told.clone(), None, "a kernel without it");
        assert!(!switch.exists());
        fs::write(&switch, "N\n").expect("a file");
        assert_eq!(permit_at(&switch, Choice::Dev).told.clone(), None);
        assert_eq!(value(), "N\n");
        let first = permit_at(&switch, Choice::Auto);
        assert!(first.told.as_ref().is_some_and(|told| told.contains("is on until")));
        assert_eq!(value(), "Y\n");
        // Who finds it on leaves it on, and the one that switched it puts it back.
        drop(permit_at(&switch, Choice::Auto));
        assert_eq!(value(), "Y\n");
        drop(first);
        assert_eq!(value(), "N\n");
        // It may be for another process to put it back.
        permit_at(&switch, Choice::Auto).hand_over();
        assert_eq!(value(), "Y\n");
        drop(Switch { path: switch.clone(), was_off: true, told: None });
        assert_eq!(value(), "N\n");
    }
}
