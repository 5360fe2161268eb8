set -eo pipefail
insmod /lab/tierscope.ko
prober --probes "$probes" --seed "$seed" | tee /out/prober.json
