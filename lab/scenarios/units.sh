set -eo pipefail
debian_root
echo "root after $(cut -d ' ' -f 1 /proc/uptime) s"
in_host dpkg -i "$(package "$old")" >/tmp/installed 2>&1 || { cat /tmp/installed; exit 1; }
in_host modprobe tierscope
echo "installed after $(cut -d ' ' -f 1 /proc/uptime) s"

# Only what the services take part in; the rest of a boot is slow here.
system=$root/etc/systemd/system
for unit in systemd-udevd.service systemd-udev-trigger.service systemd-udevd-kernel.socket systemd-udevd-control.socket \
    systemd-tmpfiles-setup.service systemd-tmpfiles-setup-dev.service systemd-sysusers.service systemd-random-seed.service \
    systemd-update-utmp.service systemd-remount-fs.service systemd-modules-load.service systemd-sysctl.service \
    systemd-binfmt.service systemd-pstore.service systemd-firstboot.service systemd-machine-id-commit.service \
    systemd-journal-flush.service systemd-resolved.service systemd-timesyncd.service systemd-networkd.service \
    dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
    sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
    e2scrub_all.timer fstrim.timer getty.target; do
    ln -sf /dev/null "$system/$unit"
done
cat >"$system/lab.target" <<'U'
[Unit]
Requires=basic.target
After=basic.target
AllowIsolate=yes
U
# A process of an ordinary user, to be watched, and a tenant.
for name in watched tenant; do
    cat >"$system/$name.service" <<'U'
