#!/usr/bin/env bash
# Trains with PyTorch's torchrun on all GPUs of this machine, or with as many ranks as RANKS says, for clusters whose
# jobs are started with torchrun.
#
#   scripts/launch/torchrun.sh RECIPE [key=value ...]
#   RANKS=2 scripts/launch/torchrun.sh configs/quickstart.yaml train.max_steps=20     two ranks, with or without GPUs
#
# Several machines: start it on each with the same RANKS and
#   MACHINES=2 RENDEZVOUS=first-machine:29500 JOB=some-name scripts/launch/torchrun.sh RECIPE
# TRAINOPT in the environment names an installed program to use instead of building this checkout; TORCHRUN names
# another torchrun.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
trainopt=${TRAINOPT:-}
if [[ -z $trainopt ]]; then
  "$here/../build" trainopt
  trainopt=${here%/scripts/launch}/build/app/trainopt
fi
torchrun=${TORCHRUN:-$(command -v torchrun || true)}
if [[ -z $torchrun ]]; then   # use the one in this checkout's build environment; it needs CUDA's libraries
  settings=$(TRAINOPT_CUDA=ON "$here/../setup" --print)
  eval "$settings"
  torchrun=$TRAINOPT_SITE_PACKAGES/../../../bin/torchrun
fi
machines=(--standalone --local-addr 127.0.0.1)   # this machine's own name may not resolve
if ((${MACHINES:-1} > 1)); then
  machines=(--nnodes "$MACHINES" --rdzv-backend c10d
    --rdzv-endpoint "${RENDEZVOUS:?set it to host:port of the first machine}"
    --rdzv-id "${JOB:?set it to a name for the job, the same on every machine}")
fi
exec "$torchrun" "${machines[@]}" --nproc-per-node "${RANKS:-gpu}" --no-python "$trainopt" run "$@"
