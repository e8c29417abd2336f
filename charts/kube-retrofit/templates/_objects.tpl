{{- /* Given the root and an object: returns a non-empty string if the values select the object. */ -}}
{{- define "kube-retrofit.wanted" -}}
{{- $values := (index . 0).Values -}}
{{- $object := index . 1 -}}
{{- $name := $object.metadata.name -}}
{{- if and (eq $object.kind "Namespace") (eq $name (index . 0).Release.Namespace) -}}
{{- if $values.namespace.create }}yes{{ end -}}
{{- else if and (eq $object.kind "PodDisruptionBudget") (eq (int (include "kube-retrofit.program" . | fromYaml).replicas) 1) -}}
{{- else if and $values.clientCertificate (eq $object.kind "ClusterRoleBinding") (hasSuffix ":admission-controller:view" $name) -}}
{{- else -}}
yes
{{- end -}}
{{- end -}}

{{- /* Given the root and an object of a program: returns the values of the program; empty for the page, which has none. */ -}}
{{- define "kube-retrofit.program" -}}
{{- $values := (index . 0).Values -}}
{{- $component := index (index . 1).metadata.labels "app.kubernetes.io/component" -}}
{{- if eq $component "admission-controller" }}{{ toYaml $values.admission }}
{{- else if eq $component "background-controller" }}{{ toYaml $values.controller }}
{{- end -}}
{{- end -}}

{{- /* Given the root and an object: returns the object, changed according to the values. */ -}}
{{- define "kube-retrofit.object" -}}
{{- $values := (index . 0).Values -}}
{{- $object := index . 1 -}}
{{- if eq $object.kind "Deployment" -}}
{{- include "kube-retrofit.deployment" . -}}
{{- else -}}
{{- if eq $object.kind "PodDisruptionBudget" -}}
{{- $budget := (include "kube-retrofit.program" . | fromYaml).podDisruptionBudget -}}
{{- if hasKey $budget "maxUnavailable" -}}
{{- /* A budget has one of the two. */ -}}
{{- $_ := unset $object.spec "minAvailable" -}}
{{- end -}}
{{- $_ := mergeOverwrite $object.spec $budget -}}
{{- else if and (eq $object.kind "ConfigMap") (eq $object.metadata.name (index . 0).Release.Namespace) -}}
{{- $_ := mergeOverwrite $object.data $values.config -}}
{{- else if and (eq $object.kind "CustomResourceDefinition") $values.crds.keep -}}
{{- $_ := set $object.metadata "annotations" (merge (dict "helm.sh/resource-policy" "keep") ($object.metadata.annotations | default dict)) -}}
{{- else if $values.metricsAuth -}}
{{- include "kube-retrofit.scraped" $object -}}
{{- end -}}
{{- if has $object.kind (list "ServiceMonitor" "PrometheusRule") -}}
{{- $_ := set $object.metadata "labels" (merge $object.metadata.labels $values.monitoring.labels) -}}
{{- end -}}
{{- toYaml $object -}}
{{- end -}}
{{- end -}}

