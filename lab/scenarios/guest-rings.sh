set -eo pipefail
insmod /lab/tierscope_device.ko
echo 0 >/proc/sys/kernel/numa_balancing
machine-probe rings --sweeps "$sweeps" | tee /out/rings.json
rmmod tierscope_device
