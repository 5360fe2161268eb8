set -e
mkdir -p /etc
echo root:x:0:0::/:/bin/sh >/etc/passwd # memcached needs an entry for the user it runs as
echo 4194304 >/proc/sys/net/core/wmem_default
insmod /lab/tierscope.ko
insmod /lab/tierscope_flusher.ko
echo 0 >/proc/sys/kernel/numa_balancing 2>/dev/null || true

# A ram disk behind zswap: it takes memory for what zswap does not hold.
brd=$(grep brd /lab/modules)
rmmod brd
insmod "$brd" rd_nr=1 rd_size=$((swap_mb * 1024))
fails() {
    want=$1
    shift
    status=0
    "$@" 2>/tmp/error || status=$?
    cat /tmp/error
    [ "$status" = "$want" ]
}
# Before there is swap, and before zswap is on, nothing is tried.
fails 3 tierscope reclaim -p 1 --duration 1s
grep -q 'no swap is on' /tmp/error
mkswap /dev/ram0
swapon /dev/ram0
echo N >/sys/module/zswap/parameters/enabled
fails 3 tierscope reclaim -p 1 --duration 1s
grep -q 'zswap is off' /tmp/error
echo Y >/sys/module/zswap/parameters/enabled
grep -r . /sys/module/zswap/parameters

server=/sys/fs/cgroup/server
mkdir $server /sys/fs/cgroup/aging /sys/fs/cgroup/asking
fails 3 tierscope reclaim --cgroup $server --policy kernel --duration 1s
grep -q 'memory controller is not enabled' /tmp/error
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
fails 2 tierscope reclaim -p 1 --target 130% --duration 1s
fails 2 tierscope reclaim -p 1 --policy kernel --duration 1s

(
    echo 0 >$server/cgroup.procs
    # Its crawler and its maintainer would touch what is cold.
    exec memcached -u root -s /tmp/server -m $cache_mb -t 2 -o no_lru_crawler,no_lru_maintainer 2>/out/server.log
) &
pid=$!
until [ -S /tmp/server ]; do
    kill -0 $pid || { cat /out/server.log; exit 1; }
    sleep 0.1
done
data="--keys $keys --value-bytes $value_bytes --hot-keys $hot_keys --hot-begin $first"
to="--server /tmp/server --dialect memcached"
redis-load fill $data $to
echo "$pid $flush_us" >/dev/tierscope_flusher

stat_of() { awk -v name="$1" '$1 == name { print $2 }' $server/memory.stat; }
used() { awk '/^usage_usec/ { print $2 }' /sys/fs/cgroup/$1/cpu.stat; }
# Time, KiB of the server in memory, pages that came out of zswap and that went in.
samples() {
    while [ ! -e /tmp/enough ]; do
        read -r up _ </proc/uptime
        awk -v up="$up" '$1 == "RssAnon:" { rss = $2 } { of[$1] = $2 }
            END { print up, rss, of["zswpin"] + 0, of["zswpout"] + 0, of["pswpin"] + 0 }' \
            /proc/$pid/status $server/memory.stat
        sleep 0.5
    done
}
# Opens a generation of the server's cgroup, by which pages are looked at.
age() {
    awk '$1 == "memcg" { here = $3 == "/server"; id = $2 } here && $1 == "node" { node = $2 }
        here && $1 ~ /^[0-9]+$/ { last[node] = $1 }
        here { for (n in last) best[n] = id " " n " " last[n] }
        END { for (n in best) print "+ " best[n] " 1 0" }' /sys/kernel/debug/lru_gen >/tmp/ages
    while read -r line; do echo "$line" >/sys/kernel/debug/lru_gen || true; done </tmp/ages
}
# The kernel's own: generations every interval, and from the second on memory.reclaim up to the target.
kernels_own() {
    began=$(stat_of anon)
    wanted=$((began / 100 * ${target%\%}))
    (
        echo 0 >/sys/fs/cgroup/aging/cgroup.procs
        while [ ! -e /tmp/enough ]; do
            age
            sleep "$interval"
        done
    ) &
    aging=$!
    (
        echo 0 >/sys/fs/cgroup/asking/cgroup.procs
        sleep $((interval + interval / 2 + 1))
        while [ ! -e /tmp/enough ]; do
            left=$((wanted - (began - $(stat_of anon))))
            [ $left -gt 67108864 ] && left=67108864
            if [ $left -gt 4096 ]; then echo $left >$server/memory.reclaim || sleep 1; else sleep 1; fi
        done
    ) &
    asking=$!
}

for policy in $policies; do
    out=/out/$policy
    mkdir -p "$out"
    rm -f /tmp/enough
    case $policy in
    kernel) echo 7 >/sys/kernel/mm/lru_gen/enabled ;;
    *) echo 0 >/sys/kernel/mm/lru_gen/enabled ;; # its aging clears the bits that we read
    esac
    redis-load load $data $to --hot-operations 1 --every 1 --seconds "$((seconds + 5))" >"$out/load.json" &
    load=$!
    sleep 5
    cat $server/memory.stat >"$out/stat-before.txt"
    echo "$(used aging) $(used asking)" >"$out/used-before.txt"
    samples >"$out/samples.txt" &
    samples=$!
    if [ "$policy" = kernel ]; then
        kernels_own
        sleep "$seconds"
        kill $aging $asking
        wait $aging $asking || true
    else
        line=$policy
        case $policy in *:*) line="$policy,interval=${interval}s" ;; *) line="$policy:interval=${interval}s" ;; esac
        tierscope reclaim -p $pid --policy "$line" --target "$target" --rate "$rate" --until-psi 100% \
            --json >"$out/account.json" 2>"$out/stderr.txt" &
        reclaim=$!
        sleep "$seconds"
        # It is stopped while the server goes on, and leaves it unchanged.
        kill -TERM $reclaim
        wait $reclaim || { cat "$out/stderr.txt"; exit 1; }
        cat "$out/stderr.txt"
    fi
    touch /tmp/enough
    wait $samples
    wait $load
    cat $server/memory.stat >"$out/stat-after.txt"
    echo "$(used aging) $(used asking)" >"$out/used-after.txt"
    kill -0 $pid
    # Reads everything back, byte by byte, and brings it into memory for the next one.
    redis-load check $data $to >"$out/check.json"
    # Cold values are read back too, which frees their swap slots.
    swapoff /dev/ram0
    swapon /dev/ram0
    tail -n 1 "$out/samples.txt"
    cat "$out/check.json"
done
echo 7 >/sys/kernel/mm/lru_gen/enabled
kill $pid
wait $pid || true
rmmod tierscope_flusher
rmmod tierscope
