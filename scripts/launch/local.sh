#!/usr/bin/env bash
# Trains with `trainopt launch` on all GPUs of this machine, or with as many ranks as RANKS says.
#
#   scripts/launch/local.sh RECIPE [key=value ...]
#   RANKS=2 scripts/launch/local.sh configs/quickstart.yaml train.max_steps=20     two ranks, with or without GPUs
#
# Several machines: start it on each with the same RANKS and
#   MACHINES=2 MACHINE=0 RENDEZVOUS=first-machine:29500 scripts/launch/local.sh RECIPE      (MACHINE=1 on the second)
# TRAINOPT in the environment names an installed program to use instead of building this checkout.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
trainopt=${TRAINOPT:-}
if [[ -z $trainopt ]]; then
  "$here/../build" trainopt
  trainopt=${here%/scripts/launch}/build/app/trainopt
fi
machines=()
if ((${MACHINES:-1} > 1)); then
  machines=(--nnodes "$MACHINES" --node-rank "${MACHINE:?set it to the index of this machine, from 0}"
    --rendezvous "${RENDEZVOUS:?set it to host:port of machine 0}")
fi
exec "$trainopt" launch -n "${RANKS:-auto}" "${machines[@]}" -- run "$@"
