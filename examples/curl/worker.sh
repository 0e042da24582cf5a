#!/bin/sh
# A worker made of curl and jq. It gives the payload of each task to a command, and takes what that
# prints for the result:
#
#   sh examples/curl/worker.sh http://127.0.0.1:7421/api/v1 shout tr a-z A-Z
#
# A command that fails makes the task fail. The task is lost to another worker only if this one has
# been silent for LEASE seconds, and then its fence is stale: nothing is ever recorded twice.
set -u
api=$1 queue=$2
shift 2

LEASE=${LEASE:-30}
worker=${WORKER:-$(hostname)-$$}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

post() { # path, then more for curl; prints the answer
    path=$1
    shift
    curl --silent --show-error --fail-with-body --request POST "$@" "$api/$path"
}

json() { # path, body
    post "$1" --header 'Content-Type: application/json' --data "$2"
}

beat() { # until it is stopped
    while sleep "$((LEASE / 3 + 1))"; do
        json "workers/$worker/heartbeat" '{}' >"$folder/beat"
    done
}

work() { # task, fence; then the command
    task=$1 attempt="worker=$worker&fence=$2"
    shift 2
    curl --silent --show-error --fail --output "$folder/payload" \
        "$api/attempts/$task/payload?$attempt"
    if "$@" <"$folder/payload" >"$folder/result" 2>"$folder/errors"; then
        post "attempts/$task/finish?$attempt" --data-binary "@$folder/result"
    else
        error=$(jq --null-input --rawfile text "$folder/errors" '{message: $text[:8000]}')
        json "attempts/$task/fail?$attempt" "$error"
    fi
}

claim="{\"queues\": [\"$queue\"], \"wait\": 20, \"lease_seconds\": $LEASE}"
while :; do
    if ! claimed=$(json "workers/$worker/claim" "$claim"); then
        sleep 1
        continue
    fi
    task=$(printf %s "$claimed" | jq --raw-output '.tasks[0].task // empty')
    fence=$(printf %s "$claimed" | jq --raw-output '.tasks[0].fence // empty')
    if [ -n "$task" ]; then
        beat &
        work "$task" "$fence" "$@" >/dev/null
        kill $! 2>/dev/null
    elif [ "$(printf %s "$claimed" | jq .draining)" = true ]; then
        post "workers/$worker/leave"
        exit 0
    fi
done
