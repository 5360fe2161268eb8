set -e
mkdir -p /etc
echo root:x:0:0::/:/bin/sh >/etc/passwd # memcached insists on a user of that name
insmod /lab/tierscope.ko
insmod /lab/tierscope_device.ko
# Another reader of ACCESSED bits would make the comparison void.
echo 0 >/proc/sys/kernel/numa_balancing
echo 0 >/sys/kernel/mm/lru_gen/enabled
echo "$thp" >/sys/kernel/mm/transparent_hugepage/enabled
cgroup=/sys/fs/cgroup/target
mkdir $cgroup

# Programs of this machine's distribution run in its root, with file systems of the guest's in it.
for each in dev dev/shm proc sys; do mount --bind /$each /host/$each; done
mount -t tmpfs tmp /host/tmp
chmod 1777 /host/tmp /host/dev/shm
mount --bind /out /host/mnt
in=/mnt/in
debian="chroot /host"
# Runs a command in the target's cgroup.
target() { (echo 0 >$cgroup/cgroup.procs; exec "$@") >/out/log.txt 2>&1; }

# Waits for a program that was started last.
until_ready() {
    until "$@" 2>/dev/null; do
        kill -0 $! || { cat /out/log.txt; exit 1; }
        sleep 0.5
    done
}

load=$((seconds + 60))
case $program in
java)
    target $debian /usr/bin/java -XX:+UseG1GC -Xms512m -Xmx512m -cp $in Load &
    until_ready grep -q ready /out/log.txt
    ;;
python)
    target $debian /usr/bin/python3 -u $in/load.py &
    until_ready grep -q ready /out/log.txt
    ;;
redis)
    target redis-server --port 0 --unixsocket /tmp/server --save "" --appendonly no --daemonize no &
    ;;
memcached)
    target memcached -u root -s /tmp/server -m 700 -t 2 &
    ;;
rocksdb)
    cp -r /out/in/db /host/tmp/
    # A read of all fills the cache; random reads are few for most of it (exponentially distributed).
    target $debian /usr/bin/db_bench --use_existing_db=1 --db=/tmp/db --compression_type=none --threads=2 \
        --cache_size=134217728 --benchmarks=readseq,readrandom --read_random_exp_range=30 --duration=$load &
    until_ready grep -q readseq /out/log.txt
    ;;
nginx)
    tar -xf /out/in/www.tar -C /host/tmp
    mkdir /host/tmp/log
    target $debian /usr/sbin/nginx -p /tmp/log -e /tmp/log/error -c $in/nginx.conf &
    until_ready [ -S /host/tmp/server ]
    $debian /usr/bin/python3 $in/http_load.py >/out/load.json &
    ;;
postgres*)
    cp -r /out/in/pg /host/tmp/
    chown -R 65534:65534 /host/tmp/pg
    huge=off backends=16
    case $program in
    postgres100) backends=100 ;;
    postgres-huge)
        huge=on
        echo 100 >/proc/sys/vm/nr_hugepages
        grep HugePages_Total /proc/meminfo
        ;;
    esac
    bin=$(echo /host/usr/lib/postgresql/*/bin)
    bin=${bin#/host}
    nobody="$debian /usr/bin/setpriv --reuid=65534 --regid=65534 --clear-groups env LC_ALL=C"
    target $nobody $bin/postgres -D /tmp/pg -k /tmp -h "" -c shared_buffers=128MB -c huge_pages=$huge \
        -c max_connections=120 -c fsync=off -c autovacuum=off &
    until_ready $nobody $bin/pg_isready -q -h /tmp -U postgres
    # All pages of tables and indices are in memory; most queries are about a few accounts.
    $nobody $bin/psql -q -h /tmp -U postgres -c "select pg_prewarm('pgbench_accounts'), pg_prewarm('pgbench_accounts_pkey')" postgres >/dev/null
    $nobody $bin/pgbench -n -M prepared -f $in/accounts.sql -c $backends -j 1 --rate $transactions -T $load -h /tmp -U postgres postgres >/out/load.json 2>&1 &
    until [ "$(wc -l <$cgroup/cgroup.procs)" -ge $backends ]; do sleep 0.5; done
    sleep 5
    ;;
esac
case $program in
redis | memcached)
    until_ready [ -S /tmp/server ]
    # Values of several pages, one of eighty of them hot.
    to="--keys 8000 --value-bytes 32000 --hot-keys 0.0125 --server /tmp/server --dialect $program"
    redis-load fill $to
    redis-load load $to --hot-operations 0.95 --seconds $load >/out/load.json &
    ;;
esac
sleep 3

count() { machine-probe switch "$@" >/dev/null; }
now() { cut -d' ' -f1 /proc/uptime; }
count touched
tierscope record --cgroup $cgroup --instrument $instrument --duration ${seconds}s --cpu $cpu --seed $seed \
    -o /tmp/recording 2>/out/record.txt &
recorder=$!
sleep $settle
touch /out/count-again
while [ -e /out/count-again ]; do sleep 0.1; done
from=$(now)
for pid in $(cat $cgroup/cgroup.procs); do
    root=$(machine-probe root $pid) && root=${root#*:} && echo "$pid ${root%\}}"
done >/out/roots.txt
wait $recorder || { cat /out/record.txt; exit 1; }
echo "$from $(now)" >/out/counted.txt
count
tail -n 1 /out/record.txt
cp -r /tmp/recording /out/recording
for pid in $(cat $cgroup/cgroup.procs); do
    echo "$pid $(cat /proc/$pid/comm) $(awk '/^(Rss|Pss|Private_Hugetlb|Shared_Hugetlb):/ { printf "%s %s ", $1, $2 }' /proc/$pid/smaps_rollup)"
done >/out/memory.txt
head -n 3 /out/memory.txt
grep MemTotal /proc/meminfo | tee -a /out/memory.txt
tierscope report summary /out/recording | tee /out/summary.txt
# The processes stay: their page tables are read once the machine has ended.
