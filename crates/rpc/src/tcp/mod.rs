//! What both ends of a connection share: it is authenticated once ([`handshake`]), and its frames are sealed ([`sealed`]). The client's end is
//! [`crate::session`]'s link, the server's is [`crate::export`]'s connection.

pub(crate) mod handshake;
mod sealed;
