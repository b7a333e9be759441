//! What an owner has of the targets' space. Each target counts its own, in the commits of its objects ([`store::sums::BLOCK_OWNERS`]).

use std::sync::Arc;
use std::time::Duration;

use proto::wire::messages::{ReadUsage, TargetUsage};
use proto::{DataTarget, MdtIndex, OstIndex};
use rt::Rt;
use rt::wait::join_all;
use service::Env;

use crate::data::Data;
use crate::mdt::destroy::Destroyer;
use crate::mdt::osts::{Objects, Osts};

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
    pub async fn of(&self, kind: u8, id: u32) -> Vec<TargetUsage> {
        let own = TargetUsage { target: self.own, bytes: self.data.used_by(kind, id).ok() };
        let osts: Vec<OstIndex> = self.osts.table().osts().collect();
        let asked = osts.into_iter().map(|ost| async move {
            let answer = match self.osts.import(ost) {
                Some(import) => self.rt.timeout(ANSWER_TIME, import.call(ReadUsage { kind, id })).await,
                None => None,
            };
            let bytes = answer.and_then(Result::ok).map(|answered| answered.reply.bytes);
            TargetUsage { target: ost.into(), bytes }
        });
        let mut targets = vec![own];
        targets.extend(join_all(asked).await);
        targets
    }

    /// Whether space of files that are gone is about to be given back.
    pub fn is_being_freed(&self) -> bool {
        self.destroyer.is_busy()
    }
}
