#!/bin/sh
# Prints the path of a go command that can read go.mod (1.21 or newer fetches the
# toolchain it names). sudo often drops the part of PATH where Go lives, so the usual
# places and those of the user behind sudo are tried, too.
set -eu

home=${HOME:-/root}
if [ -n "${SUDO_USER:-}" ]; then
    home=$(getent passwd "$SUDO_USER" | cut -d: -f6)
fi

usable() {
    [ -x "$1" ] || return 1
    version=$("$1" env GOVERSION 2>/dev/null | sed 's/^go//; s/[^0-9.].*//') || return 1
    major=${version%%.*}
    minor=${version#*.}
    minor=${minor%%.*}
    [ "${major:-0}" -gt 1 ] || { [ "${major:-0}" -eq 1 ] && [ "${minor:-0}" -ge 21 ]; }
}

for go in "$(command -v go || true)" /usr/local/go/bin/go "$home"/go/bin/go "$home"/sdk/go*/bin/go \
    "$home"/.local/go/bin/go "$home"/.go/bin/go /usr/lib/go-*/bin/go /usr/lib/go/bin/go /snap/bin/go; do
    if usable "$go"; then
        echo "$go"
        exit 0
    fi
done

# The last resort: ask the login shell of the user behind sudo.
if [ -n "${SUDO_USER:-}" ]; then
    go=$(su - "$SUDO_USER" -c 'command -v go' 2>/dev/null </dev/null | tail -n 1 || true)
    if usable "$go"; then
        echo "$go"
        exit 0
    fi
fi
exit 1
