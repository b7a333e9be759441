#!/usr/bin/env bash
# Ring two: clusters in virtual time. Determinism first, then seeds for a fixed time.
# Usage: tools/test-sim.sh [SECONDS]; FIRST=n starts at another seed, SIM_SEEDS=n runs that many at most.
set -eu
cd "$(dirname "$0")/.."
sim=${WEFT_SIM:-${CARGO_TARGET_DIR:-target}/release/weft-sim}
"$sim" twice 1
"$sim" twice 2
"$sim" seeds "${FIRST:-100}" "${SIM_SEEDS:-300}" "${1:-120}"
