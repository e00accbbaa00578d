{{/* The rules of alerts.yaml with commands for this cluster and with what prometheusRule changes: without changes the file, to the byte. */}}
{{- define "dupip.rules" -}}
{{- $file := .Files.Get "alerts.yaml" | required "alerts.yaml is not in the chart" -}}
{{- $file = include "dupip.commands" (dict "root" . "text" $file) -}}
{{- $values := .Values.prometheusRule -}}
{{- $overrides := $values.overrides | default dict -}}
{{- $addresses := ($values.thresholds).addresses | default 10 | int -}}
{{- $percent := ($values.thresholds).rangeLeftPercent | default 10 | int -}}
{{- include "dupip.checkAlertLabels" (dict "at" "alertLabels" "labels" $values.alertLabels "taken" (list "severity")) -}}
{{- $names := list -}}
{{- $groups := list -}}
{{- range $group := (fromYaml $file).groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- $name := $rule.alert | default "" -}}{{/* Others record. */}}
{{- $text := toRawJson $rule -}}
{{- if has $name (list "DupipDuplicateAddress" "DupipDuplicateAddresses" "DupipAddressSuspected" "DupipAddressesSuspected") -}}
{{- $text = regexReplaceAll `(> |more than )10\b` $text (printf "${1}%d" $addresses) -}}
{{- else if eq $name "DupipRangeNearlyUsedUp" -}}
{{- $text = $text | replace "< 0.1)" (printf "< %v)" (divf $percent 100)) | replace "10%" (printf "%d%%" $percent) -}}
{{- end -}}
{{- $rule = fromJson $text -}}
{{- $override := get $overrides $name | default dict -}}
{{- with $override.for }}{{ $_ := set $rule "for" . }}{{ end -}}
{{- if $name -}}
{{- $names = append $names $name -}}
{{- include "dupip.checkAlertLabels" (dict "at" (print "overrides." $name) "labels" $override.labels "taken" list) -}}
{{- $_ := set $rule "labels" (merge dict ($override.labels | default dict) ($values.alertLabels | default dict) $rule.labels) -}}
{{- end -}}
{{- if dig "enabled" true $override }}{{ $rules = append $rules $rule }}{{ end -}}
{{- end -}}
{{- if $rules }}{{ $groups = append $groups (set $group "rules" $rules) }}{{ end -}}
{{- end -}}
{{- range $name, $_ := $overrides -}}
{{- if not (has $name $names) -}}
{{- fail (printf "prometheusRule.overrides: there is no alert %s; deploy/RUNBOOK.md has a section for each" $name) -}}
{{- end -}}
{{- end -}}
{{- /* Each tells of what the other leaves to it. */ -}}
{{- range $one, $many := dict "DupipDuplicateAddress" "DupipDuplicateAddresses" "DupipAddressSuspected" "DupipAddressesSuspected" -}}
{{- if and (dig $one "enabled" true $overrides) (not (dig $many "enabled" true $overrides)) -}}
{{- fail (printf "prometheusRule.overrides: of more than %d addresses in a network only %s tells, not %s; disable both, or raise prometheusRule.thresholds.addresses" $addresses $many $one) -}}
{{- end -}}
{{- end -}}
{{- $changed := dict "groups" $groups | toYaml -}}
{{- eq $changed (fromYaml $file | toYaml) | ternary $file $changed -}}
{{- end -}}

{{/* Refuses labels that alerts have by their expressions: rules and routes rely on them. */}}
{{- define "dupip.checkAlertLabels" -}}
{{- range $key, $_ := .labels -}}
{{- if has $key (concat $.taken (list "alertname" "alertstate" "cluster" "network" "ip" "instance" "job")) -}}
{{- fail (printf "prometheusRule.%s: alerts have a label %s of their own; choose another name" $.at $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
