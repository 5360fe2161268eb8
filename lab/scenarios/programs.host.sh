# Compiles or fills what a program of the scenario `programs` starts with: natively, for speed.
set -euo pipefail
in=$LAB_OUT/in
mkdir -p "$in"
cp lab/programs/* "$in"
chmod -R a+rX "$LAB_OUT"
case $program in
java)
    javac -d "$in" lab/programs/Load.java
    ;;
rocksdb)
    db_bench --benchmarks=fillrandom,compact --num=150000 --value_size=1000 --compression_type=none \
        --db="$in/db" --wal_dir="$in/db" --seed=1 >"$in/fill.txt" 2>&1
    ;;
nginx)
    mkdir "$in/www"
    for number in $(seq 0 3999); do
        head -c 16000 /dev/zero >"$in/www/$number"
    done
    tar -cf "$in/www.tar" -C "$in" www
    rm -r "$in/www"
    ;;
postgres*)
    bin=$(echo /usr/lib/postgresql/*/bin)
    chown nobody "$in"
    as() { setpriv --reuid=65534 --regid=65534 --clear-groups env PATH="$bin:$PATH" HOME="$in" LC_ALL=C "$@"; }
    # The socket's path may be too long below the output directory.
    socket=$(mktemp -d)
    chown nobody "$socket"
    trap 'as pg_ctl -D "$in/pg" -m immediate stop >/dev/null 2>&1 || true; rm -rf "$socket"' EXIT
    cd "$in"
    as initdb -D "$in/pg" -U postgres -A trust --no-sync >"$in/initdb.txt"
    as pg_ctl -D "$in/pg" -w -l "$in/server.txt" -o "-k $socket -h '' -c fsync=off -c max_wal_size=64MB" start >/dev/null
    as pgbench -i -s 7 --quiet -h "$socket" -U postgres postgres >"$in/fill.txt" 2>&1
    as psql -q -h "$socket" -U postgres -c 'create extension pg_prewarm' -c 'vacuum analyze' -c checkpoint postgres
    as pg_ctl -D "$in/pg" -w -m fast stop >/dev/null
    ;;
esac
