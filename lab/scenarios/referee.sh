set -e
insmod /lab/tierscope.ko
insmod /lab/tierscope_device.ko
# Other readers that clear ACCESSED bits would void the comparison; page migration would void that of places.
echo 0 >/proc/sys/kernel/numa_balancing
echo 0 >/sys/kernel/mm/lru_gen/enabled

machine-probe placement | tee /out/placed.json
toucher "$workload" --truth /tmp/truth --passes 0 --ready /tmp/ready >/out/toucher.json &
toucher=$!
until [ -s /tmp/ready ]; do
    kill -0 $toucher || { wait $toucher; exit 1; }
    sleep 0.2
done
machine-probe root $toucher | tee /out/root.json
for flusher in $flusher; do
    parts=touched
    [ "$flusher" = off ] || parts="touched flush"
    machine-probe switch $parts >/dev/null
    sleep 1
    for each in $instruments; do
        name=${each%%:*} variant=${each#*:}
        echo "flusher $flusher: $each"
        # Without flusher, nothing may be found at all: that is a result.
        tierscope record -p $toucher --instrument "$name" --variant "$variant" --duration "${seconds}s" \
            -o /tmp/recording 2>/out/stderr.txt || { cat /out/stderr.txt; exit 1; }
        cp -r /tmp/recording "/out/flusher-$flusher-$name-$variant"
        rm -r /tmp/recording
    done
done
machine-probe switch >/dev/null
kill $toucher
wait $toucher || true
cp -r /tmp/truth /out/
rmmod tierscope_device
