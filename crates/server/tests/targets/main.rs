//! Targets that are called without clients. One program, so that it is built once.

mod batch;
mod destroy;
mod leases;
mod locks;
mod older;