{{- /* Given an object through which metrics are reached: changes it to the port that requires a token; returns nothing. */ -}}
{{- define "kube-retrofit.scraped" -}}
{{- if and (eq .kind "Service") (hasSuffix "-metrics" .metadata.name) -}}
{{- $_ := set .spec "ports" (list (dict "name" "metrics" "port" 8443 "targetPort" "secure-metrics")) -}}
{{- else if eq .kind "NetworkPolicy" -}}
{{- range .spec.ingress -}}
{{- range .ports -}}
{{- if eq .port "metrics" }}{{ $_ := set . "port" "secure-metrics" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- else if eq .kind "ServiceMonitor" -}}
{{- range .spec.endpoints -}}
{{- $_ := set . "scheme" "https" -}}
{{- $_ := set . "bearerTokenFile" "/var/run/secrets/kubernetes.io/serviceaccount/token" -}}
{{- $_ := set . "tlsConfig" (dict "insecureSkipVerify" true) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Given the root and the Deployment of a program or of the page: returns the Deployment, changed according to the values. */ -}}
{{- define "kube-retrofit.deployment" -}}
{{- $root := index . 0 -}}
{{- $object := index . 1 -}}
{{- $pod := $object.spec.template.spec -}}
{{- $image := $root.Values.image -}}
{{- $container := first $pod.containers -}}
{{- $_ := set $container "image" (printf "%s:%s" $image.repository ($image.tag | default $root.Chart.AppVersion)) -}}
{{- /* IfNotPresent is Kubernetes' default as well, but for this tag. */ -}}
{{- if or (ne $image.pullPolicy "IfNotPresent") (eq $image.tag "latest") -}}
{{- $_ := set $container "imagePullPolicy" $image.pullPolicy -}}
{{- end -}}
{{- with $image.pullSecrets -}}
{{- $secrets := list -}}
{{- range . -}}
{{- $secrets = append $secrets (dict "name" .) -}}
{{- end -}}
{{- $_ := set $pod "imagePullSecrets" $secrets -}}
{{- end -}}
{{- with include "kube-retrofit.program" . | fromYaml -}}
{{- include "kube-retrofit.settings" (list $root $object .) -}}
{{- end -}}
{{- toYaml $object -}}
{{- end -}}

{{- /* Given the root, the Deployment of a program and the values of the program: changes the Deployment; returns nothing. */ -}}
{{- define "kube-retrofit.settings" -}}
{{- $root := index . 0 -}}
{{- $object := index . 1 -}}
{{- $program := index . 2 -}}
{{- $template := $object.spec.template -}}
{{- $container := first $template.spec.containers -}}
{{- $_ := set $object.spec "replicas" $program.replicas -}}
{{- $_ := set $template.metadata "annotations" (mergeOverwrite $template.metadata.annotations $program.podAnnotations) -}}
{{- range $name, $value := $program.podLabels -}}
{{- if ne $value (get $object.spec.selector.matchLabels $name | default $value) -}}
{{- fail (printf "podLabels: the Deployment %s selects its Pods by %s, so this label cannot be changed; leave it out" $object.metadata.name $name) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $template.metadata "labels" (merge $template.metadata.labels $program.podLabels) -}}
{{- $_ := set $container "resources" (mergeOverwrite $container.resources $program.resources) -}}
{{- if $root.Values.metricsAuth -}}
{{- $_ := set $container "args" (append $container.args "--secure-metrics-port=8443") -}}
{{- $_ := set $container "ports" (append $container.ports (dict "name" "secure-metrics" "containerPort" 8443)) -}}
{{- $_ := set $template.metadata "annotations" (mergeOverwrite $template.metadata.annotations (dict "prometheus.io/port" "8443" "prometheus.io/scheme" "https")) -}}
{{- end -}}
{{- range $flag, $value := $program.flags -}}
{{- $text := toString $value -}}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) -}}
{{- $text = toString (int64 $value) -}}
{{- end -}}
{{- $_ := set $container "args" (append $container.args (printf "--%s=%s" $flag $text)) -}}
{{- end -}}
{{- $env := concat ($container.env | default list) $program.env -}}
{{- if and $root.Values.clientCertificate (eq (first $container.command) "retrofit-admission") -}}
{{- $env = concat (list (dict "name" "RETROFIT_CLIENT_CA_FILE" "value" "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt") (dict "name" "RETROFIT_CLIENT_NAMES" "value" "kube-apiserver-webhooks")) $env -}}
{{- end -}}
{{- with $env -}}
{{- $_ := set $container "env" . -}}
{{- end -}}
{{- $_ := set $container "volumeMounts" (concat $container.volumeMounts $program.volumeMounts) -}}
{{- $_ := set $template.spec "volumes" (concat $template.spec.volumes $program.volumes) -}}
{{- $_ := mergeOverwrite $template.spec $program.podSpec -}}
{{- range $template.spec.topologySpreadConstraints -}}
{{- /* Without a selector it would spread no Pod, so the Pods of this program are selected. */ -}}
{{- if not .labelSelector -}}
{{- $_ := set . "labelSelector" $object.spec.selector -}}
{{- end -}}
{{- end -}}
{{- end -}}
