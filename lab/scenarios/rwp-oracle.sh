set -eo pipefail
insmod /lab/tierscope.ko
# DAMON_STAT takes bits that the module would see.
running=
for enabled in /sys/module/damon_*/parameters/enabled; do
    [ "$(cat "$enabled" 2>/dev/null)" != Y ] || running="$running $enabled"
done
for enabled in $running; do echo N >"$enabled"; done
rwp-oracle | tee /out/oracle.json
for enabled in $running; do echo Y >"$enabled"; done
rmmod tierscope
