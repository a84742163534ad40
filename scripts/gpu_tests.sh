#!/usr/bin/env bash
# tests/gpu and the ladder on a GPU machine that has libtorch and no compiler.
#
#   scripts/gpu_tests.sh gather FOLDER [--build DIR]      here: what that machine needs, stripped, to carry there
#   FOLDER/scripts/gpu_tests.sh run RESULTS [ladder's arguments]      there: test results and the ladder's table into RESULTS
#
# --build DIR   a build folder that has trainopt and test_gpu; otherwise this checkout's, built first
# TRAINOPT_TORCH in the environment names the folder of the Python package torch; otherwise python3 is asked for it.
# `run` ends with 77 where there is no GPU, and with 1 if a test failed or the ladder could not run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
checkout=${here%/scripts}
say() { printf 'gpu_tests: %s\n' "$*" >&2; }
fail() { say "$*"; exit 2; }
usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2; }

version_of_torch() { sed -n "s/^__version__ = '\([^']*\)'.*/\1/p" "$1/version.py"; }

# Shared libraries that come neither with torch nor with glibc, one path a line. libstdc++ does not belong to glibc.
own_libraries() {
  ldd "$@" | sed -n 's/^.* => \(\/[^ ]*\) .*/\1/p' | sort -u \
    | grep -vE '/(torch|nvidia)/|/(libc|libm|libdl|librt|libpthread|libutil|libresolv)\.so\.[0-9]+$'
}

newest_glibc() { objdump -T "$@" 2>/dev/null | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1; }

gather() {
  local folder=${1:-} build='' torch
  [[ -n $folder ]] || usage
  shift
  if [[ ${1:-} == --build ]]; then build=${2:?--build needs a folder}; shift 2; fi
  (($# == 0)) || usage
  if [[ -z $build ]]; then
    "$here/build" trainopt test_gpu
    build=$checkout/build
  fi
  grep -qx 'TRAINOPT_CUDA:BOOL=ON' "$build/CMakeCache.txt" \
    || fail "this build has no CUDA (configured with TRAINOPT_CUDA=OFF), so there is nothing to test on a GPU: $build"
  [[ ! -e $folder || -z $(ls -A "$folder") ]] || fail "the folder must be new or empty: $folder"
  torch=$(sed -n 's/^TRAINOPT_SITE_PACKAGES:[A-Z]*=//p' "$build/CMakeCache.txt")/torch

  mkdir -p "$folder/bin" "$folder/lib" "$folder/scripts" "$folder/configs"
  cp "$build/app/trainopt" "$build/tests/gpu/test_gpu" "$folder/bin/"
  own_libraries "$folder/bin/"* | xargs -I{} cp -L {} "$folder/lib/"
  strip "$folder/bin/"* "$folder/lib/"*
  cp "$here/gpu_tests.sh" "$here/ladder.sh" "$here/summaries.py" "$folder/scripts/"
  cp -r "$checkout/configs/ladder" "$folder/configs/"
  version_of_torch "$torch" >"$folder/torch_version"
  say "needs torch $(<"$folder/torch_version") and $(newest_glibc "$folder/bin/"* "$folder/lib/"*) or newer there"
  say "$(du -sh "$folder" | cut -f1) in $folder"
}

run() {
  local results=${1:-} torch code=0
  [[ -n $results ]] || usage
  shift
  [[ -x $checkout/bin/test_gpu ]] || fail "run works in a folder made by gather, where bin/test_gpu is: $checkout"
  torch=${TRAINOPT_TORCH:-$(python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")')}
  [[ -e $torch/version.py ]] || fail "no torch here; name its folder in TRAINOPT_TORCH: '$torch'"
  [[ $(version_of_torch "$torch") == "$(<"$checkout/torch_version")" ]] \
    || fail "built for another torch, whose libraries differ: here $(version_of_torch "$torch"), needed $(<"$checkout/torch_version")"
  mkdir -p "$results"
  export LD_LIBRARY_PATH=$checkout/lib:$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} TRAINOPT=$checkout/bin/trainopt

  "$TRAINOPT" env --json >"$results/environment.json"
  "$checkout/bin/test_gpu" --durations yes 2>&1 | tee "$results/gpu.txt" || code=${PIPESTATUS[0]}
  ((code != 77)) || exit 77
  "$here/ladder.sh" --run-root "$results/ladder" "$@" | tee "$results/ladder.txt" || code=1
  ((code == 0)) || exit 1
}

case ${1:-} in
  gather) shift; gather "$@" ;;
  run) shift; run "$@" ;;
  *) usage ;;
esac
