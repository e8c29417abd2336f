#!/usr/bin/env bash
if [[ $1 == "--config" ]]; then
  cat <<EOF
configVersion: v1
kubernetesValidating:
- name: team-label.example.com
  rules:
  - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments], scope: Namespaced}
EOF
  exit
fi
if jq -e '.[0].review.request.object.metadata.labels.team' "$BINDING_CONTEXT_PATH" > /dev/null; then
  echo '{"allowed": true}'
else
  echo '{"allowed": false, "message": "give it a label team"}'
fi > "$VALIDATING_RESPONSE_PATH"
