set -eo pipefail
machine-probe stream --kib 65536 --millis "$millis" | tee /out/stream.json
machine-probe stream --kib 65536 --millis "$millis" --words | tee /out/words.json
machine-probe chase --kib 65536 --millis "$millis" | tee /out/chase.json
redis-server --port 0 --unixsocket /tmp/redis --save "" --appendonly no --io-threads 1 --daemonize no --logfile /out/redis.log &
redis=$!
until [ -S /tmp/redis ]; do sleep 0.1; done
data="--keys $keys --value-bytes 1000 --hot-keys 0.1 --hot-begin 0.5"
redis-load fill $data --server /tmp/redis
redis-load load $data --server /tmp/redis --command get --hot-operations 0.9 --seconds "$seconds" | tee /out/load.json
kill "$redis"
wait "$redis" || true
