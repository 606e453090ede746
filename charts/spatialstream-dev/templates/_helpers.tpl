{{/* Labels of a service, of (root, name). */}}
{{- define "dev.selector" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
{{- end -}}

{{- define "dev.labels" -}}
{{ include "dev.selector" . }}
{{- with index . 0 }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: spatialstream-dev
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}
{{- end -}}

{{- define "dev.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/*
A service, and its only pod. The argument is a map with: root; name, also the argument of the image's entrypoint; port;
probe; and optionally env, annotations, serviceAccount, mounts, volumes, beside (another container of the same image) and
keeps (whether its data may be stored on the claim).
*/}}
{{- define "dev.service" -}}
{{- $labels := include "dev.labels" (list .root .name) }}
{{- $selector := include "dev.selector" (list .root .name) }}
{{- $name := printf "%s-%s" .root.Release.Name .name }}
{{- $image := printf "%s:%s" .root.Values.image.repository (.root.Values.image.tag | default .root.Chart.AppVersion) }}
{{- $claimed := and .keeps .root.Values.storage.enabled .root.Values.storage.services }}
apiVersion: v1
kind: Service
metadata:
  name: {{ $name | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- $labels | nindent 4 }}
spec:
  selector: {{- $selector | nindent 4 }}
  ports:
    - {name: {{ .name }}, port: {{ .port }}, targetPort: {{ .name }}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- $labels | nindent 4 }}
spec:
  replicas: 1
  serviceName: {{ $name | quote }}
  selector:
    matchLabels: {{- $selector | nindent 6 }}
  template:
    metadata:
      labels: {{- $labels | nindent 8 }}
      {{- with .annotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- with .serviceAccount }}
      serviceAccountName: {{ . | quote }}
      {{- end }}
      automountServiceAccountToken: {{ hasKey . "serviceAccount" }}
      enableServiceLinks: false
      terminationGracePeriodSeconds: 30
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: {{ .name }}
          image: {{ $image | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: [{{ .name }}]
          {{- with .env }}
          env: {{- range $key, $value := . }}
            - {name: {{ $key }}, value: {{ $value | quote }}}
          {{- end }}
          {{- end }}
          ports:
            - {name: {{ .name }}, containerPort: {{ .port }}}
          startupProbe: {{- toYaml (merge (dict "periodSeconds" 2 "failureThreshold" 60) .probe) | nindent 12 }}
          livenessProbe: {{- toYaml (merge (dict "periodSeconds" 15 "timeoutSeconds" 5 "failureThreshold" 4) .probe) | nindent 12 }}
          readinessProbe: {{- toYaml (merge (dict "periodSeconds" 5 "timeoutSeconds" 5) .probe) | nindent 12 }}
          resources: {{- toYaml (index .root.Values .name).resources | nindent 12 }}
          securityContext: {{- include "dev.containerSecurity" . | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            - {name: data, mountPath: /data{{ if $claimed }}, subPath: {{ $name }}{{ end }}}
            {{- with .mounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
        {{- with .beside }}
        - name: {{ .name }}
          image: {{ $image | quote }}
          imagePullPolicy: {{ $.root.Values.image.pullPolicy }}
          command: {{ toJson .command }}
          resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 64Mi}}
          securityContext: {{- include "dev.containerSecurity" . | nindent 12 }}
          volumeMounts: {{- toYaml .mounts | nindent 12 }}
        {{- end }}
      volumes:
        - {name: tmp, emptyDir: {}}
        - name: data
          {{- if $claimed }}
          persistentVolumeClaim: {claimName: {{ .root.Release.Name }}-checkpoints}
          {{- else }}
          emptyDir: {}
          {{- end }}
        {{- with .volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}
