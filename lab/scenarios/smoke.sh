set -eo pipefail
insmod /lab/tierscope.ko
insmod /lab/tierscope_flusher.ko
test -c /dev/tierscope

# The flusher follows a process, counts, and forgets it when it dies.
sleep 1000 &
victim=$!
# A program executed after the command below would drop out of the flusher.
until grep -q sleep "/proc/$victim/comm"; do sleep 0.1; done
echo "$victim 5000" >/dev/tierscope_flusher
flushes=0
while [ "$flushes" -lt 50 ]; do
    sleep 0.1
    read -r pid period flushes </dev/tierscope_flusher
    [ "$pid" = "$victim" ] && [ "$period" = 5000 ]
done
kill "$victim"
wait "$victim" || true
while [ -n "$(cat /dev/tierscope_flusher)" ]; do sleep 0.1; done
rmmod tierscope_flusher
[ ! -e /dev/tierscope_flusher ]

# Attaching proves the levels; the prober also tries to unload, while in use and after.
prober --probes "$probes" --life-ms 200 | tee /out/prober.json
[ ! -e /dev/tierscope ]
insmod /lab/tierscope.ko
rmmod tierscope
