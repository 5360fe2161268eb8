set -e
insmod /lab/tierscope_filler.ko
insmod /lab/tierscope_flusher.ko
admin=/sys/kernel/mm/damon/admin/kdamonds
trace=/sys/kernel/tracing/instances
# A second user of ACCESSED bits would disturb (METRICS.md).
echo 0 >/proc/sys/kernel/numa_balancing 2>/dev/null || true
echo 0 >/sys/kernel/mm/lru_gen/enabled

filler hold "$gib" "$hot_mib" >/tmp/held 2>/dev/null &
holder=$!
while [ ! -s /tmp/held ]; do sleep 1; done
read -r pid start end _ </tmp/held
echo "$pid $flush_us" >/dev/tierscope_flusher

clean() {
    if [ "$(cat $admin/nr_kdamonds)" != 0 ] || [ -n "$(ls $trace)" ]; then
        echo "left behind after $1: $(cat $admin/nr_kdamonds) kdamonds, instances $(ls $trace)"
        exit 1
    fi
}
set -- "$pid" "$start" "$end" --min-regions "$min_regions" --max-regions "$max_regions"

kernel-damon "$@" --seconds "$seconds" --bar "$bar" >/out/kernel-damon.json
cat /out/kernel-damon.json
clean "a run"

# A second one while the first runs.
kernel-damon "$@" --seconds 600 >/dev/null &
watcher=$!
while [ "$(cat $admin/0/state 2>/dev/null)" != on ]; do sleep 1; done
# No context switch of the machine is hooked for it.
grep -q norecord-cmd $trace/*/trace_options
if kernel-damon "$@" --seconds 1 2>/tmp/refused; then
    echo "two at a time"
    exit 1
fi
grep "another program's kdamond 0 runs" /tmp/refused
kill $watcher
wait $watcher || true
clean "SIGTERM"

# Ctrl-C: not in the background, where a shell makes its children deaf to it.
timeout -s INT 6 kernel-damon "$@" --seconds 600 >/out/interrupted.json || true
test -s /out/interrupted.json
clean "SIGINT"

# The target ends.
kernel-damon "$@" --seconds 600 >/dev/null &
watcher=$!
while [ "$(cat $admin/0/state 2>/dev/null)" != on ]; do sleep 1; done
kill $holder
wait $watcher || true
clean "the target's end"
