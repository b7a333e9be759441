//! An object storage target.

use bytes::Bytes;
use proto::Code;
use proto::wire::Request;
use store::StoreError;

use crate::target::{Ctx, Done, Env, Handler};

/// An object storage target.
pub struct Ost {}

impl Handler for Ost {
    type Session = ();

    async fn open(env: Env) -> Result<Ost, StoreError> {
        let _ = env;
        Ok(Ost {})
    }

    async fn handle(&self, ctx: &Ctx<()>, request: Request, bulk: Vec<Bytes>) -> Result<Done, Code> {
        let _ = (ctx, request, bulk);
        Err(Code::NotSupported)
    }
}
