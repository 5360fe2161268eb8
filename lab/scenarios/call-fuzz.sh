set -eo pipefail
insmod /lab/tierscope.ko
call-fuzz --calls "$calls" --seed "$seed" | tee /out/calls.json
