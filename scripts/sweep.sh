#!/usr/bin/env bash
# Runs a recipe once for every combination of the given values and collects the summaries in one CSV.
#
#   scripts/sweep.sh [--run-root DIR] RECIPE key=value,value,... [key=value,... ...]
#   scripts/sweep.sh configs/quickstart.yaml data.num_workers=0,1,2 optimizations.amp=false,true train.max_steps=20
#
# Commas inside brackets and braces belong to the value: optimizations.amp=false,{dtype: float16}
# The CSV goes to standard output and to DIR/sweep.csv (default DIR: runs/sweep-<date>-<time>). Each run has a folder in
# DIR. TRAINOPT in the environment names an installed program to use instead of building this checkout.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=runs/sweep-$(date +%Y%m%d-%H%M%S)
if [[ ${1:-} == --run-root ]]; then
  root=${2:?--run-root needs a folder}
  shift 2
fi
recipe=${1:-}
if [[ -z $recipe || $recipe == -* || $# -lt 2 ]]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
shift
say() { printf 'sweep: %s\n' "$*" >&2; }

# Prints the values of `a,b,{c: d, e: f}`, one per line.
split_values() {
  local text=$1 depth=0 value='' i c
  for ((i = 0; i < ${#text}; ++i)); do
    c=${text:i:1}
    case $c in
      '[' | '{') depth=$((depth + 1)) ;;
      ']' | '}') depth=$((depth - 1)) ;;
    esac
    if [[ $c == , && $depth == 0 ]]; then
      printf '%s\n' "$value"
      value=''
    else
      value+=$c
    fi
  done
  printf '%s\n' "$value"
}

run_number=0
folders=()
# Sets each OPEN key to each of its values in turn, and runs once no key is open: sweep CHOSEN... -- OPEN...
sweep() {
  local chosen=() open key value values
  while [[ $1 != -- ]]; do chosen+=("$1"); shift; done
  shift
  open=("$@")
  if ((${#open[@]} == 0)); then
    run_once "${chosen[@]}"
    return
  fi
  key=${open[0]%%=*}
  mapfile -t values < <(split_values "${open[0]#*=}")
  for value in "${values[@]}"; do sweep "${chosen[@]}" "$key=$value" -- "${open[@]:1}"; done
}

run_once() {
  local folder code=0
  folder=$(printf '%s/%03d' "$root" "$run_number")
  run_number=$((run_number + 1))
  say "$folder: $*"
  "$trainopt" run "$recipe" --run-dir "$folder" --quiet --log-level error "$@" >&2 </dev/null || code=$?
  if ((code > 128)); then say "stopped"; exit "$code"; fi
  if ((code)); then say "$folder ended with exit code $code"; fi
  mkdir -p "$folder"
  python3 -c 'import json, sys; print(json.dumps(dict(pair.split("=", 1) for pair in sys.argv[1:])))' "$@" \
    >"$folder/settings.json"
  folders+=("$folder")
}

for argument in "$@"; do
  if [[ $argument != *=* ]]; then say "not a key=value: $argument"; exit 2; fi
done
trainopt=${TRAINOPT:-}
if [[ -z $trainopt ]]; then
  "$here/build" trainopt
  trainopt=${here%/scripts}/build/app/trainopt
fi
mkdir -p "$root"
sweep -- "$@"
python3 "$here/summaries.py" csv "${folders[@]}" | tee "$root/sweep.csv"
