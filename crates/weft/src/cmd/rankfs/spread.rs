//! Images of ranks over OSTs: the first N ranks have theirs on the first OST, the next N on the next one, and so on, round and round. With
//! N = 1 each rank has the OST after that of the rank before; with N ranks that work in step, each group of N has an OST for itself.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fuse::control::{self, Hint, Kind, Spaces};

use crate::control::{create, describe, get};
use crate::failure::Failure;

/// Nobody else may look into an image.
const MODE: u32 = 0o600;

/// The OST for the image of `rank`, in the file system that `directory` is in.
pub fn ost_of(directory: &Path, rank: u32, ranks_per_ost: u32) -> Result<u32, Failure> {
    let spaces: Spaces = get(directory, control::SPACE).map_err(|error| {
        Failure::new(format!(
            "the OSTs of {} are not known: {}; images have to be on a weft file system",
            directory.display(),
            describe(&error)
        ))
    })?;
    let targets = spaces.targets.iter().filter(|target| target.kind == Kind::Ost && target.space.is_some());
    let osts: Vec<u32> = targets.map(|target| target.index).collect();
    choose(&osts, rank, ranks_per_ost)
        .ok_or_else(|| Failure::new(format!("no OST of {} answers", directory.display())))
}

fn choose(osts: &[u32], rank: u32, ranks_per_ost: u32) -> Option<u32> {
    let turn = (rank / ranks_per_ost.max(1)) as usize;
    osts.get(turn.checked_rem(osts.len())?).copied()
}

/// Makes an empty file with one stripe on an OST.
pub fn make_on(path: &Path, ost: u32) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let start_index = i32::try_from(ost).map_err(|_| io::ErrorKind::InvalidInput)?;
    let hint = Hint { stripe_count: 1, start_index, mode: Some(MODE), ..Hint::default() };
    create(directory, name.as_bytes(), &hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_take_the_osts_in_turn() {
        let osts = [0, 2, 5];
        let all = |ranks_per_ost| -> Vec<Option<u32>> {
            (0..8).map(|rank| choose(&osts, rank, ranks_per_ost)).collect()
        };
        let some = |osts: [u32; 8]| osts.map(Some).to_vec();
        assert_eq!(all(1), some([0, 2, 5, 0, 2, 5, 0, 2]));
        assert_eq!(all(3), some([0, 0, 0, 2, 2, 2, 5, 5]));
        assert_eq!(choose(&[], 1, 1), None);
    }
}
