#!/usr/bin/env bash
# Makes every table and picture of the evaluation of both small models.
#
#   bench/eval.sh [--short] [FOLDER]
#
# FOLDER (default: eval) gets a Markdown table for each comparison, its cells as JSON lines, pictures, and the answers.
# A second run continues from the existing answers. --short asks few short questions and takes minutes.
#
#   PULSECOL   command to run          (default: go run ./cmd/pulsecol)
#   MODELS     small models            (default: llada dream)
#   SAMPLES    samples a cell          (default: 200)
#   LONG       tasks of the main table
#   MEDIUM     tasks of the other comparisons
set -euo pipefail
cd "$(dirname "$0")/.."

samples=200
long=tracking@1024,multiquery@1024,retrieval@1024,lists@600,arithmetic@600
medium=multiquery@512,tracking@512
if [ "${1-}" = --short ]; then
  shift
  samples=20 long=multiquery@512,lists@300 medium=multiquery@256
fi
out=${1-eval}
samples=${SAMPLES-$samples} long=${LONG-$long} medium=${MEDIUM-$medium}
mkdir -p "$out"

# compare NAME FLAG... runs one comparison of $model and writes $out/$model-NAME.*. Its second command only reads answers.
compare() {
  local name=$1
  shift
  local command=(${PULSECOL-go run ./cmd/pulsecol} eval --small "$model" --samples "$samples" --results "$out/$model-answers.jsonl" "$@")
  printf '%s %s\n' "$model" "$name" >&2
  "${command[@]}" --plots "$out/$model-$name" >"$out/$model-$name.md"
  "${command[@]}" --json >"$out/$model-$name.jsonl"
}

# Of 630 tokens at a sparsity of 80 %, SparseD keeps 49 % of the pairs with its own blocks of 128 and 28 % with blocks of 32.
for model in ${MODELS-llada dream}; do
  compare methods --task "$long" --method full,pulsecol,sparsed,block-pr,column-ss,window,streaming --sparsity 0.8,0.9 --block-size 32
  compare schedules --task "$medium" --method pulsecol --sparsity 0.9 --schedule uniform,random,power,adaptive --refreshes 1,2,4
  compare windows --task "$medium" --method full,pulsecol --sparsity 0.9 --eta 0.3,1 --refreshes 2,3,4,8
  compare refreshes --task "$medium" --method full,pulsecol --sparsity 0.9 --refreshes 1,2,4,9
  compare groups --task "$medium" --method pulsecol --sparsity 0.9 --group-size 8,16,32,64,128
done
