#!/usr/bin/env bash
# Prints a line for each Pod that comes or goes.
if [[ $1 == --config ]]; then
  cat <<END
configVersion: v1
kubernetes:
- apiVersion: v1
  kind: Pod
  executeHookOnEvent: [Added, Deleted]
END
else
  jq -r '.[] | select(.type == "Event") | "Pod \(.object.metadata.name) \(.watchEvent | ascii_downcase)"' "$BINDING_CONTEXT_PATH"
fi
