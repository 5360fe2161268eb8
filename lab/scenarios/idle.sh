set -e
insmod /lab/tierscope.ko
echo 0 >/proc/sys/kernel/numa_balancing 2>/dev/null || true
echo 0 >/sys/kernel/mm/lru_gen/enabled
stat=/sys/module/damon_stat/parameters
[ -e $stat/enabled ] || { echo "this kernel has no DAMON_STAT: use Linux 6.17 or later"; exit 1; }
echo N >$stat/enabled

# In each phase one area less is accessed; the last one for as long as the machine lives.
{
    echo 'name = "idle"'
    for area in 1 2 3 4; do
        printf '[[area]]\nname = "area-%s"\nbytes = "%sMiB"\n' $area "$area_mib"
    done
    left=4
    for time in $times; do
        [ $left -gt 1 ] || time=3600
        printf '[[phase]]\nname = "%s"\ntime = "%ss"\n' "$left" "$time"
        for area in $(seq $left); do
            printf '[[phase.access]]\narea = "area-%s"\npattern = "random"\nhot = true\n' "$area"
        done
        left=$((left - 1))
    done
} >/tmp/idle.toml
whole=0
for time in $times; do whole=$((whole + time)); done
now() { cut -d' ' -f1 /proc/uptime; }

start() {
    rm -f /tmp/ready
    toucher /tmp/idle.toml --passes 0 --truth "/out/truth-$1" --ready /tmp/ready >/dev/null &
    toucher=$!
    until [ -s /tmp/ready ]; do kill -0 $toucher; sleep 0.1; done
}
end() {
    kill $toucher
    wait $toucher || true
}

# DAMON_STAT sees physical memory, so that it begins before.
echo Y >$stat/enabled
start damon-stat
sleep "$whole"
now >/out/damon-stat-at.txt
cat $stat/memory_idle_ms_percentiles >/out/damon-stat.txt
sed 's/.*) //' "/proc/$(cat $stat/kdamond_pid)/stat" | awk '{ print $12 + $13 }' >/out/damon-stat-ticks.txt
cat $stat/aggr_interval_us >/out/damon-stat-interval.txt
echo N >$stat/enabled
end

start ours
tierscope record -p $toucher --instrument "$instrument" --cpu "$cpu" --duration "${whole}s" -o /out/recording
end
grep MemTotal /proc/meminfo >/out/memory.txt
rmmod tierscope
