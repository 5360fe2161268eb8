set -e
insmod /lab/tierscope.ko
insmod /lab/tierscope_filler.ko
filler check
filler time "$gib" | tee /out/time.txt
# A process that empties nothing: the kernel takes every entry down by itself.
filler hold 4 1 >/out/held.txt &
while [ ! -s /out/held.txt ]; do sleep 1; done
if rmmod tierscope_filler 2>/dev/null; then
    echo "unloaded while in use"
    exit 1
fi
kill $!
wait $! || true
rmmod tierscope_filler
