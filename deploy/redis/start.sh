#!/bin/sh
# Starts the server on its folder, with the users whose passwords the environment holds.
set -eu
umask 077

here=$(dirname "$0")
folder=${REDIS_FOLDER:-/data}
sh "$here/users.sh" > "$folder/users.acl"
unset REDIS_API_PASSWORD REDIS_WORKER_PASSWORD REDIS_BROKER_PASSWORD REDIS_OPERATOR_PASSWORD

server=$(command -v valkey-server || command -v redis-server)
exec "$server" "$here/redis.conf" \
  --dir "$folder" --port "${REDIS_PORT:-6379}" --aclfile "$folder/users.acl"
