# The host's Debian as a root in which everything may be changed, for `package` and `units`.
debian_root() {
    . /out/versions
    kernel=$(uname -r)
    # The host's Debian, on which everything may be written to: upper layers in memory.
    mkdir -p /layer /root-of-host
    mount -t tmpfs layer /layer
    mkdir /layer/upper /layer/work
    mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /root-of-host
    root=/root-of-host
    # As udev would have made it.
    ln -s /proc/self/fd /dev/fd
    for dir in proc sys dev; do mount --bind /$dir $root/$dir; done
    mount -t tmpfs run $root/run
    # Not over /tmp: the source tree may lie there.
    mkdir $root/run/out
    mount --bind /out $root/run/out
    # The only kernel is the one that runs, its headers where the lab unpacked them.
    # A host in a container has none.
    mkdir -p $root/usr/lib/modules
    mount -t tmpfs modules $root/usr/lib/modules
    mkdir $root/lib/modules/"$kernel"
    ln -s "$build" $root/lib/modules/"$kernel"/build
    cp /host"$modules"/modules.builtin /host"$modules"/modules.order $root/lib/modules/"$kernel"/
    # dpkg's list holds only the installed packages that ours depends on: a
    # development machine has thousands, and reading their lists takes minutes here.
    mount -t tmpfs dpkg $root/var/lib/dpkg
    mkdir $root/var/lib/dpkg/info $root/var/lib/dpkg/updates $root/var/lib/dpkg/triggers
    for name in libc6 libgcc-s1 dkms; do
        sed -n "/^Package: $name\$/,/^\$/p" /host/var/lib/dpkg/status >>$root/var/lib/dpkg/status
        cp /host/var/lib/dpkg/info/$name.list $root/var/lib/dpkg/info/ 2>/dev/null ||
            cp /host/var/lib/dpkg/info/$name:amd64.list $root/var/lib/dpkg/info/
    done
    cp /host/var/lib/dpkg/info/format $root/var/lib/dpkg/info/
    mkdir -p $root/var/lib/dkms
    [ "$compile" = yes ] || cp -r /out/dkms/tierscope $root/var/lib/dkms/
}

in_host() { chroot $root /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
package() { echo "/run/out/tierscope_$1-1_amd64.deb"; }
# status VERSION: the module of that version is installed, and of no other.
status() {
    said=$(in_host dkms status)
    echo "$said"
    [ "$said" = "tierscope/$1, $kernel, x86_64: installed" ]
}
