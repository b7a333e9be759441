//! Mutual authentication of two peers by a shared key; pure. Filled by the session layer.
