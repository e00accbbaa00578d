#!/bin/busybox sh
# Process 1 of the test machine. It loads the modules, runs the suites, each on a serial
# line of its own, and powers off. The kernel keeps the first line.
set -f
/bin/busybox mkdir -p /dev /proc /run /sys /tmp
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp DUPIP_TEST_BIN=/bin/dupip DUPIP_TEST_PATIENCE=20
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
hostname machine

while read -r module; do
    insmod "/modules/$module" || echo "vm: module $module is not loaded" >/dev/console
done </modules/order

suite() {
    exec </dev/null >"/dev/$1" 2>&1
    stty -F "/dev/$1" -opost
    export DUPIP_TEST_PAIR="$2" DUPIP_ATTACH="$3"
    binary=$4
    shift 4
    cd /tmp || exit
    "/suites/$binary" "$@"
    # The host goes by this line. It begins on a line of its own.
    printf '\nvm: exit code %s at %s\n' "$?" "$(cat /proc/uptime)"
}

# The suites of one processor run one after the other.
processor() {
    # shellcheck disable=SC2086 # the rest of the line is a list of arguments
    while read -r on line pair mode binary arguments; do
        [ "$on" != "$1" ] || (suite "$line" "$pair" "$mode" "$binary" $arguments)
    done </suites/list
}
processor 0 &
processor 1 &
wait
poweroff -f
