//! Parameters that a target was given when it was made (`weft format --param`): the first time that it reaches the MGS, it has them kept there,
//! as `lctl set_param -P` would. From then on they are the file system's, and the target knows nothing of them any more.

use std::time::Duration;

use bytes::Bytes;
use proto::settings::{SETTINGS_MAX, is_setting_name, is_setting_value};
use proto::wire::messages::ChangeSetting;
use proto::wire::{Reader, Wire};
use proto::{Nid, TargetId};
use rpc::{AskError, Hub, Role};
use rt::Rt;
use service::keys;
use store::{Batch, Change, Store, StoreError};

/// Version of the format of what is stored.
const FORMAT: u8 = 1;
/// How long the MGS may take to keep one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Gives the new target in `path` parameters, by the names that `lctl set_param -P` takes, and values.
///
/// # Errors
/// The directory cannot be opened.
pub async fn give(rt: &Rt, path: &str, parameters: &[(String, String)]) -> Result<(), StoreError> {
    let shared = !Store::read_label(rt, path).await?.service.is_empty();
    // Starts of a target with service nodes are numbered by its owners.
    let store = if shared { Store::open(rt, path).await } else { Store::open_copy(rt, path).await }?;
    let given = put(&store, parameters).await;
    store.close().await?;
    given
}

/// What a target was given and the MGS does not keep yet.
pub(crate) fn load(store: &Store) -> Result<Vec<(String, String)>, StoreError> {
    let Some(value) = store.get(&[keys::GIVEN])? else { return Ok(Vec::new()) };
    read(value.bytes).ok_or_else(|| StoreError::Corrupt { what: "the parameters that it was given".into() })
}

fn read(value: Bytes) -> Option<Vec<(String, String)>> {
    let mut from = Reader::new(value);
    let format: u8 = from.take().ok()?;
    let (names, values): (Vec<String>, Vec<String>) = (from.take().ok()?, from.take().ok()?);
    let fits =
        format == FORMAT && names.len() == values.len() && names.len() <= SETTINGS_MAX && from.is_empty();
    let all: Vec<(String, String)> = names.into_iter().zip(values).collect();
    let are_fine = all.iter().all(|(name, value)| is_setting_name(name) && is_setting_value(value));
    (fits && are_fine).then_some(all)
}

fn written(parameters: &[(String, String)]) -> Option<Bytes> {
    if parameters.is_empty() {
        return None;
    }
    let (names, values): (Vec<String>, Vec<String>) = parameters.iter().cloned().unzip();
    let mut value = Vec::new();
    FORMAT.put(&mut value);
    names.put(&mut value);
    values.put(&mut value);
    Some(value.into())
}

async fn put(store: &Store, parameters: &[(String, String)]) -> Result<(), StoreError> {
    let change = Change { key: Bytes::from_static(&[keys::GIVEN]), value: written(parameters) };
    let transno = store.commit(Batch { changes: vec![change], ..Batch::default() })?;
    store.committed(transno).await
}

/// Has the MGS keep them; those that it did not answer are left. One that it refuses is not tried again.
pub(crate) async fn tell(
    hub: &Hub,
    nids: &[Nid],
    store: &Store,
    target: TargetId,
    given: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let mut left = Vec::new();
    for (name, value) in &given {
        let fsname = hub.fsname().as_str().to_owned();
        let order = ChangeSetting { fsname, name: name.clone(), value: Some(value.clone()) };
        match hub.ask(TargetId::MGS, Role::Server, nids, order, PATIENCE).await {
            Ok(_) => {
                tracing::info!(%target, name, value, "the MGS keeps a parameter that the target was given")
            }
            Err(AskError::Refused(code)) => {
                tracing::error!(%target, name, value, %code, "the MGS does not keep a parameter that the target was given: set it with lctl set_param -P");
            }
            Err(error) => {
                tracing::warn!(%target, name, %error, "the MGS does not say that it keeps a parameter that the target was given");
                left.push((name.clone(), value.clone()));
            }
        }
    }
    if left.len() < given.len()
        && let Err(error) = put(store, &left).await
    {
        tracing::error!(%target, %error, "that the MGS keeps what the target was given is not remembered");
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_has_these_bytes() {
        let given = [("a.b".to_owned(), "1".to_owned()), ("c".to_owned(), String::new())];
        let bytes = written(&given).expect("there are some");
        let expected = b"\x01\x02\0\0\0\x03\0\0\0a.b\x01\0\0\0c\x02\0\0\0\x01\0\0\x001\0\0\0\0";
        assert_eq!(bytes.as_ref(), expected);
        assert_eq!(read(bytes.clone()), Some(given.to_vec()));
        for len in 0..bytes.len() {
            assert_eq!(read(bytes.slice(..len)), None, "{len} bytes");
        }
        let wrong = |name: &str, value: &str| written(&[(name.to_owned(), value.to_owned())]).and_then(read);
        assert_eq!((wrong("a b", "1"), wrong("a", "1\n")), (None, None));
        assert_eq!(written(&[]), None);
    }
}
