set -e
# lru_gen marks pages by their ACCESSED bits; what promotes here are hint faults.
echo 1 >/sys/kernel/mm/numa/demotion_enabled
grep . /sys/devices/virtual/memory_tiering/memory_tier*/nodelist
machine-probe calibrate --factor "$factor" --rounds 1 | tee /out/calibration.json
for mode in 0 2; do
    echo $mode >/proc/sys/kernel/numa_balancing
    machine-probe hot --kib "$kib" --seconds "$seconds" | tee "/out/mode-$mode.json"
done
