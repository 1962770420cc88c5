#!/bin/sh
# Runs the tests of package kernel for arm64 in an emulator: its assembly is NEON,
# and its compiler fuses multiplications with additions. Installs the emulator of
# Debian and its kin where it may.
set -eu
emulator() { command -v qemu-aarch64-static || command -v qemu-aarch64 || true; }
if [ -z "$(emulator)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	apt-get install -y -qq qemu-user-static >/dev/null 2>&1 ||
		{ apt-get update -qq && apt-get install -y -qq qemu-user-static; } >/dev/null 2>&1 || true
fi
cd "$(dirname "$0")/.."
binary=$(mktemp)
trap 'rm -f "$binary"' EXIT
GOOS=linux GOARCH=arm64 CGO_ENABLED=0 go vet .
GOOS=linux GOARCH=arm64 CGO_ENABLED=0 go test -c -o "$binary" .
if [ -z "$(emulator)" ]; then
	echo '**********************************************************************'
	echo '* SKIPPED: arm64 tests. They need qemu-aarch64 (Debian: qemu-user-static).'
	echo '**********************************************************************'
	exit 0
fi
"$(emulator)" "$binary" -test.short
