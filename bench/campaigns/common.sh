# What the runs of virtio-net.toml and guests.toml share; `. ./common.sh` reads it.
#
# BELLOWS is the program (bellows), SECONDS_OF_TRAFFIC how long each run is measured (3). Bellows and other back ends
# have the second processor, drivers the first one. Everything is ended and removed at the end.

bellows=${BELLOWS:-bellows}
seconds=${SECONDS_OF_TRAFFIC:-3}
folder=$(mktemp -d)
processes=

finish() {
    [ -z "$processes" ] || kill $processes 2>/dev/null || true
    wait
    rm -rf "$folder"
}
trap finish EXIT

# Waits until a command succeeds, as long as a process lives.
await() {
    process=$1 tries=0
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ $tries -gt 300 ] || ! kill -0 "$process" 2>/dev/null; then
            echo "this did not happen: $*" >&2
            tail -n 20 "$folder"/*.log >&2
            exit 1
        fi
        sleep 0.1
    done
}

# Runs $folder/network.toml in the background.
start_bellows() {
    "$bellows" run "$folder/network.toml" --name "campaign-$$" --cpu 1 >"$folder/bellows.log" 2>&1 &
    network=$!
    processes="$processes $network"
}

# Starts a testpmd that logs its rates each second: its name, processor, device, mode, and size of packets.
start_testpmd() {
    stdbuf -oL dpdk-testpmd --lcores "(0,1)@($2)" --no-huge --no-shconf -m 128 --no-pci --no-telemetry \
        --file-prefix "campaign-$$-$1" --vdev="$3" -- --total-num-mbufs=16384 --burst=32 --port-topology=loop \
        --forward-mode="$4" --txpkts="$5" --auto-start --stats-period 1 >"$folder/$1.log" 2>&1 &
    testpmd=$!
    processes="$processes $testpmd"
}

# Prints the rates that a testpmd logs from now on: its name, Rx or Tx, and pps or bps.
rates() {
    await "$testpmd" grep -q "$2-pps: *[1-9]" "$folder/$1.log"
    before=$(grep -c "$2-$3:" "$folder/$1.log")
    sleep "$seconds"
    await "$testpmd" test "$(grep -c "$2-$3:" "$folder/$1.log")" -gt "$before"
    sed -n "s/.*$2-$3: *\([0-9]*\).*/rate \1/p" "$folder/$1.log" | tail -n +$((before + 1))
}
