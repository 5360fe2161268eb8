set -eo pipefail
insmod /lab/tierscope.ko
probe-bench --memory-mb "$memory_mb" --hot-mb "$hot_mb" | tee /out/probe.json
rmmod tierscope
