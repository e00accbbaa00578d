#!/bin/sh
# A daily report, as an operator writes it from the README. When a version is published it stays as it is: documents gain fields and lose none.
# usage: DUPIP_API_SOCKET=… report.sh ADDRESS
set -eu
address=$1

types='
def is($want): if type == $want then . else error("want \($want), have \(.)") end;
def text: is("string") | if . == "" then error("an empty text") else . end;
def number: is("number");
def flag: is("boolean");
def list: is("array");
def time: text | sub("\\.[0-9]+"; "") | sub("[+-][0-9][0-9]:[0-9][0-9]$"; "Z") | fromdateiso8601;
def optional(f): if . == null then . else f end;
def counts: is("object") | map_values(number) | to_entries | map("\(.value) \(.key)") | join(", ");
def pod: if . == null then "unnamed" else "\(.namespace | text)/\(.name | text)" end;
def holder: "\(.pod | pod) on \(.node | text) \(.boot | text | .[:8]) behind \(.interface | text) (\(.ifindex | number), \(.mac | text), " +
	"\(.netns | text) \(.netnsCookie | number)), \(.evidence | text), for \((.lastSeen | time) - (.firstSeen | time)) s" +
	(if .foundAtStart | optional(flag) then ", maybe longer" else "" end) +
	(if .unreachable | optional(flag) then ", its node is away" else "" end);
'
ask() { # DOCUMENT FILTER
	printf '%s\n' "$1" | jq -r "$types $2"
}

echo "== conflicts"
conflicts=$(dupip conflicts --cluster --all -o json)
ask "$conflicts" '
	(.node | text) as $asked | (.asked | number) as $nodes | .partial | optional(flag) | . as $partial |
	"asked \($nodes) nodes at \($asked)\(if $partial then ", some are missing" else "" end)"'
ask "$conflicts" '.conflicts | list[] |
	"\(.state | text) \(.ip | text) in \(.network | text), \(.scope | text), \(.id | text)",
	"  seen \(.secondSeen | time), suspected \(.suspectedAt | time), confirmed \(.confirmedAt | optional(time)), resolved \(.resolvedAt | optional(time))",
	(.holders | list[] | "  \(holder)")'
ask "$conflicts" '.conflicts[] | select(.state == "confirmed") | .ip as $ip | .judgement |
	"\($ip): \(.cause | text), \(.confidence | text): \(.short | text) \(.text | text)",
	(.holders | list[] | "  \(.verdict | text) holder \(.holder | number) because \(.reason | optional(text)), as \(.by | optional(text)) says"),
	(.steps | list[] | "  \(.if | optional(text)): \(.text | text): \(.command | optional(text)) on \(.node | optional(text)), cuts \(.cuts | optional(text))")'
ask "$conflicts" '.conflicts[] | .routes | optional(list[] | "  from \(.node | text) to \(.to | text) \(.holder | optional(number)) \(.toNode | optional(text)) by \(.device | optional(text))")'

echo "== nodes"
ask "$(dupip nodes -o json)" '(.nodes | list[] | "\(.name | text) \(.boot | text | .[:8]) \(.epoch | number) \(.address | text) \(.version | text) " +
	"\(.state | text) since \(.since | time), \(.unacked | number) unacked\(if .self | optional(flag) then ", this one" else "" end)"),
	(.cluster | "cluster \(.label | text) at \(.address | text): \(.membersByState | counts), encrypted \(.encrypted | flag), " +
	"\(.leases | number) leases, \(.leasesUnacked | number) unacked, \(.leasesKept | number) kept, sent \(.sent | counts)")'

echo "== status"
ask "$(dupip status -o json)" '"\(.node | text) \(.bootID | text) \(.epoch | number) \(.version | text), started \(.started | time), " +
	"attached by \(.attach | text), overlap \(.minOverlap | text), ready \(.ready | flag)",
	"interfaces: \(.interfacesByState | counts); bindings: \(.bindingsByEvidence | counts); conflicts: \(.openConflictsByState | counts)",
	"\(.suspicionsFaded | number) faded, \(.conflictsResolved | number) resolved, \(.recordsPending | number) pending, " +
	"\(.netlinkOverruns | number) overruns; suppressed: \(.suppressed | counts); dropped: \(.dropped | counts)",
	"own: \(.hostAddresses | list | map(text) | join(" ")); state in \(.state.dir | text); metrics at \(.metrics | text)",
	"runtime \(.runtime.name | text) \(.runtime.version | text) at \(.runtime.socket | text): \(.runtime.connected | flag), \(.runtime.sandboxes | number) sandboxes",
	(.interfaces | list[] | "  \(.name | text) \(.ifindex | number) \(.generation | number) \(.state | text) \(.network | text) to " +
	"\(.peer | text) in \(.netns | text), pid \(.pid | optional(number)), \(.pod | pod), refused \(.refused | optional(counts))")'

echo "== bindings"
ask "$(dupip bindings --cluster -o json)" '.bindings | list[] | select(.evidence != "host") | "\(.ip | text) in \(.network | text): \(holder)"'

echo "== $address"
ask "$(dupip explain "$address" -o json)" '(.node | text), (.ip | text), (.asked | number), (.stories | list[] |
	"\(.ip | text) in \(.network | text) at \(.nodes | list | map(text) | join(", ")): \(.verdict | text)",
	(.bindings | list[] | "  \(holder)"), "  conflict \(.conflict.id | text) \(.conflict.state | text)",
	(.notes | list[] | "  \(.at | time) \(.kind | text) \(.node | text) \(.holder.node | optional(text)) \(.holder.netns | optional(text)): \(.text | text)")),
	(.configured | list[] | "  \(.network | text) \(.interface | text) \(.netns | text) \(.pod | pod) \(.device | text) \(.settled | flag) \(.unanswered | optional(number))")'

echo "== version"
ask "$(dupip version -o json)" '"\(.version | text) \(.go | text) \(.arch | text)"'
