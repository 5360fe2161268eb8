set -e
for module in tierscope tierscope_filler tierscope_flusher; do
    insmod /lab/$module.ko
done
# A second user of ACCESSED bits would make the comparison void.
echo 0 >/proc/sys/kernel/numa_balancing 2>/dev/null || true
echo 0 >/sys/kernel/mm/lru_gen/enabled
for enabled in /sys/module/damon_*/parameters/enabled; do
    [ ! -e "$enabled" ] || echo N >"$enabled"
done
echo "NUMA balancing, the aging of lru_gen and the kernel's own uses of DAMON are off"

toucher "$workload" --backing filler --truth /tmp/truth --passes 0 --seed "$seed" --ready /tmp/ready >/out/toucher.json &
toucher=$!
until [ -s /tmp/ready ]; do
    kill -0 $toucher || { wait $toucher; exit 1; }
    sleep 0.2
done
[ "$flush_us" = 0 ] || echo "$toucher $flush_us" >/dev/tierscope_flusher

set +x
now() { cut -d' ' -f1 /proc/uptime; }

# Sleeps until the phases start again.
first_phase() {
    [ "$pass" = 0 ] && return
    began=$(sed -n 's/.*"segment":{"begin_ns":\([0-9]*\).*/\1/p;/"segment":{/q' /tmp/truth/truth.jsonl)
    sleep "$(awk -v began="$began" -v pass="$pass" -v now="$(now)" 'BEGIN {
        into = (now - began / 1e9) % pass
        printf "%.2f", pass - into
    }')"
}

# Memory and CPU time of a process until it ends: seconds since boot, KiB now, KiB at most, clock
# ticks of user and of system time.
look_at() {
    while kill -0 "$1" 2>/dev/null; do
        awk -v now="$(now)" '
            /^VmHWM/ { peak = $2 } /^VmRSS/ { resident = $2 }
            FILENAME ~ /stat$/ { sub(/.*\) /, ""); user = $12; kernel = $13 }
            END { if (peak) print now, resident, peak, user, kernel }' \
            "/proc/$1/status" "/proc/$1/stat" 2>/dev/null || true
        sleep "$look"
    done
}

record() {
    echo "$scenario: $1 $2"
    mkdir -p "/out/$1-$2"
    tierscope record -p $toucher --instrument "$1" --variant "$2" --duration "$3s" --seed "$seed" --cpu "$cpu" -o /tmp/recording \
        --annotate "scenario=$scenario" --annotate "flush_us=$flush_us" \
        --annotate "lru_gen=off" --annotate "numa_balancing=off" 2>"/out/$1-$2/stderr.txt" &
    recorder=$!
}

for each in $instruments; do
    name=${each%%:*} variant=${each#*:}
    first_phase
    record "$name" "$variant" "$seconds"
    look_at $recorder >"/out/$name-$variant/process.txt"
    wait $recorder || echo $? >"/out/$name-$variant/failed.txt"
    tail -n 1 "/out/$name-$variant/stderr.txt"
    [ ! -d /tmp/recording ] || { cp -r /tmp/recording "/out/$name-$variant/"; rm -r /tmp/recording; }
done

# A recorder that is stopped clears nothing: slots with it running and with it stopped, in turns.
slot() {
    kill "-$2" $recorder
    from=$(now)
    sleep "$slot"
    echo "$1 $from $(now)" >>/out/slots.txt
}
if [ "$turns" != 0 ]; then
    record rates bayes 36000 2>/dev/null
    sleep 3
    for _ in $(seq "$turns"); do
        slot with CONT
        slot without STOP
    done
    kill -CONT $recorder
    kill -TERM $recorder
    wait $recorder || true
    rm -r /tmp/recording
fi

cat /dev/tierscope_flusher >/out/flusher.txt
# Its exit would take minutes a terabyte: it may say what it did, and the machine is turned off.
kill $toucher
until grep -q '^{"end"' /tmp/truth/truth.jsonl; do sleep 0.2; done
cp -r /tmp/truth /out/
