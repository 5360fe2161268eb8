set -eo pipefail
# A whole batch of replies fits a socket: on a busy host every wake-up of a sleeping CPU takes milliseconds.
echo 4194304 >/proc/sys/net/core/wmem_default
# Ways of Redis that would move or fork its memory under the instrument are off.
redis-server --port 0 --unixsocket /tmp/redis --save "" --appendonly no --activedefrag no \
    --io-threads 1 --daemonize no --logfile /out/redis.log &
redis=$!
until [ -S /tmp/redis ]; do sleep 0.1; done
data="--keys $keys --value-bytes $value_bytes --hot-keys $hot_keys --hot-begin $hot_begin"

insmod /lab/tierscope.ko
insmod /lab/tierscope_flusher.ko
redis-load fill $data --server /tmp/redis
echo "filled: $keys values of $value_bytes bytes, a share of $hot_keys of them hot"

# The emulated TLB never forgets a small hot set: make it.
echo "$redis $flush_us" >/dev/tierscope_flusher
redis-load load $data --server /tmp/redis --command "$read" --hot-operations "$hot_operations" --seconds $((seconds + 10)) >/out/load.json &
load=$!
rm -rf /out/redis
status=0
tierscope record -p "$redis" ${instrument:+--instrument "$instrument"} --duration "${seconds}s" $record_args --annotate "flush_us=$flush_us" \
    -o /out/redis 2>&1 | cat || status=$?
wait "$load"
cat /dev/tierscope_flusher >/out/flusher.txt
cat /out/load.json
[ "$status" = 0 ]
redis-load truth $data --pid "$redis" --output /out/truth.json
echo 0 >/dev/tierscope_flusher
kill "$redis"
wait "$redis" || true
rmmod tierscope_flusher
rmmod tierscope
