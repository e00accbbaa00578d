{{/* The resources of the books that the reporter reads, by API group. */}}
{{- define "dupip.bookResources" -}}
kubernetes: {"": [pods, nodes]}
calico: {crd.projectcalico.org: [ipamblocks, ippools], projectcalico.org: [ipamblocks, ippools]}
whereabouts: {whereabouts.cni.cncf.io: [ippools, overlappingrangeipreservations]}
cilium: {cilium.io: [ciliumnodes]}
azure: {acn.azure.com: [nodenetworkconfigs]}
{{- end -}}

{{/* The value of --books. Helm reads off as false. */}}
{{- define "dupip.books" -}}
{{- $books := .Values.reporter.books -}}
{{- if kindIs "slice" $books -}}{{ join "," $books }}{{- else -}}{{ eq (toString $books) "auto" | ternary "auto" "off" }}{{- end -}}
{{- end -}}

{{/* What the reporter may read for them, as rules of a ClusterRole; nothing if it reads none. */}}
{{- define "dupip.bookRules" -}}
{{- $books := .Values.reporter.books -}}
{{- $all := include "dupip.bookResources" . | fromYaml -}}
{{- $names := list -}}
{{- if kindIs "slice" $books }}{{ $names = prepend $books "kubernetes" | uniq }}{{ else if eq (toString $books) "auto" }}{{ $names = keys $all | sortAlpha }}{{ end -}}
{{- range $name := $names }}
# The book {{ $name }}.
{{- range $group, $resources := get $all $name }}
- apiGroups: [{{ $group | quote }}]
  resources: [{{ join ", " $resources }}]
  verbs: [get, list, watch]
{{- end }}
{{- end }}
{{- end -}}
