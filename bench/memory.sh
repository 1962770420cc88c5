#!/usr/bin/env bash
# Checks the GPU memory of generations: after few steps and after many, in a second generation of the same process, and
# after the process is killed while it loads weights and while it computes.
#
#   bench/memory.sh [PULSECOL]     PULSECOL is a program built with -tags cuda (default: pulsecol)
#
# LENGTH (4096) is the number of tokens, STEPS (1000) that of the long generation. Runs on the GPU that is first in
# CUDA_VISIBLE_DEVICES, or GPU 0; numbers of nvidia-smi, in MiB, are of that GPU, so nothing else should use it. Exits with 1
# if memory grows or stays.
set -uo pipefail
pulsecol=${1:-pulsecol} length=${LENGTH:-4096} steps=${STEPS:-1000}
gpu=${CUDA_VISIBLE_DEVICES:-0} gpu=${gpu%%,*}
dir=$(mktemp -d) pid= failed=0
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

used() { nvidia-smi -i "$gpu" --query-gpu=memory.used --format=csv,noheader,nounits; }
fail() { echo "FAIL: $*"; failed=1; }

# start STEPS runs a generation of a few steps and one of STEPS, in the background.
start() {
  "$pulsecol" bench e2e --random-weights --shape llada-8b --length "$length" --group-size 128 --steps-per-mode 9 --warmup 1 \
    --steps "$1" --full "$1" --json >"$dir/rows" 2>"$dir/errors" &
  pid=$!
}

# freed waits until memory is as before.
freed() {
  local now i
  for i in $(seq 50); do
    now=$(used)
    [ "$now" -gt "$((before + 16))" ] || break
    sleep 0.2
  done
  echo "$now"
}

before=$(used)
echo "before: $before"

for when in "loading weights:4000" "computing:16500"; do # MiB above before; the weights are 15,300
  start "$steps"
  until [ "$(used)" -gt "$((before + ${when#*:}))" ] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  [ "${when#*:}" -lt 16000 ] || sleep 1
  at=$(used)
  kill -9 "$pid" 2>/dev/null || fail "it ended on its own: $(tail -n 3 "$dir/errors")"
  { wait "$pid"; } 2>/dev/null
  pid=
  after=$(freed)
  echo "killed while ${when%:*}: $at at that moment, $after afterwards"
  [ "$after" -le "$((before + 16))" ] || fail "$((after - before)) MiB stay"
done

start "$steps"
: >"$dir/samples"
while kill -0 "$pid" 2>/dev/null; do # rows appear when the first generation is done
  echo "$(wc -l <"$dir/rows") $(used)" >>"$dir/samples"
  sleep 0.5
done
wait "$pid" || fail "pulsecol: $(tail -n 3 "$dir/errors")"
pid=
held() { grep -o '"held_bytes":[0-9]*' | cut -d: -f2 | tail -n 1; }
few=$(grep '"mode":"reuse"' "$dir/rows" | held) many=$(grep '"whole_ms"' "$dir/rows" | held)
echo "held by the operators, bytes: ${few:-none} in 30 steps, ${many:-none} in $steps steps"
[ -n "$few" ] && [ -n "$many" ] && [ "$many" -le "$few" ] || fail "it grows"
first=$(awk '$1 == 0 && $2 > m { m = $2 } END { print m }' "$dir/samples")
# Weights are there after a few seconds, which the peak of the first half shows.
awk '$1 > 0 { print $2 }' "$dir/samples" >"$dir/second"
half=$(($(wc -l <"$dir/second") / 2))
early=$(head -n "$half" "$dir/second" | sort -n | tail -n 1) late=$(tail -n +"$((half + 1))" "$dir/second" | sort -n | tail -n 1)
echo "nvidia-smi, most: ${first:-none} in the first generation, ${early:-none} in the first half of the second, ${late:-none} in its second half"
[ -n "$early" ] && [ "$early" -ge "$late" ] || fail "it grows"
[ -n "$early" ] && [ "$early" -le "$((first + 64))" ] || fail "the second generation takes more than the first"
echo "after: $(freed)"
exit $failed
