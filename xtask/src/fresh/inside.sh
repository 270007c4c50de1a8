# Runs a command in a clean root, as the first process of its own namespaces (processes, mounts).
#
#     inside.sh ROOT TOOLCHAIN USER FOLDER COMMAND
#
# The kernel removes all its mounts with the namespaces, and all processes with this one. Standard input is a pipe that
# nobody writes to: when it closes, the parent has gone.
set -eu
root=$1 toolchain=$2 user=$3 folder=$4 command=$5

exec 3<&0 </dev/null
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/net dev/pts dev/shm dev/hugepages dev/mqueue
for node in null zero full random urandom tty net/tun kvm; do
    if [ -e "/dev/$node" ]; then
        touch "dev/$node"
        mount --bind "/dev/$node" "dev/$node"
    fi
done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t mqueue mqueue dev/mqueue || true
mount -t hugetlbfs hugetlbfs dev/hugepages || true
if [ "$toolchain" != none ]; then
    mkdir -p usr/local/rust
    mount --bind "$toolchain" usr/local/rust
    mount -o remount,bind,ro usr/local/rust
fi

mkdir -p .host
pivot_root . .host
cd /
umount -l /.host
rmdir /.host

export PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
if [ "$user" = root ]; then
    export HOME=/root USER=root LOGNAME=root
    sh -c 'cd "$1" && eval "$2"' sh "$folder" "$command" 3<&- &
else
    export HOME="/home/$user" USER="$user" LOGNAME="$user"
    setpriv --reuid="$user" --regid="$user" --init-groups \
        sh -c 'cd "$1" && eval "$2"' sh "$folder" "$command" 3<&- &
fi
job=$!
trap 'exit 130' INT TERM HUP
(cat <&3 >/dev/null; kill -TERM 1) &
wait "$job"
