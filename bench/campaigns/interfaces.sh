#!/bin/sh
# One run of interfaces.toml, interfaces-bridge.toml or interfaces-builds.toml: traffic between two interfaces.
#
#     interfaces.sh bellows|dpdk af-xdp|packet flood|paced|tcp|tcp-offloads
#     interfaces.sh kernel - flood|paced|tcp|tcp-offloads bridge|bridge-steered
#
# Two veth pairs, in network namespaces:
#
#     generator: source -- left :forwarder: right -- sink
#
# The forwarder between them is Bellows, with its apps `af-xdp` or `raw-socket`; DPDK's testpmd, with its drivers for
# AF_XDP or AF_PACKET; or the kernel's bridge. The packets are counted at the sink, whose namespace has no address and
# therefore drops them in the kernel at little cost, on the processor that sent them: a veth interface receives by
# software interrupt on the processor of its peer's sender. So the generator's processor also works for `left`, and the
# forwarder's for the sink, whichever program forwards. The bridge has no process. By default it works where a packet was
# received, on the generator's processor; receive packet steering moves it to the forwarder's (bridge-steered).
#
# flood: frames of 64 bytes, as many as the generator can send. paced: the same, FRAMES_PER_SECOND (200000) of them, which
# all forwarders forward. tcp: a stream of iperf3, all offloads off, for 10 seconds at most. tcp-offloads: the same with
# offloads. Prints a report: packets or bits a second at the sink, the forwarder's time for each of these packets, and
# shares of the window. A window counts only if the host took less than 5 percent of a processor, and if a forwarder of
# generated frames waited for its own for less than 8 percent; otherwise it is measured again, twice at most.
#
# It needs root, two processors, Linux 5.18, and the generator:
#
#     cargo build --release --package bellows-netdev --example frames
set -eu
cd "$(dirname "$0")"
if [ "${1-}" != inside ]; then
    # The kernel removes its processes, interfaces and mounts, however it ends.
    exec setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child --mount-proc -- \
        sh "$PWD/interfaces.sh" inside "$@"
fi
program=$2 port=$3 traffic=$4
[ "$program" != kernel ] || port=$5
: "${SECONDS_OF_TRAFFIC:=30}"
. ./common.sh
frames=${FRAMES:-${CARGO_TARGET_DIR:-../../target}/release/examples/frames}
sink_address=192.0.2.2 frame_sink=192.0.2.3 source_mac=00:00:5e:00:53:01 frame_sink_mac=00:00:5e:00:53:03
wrapper="ip netns exec forwarder"

case $traffic in
flood | paced) ;;
tcp | tcp-offloads) [ "$seconds" -le 10 ] || seconds=10 ;;
*) echo "the traffic is flood, paced, tcp or tcp-offloads, not $traffic" >&2; exit 2 ;;
esac

# The namespaces: this one is the sink's. Their names hide those of the machine.
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
ip netns add generator
ip netns add forwarder
ip netns attach receiver $$

# Runs a command for each interface: with its namespace and its name behind it.
for_each() {
    "$@" generator source
    "$@" forwarder left
    "$@" forwarder right
    "$@" receiver sink
}

# The kernel's own packets would be counted.
disable_ipv6() {
    ip netns exec "$1" sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
        echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6'
}

disable_offloads() {
    ip netns exec "$1" ethtool -K "$2" rx off tx off sg off tso off gso off gro off >/dev/null
}

enable() {
    ip -n "$1" link set "$2" up
}

# AF_XDP on veth requires as many receive queues as the peer has for sending.
queues="numtxqueues 1 numrxqueues 1"
for_each disable_ipv6
ip -n forwarder link add left $queues type veth peer name source $queues address $source_mac netns generator
ip link add sink $queues type veth peer name right $queues netns forwarder
[ "$traffic" = tcp-offloads ] || for_each disable_offloads
case $traffic in
# Makes it poll, as an XDP program does: otherwise it takes no frame of the generator.
flood | paced) ip netns exec forwarder ethtool -K left gro on >/dev/null ;;
esac
for_each enable
case $traffic in
paced)
    # Nothing has this address, nor its MAC address, so the kernel drops the frames when it has read that.
    ip -n generator address add 192.0.2.1/24 dev source
    ip -n generator neighbour add $frame_sink lladdr $frame_sink_mac dev source
    ;;
tcp*)
    ip -n generator address add 192.0.2.1/24 dev source
    ip address add $sink_address/24 dev sink
    ;;
esac

