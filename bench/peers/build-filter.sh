#!/bin/sh
# Builds filter.c as PROGRAM: build-filter.sh PROGRAM. Needs cc, pkg-config, libpcap and DPDK (libdpdk-dev).
set -e
# DPDK's flags choose an old processor, so they come first.
exec cc $(pkg-config --cflags libdpdk) -O2 -march=native -DALLOW_EXPERIMENTAL_API -Wall -o "$1" \
	"$(dirname "$0")/filter.c" $(pkg-config --libs libdpdk) -lrte_bpf -lpcap
