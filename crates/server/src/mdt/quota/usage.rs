//! What an owner has of the targets' space. Each target counts its own, in the commits of its objects ([`store::object::BLOCK_OWNERS`]).

use std::sync::Arc;
use std::time::Duration;

use proto::wire::messages::{ReadUsage, TargetUsage};
use proto::{Code, DataTarget, MdtIndex, OstIndex};
use rt::Rt;
use rt::wait::join_all;
use service::Env;

use crate::data::Data;
use crate::mdt::destroy::Destroyer;
use crate::mdt::osts::{Objects, Osts, Table};

use super::table::Pool;

/// How long an OST may take to say what an owner has.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// Where space is used.
pub struct Usage {
    rt: Rt,
    /// This target.
    own: DataTarget,
    data: Arc<Data>,
    osts: Arc<Osts>,
    destroyer: Arc<Destroyer>,
}

impl Usage {
    pub fn new(env: &Env, objects: &Objects, data: Arc<Data>) -> Usage {
        let own = DataTarget::Mdt(MdtIndex(env.store.label().target.index));
        let (osts, destroyer) = (objects.osts.clone(), objects.destroyer.clone());
        Usage { rt: env.rt.clone(), own, data, osts, destroyer }
    }

    /// What an owner has of each target, this one first.
    ///
    /// # Errors
    /// [`Code::TryAgain`]: the target is being stopped.
    pub async fn of(&self, owner: (u8, u32)) -> Result<Vec<TargetUsage>, Code> {
        self.of_pool(owner, &None).await
    }

    /// The same of the OSTs of a pool: nothing for one that is not there.
    pub async fn of_pool(&self, (kind, id): (u8, u32), pool: &Pool) -> Result<Vec<TargetUsage>, Code> {
        self.until_told().await?;
        let table = self.osts.table();
        let osts: Vec<OstIndex> = match pool {
            None => table.osts().collect(),
            Some(pool) => table.pool(pool).into_iter().flatten().copied().collect(),
        };
        let mut targets = Vec::new();
        if pool.is_none() {
            targets.push(TargetUsage { target: self.own, bytes: self.data.used_by(kind, id).ok() });
        }
        let asked = osts.into_iter().map(|ost| async move {
            let answer = match self.osts.import(ost) {
                Some(import) => self.rt.timeout(ANSWER_TIME, import.call(ReadUsage { kind, id })).await,
                None => None,
            };
            let bytes = answer.and_then(Result::ok).map(|answered| answered.reply.bytes);
            TargetUsage { target: ost.into(), bytes }
        });
        targets.extend(join_all(asked).await);
        Ok(targets)
    }

    /// Whether the MGS has said which OSTs and pools there are.
    pub fn is_told(&self) -> bool {
        self.osts.is_told()
    }

    /// Waits until the MGS has said which OSTs and pools there are: before, nobody knows what an owner has.
    ///
    /// # Errors
    /// [`Code::TryAgain`]: the target is being stopped.
    pub async fn until_told(&self) -> Result<(), Code> {
        self.osts.until_told().await
    }

    /// The OSTs and pools as they are now.
    pub fn table(&self) -> Arc<Table> {
        self.osts.table()
    }

    /// Returns when `table` is not the state of the OSTs and pools any more.
    pub async fn until_not(&self, table: &Arc<Table>) -> Result<(), Code> {
        self.osts.until_not(table).await
    }

    /// Whether space of files that are gone is about to be given back.
    pub fn is_being_freed(&self) -> bool {
        self.destroyer.is_busy()
    }
}
