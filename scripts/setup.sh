#!/bin/bash
# Installs what tierscope needs to build and to run its lab, on Debian 12: `setup.sh` for all
# tests, `setup.sh run` for `make run` alone. Exits at once if nothing is missing.
set -euo pipefail

# Command or file that proves a package, and the package.
needs=(
    cc:gcc
    gcc-12:gcc-12
    make:make
    git:git
    perl:perl
    /bin/kill:procps
    xz:xz-utils
    depmod:kmod
    ldd:libc-bin
    qemu-system-x86_64:qemu-system-x86
    busybox:busybox-static
    objdump:binutils
    gzip:gzip
    redis-check-rdb:redis-tools
    /usr/include/stdio.h:libc6-dev
    /usr/lib/x86_64-linux-gnu/libelf.so.1:libelf1
    /usr/lib/x86_64-linux-gnu/libssl.so.3:libssl3
    /etc/ssl/certs/ca-certificates.crt:ca-certificates
)
# What tests need as well, but `make run` does not.
tests=(
    sparse:sparse
    qemu-x86_64:qemu-user
    chromium-headless-shell:chromium-headless-shell
    dkms:dkms
    memcached:memcached
    systemd-analyze:systemd
    perf:linux-perf
    verilator:verilator
    g++:g++
    /usr/bin/python3:python3-minimal
)
# Only what benches compare with, or record: `setup.sh bench`.
peers=(
    valgrind:valgrind
    javac:default-jdk-headless
    /usr/share/doc/python3:python3
    /usr/share/postgresql-common/pg_wrapper:postgresql
    db_bench:rocksdb-tools
    nginx:nginx-light
    yosys:yosys
)
# Only what a Spark job in local mode takes: `setup.sh spark`.
spark=(
    java:default-jre-headless
    /usr/share/doc/python3-venv:python3-venv
)
# Only what building a kernel takes: `setup.sh debug`.
debug=(
    flex:flex
    bison:bison
    bc:bc
    /usr/include/libelf.h:libelf-dev
)
# Only what `make bench-chaos` takes: `setup.sh chaos`.
chaos=(
    strace:strace
)
# Only what damo takes: `setup.sh damo`.
damo=(
    file:file
    /usr/share/doc/python3-venv:python3-venv
)
# Only what writes the files of crates/cli/tests/foreign: `setup.sh foreign`.
foreign=(
    trace-cmd:trace-cmd
    valgrind:valgrind
    "${damo[@]}"
)
[ "${1:-}" = run ] || needs+=("${tests[@]}")
[ "${1:-}" = bench ] && needs+=("${peers[@]}")
[ "${1:-}" = spark ] && needs+=("${spark[@]}")
[ "${1:-}" = debug ] && needs+=("${debug[@]}")
[ "${1:-}" = chaos ] && needs+=("${chaos[@]}")
[ "${1:-}" = damo ] && needs+=("${damo[@]}")
[ "${1:-}" = foreign ] && needs+=("${foreign[@]}")
# The oldest Rust that builds tierscope; Debian 12 has a newer one for its browsers.
rust_minor=88
rust_packages=(rustc-web cargo-web rust-web-clippy rustfmt-web)

PATH=$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin

present() {
    case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

rust_is_new_enough() {
    local version
    command -v cargo >/dev/null && version=$(rustc --version 2>/dev/null) || return 1
    version=${version#rustc 1.}
    [ "${version%%.*}" -ge "$rust_minor" ] 2>/dev/null
}

missing=()
for need in "${needs[@]}"; do
    present "${need%%:*}" || missing+=("${need#*:}")
done
rust_is_new_enough || missing+=("${rust_packages[@]}")

[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "setup: missing packages: not root (run as root: apt-get install ${missing[*]})" >&2
    exit 5
fi
echo "setup: installing ${missing[*]}" >&2
# RUNLEVEL=1: nothing that is installed for the lab's guests begins to serve on this machine.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt=(apt-get -q -o DPkg::Lock::Timeout=300)
"${apt[@]}" update >&2
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >&2

if ! rust_is_new_enough; then
    echo "setup: Rust 1.$rust_minor: still not there (an older cargo or rustup comes first in PATH: update it)" >&2
    exit 5
fi
