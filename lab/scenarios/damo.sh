set -e
. /out/damo.env
insmod /lab/tierscope_filler.ko
insmod /lab/tierscope_flusher.ko
# Other passes over ACCESSED bits would disturb (METRICS.md).
echo 0 >/proc/sys/kernel/numa_balancing 2>/dev/null || true
echo 0 >/sys/kernel/mm/lru_gen/enabled

# The host's programs, on this kernel.
ln -s /proc/self/fd /dev/fd
for dir in proc dev sys; do mount --rbind /$dir /host/$dir; done
# perf maps its file, which /out cannot.
mount -t tmpfs mnt /host/mnt
damo() {
    chroot /host /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/mnt PYTHONDONTWRITEBYTECODE=1 \
        "$python" "$(dirname "$python")/damo" "$@"
}

filler hold "$gib" "$hot_mib" >/tmp/held 2>/dev/null &
holder=$!
while [ ! -s /tmp/held ]; do sleep 1; done
read -r pid start end </tmp/held
echo "$start $end" >/out/truth
echo "$pid $flush_us" >/dev/tierscope_flusher

damo version
damo record --ops vaddr --target_pid "$pid" --monitoring_intervals 5ms 200ms 1s \
    --monitoring_nr_regions_range "$min_regions" "$max_regions" --do_record access --timeout "$seconds" --out /mnt/damon.data
kill $holder
cp /host/mnt/damon.data /out/
