//! Sessions: slots, replay list, exactly-once; pure.
