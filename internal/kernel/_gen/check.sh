#!/bin/sh
# Regenerates the assembly of package kernel and fails if that changes it.
set -eu
cd "$(dirname "$0")/.."
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
cp kernels_amd64.s kernels_amd64.go "$kept"
rm kernels_amd64.s kernels_amd64.go
go generate .
for file in kernels_amd64.s kernels_amd64.go; do
	diff -u "$kept/$file" "$file"
done
