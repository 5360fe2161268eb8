set -eo pipefail
insmod /lab/tierscope.ko
cgroup=/sys/fs/cgroup/target
mkdir $cgroup
dd if=/dev/zero of=/dev/shm/object bs=1M count="$object_mib" 2>/dev/null
# share PROCESSES READY
share() {
    (
        echo 0 >$cgroup/cgroup.procs
        exec sharer /dev/shm/object 64 "$hot_mib" "$pause_ms" "$1" "$2" $parts
    ) &
}
if [ "$forked" = yes ]; then
    share "$processes" /tmp/ready
else
    for number in $(seq "$processes"); do share 1 "/tmp/ready$number-"; done
fi
for number in $(seq "$processes"); do
    [ "$forked" = yes ] && ready=/tmp/ready$number || ready=/tmp/ready$number-1
    until [ -e "$ready" ]; do sleep 0.2; done
done

tierscope record --cgroup $cgroup --instrument "$instrument" --duration "${seconds}s" --cpu "$cpu" -o /tmp/recording 2>/out/record.txt
tail -n 1 /out/record.txt
cp -r /tmp/recording /out/
tierscope report summary /out/recording | tee /out/summary.txt
tierscope report regions /out/recording | tee /out/regions.txt
tierscope report summary /out/recording --json >/out/summary.json
tierscope report heatmap /out/recording --json >/out/heatmap.json
cat /tmp/ready* >/out/truth.txt
grep MemTotal /proc/meminfo | tee /out/memory.txt
[ "$check" = yes ] || exit 0

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
# Within 1.2 of the truth; the processes' own memory is 400 KiB each. The rest is cold.
[ "$shared" -le $((hot_mib * 1024 * 12 / 10)) ]
[ "$shared" -ge $((hot_mib * 1024 * 10 / 12)) ]
cold=$(median cold_bytes)
echo "cold $cold KiB"
[ "$cold" -le $(((object_mib - hot_mib) * 1024 * 21 / 20 + 2 * processes * 1024)) ]
[ "$hot" -le $(((hot_mib + processes / 2) * 1024 * 12 / 10)) ]
rmmod tierscope
