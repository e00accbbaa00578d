#!/bin/sh
# Boots a systemd in namespaces of its own but the network of the caller, until SIGTERM. CGROUP is made and removed.
#
#   systemd.sh CGROUP UNIT PROGRAM    it has one unit, and PROGRAM becomes /usr/local/bin/dupip
#   systemd.sh CGROUP                 it has none; what is written, as by dpkg, is written above the machine's files, and goes with it
set -eu

if [ $$ != 1 ]; then
    root=$(mktemp -d)
    mount -t cgroup2 cgroup2 "$root"
    mkdir "$root/$1"
    echo $$ >"$root/$1/cgroup.procs"
    setpriv --pdeathsig KILL unshare --pid --fork --kill-child --mount --propagation slave --cgroup --uts --ipc "$0" "$@" &
    echo $$ >"$root/cgroup.procs"
    trap 'kill -KILL $!' TERM
    wait $! || true
    wait $! || true
    while grep -q 'populated 1' "$root/$1/cgroup.events"; do sleep 0.1; done
    find "$root/$1" -depth -type d -exec rmdir {} \;
    umount "$root"
    rmdir "$root"
    exit
fi

mount -t proc proc /proc
if [ $# = 1 ]; then
    mount -t tmpfs tmpfs /mnt
    mkdir /mnt/merged /mnt/upper /mnt/work
    mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/merged
    for dir in dev proc run tmp; do
        mount --rbind /$dir /mnt/merged/$dir
    done
    cd /mnt/merged
    pivot_root . mnt
    umount -l /mnt
fi

mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys # systemd sets some for the whole machine
mount -t sysfs -o ro sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup

# /run is empty but for the names of network namespaces; those that are made later appear there.
mount --rbind /run /mnt
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/bin /run/default
mount --rbind /mnt/netns /run/netns
umount -l /mnt

units=/usr/lib/systemd/system
mount -t tmpfs tmpfs /etc/systemd/system
mount -t tmpfs tmpfs $units
for unit in sysinit basic shutdown network-online; do
    echo '[Unit]' >$units/$unit.target
done
mkdir $units/dupip.service.d
printf '[Service]\nStandardError=file:/run/agent.log\n' >$units/dupip.service.d/log.conf

if [ $# = 3 ]; then
    cp "$2" $units/
    cp "$3" /run/bin/dupip
    mount --bind /run/bin /usr/local/bin
    mount -t tmpfs tmpfs /var/lib
    echo DUPIP_NODE_NAME=unit >/run/default/dupip
    mount --bind /run/default /etc/default
fi
mount --make-rshared / # as on any host: the unit's mounts follow those of systemd
exec env container=test /lib/systemd/systemd --system --unit="$(basename "${2:-sysinit.target}")" --show-status=no --log-target=console
