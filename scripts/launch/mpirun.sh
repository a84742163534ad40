#!/usr/bin/env bash
# Trains with Open MPI's mpirun on all GPUs of this machine, or with as many ranks as RANKS says.
#
#   scripts/launch/mpirun.sh RECIPE [key=value ...]
#   RANKS=2 scripts/launch/mpirun.sh configs/quickstart.yaml train.max_steps=20     two ranks, with or without GPUs
#
# Several machines: list them in HOSTS with their numbers of GPUs. mpirun does not tell the ranks where rank 0 is, so
# set RENDEZVOUS to the first machine and a free port on it.
#   HOSTS=first:8,second:8 RANKS=16 RENDEZVOUS=first:29500 scripts/launch/mpirun.sh RECIPE
# TRAINOPT in the environment names an installed program to use instead of building this checkout.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
trainopt=${TRAINOPT:-}
if [[ -z $trainopt ]]; then
  "$here/../build" trainopt
  trainopt=${here%/scripts/launch}/build/app/trainopt
fi
ranks=${RANKS:-$({ nvidia-smi --list-gpus 2>/dev/null || true; } | wc -l)}
if ((ranks == 0)); then
  echo "mpirun.sh: this machine has no GPU; set the number of ranks, for example RANKS=2" >&2
  exit 2
fi
# trainopt itself divides a machine's cores among its ranks. Bound to one core, all threads of a rank would share it.
options=(-n "$ranks" --bind-to none --tag-output)
if [[ -n ${HOSTS:-} ]]; then
  : "${RENDEZVOUS:?set it to host:port of the first machine}"
  address=${RENDEZVOUS%:*} address=${address#[} address=${address%]}   # without the brackets of IPv6
  options+=(--host "$HOSTS" -x "MASTER_ADDR=$address" -x "MASTER_PORT=${RENDEZVOUS##*:}")
else
  options+=(--oversubscribe)   # allows more ranks than mpirun counts cores
fi
if ((EUID == 0)); then options+=(--allow-run-as-root); fi   # for containers
# mpirun gives each rank a terminal, but its output is read as a log: no progress line.
exec mpirun "${options[@]}" "$trainopt" --no-color run "$@"
