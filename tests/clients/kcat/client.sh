#!/bin/sh
# A task submitted and received with kcat. Arguments: BOOTSTRAP TASKS CALLBACKS GROUP
set -eu
KAFKA_BOOTSTRAP=$1 tasks=$2 callbacks=$3

# begin snippet submit
printf '%s' 'Grüße from kcat' | kcat -b "$KAFKA_BOOTSTRAP" -P -t "$tasks" -k order-4711 -X partitioner=murmur2_random \
  -H duestream-topic="$callbacks" -H duestream-delay=1s -H duestream-task-id=kcat-1 \
  -H content-type=text/plain
# end snippet

# begin snippet consume
kcat -b "$KAFKA_BOOTSTRAP" -q -C -t "$callbacks" -o beginning -c 1 -X isolation.level=read_committed -J
# end snippet
