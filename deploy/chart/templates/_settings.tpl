{{/*
What agents refuse, in their words: a schema's patterns do not explain themselves. The schema has the shape of the values
and their limits. tests/deploy/chart_agrees_test.go asks chart and agent about the same values.
*/}}

{{/* An IP address as 8 or 32 hexadecimal digits, nothing for anything else. An IPv4 address within an IPv6 one is none. */}}
{{- define "dupip.hex" -}}
{{- $octet := "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])" -}}
{{- $half := "([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4})*)?" -}}
{{- $groups := regexFindAll "[0-9a-fA-F]+" . -1 | len -}}
{{- if regexMatch (printf "^%s(\\.%s){3}$" $octet $octet) . -}}
{{- range splitList "." . }}{{ printf "%02x" (int .) }}{{ end -}}
{{- else if or (and (eq $groups 8) (regexMatch (printf "^%s$" $half) .)) (and (lt $groups 8) (regexMatch (printf "^%s::%s$" $half $half) .)) -}}
{{- $digits := "" -}}
{{- range $n, $side := splitList "::" . -}}
{{- if $n }}{{ $digits = printf "%s%s" $digits (repeat (int (mul 4 (sub 8 $groups))) "0") }}{{ end -}}
{{- range regexFindAll "[0-9a-fA-F]+" $side -1 }}{{ $digits = printf "%s%s%s" $digits (repeat (int (sub 4 (len .))) "0") (lower .) }}{{ end -}}
{{- end -}}
{{- if not (hasPrefix "00000000000000000000ffff" $digits) }}{{ $digits }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* What is wrong with a CIDR. */}}
{{- define "dupip.cidrProblem" -}}
{{- $parts := splitList "/" . -}}
{{- $hex := include "dupip.hex" (first $parts) -}}
{{- $bits := last $parts -}}
{{- if not (and $hex (eq (len $parts) 2) (regexMatch "^(0|[1-9][0-9]{0,2})$" $bits) (le (int $bits) (mul 4 (len $hex) | int))) -}}
is not a CIDR; write for example 10.9.0.0/16, or 10.9.0.1/32 for one address; no zone, no IPv4 in IPv6 form
{{- else -}}
{{- $edge := index (list "" "[08]" "[048c]" "[02468ace]") (mod (int $bits) 4 | int) -}}
{{- if not (regexMatch (printf "^.{%d}%s0*$" (div (int $bits) 4) $edge) $hex) -}}
has bits set after the prefix; for the address alone write {{ first $parts }}/{{ mul 4 (len $hex) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "dupip.checkConfig" -}}
{{- $c := .Values.config -}}
{{- range $key := list "shared" "exclusive" -}}
{{- range $ip := get $c $key | default list -}}
{{- if not (include "dupip.hex" $ip) -}}
{{- with include "dupip.cidrProblem" $ip }}{{ fail (printf "config.%s: %q %s" $key $ip .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $patterns := dig "interfaces" list ($c.ignore | default dict) -}}
{{- $properties := dict -}}
{{- range $entry := $c.networks -}}
{{- if regexMatch "[.][0-9]+$" $entry.name -}}
{{- fail (printf "config.networks: %q ends as the name of a VLAN does; a VLAN belongs to its network, so write the name without the number" $entry.name) -}}
{{- end -}}
{{- range $cidr := dig "cidrs" list (.match | default dict) -}}
{{- with include "dupip.cidrProblem" $cidr }}{{ fail (printf "config.networks: %q %s" $cidr .) }}{{ end -}}
{{- end -}}
{{- range $key := list "interfaces" "peers" "bridges" -}}
{{- $patterns = concat $patterns (dig $key list ($entry.match | default dict)) -}}
{{- end -}}
{{- range $key := list "scope" "solicit" -}}
{{- if hasKey $entry $key -}}
{{- $value := get $entry $key | toString | replace "true" "on" | replace "false" "off" -}}
{{- $property := printf "%s %s" $entry.name $key -}}
{{- if ne $value (get $properties $property | default $value) -}}
{{- fail (printf "config.networks: %s: %s contradicts %s in an earlier entry for this network; keep one of the two" $property $value (get $properties $property)) -}}
{{- end -}}
{{- $_ := set $properties $property $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $element := `(\\.|[^\\\]-])` -}}
{{- $glob := printf `^(\\.|[^\\[]|\[\^?(%s(-%s)?)+\])+$` $element $element -}}
{{- range $patterns -}}
{{- if not (regexMatch $glob .) -}}
{{- fail (printf "config: %q is not a pattern of interface names: [ needs a ] and a range two ends" .) -}}
{{- else if and (gt (len .) 15) (not (regexMatch `[*?\[\\]` .)) -}}
{{- fail (printf "config: %q never matches, interface names have at most 15 characters; shorten it, or end it with *" .) -}}
{{- end -}}
{{- end -}}
{{- $limits := $c.limits | default dict -}}
{{- if gt (dig "bindingsPerInterface" 1 $limits | int) (dig "bindings" 65536 $limits | int) -}}
{{- fail "config.limits: bindingsPerInterface is more than bindings; lower it" -}}
{{- end -}}
{{- end -}}

{{/* Where the agent serves metrics. Brackets are for IPv6; IPv4 may have them, too. */}}
{{- define "dupip.metricsListen" -}}
{{- $address := .Values.metrics.address | default "" -}}
{{- if eq $address "hostIP" }}[$(DUPIP_ADVERTISE)]{{ else if contains ":" $address }}[{{ $address }}]{{ else }}{{ $address }}{{ end -}}
:{{ .Values.metrics.port | int }}
{{- end -}}

{{/* Where the kubelet looks for it, if not at the pod's address, which is the node's. */}}
{{- define "dupip.probeHost" -}}
{{- with .Values.metrics.address }}{{ if ne . "hostIP" }}{{ . }}{{ end }}{{ end -}}
{{- end -}}

{{- define "dupip.checkMetrics" -}}
{{- with include "dupip.probeHost" . -}}
{{- $hex := include "dupip.hex" . -}}
{{- if not $hex -}}
{{- fail (printf "metrics.address: %q is neither hostIP nor an IP address; without a port, which is metrics.port" .) -}}
{{- else if regexMatch "^(0+|ff.{30}|e.{7}|f{8})$" $hex -}}
{{- fail (printf "metrics.address: nobody can listen at %s alone; leave it empty for all addresses of the node" .) -}}
{{- else if $.Values.podMonitor.enabled -}}
{{- fail (printf "podMonitor.enabled: Prometheus scrapes the pods' address, which is the node's, and nothing listens there with metrics.address %s; set metrics.address to hostIP, or make no PodMonitor" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A duration of Go in milliseconds, 0 for anything else. */}}
{{- define "dupip.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $sum := 0.0 -}}
{{- if regexMatch "^([0-9]{1,9}([.][0-9]{1,9})?(ms|s|m|h))+$" . -}}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 -}}
{{- $sum = addf $sum (mulf (regexFind "[0-9.]+" . | float64) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* What is wrong with a setting of extraEnv or extraArgs, a dict with name and value. */}}
{{- define "dupip.settingProblem" -}}
{{- $value := .value -}}
{{- $choices := dict
      "DUPIP_ATTACH" (list "^(auto|tcx|tc|xdp)$" "auto, tcx, tc or xdp")
      "DUPIP_CAPTURE" (list "^(on|off)$" "on or off")
      "DUPIP_CONFIGURED_EVIDENCE" (list "^(on|off)$" "on or off")
      "DUPIP_LOG_LEVEL" (list "^(?i)(debug|info|warn|error)$" "debug, info, warn or error")
      "DUPIP_LOG_FORMAT" (list "^(?i)(text|json)$" "text or json")
      "DUPIP_OUTPUT" (list "^(table|wide|json|yaml)$" "table, wide, json or yaml")
      "DUPIP_REPLICAS" (list "^([1-9]|1[0-6])$" "1 to 16")
      "DUPIP_NODE_NAME" (list "^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$" "1 to 253 letters, digits and . _ -")
      "DUPIP_CLUSTER" (list "^[!-~]([ -~]{0,62}[!-~])?$" "at most 64 printable ASCII characters")
      "DUPIP_MIN_OVERLAP" (list "" "10ms to 1m" 10.0 60000.0)
      "DUPIP_VIP_OVERLAP" (list "" "1s to 5m" 1000.0 300000.0)
      "DUPIP_UNHELD_AFTER" (list "" "1s to 24h" 1000.0 86400000.0)
      "DUPIP_BIND" (list "" "an address of the node")
      "DUPIP_JOIN" (list "" "addresses or names, with :PORT or without")
      "DUPIP_ALERTMANAGER" (list "^https?://[A-Za-z0-9][A-Za-z0-9.:-]*(/[A-Za-z0-9._/-]*)?(,https?://[A-Za-z0-9][A-Za-z0-9.:-]*(/[A-Za-z0-9._/-]*)?){0,7}$" "URLs such as http://alertmanager.example:9093")
      "DUPIP_ADVERTISE" (list "" "an address or a name, with :PORT or without")
-}}
{{- $allowed := get $choices .name -}}
{{- $hosts := list -}}
{{- if not $allowed -}}
is no setting of dupip agent
{{- else if contains "$(" $value -}}{{/* Kubernetes replaces that. */}}
{{- else if not (regexMatch (first $allowed) $value) -}}
is {{ quote $value }}: must be {{ index $allowed 1 }}
{{- else if eq (len $allowed) 4 -}}
{{- $ms := include "dupip.milliseconds" $value | float64 -}}
{{- if or (lt $ms (index $allowed 2)) (gt $ms (index $allowed 3)) -}}
is {{ quote $value }}: must be {{ index $allowed 1 }}
{{- end -}}
{{- else if has .name (list "DUPIP_BIND" "DUPIP_JOIN" "DUPIP_ADVERTISE") -}}
{{- range ternary (splitList "," $value) (list $value) (eq .name "DUPIP_JOIN") -}}
{{- $host := . -}}
{{- $port := "1" -}}
{{- if and (ne $.name "DUPIP_BIND") (not (include "dupip.hex" .)) -}}
{{- $port = regexFind ":[0-9]*$" . | trimPrefix ":" | default "1" -}}
{{- $host = regexReplaceAll ":[0-9]+$" . "" | trimPrefix "[" | trimSuffix "]" -}}
{{- end -}}
{{- $hex := include "dupip.hex" $host -}}
{{- $name := and (ne $.name "DUPIP_BIND") (regexMatch "^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*[.]?$" $host) (regexMatch "[^0-9.]" $host) -}}
{{- $nobody := or (regexMatch "^(ff.{30}|e.{7}|f{8})$" $hex) (and (ne $.name "DUPIP_BIND") (regexMatch "^0+$" $hex)) -}}
{{- if or (not (or $hex $name)) $nobody (not (regexMatch "^[0-9]{1,5}$" $port)) (lt (int $port) 1) (gt (int $port) 65535) -}}
is {{ quote $value }}: must be {{ index $allowed 1 }}
{{- break -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "dupip.checkSettings" -}}
{{- range .Values.extraEnv -}}
{{- if and (hasPrefix "DUPIP_" .name) (not .valueFrom) -}}{{/* An empty variable is none. */}}
{{- $setting := dict "name" .name "value" (.value | default "$()") -}}
{{- with include "dupip.settingProblem" $setting }}{{ fail (printf "extraEnv: %s %s" $setting.name .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- $flag := splitList "=" . | first -}}
{{- $name := printf "DUPIP_%s" (trimPrefix "--" $flag | upper | replace "-" "_") -}}
{{- if eq $flag "--output" }}{{ fail "extraArgs: --output is no setting of dupip agent" }}{{ end -}}
{{- with include "dupip.settingProblem" (dict "name" $name "value" (trimPrefix $flag . | trimPrefix "=")) -}}
{{- fail (printf "extraArgs: %s %s" $flag .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
