# Process 1 of a machine, in new mount, PID, UTS and IPC namespaces. What it mounts and starts ends with it.
set -eu
hostname "$NAME"

# Mounts of the host are seen, and none goes back. Below, all are shared, as systemd makes them.
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind "$DIR/lib" /var/lib
mount --bind "$DIR/log" /var/log
mount -t overlay -o "lowerdir=/etc,upperdir=$DIR/etc,workdir=$DIR/etc.work" overlay /etc
mkdir -p /run/netns /run/boot
cp "$BOOT_ID" /run/boot/id
mount --bind /run/boot/id /proc/sys/kernel/random/boot_id
# The kubelet sets these; they are the whole host's.
for sysctl in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=/run/boot/$(echo "${sysctl%=*}" | tr / .)
    echo "${sysctl#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${sysctl%=*}"
done
mount --make-rshared /

# The pods' cgroups: one of version 2, or one below each controller of version 1.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mkdir -p "/sys/fs/cgroup/$CGROUP"
    for folder in /sys/fs/cgroup "/sys/fs/cgroup/${CGROUP%/*}"; do
        for controller in $(cat "$folder/cgroup.controllers"); do
            case $controller in
            cpu | cpuset | memory | hugetlb | pids) echo "+$controller" >"$folder/cgroup.subtree_control" ;;
            esac
        done
    done
else
    for controller in /sys/fs/cgroup/*/; do
        [ -e "$controller/cgroup.procs" ] || continue
        mkdir -p "$controller/$CGROUP"
        case $controller in
        */cpuset/)
            for file in cpuset.cpus cpuset.mems; do
                cat "$controller/$file" >"$controller/${CGROUP%/*}/$file"
                cat "$controller/$file" >"$controller/$CGROUP/$file"
            done
            ;;
        esac
    done
fi

containerd --config "$DIR/containerd.toml" >>"$DIR/containerd.log" 2>&1 &
until ctr version >"$DIR/ctr.log" 2>&1; do sleep 0.1; done
for image in "$IMAGES"/*.tar; do
    [ ! -e "$image" ] || ctr -n k8s.io images import "$image" >>"$DIR/ctr.log" 2>&1
done
"$KUBERNETES" kubelet --config "$DIR/kubelet.yaml" --kubeconfig "$DIR/kubelet.conf" --hostname-override "$NAME" --node-ip "$ADDRESS" \
    >>"$DIR/kubelet.log" 2>&1 &
# A shell reaps the orphans that come to it while it waits.
while :; do sleep 3600; done
