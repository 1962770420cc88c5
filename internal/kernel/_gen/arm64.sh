#!/bin/sh
# Runs the tests of package kernel for arm64 in an emulator, where one is
# installed: another architecture fuses multiplications with additions and has
# no assembly here.
set -eu
emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
if [ -z "$emulator" ]; then
	echo "no qemu-aarch64: arm64 tests skipped"
	exit 0
fi
cd "$(dirname "$0")/.."
binary=$(mktemp)
trap 'rm -f "$binary"' EXIT
GOOS=linux GOARCH=arm64 CGO_ENABLED=0 go test -c -o "$binary" .
"$emulator" "$binary" -test.short
