# A worker as people write them: pull, heartbeat, report, finish, until TOTAL tasks are finished.
# In the environment: PM, REPO, LOG (a directory), TOTAL. Argument: the agent id.
# Every acknowledged record is logged as "<verb> <record> <task>"; every other exit as "exit <code> <verb> <task>".
set -u
agent=$1
log=$LOG/$agent.log

# Runs a step until it is acknowledged or refused; 8 and 21 mean: try again. So does 1, for which the proof is broken
# whatever comes of it.
step() {
    verb=$1
    shift
    tries=0
    while [ $tries -lt 100 ]; do
        printed=$("$PM" -C "$REPO" --json "$verb" "$@" 2>>"$LOG/$agent.err")
        code=$?
        [ $code -eq 0 ] || echo "exit $code $verb ${TASK:-}" >>"$log"
        case $code in
        0)
            record=${printed#*'"sha":"'}
            echo "$verb ${record%%'"'*} $TASK" >>"$log"
            return 0
            ;;
        1 | 8 | 21) tries=$((tries + 1)) ;;
        *) return 1 ;;
        esac
    done
    return 1
}

idle=0
while [ $idle -lt 6000 ] && [ ! -e "$LOG/stop" ]; do
    assignments=$("$PM" -C "$REPO" --agent "$agent" pull --shell 2>>"$LOG/$agent.err")
    code=$?
    if [ $code -ne 0 ]; then
        echo "exit $code pull" >>"$log"
        idle=$((idle + 1))
        sleep 0.02
        continue
    fi
    eval "$assignments"
    if [ -z "$TASK" ]; then
        [ "$(cat "$LOG"/*.log | grep -c '^finished ')" -lt "$TOTAL" ] || exit 0
        idle=$((idle + 1))
        sleep 0.02
        continue
    fi
    idle=0
    echo "pull $PM_CLAIM $TASK" >>"$log"
    step heartbeat --task "$TASK" --progress "working on $SLUG" &&
        step report --task "$TASK" --title "did $SLUG" --text "checked" --attach "$LOG/notes.txt" &&
        step heartbeat --task "$TASK" &&
        step finished --task "$TASK"
done
