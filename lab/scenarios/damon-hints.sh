set -e
insmod /lab/tierscope_filler.ko
insmod /lab/tierscope_flusher.ko
# A second user of ACCESSED bits would disturb (METRICS.md).
echo 0 >/proc/sys/kernel/numa_balancing 2>/dev/null || true
[ ! -e /sys/kernel/mm/lru_gen/enabled ] || echo 0 >/sys/kernel/mm/lru_gen/enabled

filler hold "$gib" "$hot_mib" --background "$background" >/tmp/held &
holder=$!
while [ ! -s /tmp/held ]; do sleep 1; done
read -r pid start end first last </tmp/held
echo "$pid $flush_us" >/dev/tierscope_flusher

for setting in $settings; do
    hints=
    [ "$setting" = off ] || hints=--hints
    kernel-damon "$pid" "$start" "$end" --first "$first" --last "$last" --background "$background" \
        --sampling "$sampling" --window "$window" --seconds "$seconds" $hints >"/out/$setting.json"
    echo "hints $setting: $(cat "/out/$setting.json")"
done
# Its exit would take minutes a terabyte: the machine is turned off.
