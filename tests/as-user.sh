#!/bin/sh
# Runs the test program that go test -exec gives as nobody, an ordinary user without root's rights and files: make test PARTS=user.
# Root's folders may be closed to nobody, so the program, the checkout, Go and its modules are mounted where this process alone
# sees them. Nothing has to be removed.
set -eu
if [ "$1" != --alone ]; then
    exec unshare --mount "$0" --alone "$@"
fi
shift
folder=$(pwd -P)
checkout=$(cd "$(dirname "$0")/.." && pwd -P)
goroot=$(go env GOROOT)
modules=$(go env GOMODCACHE)

# A folder that hides none of these.
for room in /mnt /srv /media; do
    case "$checkout $goroot $modules $1" in *"$room/"*) ;; *) break ;; esac
done
mount -t tmpfs -o mode=755 tests "$room"
mkdir -p "$room/checkout" "$room/go" "$room/home/go/pkg/mod"
cp "$1" "$room/program"
shift
chown -R 65534:65534 "$room/home"
mount --bind "$checkout" "$room/checkout"
mount --bind "$goroot" "$room/go"
mount --bind "$modules" "$room/home/go/pkg/mod"
cd "$room/checkout${folder#"$checkout"}"

# Without CI in the environment, in which no test is skipped. Git trusts no checkout of another user, so Go must not ask it.
exec setpriv --reuid 65534 --regid 65534 --clear-groups \
    env -i HOME="$room/home" TMPDIR="$room/home" PATH="$room/go/bin:$PATH" GOPROXY=off GOFLAGS=-buildvcs=false "$room/program" "$@"
