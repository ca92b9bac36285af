#!/bin/sh
# Starts the Valkey or Redis server of the image, later than usual when this node has lost its data.
#
# A master that comes back empty has forgotten who holds what and could help a second client to a majority. If it stays
# away until every lease it granted before is over, nobody is harmed. So: ran before, and no append-only data now, means
# wait. The mark that says "ran before" must not live where the data does, or it would be lost with it.
#
# This is the second line of defence. The library does not count the votes of a node that lost its data either, but
# other Redlock clients on the same nodes know nothing of that.
set -eu

data=${REDLOCK_DATA_DIR:-/data}
mark=${REDLOCK_MARK:-/var/lib/redlock/has-run}
delay=${REDLOCK_RESTART_DELAY:-60} # seconds; longer than the longest ttl in use

# The manifest is written at the first start, before any key: a node that never held a lock is not taken for a lost one.
# The second file is where servers older than Redis 7 keep the same.
has_data() {
    [ -s "$data/appendonlydir/appendonly.aof.manifest" ] || [ -e "$data/appendonly.aof" ]
}

if [ -e "$mark" ] && ! has_data; then
    trap 'exit 143' TERM INT # `docker stop` need not wait: as process 1, a shell ignores what it does not trap
    echo "redlock: this node ran before and its data is gone; it starts in ${delay} s" >&2
    sleep "$delay" &
    wait "$!"
    trap - TERM INT
fi

mkdir -p "$(dirname "$mark")"
: >"$mark"

server=$(command -v valkey-server || command -v redis-server) || {
    echo "redlock: this image has neither valkey-server nor redis-server" >&2
    exit 127
}

# The image's own script gives the data to an unprivileged user and becomes that user. It goes by the bare name.
if command -v docker-entrypoint.sh >/dev/null; then
    exec docker-entrypoint.sh "$(basename "$server")" "$@"
fi
exec "$server" "$@"
