set -e
mkdir -p /etc /tmp/node0
echo root:x:0:0::/:/bin/sh >/etc/passwd # memcached needs an entry for the user it runs as
echo 4194304 >/proc/sys/net/core/wmem_default
insmod /lab/tierscope.ko
insmod /lab/tierscope_device.ko
# Other users of ACCESSED bits and other movers of pages are switched off until the scenario starts them.
echo 0 >/proc/sys/kernel/numa_balancing
echo 0 >/sys/kernel/mm/lru_gen/enabled
for enabled in /sys/module/damon_*/parameters/enabled; do
    [ ! -e "$enabled" ] || echo N >"$enabled"
done
grep . /sys/devices/virtual/memory_tiering/memory_tier*/nodelist
machine-probe calibrate --factor "$factor" --rounds 1 | tee /out/calibration.json
printf '[limits]\n%s\n' "$limits" >/tmp/tier.toml

free_kib() {
    sed -n "s/^Node $1 MemFree: *\([0-9]*\) kB/\1/p" /sys/devices/system/node/node$1/meminfo
}
# Takes node 0 but for 24 MiB, so that what is allocated next lies on node 1.
take_node_0() {
    mount -t tmpfs -o mpol=bind:0,size=100% taken /tmp/node0
    dd if=/dev/zero of=/tmp/node0/taken bs=1M count=$(($(free_kib 0) / 1024 - 24)) 2>/dev/null || true
}
start() {
    rm -f /tmp/server
    case $server in
    redis)
        redis-server --port 0 --unixsocket /tmp/server --save "" --appendonly no --activedefrag no \
            --io-threads 1 --daemonize no --logfile "$1/server.log" &
        read=bitcount dialect=redis
        ;;
    memcached)
        memcached -u root -s /tmp/server -m 512 -t 2 2>"$1/server.log" &
        read=get dialect=memcached
        ;;
    esac
    pid=$!
    until [ -S /tmp/server ]; do
        kill -0 $pid || { cat "$1/server.log"; exit 1; }
        sleep 0.1
    done
}
# The kernel's DAMON on physical memory, a kdamond for each node: what it finds cold on node 0 goes to node 1, what it
# finds accessed on node 1 comes back; as SK hynix's HMSDK has them set up, within the bytes a second of all others.
damon=/sys/kernel/mm/damon/admin/kdamonds
regions_of() {
    block=$((0x$(cat /sys/devices/system/memory/block_size_bytes)))
    for memory in /sys/devices/system/node/node$1/memory[0-9]*; do
        at=$((0x$(cat "$memory/phys_index") * block))
        echo $at $((at + block))
    done | sort -n | awk 'NR > 1 && $1 == end { end = $2; next } NR > 1 { print start, end } { start = $1; end = $2 } END { print start, end }'
}
watch_node() {
    context=$damon/$1/contexts/0
    echo 1 >$damon/$1/contexts/nr_contexts
    echo paddr >$context/operations
    echo 100000 >$context/monitoring_attrs/intervals/sample_us
    echo 2000000 >$context/monitoring_attrs/intervals/aggr_us
    echo 1 >$context/targets/nr_targets
    regions_of "$1" >/tmp/regions
    echo "$(wc -l </tmp/regions)" >$context/targets/0/regions/nr_regions
    number=0
    while read -r start end; do
        echo "$start" >$context/targets/0/regions/$number/start
        echo "$end" >$context/targets/0/regions/$number/end
        number=$((number + 1))
    done </tmp/regions
    echo 1 >$context/schemes/nr_schemes
    scheme=$context/schemes/0
    echo "$2" >$scheme/action
    echo $((1 - $1)) >$scheme/target_nid
    echo 18446744073709551615 >$scheme/access_pattern/sz/max
    echo "$3" >$scheme/access_pattern/nr_accesses/min
    echo "$4" >$scheme/access_pattern/nr_accesses/max
    echo "$5" >$scheme/access_pattern/age/min
    echo 4294967295 >$scheme/access_pattern/age/max
    echo 67108864 >$scheme/quotas/bytes
    echo 1000 >$scheme/quotas/reset_interval_ms
}
# Cold: not accessed for 15 windows of 2 s. Hot: accessed in a twentieth of the samples, as often as one of them.
start_damon() {
    echo 2 >$damon/nr_kdamonds
    watch_node 0 migrate_cold 0 0 15
    watch_node 1 migrate_hot 1 20 0
    for node in 0 1; do echo on >$damon/$node/state; done
}
# As the kernel's samples/damon/mtier.c has it, with intervals that tune themselves: node 0 is kept full but for half a
# percent, and pages that were not accessed since the last look go first; pages that were come back. Quotas are tuned by
# `temporal`: the default tuner begins at one byte and grows it at most twofold a second, so that nothing moves in 30 s.
start_damon_goals() {
    echo 2 >$damon/nr_kdamonds
    watch_node 0 migrate_cold 0 0 0
    goal_of 0 node_mem_free_bp 50 N
    watch_node 1 migrate_hot 1 4294967295 0
    goal_of 1 node_mem_used_bp 9970 Y
    for node in 0 1; do echo on >$damon/$node/state; done
}
# goal_of KDAMOND METRIC TENTHS_OF_PERMILLE YOUNG: of node 0; whether young pages are moved, or the others.
goal_of() {
    context=$damon/$1/contexts/0
    goal=$context/monitoring_attrs/intervals/intervals_goal
    echo 400 >$goal/access_bp
    echo 3 >$goal/aggrs
    echo 100000 >$goal/min_sample_us
    echo 10000000 >$goal/max_sample_us
    quotas=$context/schemes/0/quotas
    echo temporal >$quotas/goal_tuner
    echo 1 >$quotas/goals/nr_goals
    echo "$2" >$quotas/goals/0/target_metric
    echo "$3" >$quotas/goals/0/target_value
    echo 0 >$quotas/goals/0/nid
    filters=$context/schemes/0/ops_filters
    echo 1 >$filters/nr_filters
    echo young >$filters/0/type
    echo Y >$filters/0/matching
    echo "$4" >$filters/0/allow
}
# Clock ticks that both kdamonds have run.
damon_ticks() {
    for node in 0 1; do
        sed 's/.*) //' "/proc/$(cat $damon/$node/pid)/stat"
    done | awk '{ sum += $12 + $13 } END { print sum + 0 }'
}
stop_damon() {
    echo "ticks $(damon_ticks)" >"$1/damon.txt"
    for node in 0 1; do
        echo update_schemes_stats >$damon/$node/state
        echo off >$damon/$node/state
    done
    echo "promoted $(cat $damon/1/contexts/0/schemes/0/stats/sz_applied)" >>"$1/damon.txt"
    echo "demoted $(cat $damon/0/contexts/0/schemes/0/stats/sz_applied)" >>"$1/damon.txt"
    echo 0 >$damon/nr_kdamonds
}
# Reads from the hot set that begins at $1, for the time of a phase; writes the figures to $2.
phase() {
    redis-load watch $data --hot-begin "$1" --places /tmp/places --pid $pid --seconds "$seconds" >"$2-nodes.txt" &
    watch=$!
    redis-load load $data --hot-begin "$1" --filled-hot-begin "$first" --server /tmp/server --dialect $dialect --command $read \
        ${mix:---hot-operations $hot_operations} --every 1 --seconds "$seconds" >"$2.json"
    wait $watch || true
}

