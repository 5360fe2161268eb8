set -eo pipefail
insmod /lab/tierscope.ko
flush-check | tee /out/flush.txt
rmmod tierscope
