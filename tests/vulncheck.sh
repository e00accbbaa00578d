#!/bin/sh
# Looks for known vulnerabilities in what the program calls, dependencies and Go's own
# packages included. A finding fails. Where the database cannot be reached nothing is
# checked, which is said, and is no failure: whoever has no way out cannot do more.
#
#   tests/vulncheck.sh [PACKAGE...]     ./... by default
#
# GOVULNDB names another database, for example a copy: file:///srv/vulndb
# DUPIP_DATABASE=required: not to reach it fails, too; make release sets that.
set -eu

[ $# -gt 0 ] || set -- ./...
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GOBIN=$work go install golang.org/x/vuln/cmd/govulncheck@v1.8.0

status=0
"$work/govulncheck" ${GOVULNDB:+-db "$GOVULNDB"} "$@" >"$work/out" 2>"$work/err" || status=$?
cat "$work/out"
cat "$work/err" >&2
# An old copy knows nothing of what was found since.
if [ "${DUPIP_DATABASE:-}" = required ] && [ "$status" -eq 0 ]; then
    updated=$("$work/govulncheck" ${GOVULNDB:+-db "$GOVULNDB"} -version 2>/dev/null | sed -n 's/^DB updated: \([0-9-]* [0-9:]*\).*/\1/p')
    if [ -z "$updated" ] || [ "$(date -u -d "$updated" +%s)" -lt "$(date -u -d '30 days ago' +%s)" ]; then
        echo "the vulnerability database is of ${updated:-an unknown time}: a release must be checked with one that is less than 30 days old" >&2
        exit 1
    fi
fi
# 1 is any failure, 3 are findings. Only an error of the network is forgiven, not what a
# database that is there says.
unreachable='^govulncheck: fetching vulnerabilities: .*(dial tcp|proxyconnect|i/o timeout|TLS handshake timeout|connection reset)'
if [ "$status" -eq 1 ] && grep -Eq "$unreachable" "$work/err"; then
    echo "not checked: the vulnerability database cannot be reached"
    [ "${DUPIP_DATABASE:-}" = required ] || exit 0
    echo "a release must be checked: GOVULNDB=file:///srv/vulndb names a copy of the database" >&2
    exit 1
fi
if [ "$status" -eq 3 ]; then
    echo "what is found above is called from here: take the fixed version (go get MODULE@VERSION)" >&2
fi
exit "$status"
