{{- define "spatialstream.gateway" -}}
{{- include "spatialstream.fullname" . }}-gateway
{{- end -}}

{{- define "spatialstream.gatewayAccount" -}}
{{- $account := .Values.gateway.serviceAccount -}}
{{- $account.name | default (ternary (include "spatialstream.gateway" .) "default" $account.create) -}}
{{- end -}}

{{- define "spatialstream.gatewaySelector" -}}
app.kubernetes.io/name: spatialstream-gateway
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "spatialstream.gatewayLabels" -}}
{{ include "spatialstream.gatewaySelector" . }}
{{ include "spatialstream.release" . }}
{{- end -}}

{{/* The Secret with its certificate; empty: plain HTTP. */}}
{{- define "spatialstream.gatewayTls" -}}
{{- $tls := .Values.gateway.tls -}}
{{- $tls.secretName | default (ternary (printf "%s-tls" (include "spatialstream.gateway" .)) "" (ne $tls.issuer.name "")) -}}
{{- end -}}

{{/* Not empty: the operator may register queries through it. */}}
{{- define "spatialstream.queriesServed" -}}
{{- if and .Values.gateway.enabled .Values.gateway.access.tokenReview -}}yes{{- end -}}
{{- end -}}

{{/* The default audience of tokens if gateway.access.audiences is empty. The API server accepts no such tokens. */}}
{{- define "spatialstream.gatewayAudience" -}}spatialstream-gateway{{- end -}}

{{/* The operator's token and the gateway's CA certificate: sources of a projected volume. */}}
{{- define "spatialstream.gatewayAccess" -}}
- serviceAccountToken:
    path: token
    expirationSeconds: 3600
    audience: {{ first .Values.gateway.access.audiences | default (include "spatialstream.gatewayAudience" .) | quote }}
{{- with include "spatialstream.gatewayTls" . }}
- secret:
    name: {{ . | quote }}
    optional: true
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- end -}}

{{/* Its URL within the cluster. */}}
{{- define "spatialstream.gatewayService" -}}
{{- $scheme := ternary "https" "http" (ne (include "spatialstream.gatewayTls" .) "") -}}
{{- $standard := ternary 443 80 (eq $scheme "https") -}}
{{- $port := int .Values.gateway.service.port -}}
{{- $scheme }}://{{ include "spatialstream.gateway" . }}.{{ .Release.Namespace }}.svc{{ if ne $port $standard }}:{{ $port }}{{ end -}}
{{- end -}}

{{/* Its public URL. */}}
{{- define "spatialstream.gatewayUrl" -}}
{{- $gateway := .Values.gateway -}}
{{- if $gateway.url -}}
{{- $gateway.url | trimSuffix "/" -}}
{{- else if $gateway.ingress.enabled -}}
{{- ternary "https" "http" (ne $gateway.ingress.tlsSecretName "") }}://{{ $gateway.ingress.host -}}
{{- else if and $gateway.httpRoute.enabled $gateway.httpRoute.hostnames -}}
https://{{ first $gateway.httpRoute.hostnames -}}
{{- else -}}
{{- include "spatialstream.gatewayService" . -}}
{{- end -}}
{{- end -}}

{{/* Peers that may connect to the pods of streams, as JSON: the gateway, and networkPolicy.clientsFrom. */}}
{{- define "spatialstream.clientsFrom" -}}
{{- $clients := .Values.networkPolicy.clientsFrom -}}
{{- if .Values.gateway.enabled -}}
{{- $here := dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace) -}}
{{- $pods := dict "matchLabels" (include "spatialstream.gatewaySelector" . | fromYaml) -}}
{{- $clients = append $clients (dict "namespaceSelector" $here "podSelector" $pods) -}}
{{- end -}}
{{- toJson $clients -}}
{{- end -}}

{{/* Its permissions in the namespaces of streams. tests/charts/test_rbac.py holds the same table: change both. */}}
{{- define "spatialstream.gatewayRules" -}}
- apiGroups: [spatialstream.dev]
  resources: [spatialstreams]
  verbs: [list]
{{- with .Values.gateway.secrets }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{ toJson . }}
  verbs: [get]
{{- end }}
{{- end -}}

{{- define "spatialstream.gatewaySubject" -}}
- kind: ServiceAccount
  name: {{ include "spatialstream.gatewayAccount" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}
