//! The management server.

use bytes::Bytes;
use proto::Code;
use proto::wire::Request;
use store::StoreError;

use crate::target::{Ctx, Done, Env, Handler};

/// The management server.
pub struct Mgs {}

impl Handler for Mgs {
    type Session = ();

    async fn open(env: Env) -> Result<Mgs, StoreError> {
        let _ = env;
        Ok(Mgs {})
    }

    async fn handle(&self, ctx: &Ctx<()>, request: Request, bulk: Vec<Bytes>) -> Result<Done, Code> {
        let _ = (ctx, request, bulk);
        Err(Code::NotSupported)
    }
}
