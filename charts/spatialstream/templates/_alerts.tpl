{{/*
Prometheus rules from files/alerts.yaml and the value alerts.rules. Arguments: (root, labels that select the operator's
pod, labels that select the gateway's pods). In an expression $above is replaced by the threshold, $operator and $gateway
by those labels. Without labels of the gateway there are no alerts about it.
*/}}
{{- define "spatialstream.alerts" -}}
{{- $root := index . 0 -}}{{- $operator := index . 1 -}}{{- $gateway := index . 2 -}}
{{- $values := $root.Values.alerts -}}
groups:
  - name: spatialstream
    rules:
{{- range $root.Files.Get "files/alerts.yaml" | fromYamlArray }}
{{- $set := index $values.rules .alert | default dict }}
{{- if and (dig "enabled" true $set) (or $gateway (not (contains "$gateway" .expr))) }}
{{- if and (hasKey $set "above") (not (hasKey . "above")) }}
{{- fail (printf "alerts.rules.%s has no threshold `above`" .alert) }}
{{- end }}
{{- $above := ternary $set.above .above (hasKey $set "above") | toString }}
      - alert: {{ .alert }}
        expr: |-
          {{- .expr | replace "$above" $above | replace "$operator" $operator | replace "$gateway" $gateway | trim | nindent 10 }}
        for: {{ $set.for | default .for }}
        labels:
          severity: {{ $set.severity | default .severity }}
        annotations:
          summary: {{ .summary | quote }}
          description: {{ .description | quote }}
          runbook_url: {{ $values.runbookUrl | replace "%s" (lower .alert) | quote }}
{{- end }}
{{- end }}
{{- end -}}
