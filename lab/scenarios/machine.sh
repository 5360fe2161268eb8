set -e
insmod /lab/tierscope_device.ko
echo 0 >/proc/sys/kernel/numa_balancing
probe() {
    machine-probe "$@"
}
for factor in $factors; do
    echo "node 1 made $factor times slower than node 0"
    probe calibrate --factor "$factor"
    for node in 0 1; do
        for kib in 512 65536; do
            probe chase --node $node --kib $kib --millis "$millis"
        done
    done
done >/out/chase.txt
cat /out/chase.txt
probe latency 1 0 >/dev/null
probe counters | tee /out/counters.json
probe doorbell --millis "$millis" | tee /out/doorbell.json
probe interrupt --times 200 | tee /out/interrupt.json
probe misses --pagemap /out/pagemap.txt | tee /out/misses.json
[ -s /out/counters.json ] && [ -s /out/doorbell.json ] && [ -s /out/interrupt.json ] && [ -s /out/misses.json ]
rmmod tierscope_device
