set -eo pipefail
echo 0 >/proc/sys/kernel/numa_balancing
# Controllers know physical memory: a block of the toucher's is one of theirs if it is a huge page.
echo always >/sys/kernel/mm/transparent_hugepage/enabled
toucher "$workload" --huge --truth /tmp/truth --passes 0 --seed "$seed" --ready /tmp/ready >/out/toucher.json &
toucher=$!
until [ -s /tmp/ready ]; do
    kill -0 $toucher || { wait $toucher; exit 1; }
    sleep 0.2
done
grep AnonHugePages "/proc/$toucher/smaps_rollup"
for variant in blocks pages; do
    mkdir -p "/out/nemo-$variant"
    tierscope record -p $toucher --instrument nemo --variant $variant --duration "${seconds}s" --seed "$seed" \
        -o "/out/nemo-$variant/recording" 2>"/out/nemo-$variant/stderr.txt" || { cat "/out/nemo-$variant/stderr.txt"; exit 1; }
    tail -n 1 "/out/nemo-$variant/stderr.txt"
done
kill $toucher
until grep -q '^{"end"' /tmp/truth/truth.jsonl; do sleep 0.2; done
cp -r /tmp/truth /out/
