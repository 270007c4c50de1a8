#!/bin/sh
# One run of virtio-net.toml: a virtio driver, DPDK's testpmd, before a vhost-user back end.
#
#     virtio-net.sh bellows|dpdk OPTIONS SIZE from-driver|to-driver|looped
#
# OPTIONS are testpmd's, such as packed_vq=1,mrg_rxbuf=0,in_order=0; with vectorized=1 the driver may use vector
# instructions. In a loop, as many packets as the ring holds go to and fro. Prints a report: the packets that the driver
# sends, or receives, in a second; the clocks of a packet in the back end and in the driver; and shares of the window. A
# window in which a program waited for its processor for more than 8 percent of the time is measured again.
set -eu
cd "$(dirname "$0")"
backend=$1 options=$2 size=$3 direction=$4
. ./common.sh
socket=$folder/socket

case $direction in
from-driver)
    driver=txonly mode=rxonly begin=start
    links='"port.output -> end.input"' end='app = "sink"'
    ;;
to-driver)
    driver=rxonly mode=txonly begin=start
    links='"end.output -> port.input"' end="app = \"source\"
size = $size"
    ;;
looped)
    # Bursts of 32 packets. An app's output may not lead to itself; `join` forwards whole vectors.
    driver=io mode=io begin='start tx_first 6'
    links='"port.output -> end.input", "end.output -> port.input"' end='app = "join"'
    ;;
*) echo "the direction is from-driver, to-driver or looped, not $direction" >&2; exit 2 ;;
esac

# Prints the counters of a testpmd: its name here and its name in the report.
counters() {
    line=$(wc -l <"$folder/$1.log")
    tell "$1" "show fwd stats all"
    tail -n +$((line + 1)) "$folder/$1.log" | awk -v name="$2" '
        /Accumulated/ { is_sum = 1 }
        /RX-packets:/ && !is_sum { print name ".received", $2 }
        /TX-packets:/ && !is_sum { print name ".sent", $2; print name ".refused", $4 }
        /CPU cycles\/packet=/ {
            gsub(/[^0-9.]+/, " ")
            split($0, numbers)
            print name ".clocks.1", numbers[2]; print name ".moved.1", numbers[3]; print name ".packets", numbers[3]
            print name ".mhz", numbers[4]
        }'
}

# Prints the same of Bellows: the calls of both apps, and the packets of the first link.
counters_of_bellows() {
    "$bellows" show campaign --json | awk '
        /"(pull|push)_clocks":/ { gsub(/[^0-9]/, ""); clocks[++calls] = $0; next }
        /"(pull|push)_packets":/ { gsub(/[^0-9]/, ""); moved[++kinds] = $0; next }
        /^  "[a-z]+":/ { is_link = /"links"/ }
        /"packets":/ && is_link && !is_first { gsub(/[^0-9]/, ""); print "backend.packets", $0; is_first = 1 }
        END {
            if (calls == 0) {
                exit 1
            }
            for (call = 1; call <= calls; call++) {
                print "backend.clocks." call, clocks[call]
                print "backend.moved." call, moved[call]
            }
        }'
}

# Reading the back end's counters takes time from it, so those of the driver are read within.
look() {
    [ "$1" = before ] || look_at_driver
    case $backend in
    bellows) counters_of_bellows ;;
    dpdk) counters backend backend ;;
    esac
    processor_times backend "$network"
    [ "$1" = after ] || look_at_driver
}

look_at_driver() {
    counters driver driver
    processor_times driver "$testpmd"
}

reserve_hugepages 192
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
    ;;
dpdk)
    start_prompt backend "$cpu" 128 "net_vhost0,iface=$socket,queues=1" --total-num-mbufs=16384 --port-topology=loop
    network=$testpmd
    for command in "set record-core-cycles on" "set fwd $mode" "set txpkts $size" start; do
        tell backend "$command"
    done
    ;;
*) echo "the back end is bellows or dpdk, not $backend" >&2; exit 2 ;;
esac
await "$network" test -S "$socket"

case $options in
*vectorized=1*) eal=--force-max-simd-bitwidth=512 ;;
esac
start_prompt driver "$driver_cpu" 128 "net_virtio_user0,path=$socket,queues=1,queue_size=256,$options" \
    --total-num-mbufs=16384 --port-topology=loop
for command in "set record-core-cycles on" "set txpkts $size" "set fwd $driver" "$begin"; do
    tell driver "$command"
done
sleep 0.15
measure virtio-net.awk 4 -v direction="$direction"
