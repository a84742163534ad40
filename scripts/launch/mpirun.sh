#!/usr/bin/env bash
# Trains on all GPUs of this machine, or on so many ranks, with Open MPI's mpirun.
#
#   scripts/launch/mpirun.sh RECIPE [key=value ...]
#   RANKS=2 scripts/launch/mpirun.sh configs/quickstart.yaml train.max_steps=20     two ranks, also on CPUs
#
# Several machines: name them with their GPUs. mpirun does not tell the ranks where rank 0 is, so say it: the first
# machine, a free port of it.
#   HOSTS=first:8,second:8 RANKS=16 RENDEZVOUS=first:29500 scripts/launch/mpirun.sh RECIPE
# TRAINOPT in the environment names an installed program to use instead of building this checkout's.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
trainopt=${TRAINOPT:-}
if [[ -z $trainopt ]]; then
  "$here/../build" trainopt
  trainopt=${here%/scripts/launch}/build/app/trainopt
fi
ranks=${RANKS:-$({ nvidia-smi --list-gpus 2>/dev/null || true; } | wc -l)}
if ((ranks == 0)); then
  echo "mpirun.sh: this machine has no GPU; say how many ranks: RANKS=2" >&2
  exit 2
fi
# trainopt divides the cores among the ranks of a machine itself; bound to one core each, its threads would share that.
options=(-n "$ranks" --bind-to none --tag-output)
if [[ -n ${HOSTS:-} ]]; then
  : "${RENDEZVOUS:?host:port of the first machine}"
  address=${RENDEZVOUS%:*} address=${address#[} address=${address%]}   # of IPv6
  options+=(--host "$HOSTS" -x "MASTER_ADDR=$address" -x "MASTER_PORT=${RENDEZVOUS##*:}")
else
  options+=(--oversubscribe)   # as many ranks as were asked for, whatever mpirun thinks of the cores
fi
if ((EUID == 0)); then options+=(--allow-run-as-root); fi   # containers
# mpirun gives each rank a terminal of its own, in whose place only a log is read: no progress line.
exec mpirun "${options[@]}" "$trainopt" --no-color run "$@"
