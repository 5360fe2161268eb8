# Makes two versions of the package, and the module for this kernel as the
# host's DKMS builds it, in a tree of its own.
set -euo pipefail
# The programs that the tests run: a release build takes minutes. `make test-all` names that one.
export BUILT=${BUILT:-$LAB_PROGRAMS}
scripts/deb "$LAB_OUT" >&2
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
VERSION=$version.99 scripts/deb "$LAB_OUT" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dpkg-deb -x "$LAB_OUT/tierscope_$version-1_amd64.deb" "$work/package"
mkdir "$work/tree" "$work/modules"
for verb in add build; do
    # Else DKMS would make a key for this machine.
    sign_file=/nonexistent dkms --dkmstree "$work/tree" --sourcetree "$work/package/usr/src" --installtree "$work/modules" \
        "$verb" -m tierscope -v "$version" -k "$LAB_RELEASE" --kernelsourcedir "$LAB_BUILD" >&2
done
rm "$work/tree/tierscope/$version/source"
# Compressed where this machine's own modules are; uncompressed is found everywhere.
find "$work/tree" -name '*.ko.xz' -exec unxz {} +
mkdir "$LAB_OUT/dkms"
cp -r "$work/tree/tierscope" "$LAB_OUT/dkms"
# The next version's source differs by its number only.
cp -r "$LAB_OUT/dkms/tierscope/$version" "$LAB_OUT/dkms/tierscope/$version.99"
printf 'old=%s\nnew=%s.99\nbuild=%s\nmodules=%s\n' "$version" "$version" "$LAB_BUILD" "$LAB_MODULES" >"$LAB_OUT/versions"
