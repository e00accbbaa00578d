#!/bin/sh
# Installs, through apt-get, what make targets miss, and says so. Does nothing and
# says nothing when everything is there. It takes one or more of these:
#
#   tests/install.sh test       what the tests need
#   tests/install.sh ui         a browser, for the tests of the page
#   tests/install.sh vm         what the tests under an old kernel need
#   tests/install.sh bench      what the benchmark compares with
#   tests/install.sh race       what the race detector needs
#   tests/install.sh compare    what other detectors are compared
#   tests/install.sh generate   what regenerating the BPF objects needs
#   tests/install.sh lint       what the linters need
#   tests/install.sh release    what reads packages
#   tests/install.sh first-hour what copies an image to a registry
set -eu

targets=${*:?usage: tests/install.sh test|ui|vm|bench|race|compare|generate|lint|release|first-hour...}
packages=

# want PACKAGE FILE-OR-COMMAND...: the package, unless all of the things are there.
want() {
    package=$1
    shift
    for thing in "$@"; do
        case $thing in
        /*) [ -e "$thing" ] && continue ;;
        *) command -v "$thing" >/dev/null && continue ;;
        esac
        packages="$packages $package"
        return
    done
}

# Directories that sudo or a user's shell may leave out.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

for target; do
    case $target in
    test)
        want git git
        want iproute2 ip tc
        want jq jq
        want nftables nft
        # The tests look where Debian puts the plugins and where the upstream archive goes.
        [ -x /opt/cni/bin/ptp ] || want containernetworking-plugins /usr/lib/cni/ptp
        # A runtime from elsewhere will do: Debian's package does not go with Docker's.
        want containerd containerd ctr containerd-shim-runc-v2
        want runc runc
        want arpwatch arpwatch
        want keepalived keepalived
        want tshark tshark
        want systemd systemd-analyze /lib/systemd/systemd
        want prometheus prometheus promtool
        want prometheus-alertmanager prometheus-alertmanager
        ;;
    ui)
        want chromium chromium
        ;;
    compare)
        want iproute2 ip tc
        want nftables nft
        want arpwatch arpwatch
        want tshark tshark
        ;;
    bench)
        want arpwatch arpwatch
        [ -x /opt/cni/bin/ptp ] || want containernetworking-plugins /usr/lib/cni/ptp
        want containerd containerd ctr containerd-shim-runc-v2
        want runc runc
        ;;
    race)
        # Beside what is there for the tests: Go's race detector is in C.
        want gcc gcc
        want libc6-dev /usr/include/stdlib.h
        want iproute2 ip tc
        ;;
    vm)
        want clang-19 clang-19
        want qemu-system-x86 qemu-system-x86_64
        # The package busybox has one that needs libraries.
        want busybox-static busybox /usr/share/doc/busybox-static
        want xz-utils xz
        want openvswitch-switch ovs-vswitchd ovsdb-server ovs-vsctl ovsdb-tool
        ;;
    generate)
        want clang-19 clang-19
        want llvm-19 llvm-strip-19
        ;;
    lint)
        want clang-format-19 clang-format-19
        ;;
    release)
        want dpkg dpkg-deb
        want rpm rpm rpm2archive
        ;;
    first-hour)
        want skopeo skopeo
        ;;
    *)
        echo "tests/install.sh: unknown target $target" >&2
        exit 2
        ;;
    esac
done
[ -n "$packages" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "needed for $targets: the Debian packages$packages (or what your distribution calls them): please install them" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "needed for $targets: the packages$packages: install them, or run it with sudo" >&2
    exit 1
fi

available() {
    for package in $packages; do
        case $(apt-cache policy "$package" 2>/dev/null | sed -n 's/^  Candidate: //p') in
        '' | '(none)')
            missing=$package
            return 1
            ;;
        esac
    done
}

export DEBIAN_FRONTEND=noninteractive
if ! available; then
    echo "updating the package lists: apt-get update"
    apt-get update -qq
    if ! available; then
        echo "needed for $targets: $missing, which this release does not have: take a newer release, or install it by hand" >&2
        exit 1
    fi
fi
# The programs are wanted, not services that listen to the network: none is started now
# (invoke-rc.d asks this file), and those that just came are not started at boot.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

echo "installing for $targets: apt-get install$packages"
# shellcheck disable=SC2086 # a list on purpose
if ! apt-get install -y -qq --no-install-recommends $packages >/dev/null; then
    # Lists that are too old name files that are gone.
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends $packages >/dev/null
fi
for service in prometheus prometheus-alertmanager arpwatch keepalived openvswitch-switch; do
    case " $packages " in
    *" $service "*) if command -v systemctl >/dev/null; then systemctl disable --quiet "$service" || true; fi ;;
    esac
done
