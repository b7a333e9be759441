//! What the data directory of a `weft up` holds: a file beside the targets that says what they are together.
//!
//! A file system that is being made has it under another name, which it gets before anything else is made and loses when all is
//! there. What such a directory holds was never served, so what is missing of it can be made.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The file of a file system that is whole.
const WHOLE_FILE: &str = "settings.json";
/// The file of one that is being made.
const MAKING_FILE: &str = "settings.json.making";
/// Either, before it is written.
const UNFINISHED_FILE: &str = "settings.json.new";
/// The log beside the targets.
pub const LOG_FILE: &str = "weft.log";

/// What a file system is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Its name.
    pub fsname: String,
    /// How many object storage servers it has.
    pub oss: u32,
    /// How many OSTs it has.
    pub osts: u32,
}

/// What a data directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing, or it is not there.
    Nothing,
    /// A file system whose making was broken off. Nobody has ever used it.
    Begun(Settings),
    /// A file system.
    Whole(Settings),
}

/// Looks at a data directory.
pub fn read(data: &Path) -> Result<Found, Failure> {
    if let Some(settings) = read_file(&data.join(WHOLE_FILE))? {
        return Ok(Found::Whole(settings));
    }
    match read_file(&data.join(MAKING_FILE))? {
        Some(settings) => Ok(Found::Begun(settings)),
        None => refuse_others(data).map(|()| Found::Nothing),
    }
}

/// Whether a data directory has a file system, or one that is being made.
pub fn are_in(data: &Path) -> bool {
    [WHOLE_FILE, MAKING_FILE].iter().any(|name| data.join(name).exists())
}

fn read_file(file: &Path) -> Result<Option<Settings>, Failure> {
    match fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            Failure::new(format!("{} is damaged ({error}); restore it from a copy", file.display()))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(format!(
            "{} cannot be read: {}; name another directory with --data",
            file.display(),
            crate::control::describe(&error)
        ))),
    }
}

/// A directory without settings has to be empty, or not there: whatever else it holds is not ours.
fn refuse_others(data: &Path) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::new(format!("{}: {}", data.display(), crate::control::describe(&error)));
    let entries = match fs::read_dir(data) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        // The log is opened before anything else is made.
        if name != LOG_FILE && name != UNFINISHED_FILE {
            return Err(Failure::new(format!(
                "{} holds something that is no data of weft; name an empty directory with --data",
                data.display()
            )));
        }
    }
    Ok(())
}

/// Says that a file system is being made. Durable when this returns, so that nothing of it is found without.
pub fn begin(data: &Path, settings: &Settings) -> io::Result<()> {
    fs::create_dir_all(data)?;
    write(data, MAKING_FILE, settings)
}

/// Says that the file system is whole. Durable when this returns; only then may it be served.
pub fn finish(data: &Path) -> io::Result<()> {
    fs::rename(data.join(MAKING_FILE), data.join(WHOLE_FILE))?;
    fs::File::open(data)?.sync_all()
}

/// Says that the file system has become another one. Its targets are there, so that nothing is promised that is not.
pub fn change(data: &Path, settings: &Settings) -> io::Result<()> {
    write(data, WHOLE_FILE, settings)
}

fn write(data: &Path, name: &str, settings: &Settings) -> io::Result<()> {
    let unfinished = data.join(UNFINISHED_FILE);
    let mut file = fs::File::create(&unfinished)?;
    serde_json::to_writer_pretty(&mut file, settings)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&unfinished, data.join(name))?;
    fs::File::open(data)?.sync_all()
}

/// Why settings cannot be written, for a person.
pub fn unwritten(data: &Path, error: &io::Error) -> Failure {
    let (file, why) = (data.join(WHOLE_FILE), crate::control::describe(error));
    Failure::new(format!("{} cannot be written: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_is_told_from_what_is_whole_and_from_what_is_others() {
        let temporary = tempfile::tempdir().expect("a directory");
        let data = temporary.path().join("data");
        let settings = |osts| Settings { fsname: "x".into(), oss: 1, osts };
        assert_eq!(read(&data), Ok(Found::Nothing));
        fs::create_dir(&data).expect("a directory");
        for name in [LOG_FILE, UNFINISHED_FILE] {
            fs::write(data.join(name), "{").expect("a file");
        }
        assert_eq!(read(&data), Ok(Found::Nothing));
        fs::create_dir(data.join("MGS")).expect("a directory");
        let refused = read(&data).expect_err("it may be anybody's").message;
        assert!(refused.contains("no data of weft"), "{refused}");
        assert!(!are_in(&data));
        begin(&data, &settings(2)).expect("it can be written");
        assert_eq!((read(&data), are_in(&data)), (Ok(Found::Begun(settings(2))), true));
        finish(&data).expect("it can be renamed");
        assert_eq!((read(&data), are_in(&data)), (Ok(Found::Whole(settings(2))), true));
        change(&data, &settings(3)).expect("it can be written");
        assert_eq!(read(&data), Ok(Found::Whole(settings(3))));
        // Once it was whole it has been used, and is not made again.
        fs::remove_file(data.join(WHOLE_FILE)).expect("it is there");
        assert!(read(&data).is_err());
    }
}
