set -e
insmod /lab/tierscope_device.ko
echo 0 >/proc/sys/kernel/numa_balancing
probe() {
    machine-probe "$@"
}
probe placement | tee /out/placed.json
probe counters | tee /out/counters.json
probe doorbell --millis "$millis" | tee /out/doorbell.json
probe interrupt --times 200 | tee /out/interrupt.json
probe misses --pagemap /out/pagemap.txt | tee /out/misses.json
[ -s /out/placed.json ] && [ -s /out/counters.json ] && [ -s /out/doorbell.json ] && [ -s /out/interrupt.json ] && [ -s /out/misses.json ]
rmmod tierscope_device
