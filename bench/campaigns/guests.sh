#!/bin/sh
# One run of guests.toml: traffic through apps, to a guest's driver and back or between two namespaces.
#
#     guests.sh l2fwd base|filter|tunnel|esp|both SIZE OPTIONS [OPTIONS-BEFORE]
#     guests.sh iperf base|filter|tunnel|esp|both SIZE
#
# l2fwd: packets of SIZE bytes, or imix, go through the apps to a guest that sends them back. The guest is DPDK's
# testpmd with virtio-user and OPTIONS, such as packed_vq=1,mrg_rxbuf=0; before it, a guest with OPTIONS-BEFORE has had
# the port. Prints the bits per second that return. iperf: TCP with segments of SIZE bytes between two namespaces,
# whose interfaces are TAPs of Bellows, through the apps. Prints the bits per second that arrive. It needs root.
set -eu
cd "$(dirname "$0")"
bench=$1 config=$2 size=$3 options=${4-} before=${5-}
. ./common.sh

# Prints the links and apps between two apps: their outputs, then their inputs.
between() {
    left_out=$1 left_in=$2 right_out=$3 right_in=$4
    case $config in
    base) echo "links = [\"$left_out -> $right_in\", \"$right_out -> $left_in\"]" ;;
    filter)
        cat <<NETWORK
links = [
    "$left_out -> there.input", "there.pass -> $right_in",
    "$right_out -> back.input", "back.pass -> $left_in",
]
[apps.there]
app = "pcap-filter"
filters.pass = "ip or arp or ip6"
[apps.back]
app = "pcap-filter"
filters.pass = "ip or arp or ip6"
NETWORK
        ;;
    tunnel | esp)
        cat <<NETWORK
links = [
    "$left_out -> near.site", "near.site -> $left_in", "near.ip6 -> far.ip6",
    "$right_out -> far.site", "far.site -> $right_in", "far.ip6 -> near.ip6",
]
NETWORK
        "$config" near far
        ;;
    both)
        cat <<NETWORK
links = [
    "$left_out -> near.site", "near.site -> $left_in", "near.ip6 -> sealed.site", "sealed.site -> near.ip6",
    "sealed.ip6 -> opened.ip6", "opened.ip6 -> sealed.ip6",
    "$right_out -> far.site", "far.site -> $right_in", "far.ip6 -> opened.site", "opened.site -> far.ip6",
]
NETWORK
        tunnel near far
        esp sealed opened
        ;;
    *) echo "there is no configuration $config" >&2; exit 2 ;;
    esac
}

tunnel() {
    cat <<NETWORK
[apps.$1]
app = "keyed-tunnel"
local = "2001:db8::1"
mtu = 9000
sessions.site = { remote = "2001:db8::2" }
[apps.$2]
app = "keyed-tunnel"
local = "2001:db8::2"
mtu = 9000
sessions.site = { remote = "2001:db8::1" }
NETWORK
}

esp() {
    there='spi = 0x1001, algorithm = "aes-128-gcm", key = "0f1e2d3c4b5a69788796a5b4c3d2e1f001020304"'
    back='spi = 0x1002, algorithm = "aes-128-gcm", key = "f0e1d2c3b4a5968778695a4b3c2d1e0f05060708"'
    cat <<NETWORK
[apps.$1]
app = "esp"
local = "2001:db8::1"
mtu = 9000
[apps.$1.associations.site]
remote = "2001:db8::2"
dst_mac = "02:00:00:00:00:01"
outbound = { $there }
inbound = { $back }
[apps.$2]
app = "esp"
local = "2001:db8::2"
mtu = 9000
[apps.$2.associations.site]
remote = "2001:db8::1"
dst_mac = "02:00:00:00:00:02"
outbound = { $back }
inbound = { $there }
NETWORK
}

# A guest with options.
start_guest() {
    start_testpmd guest "$driver_cpu" 128 "net_virtio_user0,path=$folder/socket,queues=1,queue_size=256,$1" \
        --total-num-mbufs=16384 --port-topology=loop --forward-mode=io --auto-start --stats-period 1
}

case $bench in
l2fwd)
    case $size in
    imix) sizes='mix = "imix"' ;;
    *) sizes="size = $size" ;;
    esac
    {
        between packets.output end.input port.output port.input
        cat <<NETWORK
[apps.packets]
app = "source"
headers = "ipv4"
$sizes
[apps.end]
app = "sink"
[apps.port]
app = "vhost-user"
socket = "$folder/socket"
NETWORK
    } >"$folder/network.toml"
    start_bellows
    await "$network" test -S "$folder/socket"
    if [ -n "$before" ]; then
        start_guest "$before"
        await "$testpmd" grep -q 'Tx-pps: *[1-9]' "$folder/guest.log"
        kill "$testpmd"
        wait "$testpmd" || true
    fi
    start_guest "$options"
    rates guest Tx bps
    ;;
iperf)
    client=campaign-client-$$ server=campaign-server-$$
    trap 'ip netns delete $client || true; ip netns delete $server || true; finish' EXIT
    ip netns add "$client"
    ip netns add "$server"
    {
        between left.output left.input right.output right.input
        for side in left right; do
            eval "namespace=\$$([ $side = left ] && echo client || echo server)"
            cat <<NETWORK
[apps.$side]
app = "tap"
interface = "eth0"
namespace = "$namespace"
offloads = false
NETWORK
        done
    } >"$folder/network.toml"
    start_bellows
    await "$network" ip netns exec "$server" ip link show eth0
    await "$network" ip netns exec "$client" ip link show eth0
    number=1
    for namespace in "$client" "$server"; do
        ip -n "$namespace" link set eth0 address "02:00:00:00:00:0$number" mtu 1500 up
        ip -n "$namespace" address add "192.0.2.$number/24" dev eth0
        ip -n "$namespace" neighbour replace "192.0.2.$((3 - number))" lladdr "02:00:00:00:00:0$((3 - number))" dev eth0
        number=$((number + 1))
    done
    start server ip netns exec "$server" iperf3 --server --one-off
    await "$started" ip netns exec "$server" sh -c 'ss -tln | grep -q :5201'
    start client ip netns exec "$client" iperf3 --client 192.0.2.2 --set-mss "$size" --time "$seconds" --format k
    wait "$started" || { cat "$folder/client.log" >&2; exit 1; }
    sed -n 's/.* \([0-9.]*\) Kbits.*receiver/rate \1e3/p' "$folder/client.log"
    ;;
*) echo "there is no benchmark $bench" >&2; exit 2 ;;
esac
