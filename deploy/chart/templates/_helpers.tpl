{{- define "dupip.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The release's name, with "dupip" in it once. */}}
{{- define "dupip.fullname" -}}
{{- $name := include "dupip.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "dupip.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* What selects the pods. It may never change. */}}
{{- define "dupip.selectorLabels" -}}
app.kubernetes.io/name: {{ include "dupip.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Of objects and their pods, of a component of the chart: agent, reporter, drill or monitoring. */}}
{{- define "dupip.componentLabels" -}}
app.kubernetes.io/part-of: dupip
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{/* The labels of all objects that are the chart's own. */}}
{{- define "dupip.ownLabels" -}}
{{ include "dupip.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* Of an object: of (list . component). */}}
{{- define "dupip.labels" -}}
{{ include "dupip.ownLabels" (first .) }}
{{ include "dupip.componentLabels" (last .) }}
{{- with (first .).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of the specification of agents and reporter. An older chart has no such value; 0 is one. */}}
{{- define "dupip.history" -}}
revisionHistoryLimit: {{ kindIs "invalid" .Values.revisionHistoryLimit | ternary 10 .Values.revisionHistoryLimit | int }}
{{- end -}}

{{/* Of the pod's specification. */}}
{{- define "dupip.imagePullSecrets" -}}
{{- with .Values.imagePullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ kindIs "map" . | ternary . (dict "name" .) | dig "name" "" }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "dupip.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "dupip.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "dupip.reporterName" -}}
{{- /* Kubernetes makes a label of it and of 11 characters more. */ -}}
{{- printf "%s-reporter" (include "dupip.fullname" . | trunc 43 | trimSuffix "-") -}}
{{- end -}}

{{/* Not the agents' labels, by which the Service and others find those. */}}
{{- define "dupip.reporterSelectorLabels" -}}
app.kubernetes.io/name: {{ printf "%s-reporter" (include "dupip.name" . | trunc 54 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Of objects that are in no namespace: another release may have the same name in another one. */}}
{{- define "dupip.reporterClusterName" -}}
{{- printf "%s-reporter" (printf "%s-%s" (include "dupip.namespace" .) (include "dupip.fullname" .) | trunc 54 | trimSuffix "-") -}}
{{- end -}}

{{/* How a command begins that the agent of any node can answer. */}}
{{- define "dupip.exec" -}}
{{ printf "kubectl -n %s exec ds/%s -- dupip" (include "dupip.namespace" .) (include "dupip.fullname" .) }}
{{- end -}}

{{/* Where the runbook is. */}}
{{- define "dupip.runbook" -}}
{{- .Values.runbookURL | default (printf "https://github.com/dupip/dupip/blob/%s/deploy/RUNBOOK.md" (eq .Chart.AppVersion "dev" | ternary "main" (print "v" .Chart.AppVersion))) -}}
{{- end -}}

{{/* A text (.text) with commands of a host that has dupip, with those of the release (.root) instead. */}}
{{- define "dupip.commands" -}}
{{- $text := .text -}}
{{- with .root -}}
{{- $any := include "dupip.exec" . -}}
{{- if .Values.reporter.enabled -}}{{/* cmd/internal/cli/plugin.go has this, too. */}}
{{- $any = eq (include "dupip.namespace" .) "dupip" | ternary "kubectl dupip" (printf "kubectl dupip --dupip-namespace %s" (include "dupip.namespace" .)) -}}
{{- $text = regexReplaceAll "(dupip [a-z]+) --cluster" $text "${1}" -}}
{{- end -}}
{{- $labels := include "dupip.selectorLabels" . | replace ": " "=" | replace "\n" "," -}}
{{- $pod := printf "$(kubectl -n %s get pods -o name -l %s --field-selector spec.nodeName=NODE)" (include "dupip.namespace" .) $labels -}}
{{- $there := printf "kubectl -n %s exec %s -- dupip" (include "dupip.namespace" .) $pod -}}
{{- $text
    | replace "https://github.com/dupip/dupip/blob/main/deploy/RUNBOOK.md" (include "dupip.runbook" .)
    | replace "run there: dupip " (printf "run with the node's name as NODE: %s " $there)
    | replace "run there: journalctl -u dupip" (printf "run with the node's name as NODE: kubectl -n %s logs %s" (include "dupip.namespace" .) $pod)
    | replace "run: dupip " (printf "run: %s " $any)
    | replace "\\\"dupip explain " (printf "\\\"%s explain " $any)
    | replace "\\\"dupip status" (printf "\\\"%s status --node NODE" $any)
    | replace "-n NAMESPACE " (printf "-n %s " (include "dupip.namespace" .))
-}}
{{- end -}}
{{- end -}}

{{/* The Secret with the gossip key. */}}
{{- define "dupip.gossipSecret" -}}
{{- .Values.gossip.existingSecret | default (printf "%s-gossip" (include "dupip.fullname" .)) -}}
{{- end -}}

{{/* What the schema cannot say, or not in words. */}}
{{- define "dupip.check" -}}
{{- if eq (int .Values.gossip.port) (int .Values.metrics.port) -}}
{{- fail (printf "gossip.port and metrics.port are both %d: give the agent two ports" (int .Values.metrics.port)) -}}
{{- end -}}
{{- /* By the last one, "kubectl dupip" finds the reporter. */ -}}
{{- $component := printf "%s\ndupip.io/component: agent" (include "dupip.componentLabels" "agent") -}}
{{- range $key, $_ := printf "%s\n%s" (include "dupip.selectorLabels" .) $component | fromYaml -}}
{{- if hasKey ($.Values.podLabels | default dict) $key -}}
{{- fail (printf "podLabels: %s is the chart's: leave it out" $key) -}}
{{- end -}}
{{- end -}}
{{- range $key, $_ := printf "%s\n%s" (include "dupip.ownLabels" .) $component | fromYaml -}}
{{- if hasKey ($.Values.commonLabels | default dict) $key -}}
{{- fail (printf "commonLabels: %s is the chart's: leave it out" $key) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (.Values.reporter.podAnnotations | default dict) "dupip.io/config" -}}
{{- fail "reporter.podAnnotations: dupip.io/config is the chart's: leave it out" -}}
{{- end -}}
{{- range .Values.extraVolumes -}}
{{- if has .name (list "netns" "state" "api" "config" "gossip") -}}
{{- fail (printf "extraVolumes: %s is the chart's: give it another name" .name) -}}
{{- end -}}
{{- end -}}
{{- with .Values.podMonitor -}}
{{- if .scrapeTimeout -}}
{{- $start := toDate "2006" "2000" -}}
{{- if gt (dateModify .scrapeTimeout $start | unixEpoch | int) (dateModify .interval $start | unixEpoch | int) -}}
{{- fail (printf "podMonitor.scrapeTimeout: %s is longer than podMonitor.interval, %s: Prometheus refuses that" .scrapeTimeout .interval) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $own := dict
      "DUPIP_JOIN" "the flag in extraArgs, --join=…"
      "DUPIP_NODE_NAME" "the flag in extraArgs, --node-name=…"
      "DUPIP_ADVERTISE" "the flag in extraArgs, --advertise=…"
      "DUPIP_CLUSTER" "cluster"
      "DUPIP_GOSSIP_PORT" "gossip.port"
      "DUPIP_GOSSIP_KEY_FILE" "gossip.existingSecret"
      "DUPIP_CONFIG" "config"
      "DUPIP_CRI_SOCKET" "runtime.socket"
      "DUPIP_CNI_CONF_DIR" "runtime.cniConfDir"
      "DUPIP_ENGINE_SOCKET" "runtime.engineSocket"
      "DUPIP_METRICS_LISTEN" "metrics.port and metrics.address"
      "DUPIP_METRICS_HOLDERS" "metrics.holders"
      "DUPIP_STATE_DIR" "state.hostPath"
      "DUPIP_API_SOCKET" "nothing: the commands look for it where it is"
      "DUPIP_ALERTMANAGER_HTTP_CONFIG" "nothing: the container has no such file"
      "DUPIP_ON_CONFLICT" "nothing: the container has no such file"
      "DUPIP_ON_CONFLICT_USER" "nothing: the container has no such file"
-}}
{{- range .Values.extraEnv -}}
{{- if hasKey $own .name -}}
{{- fail (printf "extraEnv: %s is the chart's: set %s" .name (get $own .name)) -}}
{{- end -}}
{{- end -}}
{{- /* What other parts of the pod have to agree with. */ -}}
{{- $bound := dict
      "--gossip-port" "gossip.port"
      "--metrics-listen" "metrics.port and metrics.address"
      "--metrics-holders" "metrics.holders"
      "--gossip-key-file" "gossip.existingSecret"
      "--config" "config"
      "--cri-socket" "runtime.socket"
      "--cni-conf-dir" "runtime.cniConfDir"
      "--engine-socket" "runtime.engineSocket"
      "--state-dir" "state.hostPath"
      "--api-socket" "nothing: the commands look for it where it is"
      "--alertmanager-http-config" "nothing: the container has no such file"
      "--on-conflict" "nothing: the container has no such file"
      "--on-conflict-user" "nothing: the container has no such file"
-}}
{{- range .Values.extraArgs -}}
{{- $flag := splitList "=" . | first -}}
{{- if hasKey $bound $flag -}}
{{- fail (printf "extraArgs: %s is the chart's: set %s" $flag (get $bound $flag)) -}}
{{- end -}}
{{- end -}}
{{- include "dupip.checkMetrics" . -}}
{{- include "dupip.checkConfig" . -}}
{{- include "dupip.checkSettings" . -}}
{{- $_ := include "dupip.rules" . -}}{{/* Which refuses names, also where no rules are made. */}}
{{- end -}}

{{- define "dupip.image" -}}
{{- with .Values.image -}}
{{- if and (eq (toString .tag) "dev") (ne $.Chart.AppVersion "dev") -}}
{{- fail "image.tag: dev is the default of an older chart: use --reset-then-reuse-values instead of --reuse-values, or --set image.tag=" -}}
{{- end -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}
