export TERM=xterm-256color

# A terminal of its own, whose keys come from stdin. What is drawn goes to the first argument;
# printed is what comes after the screen.
on_terminal() {
    drawn=$1
    shift
    script -qefc "stty rows 40 cols 120; tierscope live $*" "$drawn" >/dev/null
    grep -ao 'tierscope: .*' "$drawn"
}

# text FILE: what was drawn, in that order, without colours. Blanks are not drawn but passed over: a
# move of the cursor is a blank.
escape=$(printf '\033')
text() {
    sed "s/$escape\[[0-9;?]*m//g; s/$escape\[[0-9;?]*[A-Za-z]/ /g" "$1" 2>/dev/null
}

# Whether a file's text holds a pattern. A grep that stops reading would make the pipe fail.
shows() {
    text "$1" | grep -a "$2" >/dev/null
}

# await PATTERN FILE: until it is drawn.
await() {
    until shows "$2" "$1"; do sleep 0.2; done
}
