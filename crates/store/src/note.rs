//! Files for people beside the store: a bounded number in a directory of their own.

use std::io;

use bytes::Bytes;
use rt::Dir;

/// Writes `text` as `name` into `dir` and takes the first names away that are more than `count_max`.
///
/// # Errors
/// Those of the disk.
pub async fn keep(dir: &Dir, name: &str, text: Bytes, count_max: usize) -> io::Result<()> {
    let file = dir.create(name).await?;
    file.write_at(0, vec![text]).await?;
    file.sync().await?;
    let names = dir.list().await?;
    for old in names.iter().take(names.len().saturating_sub(count_max)) {
        dir.remove(old).await?;
    }
    dir.sync().await
}

#[cfg(test)]
mod tests {
    use rt::sim::{Options, Sim};

    use super::*;

    #[test]
    fn the_last_ones_stay() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("server");
        sim.run(async {
            let dir = rt.disk().create_dir("notes").await.expect("an empty disk");
            for name in ["1", "2", "3", "4"] {
                keep(&dir, name, Bytes::from(format!("note {name}")), 2).await.expect("the disk works");
            }
            assert_eq!(dir.list().await.expect("the disk works"), ["3", "4"]);
            let file = dir.open("4").await.expect("it is there");
            assert_eq!(file.read_at(0, 100).await.expect("the disk works"), "note 4");
        });
    }
}
