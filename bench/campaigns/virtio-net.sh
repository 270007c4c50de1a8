#!/bin/sh
# One run of virtio-net.toml: a virtio driver (DPDK's testpmd) before a vhost-user back end, for a few seconds.
#
#     virtio-net.sh bellows|dpdk OPTIONS SIZE from-driver|to-driver
#
# OPTIONS are testpmd's, such as packed_vq=1,mrg_rxbuf=0,in_order=0. Prints the packets per second that the driver
# sends or receives, a line a second. The driver has the first processor, the back end the second one.
set -eu

backend=$1 options=$2 size=$3 direction=$4
folder=$(mktemp -d)
trap 'kill $server $client 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
socket=$folder/socket
server= client=

testpmd() {
    processor=$1 device=$2 mode=$3
    exec stdbuf -oL dpdk-testpmd --lcores "(0,1)@($processor)" --no-huge --no-shconf -m 128 --no-pci \
        --no-telemetry --file-prefix "campaign-$$-$processor" --vdev="$device" -- --total-num-mbufs=16384 --burst=32 \
        --port-topology=loop --forward-mode="$mode" --txpkts="$size" --auto-start --stats-period 1
}

case $direction in
from-driver) driver=txonly server_mode=rxonly ;;
to-driver) driver=rxonly server_mode=txonly ;;
*) echo "the direction is from-driver or to-driver, not $direction" >&2; exit 2 ;;
esac

case $backend in
bellows)
    case $direction in
    from-driver) links='"port.output -> end.input"' end='app = "sink"' ;;
    to-driver) links='"end.output -> port.input"' end="app = \"source\"
size = $size" ;;
    esac
    cat >"$folder/network.toml" <<NETWORK
links = [$links]
[apps.port]
app = "vhost-user"
socket = "$socket"
[apps.end]
$end
NETWORK
    "${BELLOWS:-bellows}" run "$folder/network.toml" --name "campaign-$$" --cpu 1 >"$folder/log" 2>&1 &
    ;;
dpdk)
    testpmd 1 "net_vhost0,iface=$socket,queues=1" $server_mode >"$folder/log" 2>&1 &
    ;;
*) echo "the back end is bellows or dpdk, not $backend" >&2; exit 2 ;;
esac
server=$!

tries=0
until [ -S "$socket" ]; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ] || ! kill -0 $server 2>/dev/null; then
        echo "the back end does not listen:" >&2
        tail -5 "$folder/log" >&2
        exit 1
    fi
    sleep 0.1
done

testpmd 0 "net_virtio_user0,path=$socket,queues=1,queue_size=256,$options" $driver >"$folder/driver" 2>&1 &
client=$!
sleep "${SECONDS_OF_TRAFFIC:-5}"
kill -0 $client 2>/dev/null || { tail -5 "$folder/driver" >&2; exit 1; }
case $direction in
from-driver) sed -n 's/.*Tx-pps: *\([0-9]*\).*/Tx-pps \1/p' "$folder/driver" ;;
to-driver) sed -n 's/.*Rx-pps: *\([0-9]*\).*/Rx-pps \1/p' "$folder/driver" ;;
esac
