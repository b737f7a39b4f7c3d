#!/bin/sh
# Hook of an agent CLI: append the event to the terminal's spool, then poke the service.
# usage: spool.sh EVENT   (the event's JSON on standard input)
# One file an event, renamed into place, so that a reader never sees half of one and an event that comes
# while the service is down is read at recovery. No interpreter is started: this must end within 15 ms.
# The FIFO is opened for reading and writing, so that without a reader nothing blocks.
# A spool that the agent itself removed is made again; a terminal that was closed has no folder to make it in.
[ -d "$CHANGEOVER_SPOOL" ] || mkdir -m 700 "$CHANGEOVER_SPOOL" 2>/dev/null || exit 0
part="$CHANGEOVER_SPOOL/.$$.part"
cat >"$part" || exit 0
now=$(date +%s%N)
case $now in *N) now="${now%N}000000000" ;; esac
mv "$part" "$CHANGEOVER_SPOOL/$now-$$.$1"
[ -p "$CHANGEOVER_POKE" ] && printf '%s\n' "$CHANGEOVER_TERMINAL" 1<>"$CHANGEOVER_POKE"
exit 0
