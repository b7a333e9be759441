//! The MGS's own store of owners, asked outside any session: a question without an answer is asked anew.

use std::time::Duration;

use proto::wire::messages::{self as msg, Operation, Tenure, Wanted};
use proto::{Nid, TargetId};
use rpc::{Hub, Role};
use rt::BoxFuture;

use super::store::{Grant, Me, OwnerStore, Renewed, Unavailable};

/// Time for an answer that needs no waiting.
const PATIENCE: Duration = Duration::from_millis(1000);

/// The MGS.
pub struct MgsOwners {
    hub: Hub,
    nids: Vec<Nid>,
}

impl MgsOwners {
    /// The MGS at one of `nids`, or in this process.
    pub fn new(hub: &Hub, nids: Vec<Nid>) -> MgsOwners {
        MgsOwners { hub: hub.clone(), nids }
    }

    async fn ask<O: Operation>(&self, operation: O, patience: Duration) -> Result<O::Reply, Unavailable> {
        let answer = self.hub.ask(TargetId::MGS, Role::Server, &self.nids, operation, patience).await;
        answer.map_err(|error| Unavailable(format!("the MGS: {error}")))
    }
}

impl OwnerStore for MgsOwners {
    fn identity(&self) -> BoxFuture<'_, Result<String, Unavailable>> {
        Box::pin(async { Ok("mgs".to_owned()) })
    }

    fn renew<'a>(&'a self, me: &'a Me, holds: Vec<Tenure>) -> BoxFuture<'a, Result<Renewed, Unavailable>> {
        let renew = msg::RenewTargets { server: me.server.clone(), instance: me.instance, holds };
        Box::pin(async move {
            let msg::TargetsRenewed { ttl_ms, lost } = self.ask(renew, PATIENCE).await?;
            Ok(Renewed { ttl: Duration::from_millis(u64::from(ttl_ms)), lost })
        })
    }

    fn take<'a>(
        &'a self,
        me: &'a Me,
        wanted: Vec<Wanted>,
        wait: Duration,
    ) -> BoxFuture<'a, Result<Vec<Grant>, Unavailable>> {
        let take = msg::TakeTargets {
            server: me.server.clone(),
            instance: me.instance,
            nids: me.nids.clone(),
            wanted,
            wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
        };
        Box::pin(async move {
            let msg::TargetsTaken { taken, mut former, .. } = self.ask(take, wait + PATIENCE).await?;
            let with_former = |taken: msg::Taken| {
                let index = former.iter().position(|former| former.target == taken.target);
                Grant { taken, former: index.map(|index| former.swap_remove(index)) }
            };
            Ok(taken.into_iter().map(with_former).collect())
        })
    }

    fn settle<'a>(&'a self, me: &'a Me, tenure: Tenure) -> BoxFuture<'a, Result<(), Unavailable>> {
        let settle = msg::SettleTarget { server: me.server.clone(), instance: me.instance, tenure };
        Box::pin(async move { self.ask(settle, PATIENCE).await.map(|_| ()) })
    }

    fn release<'a>(
        &'a self,
        me: &'a Me,
        tenure: Tenure,
        to: &'a str,
    ) -> BoxFuture<'a, Result<(), Unavailable>> {
        let release = msg::ReleaseTarget {
            server: me.server.clone(),
            instance: me.instance,
            tenure,
            to: to.to_owned(),
        };
        Box::pin(async move { self.ask(release, PATIENCE).await.map(|_| ()) })
    }
}
