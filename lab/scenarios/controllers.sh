set -eo pipefail
echo 0 >/proc/sys/kernel/numa_balancing
machine-probe tenants | tee /out/tenants.json
