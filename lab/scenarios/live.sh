set -eo pipefail
insmod /lab/tierscope.ko
insmod /lab/tierscope_flusher.ko
workload=contiguous:space=256MiB,hot=16MiB

toucher "$workload" --passes 0 --ready /tmp/ready >/dev/null &
toucher=$!
until [ -e /tmp/ready ]; do sleep 0.2; done
echo "$toucher 20000" >/dev/tierscope_flusher

{ await regions /out/drawn.txt; sleep "$seconds"; printf m; sleep 0.2; printf '\r'; sleep 0.2; printf q; } |
    on_terminal /out/drawn.txt -p "$toucher" --max-regions "$regions" -o /out/recording >/out/stderr.txt
cat /out/stderr.txt
grep -q following /out/drawn.txt
grep -q 'showed [0-9]* windows' /out/stderr.txt
grep -q 'recorded [0-9]* windows' /out/stderr.txt
tierscope report summary /out/recording

# The target ends: the screen stays until q.
{ await regions /out/to-the-end.txt; kill "$toucher"; await 'has ended' /out/to-the-end.txt; printf q; } |
    on_terminal /out/to-the-end.txt -p "$toucher"

# A command prints elsewhere, and ends with the screen: this one prints its touches after the start.
{ await regions /out/of-a-command.txt; until [ -e /tmp/begun ]; do sleep 0.2; done; printf q; } |
    on_terminal /out/of-a-command.txt --command-output /out/command.txt -- \
        toucher "$workload" --passes 0 --ready /tmp/begun
grep -q touches /out/command.txt
[ -z "$(ls -d /tmp/tierscope-live-* 2>/dev/null)" ]
rmmod tierscope
