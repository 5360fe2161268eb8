set -eo pipefail
. /out/versions
kernel=$(uname -r)

# The host's Debian, on which everything may be written to: upper layers in memory.
mkdir -p /layer /root-of-host
mount -t tmpfs layer /layer
mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /root-of-host
root=/root-of-host
# As udev would have made it.
ln -s /proc/self/fd /dev/fd
for dir in proc sys dev; do mount --bind /$dir $root/$dir; done
mount -t tmpfs run $root/run
# Not over /tmp: the source tree may lie there.
mkdir $root/run/out
mount --bind /out $root/run/out
# The only kernel is the one that runs, its headers where the lab unpacked them.
# A host in a container has none.
mkdir -p $root/usr/lib/modules
mount -t tmpfs modules $root/usr/lib/modules
mkdir $root/lib/modules/"$kernel"
ln -s "$build" $root/lib/modules/"$kernel"/build
cp /host"$modules"/modules.builtin /host"$modules"/modules.order $root/lib/modules/"$kernel"/
# dpkg's list holds only the installed packages that ours depends on: a
# development machine has thousands, and reading their lists takes minutes here.
mount -t tmpfs dpkg $root/var/lib/dpkg
mkdir $root/var/lib/dpkg/info $root/var/lib/dpkg/updates $root/var/lib/dpkg/triggers
for name in libc6 libgcc-s1 dkms; do
    sed -n "/^Package: $name\$/,/^\$/p" /host/var/lib/dpkg/status >>$root/var/lib/dpkg/status
    cp /host/var/lib/dpkg/info/$name.list $root/var/lib/dpkg/info/ 2>/dev/null ||
        cp /host/var/lib/dpkg/info/$name:amd64.list $root/var/lib/dpkg/info/
done
cp /host/var/lib/dpkg/info/format $root/var/lib/dpkg/info/
mkdir -p $root/var/lib/dkms
[ "$compile" = yes ] || cp -r /out/dkms/tierscope $root/var/lib/dkms/

in_host() { chroot $root /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
package() { echo "/run/out/tierscope_$1-1_amd64.deb"; }
# status VERSION: the module of that version is installed, and of no other.
status() {
    said=$(in_host dkms status)
    echo "$said"
    [ "$said" = "tierscope/$1, $kernel, x86_64: installed" ]
}

echo "ready to install after $(cut -d ' ' -f 1 /proc/uptime) s"
in_host dpkg -i "$(package "$old")"
echo "installed after $(cut -d ' ' -f 1 /proc/uptime) s"
status "$old"
in_host modprobe tierscope
test -c /dev/tierscope
zcat $root/usr/share/man/man1/tierscope-record.1.gz >/tmp/page
grep -q 'EXIT STATUS' /tmp/page
sleep 1000 &
target=$!
in_host tierscope record -p "$target" --duration 2s -o /run/first
says_target() {
    in_host tierscope report summary "$1" >/tmp/summary
    grep -q '^target' /tmp/summary
}
says_target /run/first

# An administrator's own settings, and the service's own command line.
conf=$root/etc/tierscope/default.conf
sed -i "s|^TARGET=.*|TARGET=\"-p $target\"|; s|^LISTEN=.*|LISTEN=\"127.0.0.1:9470\"|" $conf
mkdir -p $root/var/lib/tierscope/default
unit=$root/usr/lib/systemd/system/tierscope@.service
line=$(sed -n 's/^ExecStart=//p' "$unit")
(
    STATE_DIRECTORY=/var/lib/tierscope/default
    . $conf
    eval "set -- $line"
    exec chroot $root "$@"
) &
service=$!
until wget -q -O /tmp/metrics http://127.0.0.1:9470/metrics && grep -q '^tierscope_windows_total [1-9]' /tmp/metrics; do
    kill -0 $service
    sleep 0.2
done
tail -n 1 /tmp/metrics | grep -q '^# EOF$'
grep -q '^tierscope_memory_bytes{.*heat="hot"}' /tmp/metrics
wget -q -O /tmp/page http://127.0.0.1:9470/
grep -qi '<html' /tmp/page
wget -q -O /tmp/data http://127.0.0.1:9470/data
[ "$(head -c 1 /tmp/data)" = "{" ]
kill -TERM $service
wait $service

echo "served after $(cut -d ' ' -f 1 /proc/uptime) s"
# An upgrade brings its own module and leaves settings and recordings alone.
cp $conf /tmp/conf
in_host dpkg -i "$(package "$new")"
status "$new"
[ ! -e $root/usr/src/tierscope-"$old" ]
cmp $conf /tmp/conf
test -c /dev/tierscope
in_host tierscope record -p "$target" --duration 2s -o /run/second
says_target /var/lib/tierscope/default
kill "$target"

echo "upgraded after $(cut -d ' ' -f 1 /proc/uptime) s"
in_host dpkg -r tierscope
[ -z "$(in_host dkms status)" ]
[ ! -e /sys/module/tierscope ]
[ ! -e $root/usr/bin/tierscope ]
cmp $conf /tmp/conf
[ -d $root/var/lib/tierscope/default ]

in_host dpkg -P tierscope
left=$(find /layer/upper $root/usr/lib/modules $root/var/lib/dkms -name '*tierscope*')
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
! in_host dpkg -s tierscope || exit 1
