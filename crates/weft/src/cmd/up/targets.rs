//! Makes the targets of a new file system, and looks at those of an old one.

use std::fs;
use std::path::Path;

use proto::{Nid, TargetId, TargetKind};
use rt::Rt;
use store::Store;

use super::plan::Plan;
use crate::cmd::format::{self, NewTarget, text};
use crate::cmd::serve::no_label;
use crate::failure::Failure;
use crate::settings;

/// Targets that cannot be served, and why.
pub type Missing = Vec<(TargetId, String)>;

/// Says that a new file system is being made, before anything of it is.
pub fn begin(plan: &Plan) -> Result<(), Failure> {
    if plan.before.is_some() {
        return Ok(());
    }
    settings::begin(&plan.data, &plan.settings()).map_err(|error| settings::unwritten(&plan.data, &error))
}

/// Makes what is missing of a new file system. What was begun before a crash is finished. Gives the OSTs of an old one that are not
/// there, or not what they were.
pub async fn make_targets(rt: &Rt, plan: &Plan) -> Result<Missing, Failure> {
    let mut missing = Missing::new();
    for target in plan.targets() {
        let made = match plan.existed(target) {
            true => check_target(rt, plan, target).await,
            false => make_target(rt, plan, target).await,
        };
        match made {
            Err(failure) if target.kind == TargetKind::Ost && plan.existed(target) => {
                leave_out(&mut missing, target, failure);
            }
            made => made?,
        }
    }
    let written = match &plan.before {
        None => settings::finish(&plan.data),
        Some(before) if *before != plan.settings() => settings::change(&plan.data, &plan.settings()),
        Some(_) => Ok(()),
    };
    written.map_err(|error| settings::unwritten(&plan.data, &error))?;
    Ok(missing)
}

/// A target that is to be there already. A new one in its place would be empty.
async fn check_target(rt: &Rt, plan: &Plan, target: TargetId) -> Result<(), Failure> {
    let path = plan.directory(target);
    if is_empty(&path) {
        return Err(Failure::new(format!(
            "{} is empty or not there; mount the disk that holds {}, or bring its directory back, and start again",
            path.display(),
            plan.target_name(target)
        )));
    }
    let path = text(&path)?;
    let label = Store::read_label(rt, path).await.map_err(|error| no_label(path, error))?;
    if label.fsname != plan.fsname || label.target != target {
        return Err(Failure::new(format!(
            "{path} holds {}-{}, not {}; put the right directory there",
            label.fsname,
            label.target,
            plan.target_name(target)
        )));
    }
    Ok(())
}

async fn make_target(rt: &Rt, plan: &Plan, target: TargetId) -> Result<(), Failure> {
    let path = plan.directory(target);
    // A label comes last and at once. Without one, what is there is left of a making that was broken off, or formatting refuses it.
    if Store::read_label(rt, text(&path)?).await.is_ok() {
        return check_target(rt, plan, target).await;
    }
    let mgs = if target == TargetId::MGS { Vec::new() } else { vec![Nid::lo()] };
    let new = NewTarget { fsname: plan.fsname.clone(), target, mgs, service: Vec::new() };
    format::format(rt, &path, new).await?;
    tracing::info!(target = plan.target_name(target), "formatted");
    Ok(())
}

/// Whether nothing is in a directory, or it is not there.
fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

/// Goes on without an OST.
pub fn leave_out(missing: &mut Missing, target: TargetId, failure: Failure) {
    tracing::error!(%target, why = failure.message, "not served; files there wait");
    missing.push((target, failure.message));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::cmd::up::plan::reconcile;
    use crate::cmd::up::plan::tests::{Line, plan};
    use crate::settings::Found;

    /// A start that was killed while it made the targets left a directory that every later start refused as somebody else's. Here the
    /// making ends after each number of steps, until it comes to its end.
    #[test]
    fn what_was_broken_off_while_it_was_made_is_made_again() {
        let temporary = tempfile::tempdir().expect("a directory");
        let make = |plan: &Plan, steps_max| {
            let (node, rt) = crate::serving::start_runtime().expect("a runtime");
            let made = node.block_on(ends_after(steps_max, async {
                begin(plan).expect("it can be written");
                make_targets(&rt, plan).await.map_err(|failure| failure.message)
            }));
            // What the disk was told last is done then.
            node.stop(Duration::from_secs(60));
            made
        };
        let mut steps = 0;
        loop {
            let data = temporary.path().join(steps.to_string());
            let plan = Plan { data: data.clone(), ..plan(1, 2) };
            if make(&plan, steps).is_some() {
                break;
            }
            let found = settings::read(&data).expect("it is ours");
            let line = Line::try_parse_from(["up", "/m"]).expect("a line that parses");
            let (_, oss, osts) = reconcile(&line.arguments, &data, &found).expect("it can be made");
            match found {
                Found::Nothing => assert_eq!(steps, 0),
                Found::Begun(_) => assert_eq!((oss, osts), (1, 2), "as it was begun"),
                Found::Whole(_) => break,
            }
            assert_eq!(make(&plan, usize::MAX), Some(Ok(Missing::new())), "{steps}");
            assert_eq!(settings::read(&data), Ok(Found::Whole(plan.settings())));
            steps += 1;
        }
        assert!(steps > 10, "{steps} steps");
    }

    /// The future's value, or `None` if it has not come to its end after so many steps.
    async fn ends_after<T>(steps_max: usize, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut steps = 0;
        std::future::poll_fn(|cx| {
            if steps == steps_max {
                return std::task::Poll::Ready(None);
            }
            steps += 1;
            future.as_mut().poll(cx).map(Some)
        })
        .await
    }
}
