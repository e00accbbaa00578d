#!/usr/bin/env bash
# Fuzzes the targets of the program. With a duration, such as 90s, 10m or 1h: all targets, for that long in total. Without: those whose turn
# it is by the commit, a few seconds each, until most of a minute is over. What a target finds it leaves in testdata/fuzz: commit that with the mend.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t targets < <(grep -rHo --include='*_test.go' --exclude-dir=tests '^func Fuzz[A-Za-z]*' . | sed 's|^\./\(.*\)/[^/]*:func |./\1 |' | sort)
n=${#targets[@]} first=0 each=6 until=$((SECONDS + 45))
if [ $# -gt 0 ]; then
	declare -A unit=([s]=1 [m]=60 [h]=3600)
	each=$(((${1%[smh]} * ${unit[${1: -1}]} + n - 1) / n)) until=$((SECONDS + 100000000))
elif commit=$(git rev-parse HEAD 2>/dev/null); then
	first=$((16#${commit:0:7} % n))
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=
for ((i = 0; i < n && SECONDS < until; i++)); do
	read -r package target <<<"${targets[(first + i) % n]}"
	# One worker, as a part of CI has half a processor; to make an input shorter would take all of the time. A failure that leaves no input is one of go's own timing.
	if go test -run='^$' -fuzz="^$target\$" -fuzztime="${each}s" -fuzzminimizetime=20x -parallel=1 "$package" >"$out" 2>&1; then
		count=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$out" | tail -1)
		echo "$package $target: ${count:-only the known} executions"
	elif grep -q '^ *context deadline exceeded' "$out" && ! grep -q 'Failing input written' "$out"; then
		echo "$package $target: ended late"
	else
		cat "$out"
		failed+=" $package:$target"
	fi
done
if [ -n "$failed" ]; then
	echo "failed:$failed" >&2
	exit 1
fi
