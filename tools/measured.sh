#!/usr/bin/env bash
# How old the figures in docs/ are: each place that says "measured DATE at `COMMIT`", with the commits that came since.
# Usage: tools/measured.sh [COMMITS]; with a number it fails if a figure is older than that many commits.
set -u
cd "$(dirname "$0")/.." || exit 2
most=${1:-}
if [ -n "$most" ] && ! [ "$most" -ge 0 ] 2>/dev/null; then
  echo "usage: $0 [COMMITS]: how many commits old a figure may be" >&2
  exit 2
fi

status=0
while IFS=: read -r file line text; do
  read -r day commit < <(sed -E 's/.*[Mm]easured ([0-9-]{10}) at `([0-9a-f]{7,})`.*/\1 \2/' <<<"$text")
  if ! age=$(git rev-list --count "$commit..HEAD" 2>/dev/null); then
    printf '%-28s %s %s: there is no such commit\n' "$file:$line" "$day" "$commit"
    status=1
    continue
  fi
  printf '%-28s %s %s %5d commits ago\n' "$file:$line" "$day" "$commit" "$age"
  if [ -n "$most" ] && [ "$age" -gt "$most" ]; then status=1; fi
done < <(grep -noE '[Mm]easured [0-9-]{10} at `[0-9a-f]{7,}`' docs/*.md)
exit $status
