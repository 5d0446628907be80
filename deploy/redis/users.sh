#!/bin/sh
# Prints the users' file: users.acl beside this, with the digest of each password of the environment.
# A server that is managed by the system:  sh users.sh > /etc/redis/users.acl
set -eu

digest() {
  printf %s "$1" | sha256sum | cut -d ' ' -f 1
}

api=$(digest "${REDIS_API_PASSWORD:?set it, or take the environment from new-environment.sh}")
worker=$(digest "${REDIS_WORKER_PASSWORD:?}")
broker=$(digest "${REDIS_BROKER_PASSWORD:?}")
operator=$(digest "${REDIS_OPERATOR_PASSWORD:?}")

sed -e "s/@API@/$api/" -e "s/@WORKER@/$worker/" \
  -e "s/@BROKER@/$broker/" -e "s/@OPERATOR@/$operator/" "$(dirname "$0")/users.acl"
