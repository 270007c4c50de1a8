#!/bin/sh
# Builds fib.c as PROGRAM: build-fib.sh PROGRAM. Needs cc, pkg-config and DPDK (libdpdk-dev).
set -e
# DPDK's flags choose an old processor, so they come first.
exec cc $(pkg-config --cflags libdpdk) -O2 -march=native -DALLOW_EXPERIMENTAL_API -Wall -o "$1" \
	"$(dirname "$0")/fib.c" $(pkg-config --libs libdpdk)
