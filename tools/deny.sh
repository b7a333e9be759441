#!/usr/bin/env bash
# Checks licences, sources and bans of the dependencies; builds cargo-deny into the cache if it is not there.
# Advisories are not checked: their database is fetched from the network at every run.
set -eu
cache=${WEFT_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/weft-tools}
deny=$(command -v cargo-deny || echo "$cache/bin/cargo-deny")
if [ ! -x "$deny" ]; then
  echo "building cargo-deny into $cache; this takes a minute, once"
  # Not optimised: it runs for a second, and is built for four minutes otherwise.
  CARGO_PROFILE_DEV_DEBUG=0 cargo install cargo-deny --locked --quiet --debug --root "$cache"
fi
# It looks at what other systems would need too, which no build here has brought.
cargo fetch --locked --quiet
"$deny" --offline check --hide-inclusion-graph licenses bans sources
