#!/bin/sh
# azure-ipam of Azure: host-local gives out the addresses of the network "azure", and the endpoints are written as Azure CNS does before a
# plugin returns. In the file "leaked" are those that are never released, as lines of a sandbox and an address.
set -eu
folder=/var/run/azure-cns
mkdir -p $folder
exec 9>$folder/lock
flock 9
out=
[ -z "${CNI_COMMAND:-}" ] || out=$("$(dirname "$0")/host-local")
{
    for file in /var/lib/cni/networks/azure/*.*.*.*; do
        [ ! -e "$file" ] || echo "$(head -n 1 "$file" | tr -d '\r') ${file##*/}"
    done
    cat $folder/leaked 2>/dev/null || :
} | {
    separator=
    printf '{"Endpoints":{'
    while read -r sandbox ip; do
        printf '%s"%s":{"IfnameToIPMap":{"eth0":{"IPv4":[{"IP":"%s","Mask":"////AA=="}],"NICType":"InfraNIC"}}}' "$separator" "$sandbox" "$ip"
        separator=,
    done
    printf '}}'
} >$folder/new
mv $folder/new $folder/azure-endpoints.json
printf '%s' "$out"
