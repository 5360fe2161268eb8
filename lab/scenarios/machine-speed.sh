set -e
echo 0 >/proc/sys/kernel/numa_balancing
# Its output is stored with the results, one line per figure.
probe() {
    machine-probe "$@" | tee -a /out/speed.txt
}
for factor in $factors; do
    probe calibrate --factor "$factor" --millis "$millis"
    probe compare --kib 512 --millis "$millis"
done
machine-probe latency 1 0 >/dev/null
for cap in $caps; do
    for threads in 1 2; do
        machine-probe bandwidth 1 "$cap" >/dev/null
        echo "{\"cap\":$cap}" >>/out/speed.txt
        probe stream --node 1 --kib 65536 --millis "$millis" --threads $threads
        machine-probe bandwidth 1 0 >/dev/null
    done
done
machine-probe stream --node 1 --kib 65536 --millis "$millis" --threads 2 >/out/unlimited.txt
cat /out/unlimited.txt
