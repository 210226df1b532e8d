# A worker of the tour: the loop that anybody would write by hand. PM, STOP, HUNG, LEASE and HANG_AT are set.
# HANG_AT is the task, counted from 1, at which this worker hangs; 0 is never.
n=0
while [ ! -e "$STOP" ] && kill -0 "$PPID" 2>/dev/null; do
    assignments=$("$PM" pull --shell --quiet --ttl "$LEASE") || { sleep 0.05; continue; }
    eval "$assignments"
    if [ -z "$TASK" ]; then sleep 0.05; continue; fi
    n=$((n + 1))
    if [ "$n" = "$HANG_AT" ]; then
        "$PM" heartbeat --task "$TASK" --progress "about to hang" >/dev/null
        echo "$TASK $PM_CLAIM" >"$HUNG.new" && mv "$HUNG.new" "$HUNG"
        sleep 300
    fi
    "$PM" heartbeat --task "$TASK" --progress "checking $SLUG" >/dev/null || continue
    "$PM" report --task "$TASK" --title "Checked $SLUG" --text "Built, tested and documented on its own." >/dev/null || continue
    "$PM" finished --task "$TASK" >/dev/null || continue
done
