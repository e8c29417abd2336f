#!/usr/bin/env bash
# Refuses each ConfigMap with the label hook=yes whose name is not the word that it holds.
if [[ $1 == --config ]]; then
  cat <<END
configVersion: v1
kubernetesValidating:
- name: names.hooks.example.com
  labelSelector: {matchLabels: {hook: "yes"}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
END
elif jq -e '.[0].review.request.object | .metadata.name == .data.word' "$BINDING_CONTEXT_PATH" > /dev/null; then
  echo '{"allowed": true}' > "$VALIDATING_RESPONSE_PATH"
else
  echo '{"allowed": false, "message": "it is to be called as its word"}' > "$VALIDATING_RESPONSE_PATH"
fi
