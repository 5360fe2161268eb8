set -eo pipefail
mkdir -p /etc /run
echo root:x:0:0::/:/bin/sh >/etc/passwd # memcached needs an entry for the user it runs as
echo 4194304 >/proc/sys/net/core/wmem_default
insmod /lab/tierscope.ko
echo 0 >/proc/sys/kernel/numa_balancing
brd=$(grep brd /lab/modules)
rmmod brd
insmod "$brd" rd_nr=1 rd_size=$((256 * 1024))
mkswap /dev/ram0
swapon /dev/ram0
# All that a policy orders is moved, again and again.
cat >/tmp/tier.toml <<'T'
[limits]
bytes-per-second = "1GiB"
keep-free = "16MiB"
ping-pong = "0s"
stalled = 1.0
kill-switch = "/run/hold"
T
place="tierscope tier --policy amp-random:interval=1s,batch=8192 --config /tmp/tier.toml --sampling 100ms --window 400ms --cpu 50%"
reclaim="tierscope reclaim --policy mglru --into swap --until-psi 100% --target 30% --cpu 20%"

# Half of the data fits into the fast tier.
mkdir -p /tmp/node0
mount -t tmpfs -o mpol=bind:0,size=100% taken /tmp/node0
free=$(sed -n 's/^Node 0 MemFree: *\([0-9]*\) kB/\1/p' /sys/devices/system/node/node0/meminfo)
dd if=/dev/zero of=/tmp/node0/taken bs=1M count=$((free / 1024 - 110)) 2>/dev/null

server=/sys/fs/cgroup/server
mkdir -p $server
(
    echo 0 >$server/cgroup.procs
    exec memcached -u root -s /tmp/server -m 400 -t 2 -o no_lru_crawler,no_lru_maintainer 2>/out/server.log
) &
server_pid=$!
until [ -S /tmp/server ]; do sleep 0.1; done
data="--keys $keys --value-bytes 65000 --hot-keys 1"
to="--server /tmp/server --dialect memcached"
redis-load fill $data $to
stat_of() { awk -v name="$1" '$1 == name { print $2 }' /proc/vmstat; }
moved_before=$(stat_of pgmigrate_success)
out_before=$(stat_of pswpout)

kills=0 reports=0 wrong=0 left=0
# judge DIR WHAT: what a kill left.
judge() {
    kills=$((kills + 1))
    kill -0 $server_pid || { echo "the server is gone"; exit 1; }
    [ -d "$1" ] || return 0
    code=0
    tierscope report summary "$1" --json >/tmp/summary 2>/tmp/said || code=$?
    case $code in
    0) ;;
    5 | 8 | 9) ;; # no window yet
    *) reports=$((reports + 1)); echo "$2: exit $code: $(cat /tmp/said)" ;;
    esac
    rm -rf "$1"
}
# A number of milliseconds below $1, as a part of a second.
part() { awk -v seed="$kills$(cut -d ' ' -f 1 /proc/uptime)" -v most="$1" 'BEGIN { srand(seed); printf "%.3f", rand() * most / 1000 }'; }
killed() {
    what=$1
    shift
    "$@" >/dev/null 2>&1 &
    victim=$!
    sleep "$(part 1500)"
    kill -9 $victim 2>/dev/null || true
    wait $victim 2>/dev/null || true
    judge /tmp/out "$what"
}
# at_calls WHAT COMMAND...: kills the command at each of its calls, as often as a thread makes it.
at_calls() {
    what=$1
    shift
    strace -f -qq --seccomp-bpf -o /tmp/calls -e trace=$calls "$@" >/dev/null 2>/tmp/said || true
    tierscope report summary /tmp/out >/dev/null || { cat /tmp/said; exit 1; }
    rm -rf /tmp/out
    awk '$2 ~ /^[a-z0-9_]+\(/ { sub(/\(.*/, "", $2); n[$1 " " $2]++ }
        END { for (of in n) { split(of, part, " "); if (n[of] > most[part[2]]) most[part[2]] = n[of] } for (call in most) print call, most[call] }' \
        /tmp/calls >/tmp/counts
    echo "$what: $(tr '\n' ' ' </tmp/counts)"
    while read -r call most; do
        n=0
        while [ "$n" -lt "$most" ]; do
            n=$((n + 1))
            strace -f -qq --seccomp-bpf -o /dev/null -e "trace=$call" -e "inject=$call:signal=KILL:when=$n" "$@" </dev/null >/dev/null 2>&1 || true
            judge /tmp/out "$what at $call $n"
        done
    done </tmp/counts
}
if [ "$at" = calls ]; then
    at_calls tier $place --cgroup $server -o /tmp/out --duration 1s
    at_calls reclaim $reclaim --cgroup $server -o /tmp/out --duration 1s
    serve="tierscope serve --cgroup $server --cpu 20% -o /tmp/out --listen unix:/tmp/socket"
    at_calls serve timeout -s INT 2 $serve
    # A socket that a kill leaves does not hinder the next start.
    timeout -s INT 2 $serve >/dev/null 2>/tmp/said || true
    tierscope report summary /tmp/out >/dev/null || { cat /tmp/said; left=$((left + 1)); }
    rm -rf /tmp/out
