set -eo pipefail
export TERM=xterm-256color
insmod /lab/tierscope.ko
insmod /lab/tierscope_flusher.ko
workload=contiguous:space=256MiB,hot=16MiB

toucher "$workload" --passes 0 --ready /tmp/ready >/dev/null &
toucher=$!
until [ -e /tmp/ready ]; do sleep 0.2; done
echo "$toucher 20000" >/dev/tierscope_flusher

# A terminal of its own, whose keys come from stdin. What is drawn goes to the first argument;
# printed is what comes after the screen.
on_terminal() {
    drawn=$1
    shift
    script -qefc "stty rows 40 cols 120; tierscope live $*" "$drawn" >/dev/null
    grep -ao 'tierscope: .*' "$drawn"
}

await() {
    until grep -qa "$1" "$2" 2>/dev/null; do sleep 0.2; done
}

{ await regions /out/drawn.txt; sleep "$seconds"; printf m; sleep 0.2; printf '\r'; sleep 0.2; printf q; } |
    on_terminal /out/drawn.txt -p "$toucher" --max-regions "$regions" -o /out/recording >/out/said.txt
cat /out/said.txt
grep -q following /out/drawn.txt
grep -q 'showed [0-9]* windows' /out/said.txt
grep -q 'recorded [0-9]* windows' /out/said.txt
tierscope report summary /out/recording

# The target ends: the screen stays until q.
{ await regions /out/to-the-end.txt; kill "$toucher"; await 'has ended' /out/to-the-end.txt; printf q; } |
    on_terminal /out/to-the-end.txt -p "$toucher"

# A command prints elsewhere, and ends with the screen.
{ await regions /out/of-a-command.txt; printf q; } |
    on_terminal /out/of-a-command.txt --command-output /out/command.txt -- \
        toucher "$workload" --passes 0
grep -q touches /out/command.txt
[ -z "$(ls -d /tmp/tierscope-live-* 2>/dev/null)" ]
rmmod tierscope
