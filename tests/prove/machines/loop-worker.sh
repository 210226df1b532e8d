# A worker as people write them: pull, report, finish, until the file STOP is there.
# In the environment: PM, REPO, LOG (a directory), STOP. Argument: the agent id.
# Every acknowledged record is logged as "<verb> <record> <slug>"; every other exit as "exit <code> <verb> <slug>".
set -u
agent=$1
log=$LOG/$agent.log

# Runs a step until it is acknowledged or refused; 8, 20, 21 and 22 mean: try again.
step() {
    verb=$1
    shift
    while [ ! -e "$STOP" ]; do
        printed=$("$PM" -C "$REPO" --json "$verb" "$@" 2>>"$LOG/$agent.err")
        code=$?
        if [ $code -eq 0 ]; then
            record=${printed#*'"sha":"'}
            echo "$verb ${record%%'"'*} $SLUG" >>"$log"
            return 0
        fi
        echo "exit $code $verb $SLUG" >>"$log"
        case $code in
        8 | 20 | 21 | 22) ;;
        *) return 1 ;;
        esac
    done
    return 1
}

while [ ! -e "$STOP" ]; do
    assignments=$("$PM" -C "$REPO" --agent "$agent" pull --shell 2>>"$LOG/$agent.err")
    code=$?
    [ $code -eq 0 ] || echo "exit $code pull" >>"$log"
    eval "$assignments"
    if [ -z "$TASK" ]; then
        sleep 0.1
        continue
    fi
    echo "pull $PM_CLAIM $SLUG" >>"$log"
    echo "$SLUG $PM_CLAIM $agent" >>"$LOG/jobs"
    step report --task "$TASK" --title "did $SLUG" &&
        step finished --task "$TASK"
done
