set -e
mkdir -p /etc
echo root:x:0:0::/:/bin/sh >/etc/passwd # memcached insists on a user of that name
echo 4194304 >/proc/sys/net/core/wmem_default
insmod /lab/tierscope.ko
insmod /lab/tierscope_device.ko
# Another reader of ACCESSED bits would make the comparison void.
echo 0 >/proc/sys/kernel/numa_balancing
echo 0 >/sys/kernel/mm/lru_gen/enabled

case $server in
redis)
    redis-server --port 0 --unixsocket /tmp/server --save "" --appendonly no --activedefrag no \
        --io-threads 1 --daemonize no --logfile /out/server.log &
    ;;
memcached)
    memcached -u root -s /tmp/server -m 700 -t 2 2>/out/server.log &
    ;;
esac
pid=$!
until [ -S /tmp/server ]; do
    kill -0 $pid || { cat /out/server.log; exit 1; }
    sleep 0.1
done
to="--keys $keys --value-bytes $value_bytes --server /tmp/server --dialect $server"
redis-load fill $to
echo "filled: $keys values of $value_bytes bytes"
machine-probe root $pid | tee /out/root.json
grep VmRSS /proc/$pid/status | tee /out/resident.txt

load=0
for each in $instruments; do load=$((load + seconds + 10)); done
redis-load load $to --zipf "$theta" --update-share "$updates" --scan-share "$scans" --seconds "$load" >/out/load.json &
loader=$!
sleep 2
machine-probe switch touched >/dev/null
for each in $instruments; do
    name=${each%%:*} variant=${each#*:}
    echo "$server: $each"
    tierscope record -p $pid --instrument "$name" --variant "$variant" --duration "${seconds}s" --cpu "$cpu" --seed "$seed" \
        -o /tmp/recording 2>/out/stderr.txt || { cat /out/stderr.txt; exit 1; }
    tail -n 1 /out/stderr.txt | tee "/out/$name-$variant.txt"
    cp -r /tmp/recording "/out/$name-$variant"
    rm -r /tmp/recording
done
machine-probe switch >/dev/null
wait $loader
cat /out/load.json
kill $pid
wait $pid || true
rmmod tierscope_device
rmmod tierscope