fi
n=0
while [ "$at" = random ] && [ "$n" -lt "$points" ]; do
    n=$((n + 1))
    killed record tierscope record --cgroup $server --cpu 20% -o /tmp/out
    killed series tierscope record --cgroup $server --cpu 20% --retention 1h -o /tmp/out
    killed tier $place --cgroup $server -o /tmp/out
    killed reclaim $reclaim --cgroup $server -o /tmp/out
    killed serve tierscope serve --cgroup $server --cpu 20% -o /tmp/out --listen 127.0.0.1:9464
done
# Under load: pages move and go to swap while values are read; every byte is compared, again and
# again until enough pages were moved, as long as it may take.
[ "$at" = random ] || { moves=1; round=1; }
begun=$(cut -d. -f1 /proc/uptime)
while :; do
    redis-load load $data $to --seconds "$round" >/out/load.json &
    load=$!
    while kill -0 $load 2>/dev/null; do
        timeout 40 $place --cgroup $server >>/out/moves.txt 2>&1 || true
        timeout 5 $reclaim --cgroup $server >>/out/moves.txt 2>&1 || true
    done
    wait $load
    redis-load check $data $to | tee /out/check.json || wrong=$((wrong + 1))
    took=$(($(cut -d. -f1 /proc/uptime) - begun))
    echo "$(($(stat_of pgmigrate_success) - moved_before)) pages moved in $took s"
    [ $(($(stat_of pgmigrate_success) - moved_before)) -lt "$moves" ] && [ "$took" -lt "$seconds" ] || break
done
# The module is in use, and stays; then it goes, and comes again.
tierscope record --cgroup $server --cpu 20% -o /tmp/used >/dev/null 2>&1 &
recorder=$!
sleep 1
! rmmod tierscope 2>/dev/null || { echo "the module was unloaded while in use"; left=$((left + 1)); }
kill -INT $recorder
wait $recorder
rmmod tierscope
insmod /lab/tierscope.ko
# The clock jumps by a year while a series is recorded, and back.
tierscope record --cgroup $server --cpu 20% --retention 24h -o /tmp/jumps >/dev/null 2>&1 &
recorder=$!
sleep 2
now=$(date +%s)
date -s "@$((now + 31536000))" >/dev/null
sleep 2
date -s "@$now" >/dev/null
sleep 2
kill -INT $recorder
wait $recorder
tierscope report summary /tmp/jumps --json >/tmp/summary || reports=$((reports + 1))
# A cgroup is removed under a recorder: the end of its target, and no other.
gone=/sys/fs/cgroup/gone
mkdir $gone
(
    echo 0 >$gone/cgroup.procs
    exec sleep 1000
) &
sleeper=$!
sleep 0.5
tierscope record --cgroup $gone --duration 60s -o /tmp/gone >/dev/null 2>&1 &
recorder=$!
sleep 2
kill $sleeper
until rmdir $gone 2>/dev/null; do sleep 0.1; done
code=0
wait $recorder || code=$?
[ "$code" = 7 ] || { echo "cgroup removed: exit $code"; reports=$((reports + 1)); }
# What stays behind.
for each in /tmp/tierscope* /run/tierscope/kernel-damon/* /run/tierscope/qos/*; do
    [ ! -e "$each" ] || { echo "left: $each"; left=$((left + 1)); }
done
moved=$(($(stat_of pgmigrate_success) - moved_before))
out=$(($(stat_of pswpout) - out_before))
printf '{"kills":%d,"reports_failed":%d,"values_wrong":%d,"left":%d,"moved":%d,"swapped":%d}\n' \
    $kills $reports $wrong $left "$moved" "$out" | tee /out/chaos.json