[Service]
Type=exec
User=daemon
CPUQuota=150%
ExecStart=/bin/sleep 10000
U
done
echo 0123456789abcdef0123456789abcdef >$root/etc/machine-id
# The processor has no resctrl: a directory stands for it, with counters that a loop moves.
mount -t tmpfs fs $root/sys/fs
mkdir $root/sys/fs/cgroup $root/sys/fs/resctrl
mount -t cgroup2 none $root/sys/fs/cgroup
for controller in cpu memory; do echo +$controller >$root/sys/fs/cgroup/cgroup.subtree_control; done
in_host env container=lab unshare --fork --pid --mount --mount-proc /lib/systemd/systemd --system --unit=lab.target --show-status=no >/out/systemd.txt 2>&1 &
until init=$(pidof systemd); do sleep 0.2; done
# in_init COMMAND: with systemd's root, processes and mounts.
in_init() { nsenter -t "$init" -m -p -r env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
systemctl() { in_init systemctl "$@"; }
until [ "$(systemctl is-active lab.target 2>/dev/null)" = active ]; do sleep 0.5; done
echo "systemd after $(cut -d ' ' -f 1 /proc/uptime) s"
journal() { in_init journalctl --no-pager -o cat -u "$1" | tail -n 20; }
# active UNIT: it is, or why not.
active() {
    [ "$(systemctl is-active "$1")" = active ] || { journal "$1"; systemctl status --no-pager "$1"; exit 1; }
}
systemctl start watched.service tenant.service
active watched.service
active tenant.service

# Over TCP, to this host only.
conf=$root/etc/tierscope/default.conf
slice=/sys/fs/cgroup/system.slice
sed -i "s|^TARGET=.*|TARGET=\"--cgroup $slice/watched.service\"|; s|^TENANTS=.*|TENANTS=\"--tenant system.slice/tenant.service=1MiB\"|" $conf
systemctl start tierscope@default
until wget -q -O /tmp/metrics http://127.0.0.1:9464/metrics && grep -q '^tierscope_windows_total [1-9]' /tmp/metrics; do
    active tierscope@default
    sleep 0.5
done
until wget -q -O /tmp/metrics http://127.0.0.1:9464/metrics && grep '^tierscope_node_bytes' /tmp/metrics; do
    active tierscope@default
    sleep 0.5
done
[ "$(stat -c %a $root/var/lib/tierscope/default)" = 700 ]

# A socket in the file system only.
sed 's|^LISTEN=.*|LISTEN="unix:/run/tierscope/socket.sock"|' $conf >$root/etc/tierscope/socket.conf
mkdir -p "$system/tierscope@socket.service.d"
ln -s /usr/share/tierscope/socket-only.conf "$system/tierscope@socket.service.d/"
cp $root/etc/tierscope/socket.conf $root/etc/tierscope/watched.conf
systemctl stop tierscope@default
systemctl daemon-reload
systemctl start tierscope@socket
cat >$root/run/ask <<'P'
import socket
s = socket.socket(socket.AF_UNIX)
s.connect("/run/tierscope/socket.sock")
s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
text = b""
while part := s.recv(65536):
    text += part
print(text.decode())
P
# Until the first window there is an answer, and no metrics.
until in_host python3 /run/ask >/tmp/metrics && grep -q '^tierscope_windows_total [1-9]' /tmp/metrics; do
    active tierscope@socket
    sleep 0.5
done
systemctl stop tierscope@socket
echo "sockets after $(cut -d ' ' -f 1 /proc/uptime) s"

# Tiering: its page maps are those of another user's process.
systemctl start tierscope-tier@default
sleep 3
active tierscope-tier@default
systemctl stop tierscope-tier@default
journal tierscope-tier@default | tee /out/tier.txt
! grep -q 'not permitted' /out/tier.txt || exit 1
echo "tier after $(cut -d ' ' -f 1 /proc/uptime) s"

# qos finds nothing that counts traffic, and ends; what another one left is restored all the same.
mkdir -p $root/run/tierscope/qos
chmod 700 $root/run/tierscope/qos
tenant=$root$slice/tenant.service
[ "$(cat $tenant/cpu.max)" = '150000 100000' ]
printf '%s\t150000 100000\t50000 100000\t50000 100000\t%s\nend\n' "$(stat -c %i $tenant)" $slice/tenant.service >$root/run/tierscope/qos/4194303-1
echo '50000 100000' >$tenant/cpu.max
systemctl start tierscope-qos@default || true
until [ "$(cat $tenant/cpu.max)" = '150000 100000' ]; do sleep 0.5; done
systemctl stop tierscope-qos@default

# With counters it limits the tenant, with the rights of its unit. After a kill -9 systemd restores the limit, and starts it again.
resctrl=$root/sys/fs/resctrl
mkdir -p $resctrl/info/L3_MON $resctrl/mon_groups
echo mbm_total_bytes >$resctrl/info/L3_MON/mon_features
cat >$root/run/counted.sh <<'Q'
group=/sys/fs/resctrl/mon_groups/tierscope-$$-$(cut -d ' ' -f 22 /proc/$$/stat)-0/mon_data/mon_L3_00
rm -rf /sys/fs/resctrl/mon_groups/tierscope-*
mkdir -p $group
echo 0 >$group/mbm_total_bytes
exec /usr/bin/tierscope qos "$@"
Q
mkdir "$system/tierscope-qos@counted.service.d"
cat >"$system/tierscope-qos@counted.service.d/start.conf" <<'U'
[Service]
ExecStart=
ExecStart=/bin/sh /run/counted.sh --by mbm --epoch 100ms $TENANTS
RestartSec=2
U
cp $conf $root/etc/tierscope/counted.conf
systemctl daemon-reload
systemctl start tierscope-qos@counted
limited() { [ "$(cat $tenant/cpu.max)" != '150000 100000' ]; }
# await_limit: counts traffic until the tenant is limited.
await_limit() {
    until limited; do
        for file in $resctrl/mon_groups/tierscope-*/mon_data/mon_L3_00/mbm_total_bytes; do
            [ -e "$file" ] || continue
            bytes=$((${bytes:-0} + 1000000000))
            echo $bytes >"$file.new"
            mv "$file.new" "$file"
        done
        sleep 0.1
    done
    active tierscope-qos@counted
}
await_limit
killed=$(systemctl show -P MainPID tierscope-qos@counted)
systemctl kill --kill-whom=main -s KILL tierscope-qos@counted
while limited; do sleep 0.1; done
[ -z "$(ls $root/run/tierscope/qos)" ]
await_limit
[ "$(systemctl show -P MainPID tierscope-qos@counted)" != "$killed" ]
systemctl stop tierscope-qos@counted
! limited
echo "qos after $(cut -d ' ' -f 1 /proc/uptime) s"

# What each right that remains is for: without it, its feature fails.
run() {
    in_init systemd-run --quiet --pipe --wait --collect -p 'CapabilityBoundingSet=CAP_SYS_PTRACE CAP_SYS_ADMIN' -p DevicePolicy=closed \
        -p DeviceAllow=/dev/tierscope "$@" 2>&1
}
pid=$(systemctl show -P MainPID watched.service)
record="/usr/bin/tierscope record -p $pid --duration 400ms -o"
run $record /run/with-all
for less in CapabilityBoundingSet=~CAP_SYS_PTRACE CapabilityBoundingSet=~CAP_SYS_ADMIN PrivateDevices=yes PrivateUsers=yes User=daemon; do
    ! run -p $less $record /run/without-$less >/tmp/said || { echo "$less: it works all the same"; cat /tmp/said; exit 1; }
    echo "$less: $(tail -n 1 /tmp/said)"
done
echo "rights after $(cut -d ' ' -f 1 /proc/uptime) s"

# An upgrade that fails leaves the services running.
systemctl start tierscope@default
active tierscope@default
mkdir -p /tmp/bad/DEBIAN
printf 'Package: tierscope\nVersion: %s-2\nArchitecture: amd64\nMaintainer: lab <lab@localhost>\nDescription: fails\n' "$new" >/tmp/bad/DEBIAN/control
printf '#!/bin/sh\nexit 1\n' >/tmp/bad/DEBIAN/preinst
chmod 755 /tmp/bad/DEBIAN/preinst
cp -r /tmp/bad $root/run/bad
in_host dpkg-deb -b /run/bad /run/bad.deb >/dev/null
! in_init dpkg -i /run/bad.deb || exit 1
active tierscope@default
echo "failed upgrade after $(cut -d ' ' -f 1 /proc/uptime) s"
