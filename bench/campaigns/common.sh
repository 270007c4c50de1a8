# What the runs of virtio-net.toml, guests.toml and interfaces.toml share; `. ./common.sh` reads it.
#
# BELLOWS is the program (bellows), SECONDS_OF_TRAFFIC how long each run is measured (3). Drivers and generators have the
# processor DRIVER_CPU (0), Bellows and other back ends and forwarders the processor CPU (1). MEMORY is that of DPDK's
# programs: plain or hugepages (plain). Everything is ended and removed at the end. Shell and awk are POSIX's.

bellows=${BELLOWS:-bellows}
seconds=${SECONDS_OF_TRAFFIC:-3}
driver_cpu=${DRIVER_CPU:-0} cpu=${CPU:-1}
folder=$(mktemp -d)
export BELLOWS_RUNTIME_DIR="$folder/networks"
export LC_ALL=C PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
processes= hugepages=

finish() {
    [ -z "$processes" ] || kill $processes 2>/dev/null || true
    wait
    [ -z "$hugepages" ] || echo "$hugepages" >/proc/sys/vm/nr_hugepages || true
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

# The priority of this script and its helpers over the measured programs, which use all remaining time. A measured
# program gives it up, has a session of its own, and so its own share of a processor, and dies with this script.
chrt --rr --all-tasks --pid 1 $$ >/dev/null 2>&1 || true
measured="chrt --other 0 setsid setpriv --pdeathsig KILL"

# Waits until a command succeeds, as long as a process lives.
await() {
    process=$1 tries=0
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ $tries -gt 1500 ] || ! kill -0 "$process" 2>/dev/null; then
            echo "this did not happen: $*" >&2
            tail -n 20 "$folder"/*.log >&2
            exit 1
        fi
        sleep 0.02
    done
}

# Starts a measured program in the background, whose input is the file $input: its name and its words. Its session gets
# priority over others, if that is permitted.
input=/dev/null
start() {
    name=$1
    shift
    $measured "$@" <>"$input" >"$folder/$name.log" 2>&1 &
    started=$!
    processes="$processes $started"
    await $started has_own_session $started
    { echo -20 >"/proc/$started/autogroup"; } 2>/dev/null || true
}

has_own_session() {
    [ "$(sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 4)" = "$1" ]
}

# Runs $folder/network.toml in the background, with a wrapper in front of Bellows or without one.
start_bellows() {
    start bellows "$@" "$bellows" run "$folder/network.toml" --name campaign --cpu "$cpu"
    network=$started
}

# Starts a testpmd: its name, its processor, its megabytes of memory and its devices, and options of testpmd itself.
# $wrapper is a program in front of it, $eal has further options of the EAL.
wrapper= eal=
start_testpmd() {
    name=$1 cpus=$2 megabytes=$3 devices=
    for device in $4; do
        devices="$devices --vdev=$device"
    done
    shift 4
    case ${MEMORY:-plain} in
    hugepages) memory="--in-memory --single-file-segments" ;;
    *) memory="--no-huge --no-shconf --file-prefix campaign-$$-$name" ;;
    esac
    start "$name" $wrapper stdbuf -oL dpdk-testpmd --lcores "(0,1)@($cpus)" $memory -m "$megabytes" --no-pci \
        --no-telemetry $eal $devices -- --burst=32 "$@"
    testpmd=$started
}

# As start_testpmd, at whose prompt `tell NAME COMMAND` gives commands.
start_prompt() {
    input=$folder/$1.prompt
    mkfifo "$input"
    start_testpmd "$@" -i
    input=/dev/null
    tell "$name" ""
}

# Gives a command to a testpmd, and waits until it is done: until the word behind it is found to be none. Opened for
# reading, too, a pipe without a reader does not block.
tell() {
    refused=$(refusals "$1")
    printf '%s\ndone\n' "$2" 1<>"$folder/$1.prompt"
    await "$testpmd" is_refused "$1" "$refused"
}

refusals() {
    grep -c 'Command not found' "$folder/$1.log" || true
}

is_refused() {
    [ "$(refusals "$1")" -gt "$2" ]
}

# Reserves hugepages for DPDK's programs, if these are their memory.
reserve_hugepages() {
    [ "${MEMORY:-plain}" = hugepages ] || return 0
    hugepages=$(cat /proc/sys/vm/nr_hugepages)
    echo $((hugepages + $1)) >/proc/sys/vm/nr_hugepages
    if [ "$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages)" -lt "$1" ]; then
        echo "$1 free hugepages are needed; set them aside in /proc/sys/vm/nr_hugepages, or set MEMORY=plain" >&2
        exit 1
    fi
}

# Prints the rates that a testpmd logs from now on: its name, Rx or Tx, and pps or bps.
rates() {
    await "$testpmd" grep -q "$2-pps: *[1-9]" "$folder/$1.log"
    before=$(grep -c "$2-$3:" "$folder/$1.log")
    sleep "$seconds"
    await "$testpmd" has_more "$2-$3:" "$folder/$1.log" "$before"
    sed -n "s/.*$2-$3: *\([0-9]*\).*/rate \1/p" "$folder/$1.log" | tail -n +$((before + 1))
}

has_more() {
    [ "$(grep -c "$1" "$2")" -gt "$3" ]
}

# The time, and for how long the threads of a process have run and waited for a processor, in nanoseconds: its name and
# its number. Each counter is a line with its name and its number.
processor_times() {
    echo "$1.time $(date +%s%N)"
    for thread in "/proc/$2/task"/*; do
        read -r ran waited rest <"$thread/schedstat"
        printf '%s\n' "$1.ran.${thread##*/} $ran" "$1.waited.${thread##*/} $waited"
    done
}

# Prints a report of a window, in which each program had its processor: `look before` and `look after` print counters,
# and the awk program $1 makes figures of them (see window.awk). Another window is measured in place of one that was
# disturbed, $2 of them at most; with ANY_WINDOW=1, as a check, each one counts. `pass` lasts as long as a window.
measure() {
    script=$1 windows=$2
    shift 2
    while :; do
        look before >"$folder/before"
        pass
        look after >"$folder/after"
        code=0
        awk -f window.awk -f "$script" "$@" "$folder/before" "$folder/after" || code=$?
        windows=$((windows - 1))
        [ $code = 75 ] && [ $windows -gt 0 ] || return $code
    done
}

pass() {
    sleep "$seconds"
}