data="--keys $keys --value-bytes $value_bytes --hot-keys $hot_keys"
for policy in $policies; do
    out=/out/$policy
    # A policy may have several turns.
    turn=1
    while [ -e "$out" ]; do turn=$((turn + 1)); out=/out/$policy.$turn; done
    mkdir -p "$out"
    take_node_0
    start "$out"
    redis-load fill $data --hot-begin "$first" --server /tmp/server --dialect $dialect
    umount /tmp/node0
    redis-load places $data --dialect $dialect --pid $pid -o /tmp/places
    parts=flush
    [ "$flusher" = on ] || parts=
    case $policy in hemem* | memtis*) parts="$parts tlb" ;; esac
    machine-probe switch $parts >/dev/null
    rm -f /tmp/enough
    machine-probe watch $pid --until /tmp/enough >"$out/watched.txt" &
    watched=$!
    tier=
    if [ "$policy" = kernel ]; then
        echo 1 >/sys/kernel/mm/numa/demotion_enabled
        echo 2 >/proc/sys/kernel/numa_balancing
        grep -E 'pgpromote_success|pgdemote_(kswapd|direct)' /proc/vmstat >"$out/vmstat-before.txt"
    elif [ "$policy" = kernel-damon ]; then
        start_damon
    elif [ "$policy" = kernel-damon-goals ]; then
        start_damon_goals
    else
        kept=
        [ "$record" = false ] || kept="-o /tmp/recording"
        # Refused arguments are reported before the wait.
        tierscope tier --check --policy "$policy" --config /tmp/tier.toml $flags
        tierscope tier -p $pid --policy "$policy" --config /tmp/tier.toml --json $flags $kept \
            >"$out/account.json" 2>"$out/stderr.txt" &
        tier=$!
    fi
    phase "$first" "$out/first"
    phase "$second" "$out/second"
    touch /tmp/enough
    wait $watched
    if [ "$policy" = kernel ]; then
        echo 0 >/proc/sys/kernel/numa_balancing
        echo 0 >/sys/kernel/mm/numa/demotion_enabled
        grep -E 'pgpromote_success|pgdemote_(kswapd|direct)' /proc/vmstat >"$out/vmstat-after.txt"
    elif [ "${policy#kernel-damon}" != "$policy" ]; then
        stop_damon "$out"
    else
        # It is stopped while the server goes on, and leaves it unchanged.
        kill -TERM $tier
        wait $tier || { cat "$out/stderr.txt"; exit 1; }
        cat "$out/stderr.txt"
        [ "$record" = false ] || { cp -r /tmp/recording "$out/recording" && rm -r /tmp/recording; }
    fi
    kill -0 $pid
    machine-probe switch >/dev/null
    redis-load check $data --hot-begin "$first" --server /tmp/server --dialect $dialect >"$out/check.json"
    grep -H . "$out/first.json" "$out/second.json" | sed 's/,"intervals".*//'
    kill $pid
    wait $pid || true
done
rmmod tierscope_device
rmmod tierscope
