set -e
# memcached needs an entry for the user it runs as.
mkdir -p /etc
echo root:x:0:0::/:/bin/sh >/etc/passwd
memcached -u root -s /tmp/memcached -m 512 -t 2 2>/out/memcached.log &
server=$!
until [ -S /tmp/memcached ]; do
    kill -0 $server || { cat /out/memcached.log; exit 1; }
    sleep 0.1
done
data="--keys $keys --value-bytes $value_bytes --hot-keys 0.1 --server /tmp/memcached --dialect memcached"
redis-load fill $data
redis-load load $data --hot-operations 0.9 --seconds "$seconds" | tee /out/load.json
kill "$server"
[ -s /out/load.json ]
