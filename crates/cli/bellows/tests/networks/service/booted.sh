# Runs in a container that systemd has booted: a network as a service, from its start to its end. The folder /test has
# the command, the unit and this file; what fails is the last line of the output.
set -eux
export PATH=/test:/usr/sbin:/usr/bin:/sbin:/bin

wait_for() {
    for _ in $(seq 100); do
        if eval "$1"; then return 0; fi
        sleep 0.1
    done
    echo "in vain: $1"
    return 1
}

systemd-sysusers /test/bellows.sysusers
systemd-tmpfiles --create /test/bellows.tmpfiles
test "$(stat -c '%U %a' /etc/bellows /run/bellows /run/bellows/networks /var/lib/bellows | tr '\n' ' ')" = \
    'root 755 bellows 755 bellows 700 bellows 750 '
# What another user puts into /dev/shm first is not in the way.
setpriv --reuid=nobody --clear-groups sh -c 'mkdir "/dev/shm/bellows-$(id -u bellows)" /dev/shm/bellows-0'
cp /test/edge.toml /etc/bellows/edge.toml

# Type=notify: it runs when this returns.
systemctl start bellows@edge
bellows ps bellows/edge --probe
test -e /run/bellows/networks/edge/counters
systemctl show bellows@edge --property=StatusText | grep 'running `/etc/bellows/edge.toml` as `edge`'
bellows ps bellows/edge --json | grep '"schedule": "native"'

# It has no capability, and cannot write elsewhere.
pid=$(systemctl show bellows@edge --property=MainPID --value)
grep -E '^CapPrm:\s*0+$' "/proc/$pid/status"
test "$(stat -c %U "/proc/$pid")" = bellows

# Root operates it by its full name, and by its own once the user of services is named.
if bellows reload edge 2> /tmp/refused; then exit 1; fi
grep 'write `bellows/edge`' /tmp/refused
bellows reload bellows/edge
install -m 0644 /test/bellows.service.conf /etc/bellows/service.conf
bellows reload edge 2> /tmp/told
grep -x 'network bellows/edge' /tmp/told
bellows ps edge --probe
if bellows reload; then exit 1; fi

# A reload, and one that is refused.
echo '# changed' >> /etc/bellows/edge.toml
systemctl reload bellows@edge
echo 'links = nonsense' > /etc/bellows/edge.toml
if systemctl reload bellows@edge; then exit 1; fi
systemctl is-active bellows@edge
cp /test/edge.toml /etc/bellows/edge.toml
bellows events bellows/edge | grep ' reload-refused: '

# The journal has the events with their fields, once, and with the unit.
wait_for "journalctl --quiet BELLOWS_EVENT=started BELLOWS_NETWORK=edge _SYSTEMD_UNIT=bellows@edge.service | grep ."
test "$(journalctl --quiet -o cat BELLOWS_EVENT=started | wc -l)" = 1
journalctl --quiet -o json BELLOWS_EVENT=started | grep '"PRIORITY":"6"'

# What the page says of services.
sh /test/page.sh
test "$(systemctl is-enabled bellows@edge)" = enabled

# A network that does not breathe is killed by the watchdog, and starts anew.
kill -STOP "$pid"
wait_for 'bellows ps bellows/edge --probe; test "$?" = 11'
wait_for "systemctl show bellows@edge --property=NRestarts --value | grep -x 1"
wait_for "systemctl is-active bellows@edge"
bellows events bellows/edge | grep ' crashed: '
wait_for "bellows ps bellows/edge --probe"

systemctl stop bellows@edge
test "$(systemctl show bellows@edge --property=Result --value)" = success
bellows events bellows/edge | tail -n 1 | grep ' stopped: '

# A network with a port for guests, and a capture below /tmp: what it may do beyond the unit is in its drop-in.
mkdir -m 0777 /tmp/captures
cp /test/guest.toml /etc/bellows/guest.toml
echo 'g kvm - -' | systemd-sysusers -
mkdir /etc/systemd/system/bellows@guest.service.d
bellows check --privileges=systemd /etc/bellows/guest.toml > /etc/systemd/system/bellows@guest.service.d/privileges.conf
printf '[Service]\nSupplementaryGroups=kvm\n' > /etc/systemd/system/bellows@guest.service.d/groups.conf
systemctl daemon-reload
systemctl start bellows@guest
test "$(stat -c '%F %a %U %G' /run/bellows/guest.sock)" = 'socket 660 bellows kvm'
wait_for "test -e /tmp/captures/guest.pcap"
grep -E '^CapPrm:\s*0+$' "/proc/$(systemctl show bellows@guest --property=MainPID --value)/status"
systemctl stop bellows@guest
test "$(systemctl show bellows@guest --property=Result --value)" = success
echo "all is well"
