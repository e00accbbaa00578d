#!/usr/bin/env bash
# Runs Go's benchmarks of this tree and of a commit, of the last release unless one is given, by turns, and shows both side by side:
#   tests/benchstat.sh [COMMIT [PACKAGE...]]
# Some need root. Commits share the machine's noise because they take turns.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
[ -n "$base" ] || { echo "there is no release yet: BASE=COMMIT names what to compare with" >&2; exit 1; }
shift $(($# > 0))
[ $# -gt 0 ] || set -- ./bpf ./detector ./document ./agent/report ./agent/state ./agent/wire ./gossip/...
dir=$(mktemp -d)
trap 'rm -rf "$dir"; git worktree prune' EXIT
git worktree add --quiet --detach "$dir/base" "$base"
for turn in 1 2 3 4 5 6; do
	echo "turn $turn of 6" >&2
	(cd "$dir/base" && go test -run='^$' -bench=. -benchtime=0.2s -short "$@") >>"$dir/before" || { tail -20 "$dir/before"; exit 1; }
	go test -run='^$' -bench=. -benchtime=0.2s -short "$@" >>"$dir/now" || { tail -20 "$dir/now"; exit 1; }
done
go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da "$base=$dir/before" "now=$dir/now"
