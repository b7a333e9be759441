#!/usr/bin/env bash
# Installs a server of S3 for the tests, once, into the cache of tools, and prints where its program is. That is moto, which takes some
# seconds to install, keeps objects in memory and believes every signature; or, with LONG=1 and wherever it is there already, versitygw,
# which checks signatures and sums and keeps objects in files, and takes minutes to build.
set -eu
cache=${WEFT_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/weft-tools}
# Releases that the tests were written with.
versitygw=v1.8.0
moto=5.2.5

if [ -n "${LONG:-}" ] && [ ! -x "$cache/bin/versitygw" ] && command -v go >/dev/null; then
  echo "building versitygw into $cache; this takes some minutes, once" >&2
  GOBIN=$cache/bin go install "github.com/versity/versitygw/cmd/versitygw@$versitygw" >&2 || echo "it cannot be built; moto does instead" >&2
fi
if [ -x "$cache/bin/versitygw" ]; then
  echo "$cache/bin/versitygw"
  exit 0
fi
if [ ! -x "$cache/moto/bin/moto_server" ]; then
  echo "installing moto into $cache" >&2
  # Half of one, if this is broken off, has no program.
  rm -rf "$cache/moto"
  mkdir -p "$cache"
  python3 -m venv "$cache/moto" >&2
  "$cache/moto/bin/pip" install --quiet --disable-pip-version-check "moto[s3]==$moto" flask flask-cors >&2
fi
echo "$cache/moto/bin/moto_server"