# The network that forwards in both directions, as testpmd's mode `io` does.
network() {
    cat <<NETWORK
links = ["left.output -> right.input", "right.output -> left.input"]
[apps.left]
app = "$1"
interface = "left"
[apps.right]
app = "$1"
interface = "right"
NETWORK
}

bridge() {
    ip -n forwarder link add bridge type bridge mcast_snooping 0 stp_state 0 forward_delay 0
    for side in left right; do
        ip -n forwarder link set $side master bridge
        [ -z "$1" ] || ip netns exec forwarder sh -c "echo $1 >/sys/class/net/$side/queues/rx-0/rps_cpus"
    done
    ip -n forwarder link set bridge up
}

# A set of one processor, as the kernel reads it: words of 32 bits, the highest first.
mask() {
    awk -v cpu="$1" 'BEGIN {
        mask = sprintf("%x", 2 ^ (cpu % 32))
        for (word = int(cpu / 32); word > 0; word--) mask = mask ",00000000"
        print mask
    }'
}

forwarder=
case $program-$port in
bellows-af-xdp | bellows-packet)
    [ $port = packet ] && app=raw-socket || app=af-xdp
    network $app >"$folder/network.toml"
    start_bellows $wrapper
    forwarder=$network
    ;;
dpdk-af-xdp | dpdk-packet)
    [ $port = packet ] && driver=net_af_packet || driver=net_af_xdp
    # On veth no option makes them faster than they are by default: not `busy_budget=0`, `qdisc_bypass=1`, nor rings larger
    # or smaller (`framecnt`, `--rxd`, `--txd`); longer bursts than 32 make the one for AF_XDP slower.
    MEMORY=plain
    start_prompt dpdk "$cpu" 256 "${driver}0,iface=left ${driver}1,iface=right" --total-num-mbufs=32768 \
        --forward-mode=io
    forwarder=$testpmd
    tell dpdk start
    ;;
kernel-bridge) bridge "" ;;
kernel-bridge-steered) bridge "$(mask "$cpu")" ;;
*) echo "there is no forwarder $program $port" >&2; exit 2 ;;
esac

# Prints all counters; the times of /proc are in ticks.
look() {
    echo "sink.time $(date +%s%N)"
    counter self sink received 3
    counter "$holder" source sent 11
    if [ -n "$forwarder" ]; then
        sed 's/.*) //' "/proc/$forwarder/stat" | awk '{ print "forwarder.user", $12; print "forwarder.system", $13 }'
        processor_times forwarder "$forwarder"
    fi
    awk -v generator="cpu$driver_cpu" -v forwarder="cpu$cpu" '
        $1 == generator || $1 == forwarder {
            name = $1 == generator ? "generator" : "forwarder"
            print name ".idle", $5; print name ".softirq", $8; print name ".stolen", $9
        }' /proc/stat
    [ "$1" = before ] || [ ! -f "$folder/client.log" ] ||
        sed -n 's/.* \([0-9.]*\) Kbits.*receiver/sink.kbits \1/p' "$folder/client.log"
}

# A counter of an interface: a process in its namespace, its name, what it counts, and its column in /proc/net/dev.
counter() {
    sed 's/:/ /' "/proc/$1/net/dev" | awk -v name="$2" -v what="$3" -v column="$4" \
        '$1 == name { print name "." what, $column }'
}

has_source() {
    [ -n "$(counter "$holder" source sent 11)" ]
}

has_received() {
    [ "$(counter self sink received 3)" != "sink.received 0" ]
}

# A process in the generator's namespace, which shows its counters.
start holder ip netns exec generator sleep infinity
holder=$started
await "$holder" has_source
generator="taskset --cpu-list $driver_cpu ip netns exec generator"

case $traffic in
flood | paced)
    case $traffic in
    flood) start generator $generator "$frames" flood source ;;
    paced) start generator $generator "$frames" paced $frame_sink "${FRAMES_PER_SECOND:-200000}" ;;
    esac
    source=$started
    await "$source" has_received
    sleep 0.3
    ;;
tcp*)
    # Client and server share the generator's processor.
    start server taskset --cpu-list "$driver_cpu" iperf3 --server --bind $sink_address
    source=$started
    await "$source" $generator iperf3 --client $sink_address --connect-timeout 1000 --bytes 1K
    pass() {
        start client $generator iperf3 --client $sink_address --time "$seconds" --format k
        wait "$started" || { cat "$folder/client.log" >&2; exit 1; }
    }
    ;;
esac
measure interfaces.awk 3 -v traffic="$traffic" -v forwarder="$port"
kill -0 "$source" || { echo "the generator has ended" >&2; exit 1; }
