{{/*
Prometheus's rules from files/alerts.yaml and the value alerts.rules; of (root, labels that select the operator's pod).
In an expression $above is the threshold, and $operator stands for those labels.
*/}}
{{- define "spatialstream.alerts" -}}
{{- $root := index . 0 -}}{{- $operator := index . 1 -}}
{{- $values := $root.Values.alerts -}}
groups:
  - name: spatialstream
    rules:
{{- range $root.Files.Get "files/alerts.yaml" | fromYamlArray }}
{{- $set := index $values.rules .alert | default dict }}
{{- if dig "enabled" true $set }}
{{- if and (hasKey $set "above") (not (hasKey . "above")) }}
{{- fail (printf "alerts.rules.%s has no threshold `above`" .alert) }}
{{- end }}
{{- $above := ternary $set.above .above (hasKey $set "above") | toString }}
      - alert: {{ .alert }}
        expr: |-
          {{- .expr | replace "$above" $above | replace "$operator" $operator | trim | nindent 10 }}
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
