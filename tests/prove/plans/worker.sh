# A worker as people write them, who works on the children of a task while it holds that task: pull, heartbeat, report,
# finish, until the file STOP is there.
# In the environment: PM, REPO, LOG (a directory), STOP, LABEL, PM_AGENT_ID, PM_CONTEXT_ID.
# Every acknowledged record is logged as "<verb> <record> <task>"; every other exit as "exit <code> <verb> <task>".
set -u
log=$LOG/$PM_AGENT_ID.log
# What waits for its children: <task>:<claim> each.
held=

# Runs a step until it is acknowledged or refused; 8 and 21 mean: try again. Returns its exit code.
step() {
    verb=$1
    shift
    tries=0
    while [ $tries -lt 100 ]; do
        printed=$("$PM" -C "$REPO" --json "$verb" --task "$TASK" --claim "$PM_CLAIM" "$@" 2>>"$LOG/$PM_AGENT_ID.err")
        code=$?
        if [ $code -eq 0 ]; then
            record=${printed#*'"sha":"'}
            echo "$verb ${record%%'"'*} $TASK" >>"$log"
            return 0
        fi
        echo "exit $code $verb $TASK" >>"$log"
        case $code in
        8 | 21) tries=$((tries + 1)) ;;
        *) return $code ;;
        esac
    done
    return $code
}

# Keeps what waits for its children alive, and closes it once they are settled. What was lost is dropped.
tend() {
    still=
    for pair in $held; do
        TASK=${pair%%:*}
        PM_CLAIM=${pair#*:}
        step heartbeat --progress "waits for its children" || continue
        step finished
        [ $? -ne 14 ] || still="$still $pair"
    done
    held=$still
}

while [ ! -e "$STOP" ]; do
    tend
    assignments=$("$PM" -C "$REPO" pull --label "$LABEL" --shell 2>>"$LOG/$PM_AGENT_ID.err")
    code=$?
    [ $code -eq 0 ] || echo "exit $code pull" >>"$log"
    eval "$assignments"
    if [ -z "$TASK" ]; then
        sleep 0.05
        continue
    fi
    echo "pull $PM_CLAIM $TASK" >>"$log"
    step heartbeat --progress "working on $SLUG" &&
        step report --title "did $SLUG" &&
        step finished
    [ $? -ne 14 ] || held="$held $TASK:$PM_CLAIM"
done
