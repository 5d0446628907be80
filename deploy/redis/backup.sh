#!/bin/sh
# Copies the state while the server runs:  sh backup.sh /data /backups/2026-11-21
# A rewrite of the log that comes in between is noticed by its manifest, and the copy made anew.
set -eu
from=${1:?the folder of the server}/appendonlydir
to=${2:?the folder of the copy}/appendonlydir
umask 077
mkdir -p "$2"

for _ in 1 2 3 4 5; do
  before=$(cat "$from"/*.manifest)
  rm -rf "$to"
  if cp -Rp "$from" "$to" && [ "$before" = "$(cat "$from"/*.manifest)" ]; then
    du -sk "$to"
    exit 0
  fi
  sleep 1
done
echo "the log was rewritten each time; try again later" >&2
exit 1
