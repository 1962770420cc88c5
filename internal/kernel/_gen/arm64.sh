#!/bin/sh
# Runs the tests of packages kernel and quant for arm64 in an emulator: the assembly is
# NEON, and the compiler fuses multiplications with additions. Installs the emulator of
# Debian and its kin where it may.
set -eu
emulator() { command -v qemu-aarch64-static || command -v qemu-aarch64 || true; }
if [ -z "$(emulator)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	apt-get install -y -qq qemu-user-static >/dev/null 2>&1 ||
		{ apt-get update -qq && apt-get install -y -qq qemu-user-static; } >/dev/null 2>&1 || true
fi
cd "$(dirname "$0")/../.."
binary=$(mktemp)
trap 'rm -f "$binary"' EXIT
export GOOS=linux GOARCH=arm64 CGO_ENABLED=0
go vet ./kernel ./quant
if [ -z "$(emulator)" ]; then
	echo '**********************************************************************'
	echo '* SKIPPED: arm64 tests. They need qemu-aarch64 (Debian: qemu-user-static).'
	echo '**********************************************************************'
	exit 0
fi
for package in kernel quant; do
	go test -c -o "$binary" "./$package"
	(cd "$package" && "$(emulator)" "$binary" -test.short)
done
