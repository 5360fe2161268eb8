set -eo pipefail
debian_root
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

# An upgrade that fails leaves the module and what was installed: dpkg asks the old postinst.
mkdir /tmp/bad /tmp/bad/DEBIAN
printf 'Package: tierscope\nVersion: %s-2\nArchitecture: amd64\nMaintainer: lab <lab@localhost>\nDescription: fails\n' "$new" >/tmp/bad/DEBIAN/control
printf '#!/bin/sh\nexit 1\n' >/tmp/bad/DEBIAN/preinst
chmod 755 /tmp/bad/DEBIAN/preinst
mv /tmp/bad $root/run/bad
in_host dpkg-deb -b /run/bad /run/bad.deb
! in_host dpkg -i /run/bad.deb || exit 1
status "$old"
test -c /dev/tierscope
in_host tierscope record -p "$target" --duration 1s -o /run/after-failure
# A kernel that the module does not build for is installed: DKMS leaves it out, and nothing fails.
for other in 5.10.0-1-amd64 99.0.1-amd64; do
    mkdir -p $root/lib/modules/$other/build/include
    in_host dkms autoinstall --kernelver $other
    ! in_host dkms status -k $other | grep -v ': added$' || exit 1
    rm -r $root/lib/modules/$other
done
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
