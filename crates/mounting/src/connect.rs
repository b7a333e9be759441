//! A client of a file system, or a sentence that says what keeps it from being one.

use std::sync::Arc;
use std::time::Duration;

use client::Client;
use proto::{Code, ConfigCopy, FsName, TargetId, TargetKind};
use rpc::{Hub, Keys, Protect, Role};
use rt::Rt;

use crate::{Failure, Options, Result, Source};

/// How long the MGS may take to answer.
const MGS_WAIT: Duration = Duration::from_secs(10);
/// How long the MDT may take then: after a restart it first waits for the clients that it had.
const MDT_WAIT: Duration = Duration::from_secs(300);

/// The services and imports of this process.
pub fn hub(rt: &Rt, fsname: &FsName, keys: Keys, protect: Option<Protect>) -> Hub {
    let hub = Hub::new(rt.clone(), fsname.clone(), keys);
    if let Some(protect) = protect {
        hub.set_protect(protect);
    }
    hub
}

/// Mounts `source` as a client of `hub`, which has the clients' key.
///
/// # Errors
/// The MGS or the MDT does not answer, or refuses.
pub async fn connect(hub: &Hub, source: &Source, options: &Options) -> Result<Arc<Client>> {
    let rt = hub.rt();
    let config = ask_mgs(rt, hub, source).await?;
    let mounting = Client::mount(hub, source.mgs.clone(), options.limits(rt.memory_bytes()));
    match rt.timeout(MDT_WAIT, mounting).await {
        Some(Ok(client)) => Ok(client),
        Some(Err(error)) => Err(refused(source, error)),
        None => Err(mdt_unanswered(source, &config)),
    }
}

/// Asks the MGS what there is to mount, so that it is known who does not answer.
async fn ask_mgs(rt: &Rt, hub: &Hub, source: &Source) -> Result<ConfigCopy> {
    let mgs = hub.import(TargetId::MGS, hub.new_client(), Role::Client, source.mgs.clone());
    let mut config = ConfigCopy::new(source.fsname.as_str());
    loop {
        let Some(answer) = rt.timeout(MGS_WAIT, mgs.call(config.question(0))).await else {
            return Err(mgs_unanswered(source));
        };
        let taken = config.take(answer.map_err(|error| refused(source, error.into()))?.reply);
        if !taken || config.is_whole() {
            break;
        }
    }
    mgs.disconnect().await;
    Ok(config)
}

fn refused(source: &Source, error: client::Error) -> Failure {
    match error {
        client::Error::Refused(Code::Forbidden) => Failure::new(format!(
            "{source} does not accept the key; copy the clients' key from the server, or use --key"
        )),
        client::Error::Refused(Code::WrongFilesystem | Code::NotHere | Code::NotFound) => Failure::new(
            format!("file system {} is not served at {}; check the name", source.fsname, source.nids()),
        ),
        other => Failure::new(format!("{source} cannot be mounted: {other}")),
    }
}

fn mgs_unanswered(source: &Source) -> Failure {
    Failure::new(format!(
        "no answer from the MGS at {} within {} seconds; check the address, the network, the key, and that \"weft serve\" runs there",
        source.nids(),
        MGS_WAIT.as_secs()
    ))
}

fn mdt_unanswered(source: &Source, config: &ConfigCopy) -> Failure {
    let mdt = config.targets().find(|entry| entry.target.kind == TargetKind::Mdt);
    let why = match mdt {
        None => "knows no MDT of it; start \"weft serve\" for the MDT".to_owned(),
        Some(entry) => {
            let nids: Vec<String> = entry.nids.iter().map(ToString::to_string).collect();
            format!(
                "answers, but {} at {} does not; check that \"weft serve\" runs there (its log tells whether it is recovering)",
                entry.target,
                nids.join(", ")
            )
        }
    };
    Failure::new(format!("{source} is not mounted within {} seconds: the MGS {why}", MDT_WAIT.as_secs()))
}
