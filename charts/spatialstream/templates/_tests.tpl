{{/*
A pod of `helm test`, as the operator's account; of (root, suffix of its name, script, environment, whether it asks the
API server, sources of the volume at /var/run/secrets/spatialstream).
*/}}
{{- define "spatialstream.testPod" -}}
{{- $root := index . 0 -}}{{- $sources := index . 5 -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "spatialstream.fullname" $root }}-{{ index . 1 }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "spatialstream.testSelector" $root | nindent 4 }}
    app.kubernetes.io/managed-by: {{ $root.Release.Service }}
  annotations:
    helm.sh/hook: test
    # succeeded pods are kept until the next run, because `helm test --logs` reads their logs afterwards
    helm.sh/hook-delete-policy: before-hook-creation
spec:
  restartPolicy: Never
  serviceAccountName: {{ include "spatialstream.serviceAccount" $root | quote }}
  automountServiceAccountToken: {{ index . 4 }}
  enableServiceLinks: false
  activeDeadlineSeconds: 120
  securityContext: {{- include "spatialstream.podSecurity" $root | nindent 4 }}
  {{- include "spatialstream.placement" $root.Values | indent 2 }}
  containers:
    - name: test
      image: {{ include "spatialstream.image" (list $root.Values.image $root.Chart) | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command: [python3, -c, {{ index . 2 | $root.Files.Get | toJson }}]
      env: {{- index . 3 | nindent 8 }}
      resources:
        requests: {cpu: 50m, memory: 64Mi}
        limits: {memory: 128Mi}
      securityContext: {{- include "spatialstream.containerSecurity" $root | nindent 8 }}
      {{- with $sources }}
      volumeMounts:
        - {name: gateway, mountPath: /var/run/secrets/spatialstream, readOnly: true}
      {{- end }}
  {{- with $sources }}
  volumes:
    - name: gateway
      projected:
        sources: {{- . | nindent 10 }}
  {{- end }}
{{- end -}}

{{- define "spatialstream.testSelector" -}}
app.kubernetes.io/name: spatialstream-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}
