#!/usr/bin/env bash
# Runs the recipes of a ladder in order, compares each rung with the one before (trainopt compare), prints one table and
# writes report.html. Each rung changes one setting of the one before.
#
#   scripts/ladder.sh [--ladder NAME] [--steps N] [--budget TIME] [--run-root DIR] [key=value ...]
#
# --ladder NAME   the folder of configs/ (default: ladder, a ResNet; gpt2, vit)
# --steps N       steps of every rung (default: 100, as in the recipes; 20 on a machine without a GPU)
# --budget TIME   time for each comparison (default: 60s; 0: no comparisons, so no verdicts)
# --run-root DIR  folder for the run directories, one per rung (default: runs/ladder-<date>-<time>)
# key=value       overrides for every rung
# TRAINOPT        in the environment: an installed program to use instead of building this checkout
#
# Without a GPU the job is scaled down to finish in minutes: 64-pixel images, an eighth of the batch (at least 16, if it
# has more), and at most as many loader threads as there are cores. Compare such rungs with each other, not with rungs
# from a GPU.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
ladder=ladder steps='' root='' budget=60s overrides=()
while (($#)); do
  case $1 in
    --ladder) ladder=${2:?--ladder needs a name}; shift 2 ;;
    --steps) steps=${2:?--steps needs a number}; shift 2 ;;
    --budget) budget=${2:?--budget needs a time}; shift 2 ;;
    --run-root) root=${2:?--run-root needs a folder}; shift 2 ;;
    *=*) overrides+=("$1"); shift ;;
    *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
root=${root:-runs/ladder-$(date +%Y%m%d-%H%M%S)}
say() { printf 'ladder: %s\n' "$*" >&2; }
mapfile -t recipes < <(find "${here%/scripts}/configs/$ladder" -name '[0-9]*.yaml' 2>/dev/null | sort -V)
if ((${#recipes[@]} == 0)); then say "there is no ladder configs/$ladder"; exit 2; fi

trainopt=${TRAINOPT:-}
if [[ -z $trainopt ]]; then
  "$here/build" trainopt
  trainopt=${here%/scripts}/build/app/trainopt
fi
environment=$("$trainopt" env --json)
has_gpu() { python3 -c 'import json, sys; sys.exit(not json.load(sys.stdin).get("gpus"))' <<<"$environment"; }
scaled=false
if ! has_gpu; then
  scaled=true
  cores=$(nproc)
  steps=${steps:-20}
  say "no GPU here: 64-pixel images, an eighth of the batch (at least 16), at most $cores loader threads," \
    "$steps steps per rung"
fi
mkdir -p "$root"

# Prints the overrides that scale a rung's recipe down for this machine, one per line.
scale_down() {
  local recipe=$1 batch workers
  batch=$(sed -n 's/^ *batch_size: *\([0-9]*\).*/\1/p' "$recipe")
  workers=$(sed -n 's/^ *num_workers: *\([0-9]*\).*/\1/p' "$recipe")
  if ((batch > 16)); then printf 'data.batch_size=%d\n' $((batch / 8 > 16 ? batch / 8 : 16)); fi
  if grep -q '^ *transforms:' "$recipe"; then
    printf 'data.transforms=[{resize: 64}, {normalize: {mean: 0.5, std: 0.5}}]\n'
  fi
  if ((${workers:-0} > cores)); then printf 'data.num_workers=%d\n' "$cores"; fi
}

# Compares the recipes as the runs resolved them. A rung that changes nothing on this machine is not compared; if the
# comparison fails, the rung has no verdict.
compare() {
  local code=0
  python3 "$here/summaries.py" changes "$1" "$2" || return 0
  "$trainopt" compare "$1/recipe.yaml" "$2/recipe.yaml" run_dir=null --run-dir "$2/compare" --budget "$budget" \
    --json --quiet --log-level error >"$2/compare.json" </dev/null || code=$?
  if ((code > 128)); then say "stopped"; exit "$code"; fi
  if ((code)); then rm "$2/compare.json"; say "${2##*/} could not be compared: exit code $code"; fi
}

folders=() before=''
for recipe in "${recipes[@]}"; do
  name=$(basename "$recipe" .yaml)
  arguments=()
  if $scaled; then mapfile -t arguments < <(scale_down "$recipe"); fi
  if [[ -n $steps ]]; then arguments+=("train.max_steps=$steps"); fi
  say "$name"
  code=0
  "$trainopt" run "$recipe" --run-dir "$root/$name" --quiet --log-level error "${arguments[@]}" "${overrides[@]}" \
    >&2 </dev/null || code=$?
  if ((code > 128)); then say "stopped"; exit "$code"; fi
  if ((code)); then say "$name ended with exit code $code"; fi
  if [[ $code == 0 && $budget != 0 && -n $before ]]; then compare "$before" "$root/$name"; fi
  folders+=("$root/$name")
  ((code)) || before=$root/$name
done

python3 "$here/summaries.py" table "${folders[@]}"
"$trainopt" report "$root" >&2 || say "there is no page"
