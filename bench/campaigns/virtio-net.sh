#!/bin/sh
# One run of virtio-net.toml: a virtio driver, DPDK's testpmd, before a vhost-user back end.
#
#     virtio-net.sh bellows|dpdk OPTIONS SIZE from-driver|to-driver
#
# OPTIONS are testpmd's, such as packed_vq=1,mrg_rxbuf=0,in_order=0. Prints the packets per second that the driver
# sends or receives, a line a second.
set -eu
cd "$(dirname "$0")"
backend=$1 options=$2 size=$3 direction=$4
. ./common.sh
socket=$folder/socket

case $direction in
from-driver)
    driver=txonly mode=rxonly counter=Tx
    links='"port.output -> end.input"' end='app = "sink"'
    ;;
to-driver)
    driver=rxonly mode=txonly counter=Rx
    links='"end.output -> port.input"' end="app = \"source\"
size = $size"
    ;;
*) echo "the direction is from-driver or to-driver, not $direction" >&2; exit 2 ;;
esac

case $backend in
bellows)
    cat >"$folder/network.toml" <<NETWORK
links = [$links]
[apps.port]
app = "vhost-user"
socket = "$socket"
[apps.end]
$end
NETWORK
    start_bellows
    await "$network" test -S "$socket"
    ;;
dpdk)
    start_testpmd backend 1 "net_vhost0,iface=$socket,queues=1" $mode "$size"
    await "$testpmd" test -S "$socket"
    ;;
*) echo "the back end is bellows or dpdk, not $backend" >&2; exit 2 ;;
esac

start_testpmd driver 0 "net_virtio_user0,path=$socket,queues=1,queue_size=256,$options" $driver "$size"
rates driver $counter pps
