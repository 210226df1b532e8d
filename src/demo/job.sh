# The tour's job, run for each task by `pm work`, which keeps the claim alive meanwhile. HUNG, COUNT and HANG_AT are set.
# HANG_AT is the task of this worker, counted from 1, at which it hangs; 0 is never.
echo >>"$COUNT"
if [ "$(wc -l <"$COUNT")" -eq "$HANG_AT" ]; then
    echo "$PM_TASK $PM_CLAIM $$" >"$HUNG.new" && mv "$HUNG.new" "$HUNG"
    sleep 300
fi
echo "checked $PM_SLUG"
