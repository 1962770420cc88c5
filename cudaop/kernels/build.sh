#!/usr/bin/env bash
# Compiles the kernels to the modules that are committed in ../modules, and writes their manifest.
#
#   NVCC=/path/to/nvcc ./build.sh      any nvcc of CUDA 12.4 or newer; without NVCC the one in PATH
#
# PTX of an older nvcc runs on more drivers, so the committed modules come from the oldest nvcc that compiles them. Each file
# becomes PTX and a cubin for Hopper, which loads at once; the driver takes seconds to compile PTX. What needs Hopper's own
# instructions is a cubin alone: its PTX would run on no other GPU. Cubins of kernels that may
# start early (dependent.cuh) are built for compute_90, all others for compute_80.
set -euo pipefail
cd "$(dirname "$0")"
nvcc=${NVCC:-nvcc}
flags="-std=c++17 -O3"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
sources=$(sha256sum build.sh *.cu *.cuh | awk '{printf "%s    \"%s\": \"%s\"", sep, $2, $1; sep = ",\n"}')
modules=
compile() { # form, architecture flags, name
  "$nvcc" $flags $2 "-$1" -o "$out/$3.$1" "$3.cu"
  gzip -9n "$out/$3.$1"
  modules+="${modules:+,$'\n'}    \"$3.$1.gz\": {\"source\": \"$3.cu\", \"flags\": \"$flags $2\", \"sha256\": \"$(sha256sum "$out/$3.$1.gz" | cut -d' ' -f1)\"}"
}
for source in *.cu; do
  name=${source%.cu}
  case $name in
  *_sm90)
    compile cubin "-gencode=arch=compute_90a,code=sm_90a" "$name"
    ;;
  *)
    if grep -q '^DEPENDENT' "$source"; then virtual=90; else virtual=80; fi
    compile cubin "-gencode=arch=compute_$virtual,code=sm_90" "$name"
    compile ptx "-gencode=arch=compute_80,code=compute_80" "$name"
    ;;
  esac
done
cat >"$out/manifest.json" <<JSON
{
  "compiler": "$("$nvcc" --version | grep -o 'release .*')",
  "sources": {
$sources
  },
  "modules": {
$modules
  }
}
JSON
mkdir -p ../modules
rm -f ../modules/*
cp "$out"/* ../modules/
