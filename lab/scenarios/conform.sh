set -eo pipefail
insmod /lab/tierscope.ko
conform
rmmod tierscope
