#!/bin/sh
# Prints an environment with fresh secrets:  (umask 077; sh deploy/new-environment.sh > .env)
set -eu

secret() {
  head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'
}

sed -e '/^#/d' -e '/^$/d' "$(dirname "$0")/environment.example" | while IFS= read -r line; do
  case $line in
    *@secret) echo "${line%@secret}$(secret)" ;;
    *) echo "$line" ;;
  esac
done
