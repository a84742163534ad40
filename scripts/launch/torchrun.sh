#!/usr/bin/env bash
# Trains on all GPUs of this machine, or on so many ranks, with PyTorch's torchrun, for clusters where that is what jobs
# are started with.
#
#   scripts/launch/torchrun.sh RECIPE [key=value ...]
#   RANKS=2 scripts/launch/torchrun.sh configs/quickstart.yaml train.max_steps=20     two ranks, also on CPUs
#
# Several machines: start it on each, with the same RANKS and
#   MACHINES=2 RENDEZVOUS=first-machine:29500 JOB=some-name scripts/launch/torchrun.sh RECIPE
# TRAINOPT in the environment names an installed program to use instead of building this checkout's; TORCHRUN another
# torchrun.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
trainopt=${TRAINOPT:-}
if [[ -z $trainopt ]]; then
  "$here/../build" trainopt
  trainopt=${here%/scripts/launch}/build/app/trainopt
fi
torchrun=${TORCHRUN:-$(command -v torchrun || true)}
if [[ -z $torchrun ]]; then   # the one beside the libtorch that the checkout is built with
  settings=$("$here/../setup" --print)
  eval "$settings"
  torchrun=$TRAINOPT_SITE_PACKAGES/../../../bin/torchrun
fi
machines=(--standalone)
if ((${MACHINES:-1} > 1)); then
  machines=(--nnodes "$MACHINES" --rdzv-backend c10d
    --rdzv-endpoint "${RENDEZVOUS:?host:port of the first machine}"
    --rdzv-id "${JOB:?a name for the job, the same on every machine}")
fi
exec "$torchrun" "${machines[@]}" --nproc-per-node "${RANKS:-gpu}" --no-python "$trainopt" run "$@"
