set -eo pipefail
for locks in N Y; do
    insmod /lab/tierscope.ko mapping_locks=$locks
    lock-waits --memory-mb "$memory_mb" --seconds "$seconds" | tee "/out/waits-$locks.json"
    rmmod tierscope
done
