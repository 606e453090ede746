{{/*
The operator's permissions in managed namespaces. tests/charts/test_rbac.py holds the same table: change both.

To grant the drivers a Role the operator must have all of its permissions itself: therefore it may delete collections of
pods, although it never does.
*/}}
{{- define "spatialstream.rules" -}}
{{ include "spatialstream.ownRules" (list (include "spatialstream.queriesServed" .)) }}
- apiGroups: [spatialstream.dev]
  resources: [spatialstreams/finalizers] # to own objects so that a stream outlives them while it is deleted
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete, deletecollection]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, create, patch]
- apiGroups: [events.k8s.io]
  resources: [events] # list: what Kubernetes says of a pod that does not start
  verbs: [create, list]
{{- if .Values.rbac.secrets.get }}
- apiGroups: [""]
  resources: [secrets]
  {{- with .Values.rbac.secrets.names }}
  resourceNames: {{ toJson . }}
  {{- end }}
  verbs: [get]
{{- end }}
{{- if .Values.networkPolicy.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, patch]
{{- end }}
{{- if .Values.monitoring.prometheusOperator }}
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, create, patch]
{{- end }}
{{- end -}}

{{/*
What it may do in all namespaces, if it may anything there: see streams, queries and areas, say how they are, and take its
finalizer off them. In a namespace that is being deleted the roles go first, and a stream would be held for ever. Of
(whether it also registers queries there: `write` is the gateway's, and `watch` of both).
*/}}
{{- define "spatialstream.ownRules" -}}
- apiGroups: [spatialstream.dev]
  resources: [spatialstreams]
  verbs: [get, list, watch, patch{{ if first . }}, write{{ end }}]
- apiGroups: [spatialstream.dev]
  resources: [spatialqueries, spatialareas]
  verbs: [get, list, watch, patch]
- apiGroups: [spatialstream.dev]
  resources: [spatialstreams/status, spatialqueries/status, spatialareas/status]
  verbs: [patch]
{{- end -}}
