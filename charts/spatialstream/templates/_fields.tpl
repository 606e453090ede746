{{- /*
The objects in a schema, a line each, parents first: the path, such as `resource.spec.kafka`, and the names of the fields,
such as `topics,bootstrapServers`; none where somebody else checks them: the fields of pods, and those of GeoJSON.

"schema": of an object; "path": to it. The status is left out, which the operator writes.
*/}}
{{- define "spatialstream.objects" }}
{{- $path := .path }}
{{- $isOpen := or (hasSuffix ".podTemplate.spec" $path) (hasSuffix ".polygon" $path) }}
{{ $path }}:{{ if not $isOpen }}{{ keys .schema.properties | sortAlpha | join "," }}{{ end }}
{{- range $name, $part := .schema.properties }}
{{- if and $part.properties (ne $name "status") }}
{{- include "spatialstream.objects" (dict "schema" $part "path" (printf "%s.%s" $path $name)) }}
{{- end }}
{{- end }}
{{- end }}
