set -eo pipefail
insmod /lab/tierscope.ko
cgroup=/sys/fs/cgroup/target
mkdir $cgroup
(
    echo 0 >$cgroup/cgroup.procs
    exec sharer "$memory_mib" 64 "$hot_mib" "$pause_ms" "$processes" /tmp/ready "$copied_mib"
) &
for number in $(seq "$processes"); do
    until [ -e "/tmp/ready$number" ]; do sleep 0.2; done
done
# pss: the sum over the processes, in KiB.
pss() {
    for pid in $(cat $cgroup/cgroup.procs); do cat "/proc/$pid/smaps_rollup" || true; done 2>/dev/null |
        awk '$1 == "Pss:" { sum += $2 } END { print sum + 0 }'
}
before=$(pss)
tierscope record --cgroup $cgroup --duration "${seconds}s" --cpu "$cpu" -o /out/recording 2>/out/record.txt &
record=$!
sleep $((seconds / 3))
touch /tmp/readyfork
# The truth changes when the process has made its copies.
until [ -e "/tmp/ready$((processes + 1))" ]; do sleep 0.2; done
after=$(pss)
wait $record
tail -n 1 /out/record.txt
tierscope report summary /out/recording | tee /out/summary.txt
tierscope report regions /out/recording >/out/regions.txt
tierscope report wss /out/recording --json >/out/wss.json
echo "sum of Pss before the last fork $before KiB, after it $after KiB"

# points FIELD: a figure of each window, in KiB.
points() { awk -v key="\"$1\":" '$1 == key { print int($2 / 1024) }' /out/wss.json; }
points resident_bytes >/out/resident.txt
points hot_bytes >/out/hot.txt
points mapped_bytes >/out/mapped.txt
windows=$(wc -l </out/resident.txt)
echo "resident by window, in MiB: $(awk '{ printf "%d ", $1 / 1024 }' /out/resident.txt)"
echo "mapped by window, in MiB: $(awk '{ printf "%d ", $1 / 1024 }' /out/mapped.txt)"
middle() { awk '{ print }' | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
# What was found last before and after the fork.
first=$(head -n $((windows / 4)) /out/resident.txt | tail -n $((windows / 16)) | middle)
last=$(tail -n $((windows / 16)) /out/resident.txt | middle)
hot=$(middle </out/hot.txt)
echo "resident $first KiB, then $last KiB; hot $hot KiB"
# is_near FOUND TRUTH: within 5 %.
is_near() { [ $(($1 * 100)) -ge $(($2 * 95)) ] && [ $(($1 * 100)) -le $(($2 * 105)) ]; }
is_near "$first" "$before"
is_near "$last" "$after"
# At no time more than 5 % above the truth, but for two windows.
above=$(awk -v most=$((after * 105 / 100)) '$1 > most { count++ } END { print count + 0 }' /out/resident.txt)
echo "$above windows above the truth"
[ "$above" -le 2 ]
# Within 1.2 of the truth; each process's own memory is 400 KiB.
[ "$hot" -le $(((hot_mib + processes / 2) * 1024 * 12 / 10)) ]
[ "$hot" -ge $((hot_mib * 1024 * 10 / 12)) ]
# Mapped once, and the copies; each process has up to 16 MiB of programs and libraries.
mapped=$(middle </out/mapped.txt)
[ "$mapped" -le $(((memory_mib + 2 * copied_mib + 16 * (processes + 1)) * 1024)) ]
rmmod tierscope
