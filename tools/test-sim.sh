#!/usr/bin/env bash
# Ring two: clusters in virtual time. Determinism first, then seeds in which everything loses power, then seeds in which
# only servers do, then seeds in which many clients share a few files and names, without and with failing servers, and with
# clients that are cut off; then clusters in which servers take each other's targets over while everything fails, and each mechanism of recovery
# left out; then clients that die before servers are started again; at last many that come back to one server, some that
# are cut off from what others want, a file system in which nobody does anything, and power cuts at every sync.
# Usage: tools/test-sim.sh [SECONDS]; FIRST=n starts at another seed, SIM_SEEDS=n, SIM_RESTARTS=n and
# SIM_COHERENCES=n and SIM_RESTARTED_COHERENCES=n run that many at most, the last two for SIM_COHERENCE_SECONDS=n each at
# most. SIM_HERD=n clients, SIM_QUIET=n OSTs, SIM_ROUNDS=n rounds with SIM_RACK=n clients in the last three, SIM_CUTS=n power cuts for
# SIM_CUT_SECONDS=n at most. SIM_FAILOVERS=n seeds from FAILOVERS_FIRST=n on with take-overs, for SIM_FAILOVER_SECONDS=n at most.
set -eu
cd "$(dirname "$0")/.."
sim=${WEFT_SIM:-${CARGO_TARGET_DIR:-target}/release/weft-sim}
"$sim" twice 1
"$sim" twice 2
"$sim" seeds "${FIRST:-100}" "${SIM_SEEDS:-300}" "${1:-120}"
"$sim" restarts 1 "${SIM_RESTARTS:-60}" "${1:-120}"
"$sim" coherences 1 "${SIM_COHERENCES:-400}" "${SIM_COHERENCE_SECONDS:-100}"
"$sim" coherence-restarts 1 "${SIM_RESTARTED_COHERENCES:-250}" "${SIM_COHERENCE_SECONDS:-100}"
"$sim" cut-offs 1 "${SIM_CUT_OFFS:-40}" "${SIM_COHERENCE_SECONDS:-100}"
"$sim" failovers "${FAILOVERS_FIRST:-1}" "${SIM_FAILOVERS:-200}" "${SIM_FAILOVER_SECONDS:-60}"
"$sim" switches
"$sim" deads 1 5
"$sim" herd "${SIM_HERD:-1024}"
"$sim" herd "${SIM_HERD:-1024}" 0
"$sim" quiet "${SIM_QUIET:-200}"
for variant in 0 5; do
  "$sim" evictions "${SIM_ROUNDS:-4}" "${SIM_RACK:-48}" "$variant"
done
# The power is cut at every sync, before, in the middle of and behind it.
"$sim" cut 1 40 during
"$sim" cuts 1 "${SIM_CUTS:-400}" "${SIM_CUT_SECONDS:-15}"
"$sim" journal
# Seeds that have failed once: two clients waited for each other for ever; clients kept a right to read that was freed; pages
# were filled without a lock, and written back whole.
for seed in 147 2061 4 71; do
  "$sim" coherence "$seed"
done
# An answer to a replay was lost, and asked for again too late.
"$sim" coherence-restart 150
