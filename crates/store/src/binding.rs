//! Which store of owners says who may serve a target: an empty file whose name says it (`docs/disk.md#owner`).
//!
//! Two servers that ask two stores would both be told that the target is theirs. They see the same directory: the first one
//! binds it, and each looks before it wants the target.

use std::io::ErrorKind;

use rt::Dir;

use crate::error::StoreError;

/// How such a file's name begins.
const PREFIX: &str = "owners.";

/// Binds the target in `dir` to the store `identity`, or says that it is bound to another one.
pub(crate) async fn bind(dir: &Dir, path: &str, identity: &str) -> Result<(), StoreError> {
    let own = format!("{PREFIX}{identity}");
    let names = dir.list().await?;
    if !names.iter().any(|name| name.starts_with(PREFIX)) {
        match dir.create(&own).await {
            Ok(_) => {}
            // A peer was faster.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
        dir.sync().await?;
    }
    // Once more: two that come at once both see the other's, and neither goes on.
    let names = dir.list().await?;
    match names.iter().find(|name| name.starts_with(PREFIX) && **name != own) {
        None => Ok(()),
        Some(other) => Err(StoreError::NotATarget(format!(
            "the store of owners here is {identity}, and {path} has the file {other}: start all servers of the target with the same --owners; to change it, stop them all and remove that file"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use rt::sim::{Options, Sim};

    use super::*;

    #[test]
    fn a_target_has_one_store_of_owners() {
        let sim = Sim::new(Options::default());
        let rt = sim.rt("server");
        sim.run(async {
            let dir = rt.disk().create_dir("ost").await.expect("an empty disk");
            bind(&dir, "ost", "mgs").await.expect("it is the first");
            bind(&dir, "ost", "mgs").await.expect("it is the same");
            let error = bind(&dir, "ost", "etcd-1").await.expect_err("it is another one");
            assert!(error.to_string().contains("owners.mgs"), "{error}");
            dir.remove("owners.mgs").await.expect("an operator");
            bind(&dir, "ost", "etcd-1").await.expect("it was unbound");
            // Two at once, each before the other had looked.
            dir.create("owners.mgs").await.expect("the disk works");
            for identity in ["mgs", "etcd-1"] {
                bind(&dir, "ost", identity).await.expect_err("neither goes on");
            }
        });
    }
}
