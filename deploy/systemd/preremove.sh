#!/bin/sh
# Before files of a package go. dpkg calls it with "remove" or "upgrade", rpm with the number of versions that stay.
set -e
case $1 in remove | 0) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
systemctl --no-reload disable --now dupip.service
