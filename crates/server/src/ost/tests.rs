//! An OST as its clients see it.
