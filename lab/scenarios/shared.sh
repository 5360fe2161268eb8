set -eo pipefail
insmod /lab/tierscope.ko
cgroup=/sys/fs/cgroup/target
mkdir $cgroup
dd if=/dev/zero of=/dev/shm/object bs=1M count="$object_mib" 2>/dev/null
(
    echo 0 >$cgroup/cgroup.procs
    exec sharer /dev/shm/object 64 "$hot_mib" "$pause_ms" "$processes" /tmp/ready
) &
for number in $(seq "$processes"); do
    until [ -e "/tmp/ready$number" ]; do sleep 0.2; done
done

tierscope record --cgroup $cgroup --duration "${seconds}s" --cpu "$cpu" -o /out/recording 2>/out/record.txt
tail -n 1 /out/record.txt
tierscope report summary /out/recording | tee /out/summary.txt
tierscope report regions /out/recording | tee /out/regions.txt
tierscope report summary /out/recording --json >/out/summary.json

# median KEY: the median of a figure of the whole target, in KiB; of the shared space: median KEY shared.
median() {
    awk -v key="\"$1\":" -v of="$2" '
        /"name": "shared memory"/ { shared = 1 }
        $1 == key && (of == "" ? /^  "/ : shared) { here = 1 }
        here && $1 == "\"p50\":" { print int($2 / 1024); exit }' /out/summary.json
}
mapped=$(median mapped_bytes)
hot=$(median hot_bytes)
shared=$(median hot_bytes shared)
echo "mapped $mapped KiB, hot $hot KiB, hot in the shared space $shared KiB"
# The object once, and up to 16 MiB a process for its program, libraries and stack.
[ "$mapped" -ge $((object_mib * 1024)) ]
[ "$mapped" -le $(((object_mib + 16 * processes) * 1024)) ]
# Within 1.2 of the truth; the processes' own memory is 400 KiB each.
[ "$shared" -ge $((hot_mib * 1024 * 10 / 12)) ]
[ "$shared" -le $((hot_mib * 1024 * 12 / 10)) ]
[ "$hot" -le $(((hot_mib + processes / 2) * 1024 * 12 / 10)) ]
rmmod tierscope
