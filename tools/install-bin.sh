#!/usr/bin/env bash
# Puts built programs where they are run from: install-bin.sh BUILT BIN. A file is replaced by a rename, because a
# mount may be running from it.
set -eu
built=$1
bin=$2

put() {
  if ! cmp -s "$built/$1" "$bin/$1"; then
    cp "$built/$1" "$bin/.$1.new"
    mv -f "$bin/.$1.new" "$bin/$1"
  fi
}

# One that was built together with the simulator can leave mechanisms out.
if "$built/weft" --version | grep -q experiments; then
  echo "$built/weft was built with the feature experiments; build it alone: cargo build --release -p weft" >&2
  exit 1
fi
mkdir -p "$bin"
put weft
for name in lfs lctl lljobstat mount.weft umount.fuse.weft; do
  ln -sfn weft "$bin/$name"
done
if [ -x "$built/bench" ]; then
  put bench
fi
