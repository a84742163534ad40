#!/usr/bin/env bash
# Trains on all GPUs of this machine, or on so many ranks, with `trainopt launch`.
#
#   scripts/launch/local.sh RECIPE [key=value ...]
#   RANKS=2 scripts/launch/local.sh configs/quickstart.yaml train.max_steps=20     two ranks, also on CPUs
#
# Several machines: start it on each, with the same RANKS and
#   MACHINES=2 MACHINE=0 RENDEZVOUS=first-machine:29500 scripts/launch/local.sh RECIPE      (MACHINE=1 on the second)
# TRAINOPT in the environment names an installed program to use instead of building this checkout's.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
trainopt=${TRAINOPT:-}
if [[ -z $trainopt ]]; then
  "$here/../build" trainopt
  trainopt=${here%/scripts/launch}/build/app/trainopt
fi
machines=()
if ((${MACHINES:-1} > 1)); then
  machines=(--nnodes "$MACHINES" --node-rank "${MACHINE:?which of the machines is this?}"
    --rendezvous "${RENDEZVOUS:?host:port of machine 0}")
fi
exec "$trainopt" launch -n "${RANKS:-auto}" "${machines[@]}" -- run "$@"
