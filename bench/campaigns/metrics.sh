#!/bin/sh
# One run of metrics.toml: a network for ten seconds, beside a scraper or alone.
#
#     metrics.sh PERIOD APPS
#
# PERIOD is the time between scrapes in seconds, 0 for none. APPS is 4 for a source, a tee and two sinks, or the number of
# apps in a chain. Prints the report of the run as JSON. SCRAPES, if set, is a file that gets the size of each scrape.
set -eu
cd "$(dirname "$0")"
period=$1 apps=$2
. ./common.sh

if [ "$apps" = 4 ]; then
    cat >"$folder/network.toml" <<NETWORK
links = ["source.output -> tee.input", "tee.a -> one.input", "tee.b -> other.input"]
[apps.source]
app = "source"
size = 60
[apps.tee]
app = "tee"
[apps.one]
app = "sink"
[apps.other]
app = "sink"
NETWORK
else
    last=$((apps - 2))
    {
        echo 'links = ["source.output -> a1.input",'
        i=1
        while [ $i -lt $last ]; do
            echo "\"a$i.output -> a$((i + 1)).input\","
            i=$((i + 1))
        done
        echo "\"a$last.output -> end.input\"]"
        printf '[apps.source]\napp = "source"\nsize = 60\n[apps.end]\napp = "sink"\n'
        i=1
        while [ $i -le $last ]; do
            printf '[apps.a%d]\napp = "tee"\n' $i
            i=$((i + 1))
        done
    } >"$folder/network.toml"
fi

# One scrape after the other, from a server beside the network.
if [ "$period" != 0 ]; then
    taskset -c 0 "$bellows" metrics --listen "unix:$folder/socket" >"$folder/metrics.log" 2>&1 &
    processes="$processes $!"
    await $! test -S "$folder/socket"
    (
        while :; do
            curl -s --unix-socket "$folder/socket" http://localhost/metrics | wc -c >>"${SCRAPES:-$folder/scrapes}"
            sleep "$period"
        done
    ) &
    processes="$processes $!"
    taskset -cp 0 $! >/dev/null
fi

"$bellows" run "$folder/network.toml" --name "campaign-$$" --cpu 1 --duration 10s --json
