{{- define "spatialstream.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "spatialstream.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "spatialstream.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "spatialstream.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "spatialstream.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* Not `spatialstream`, which is the name of the streams' own pods. */}}
{{- define "spatialstream.selector" -}}
app.kubernetes.io/name: spatialstream-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "spatialstream.labels" -}}
{{ include "spatialstream.selector" . }}
{{ include "spatialstream.release" . }}
{{- end -}}

{{/* Labels of all objects of a release, except its name and instance. */}}
{{- define "spatialstream.release" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: spatialstream
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The managed namespaces, separated by commas; empty: all. */}}
{{- define "spatialstream.namespaces" -}}
{{- if not .Values.watch.all -}}
{{- join "," (.Values.watch.namespaces | default (list .Release.Namespace)) -}}
{{- else if .Values.watch.namespaces -}}
{{- fail "watch.all and watch.namespaces exclude each other: unset one of them" -}}
{{- end -}}
{{- end -}}

{{/* The reference of an image, of (image values, chart). */}}
{{- define "spatialstream.image" -}}
{{- $image := index . 0 -}}{{- $chart := index . 1 -}}
{{- $image.repository -}}
{{- if $image.digest -}}@{{ $image.digest }}{{- else -}}:{{ $image.tag | default $chart.AppVersion }}{{- end -}}
{{- end -}}

{{- define "spatialstream.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "spatialstream.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Placement of pods, and the secrets to pull their image, from values with these fields. */}}
{{- define "spatialstream.placement" -}}
{{- range $field := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $ $field }}
{{ $field }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end -}}
