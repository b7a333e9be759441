//! A metadata target.

use bytes::Bytes;
use proto::Code;
use proto::wire::Request;
use store::StoreError;

use crate::target::{Ctx, Done, Env, Handler};

/// A metadata target.
pub struct Mdt {}

impl Handler for Mdt {
    type Session = ();

    async fn open(env: Env) -> Result<Mdt, StoreError> {
        let _ = env;
        Ok(Mdt {})
    }

    async fn handle(&self, ctx: &Ctx<()>, request: Request, bulk: Vec<Bytes>) -> Result<Done, Code> {
        let _ = (ctx, request, bulk);
        Err(Code::NotSupported)
    }
}
