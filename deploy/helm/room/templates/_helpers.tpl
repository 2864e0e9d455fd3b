{{- define "room.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for every suffix: a label has 63 characters. */}}
{{- define "room.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "room.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "room.version" -}}
{{- .Values.image.tag | default .Chart.AppVersion -}}
{{- end -}}

{{- define "room.image" -}}
{{- $registry := (.Values.global).imageRegistry | default .Values.image.registry -}}
{{- $path := ternary (printf "%s/%s" $registry .Values.image.repository) .Values.image.repository (ne ($registry | default "") "") -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $path .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $path (include "room.version" .) -}}
{{- end -}}
{{- end -}}

{{/* {root, component}: what selects. Never changes, since selectors can't. */}}
{{- define "room.selector" -}}
app.kubernetes.io/name: {{ include "room.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- if .component }}
app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- end -}}

{{/* {root, component} */}}
{{- define "room.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "room.selector" . }}
app.kubernetes.io/version: {{ include "room.version" .root | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/part-of: room
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* {root, component}: without the chart's version, which alone is no reason to restart anything. */}}
{{- define "room.podLabels" -}}
{{ include "room.selector" . }}
app.kubernetes.io/version: {{ include "room.version" .root | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/part-of: room
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "room.catalogue" -}}
{{- .Files.Get "files/catalogue.json" -}}
{{- end -}}

{{/* {root, key}: a component's values, over the defaults. */}}
{{- define "room.values" -}}
{{- mergeOverwrite (deepCopy .root.Values.defaults) (deepCopy (index .root.Values .key)) | toYaml -}}
{{- end -}}

{{/* A value as text: Helm reads numbers as floating point and would write large ones with an exponent. */}}
{{- define "room.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . -}}{{ printf "%.0f" . }}{{- else -}}{{ toString . }}{{- end -}}
{{- else if kindIs "slice" . -}}
{{ join "," . }}
{{- else -}}
{{ toString . }}
{{- end -}}
{{- end -}}

{{/* {root, name}: the Secret that holds a secret, or nothing where it is not given. */}}
{{- define "room.secretName" -}}
{{- $secrets := .root.Values.secrets -}}
{{- $own := index $secrets .name -}}
{{- if $own.existingSecret -}}
{{- $own.existingSecret -}}
{{- else if $own.value -}}
{{- .made | default (printf "%s-values" (include "room.fullname" .root)) -}}
{{- else if and $secrets.existingSecret (or (has .name $secrets.optionalKeys) (has .name (list "databaseDsn" "encryptionKeys" "tokenKeys"))) -}}
{{- $secrets.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* {root, secrets: {name: VARIABLE}, made}: variables of secrets. */}}
{{- define "room.secretEnv" -}}
{{- $root := .root -}}
{{- $made := .made -}}
{{- range $name, $variable := .secrets }}
{{- $holder := include "room.secretName" (dict "root" $root "name" $name "made" $made) }}
{{- if $holder }}
{{- if eq $root.Values.secrets.mount "file" }}
- name: {{ $variable }}_FILE
  value: /run/secrets/room/{{ $name }}
{{- else }}
- name: {{ $variable }}
  valueFrom:
    secretKeyRef: {name: {{ $holder }}, key: {{ index $root.Values.secrets $name "key" }}}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* {root, secrets, made}: one volume with all of them, or nothing. */}}
{{- define "room.secretVolume" -}}
{{- $root := .root -}}
{{- $made := .made -}}
{{- if eq $root.Values.secrets.mount "file" }}
{{- $sources := list }}
{{- range $name, $_ := .secrets }}
{{- $holder := include "room.secretName" (dict "root" $root "name" $name "made" $made) }}
{{- if $holder }}
{{- $item := dict "key" (index $root.Values.secrets $name "key") "path" $name }}
{{- $sources = append $sources (dict "secret" (dict "name" $holder "items" (list $item))) }}
{{- end }}
{{- end }}
{{- if $sources }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- toYaml $sources | nindent 6 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Authorities of Kafka and PostgreSQL: {root, kafka: bool, database: bool} */}}
{{- define "room.caVolumes" -}}
{{- range $part := list "kafka" "database" }}
{{- $ca := (index $.root.Values $part).ca }}
{{- if and (index $ $part) (or $ca.configMap $ca.secret) }}
- name: ca-{{ $part }}
  projected:
    sources:
      - {{ ternary "secret" "configMap" (ne ($ca.secret | default "") "") }}:
          name: {{ $ca.secret | default $ca.configMap }}
          items: [{key: {{ $ca.key }}, path: ca.crt}]
{{- end }}
{{- end }}
{{- end -}}

{{- define "room.caMounts" -}}
{{- range $part := list "kafka" "database" }}
{{- $ca := (index $.root.Values $part).ca }}
{{- if and (index $ $part) (or $ca.configMap $ca.secret) }}
- {name: ca-{{ $part }}, mountPath: /etc/room/ca-{{ $part }}, readOnly: true}
{{- end }}
{{- end }}
{{- end -}}

{{- define "room.caEnv" -}}
{{- range $part, $variable := dict "kafka" "ROOM_KAFKA__CA_FILE" "database" "PGSSLROOTCERT" }}
{{- $ca := (index $.root.Values $part).ca }}
{{- if and (index $ $part) (or $ca.configMap $ca.secret) }}
- {name: {{ $variable }}, value: /etc/room/ca-{{ $part }}/ca.crt}
{{- end }}
{{- end }}
{{- end -}}

{{/* {root, key, settings: {section: {field: VARIABLE}}}: variables of settings that the values say. */}}
{{- define "room.settingsEnv" -}}
{{- $root := .root -}}
{{- $key := .key -}}
{{- range $section, $fields := .settings }}
{{- $given := dict }}
{{- if eq $section "root" }}
{{- $given = $root.Values }}
{{- else if eq $section $key }}
{{- $given = (index $root.Values $key).settings | default dict }}
{{- else }}
{{- $given = index $root.Values $section | default dict }}
{{- end }}
{{- range $field, $variable := $fields }}
{{- $value := index $given $field }}
{{- if not (kindIs "invalid" $value) }}
- {name: {{ $variable }}, value: {{ include "room.text" $value | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "room.telemetryEnv" -}}
{{- with .root.Values.telemetry }}
{{- if .otlpEndpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .otlpEndpoint | quote }}}
{{- with .sampler }}
- {name: OTEL_TRACES_SAMPLER, value: {{ . | quote }}}
{{- end }}
{{- with .samplerArg }}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ . | quote }}}
{{- end }}
{{- $attributes := list (printf "service.namespace=%s" $.root.Release.Namespace) }}
{{- range $name, $value := .resourceAttributes }}
{{- $attributes = append $attributes (printf "%s=%s" $name $value) }}
{{- end }}
- {name: OTEL_RESOURCE_ATTRIBUTES, value: {{ join "," $attributes | quote }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "room.pullSecrets" -}}
{{- $all := concat (.Values.imagePullSecrets | default list) ((.Values.global).imagePullSecrets | default list) -}}
{{- with $all }}
imagePullSecrets:
{{- range . }}
  - name: {{ ternary . (dig "name" "" (ternary (dict) . (kindIs "string" .))) (kindIs "string" .) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* {root, mode, api}: whether an object of a kind that may be missing is made. */}}
{{- define "room.rendered" -}}
{{- $there := .root.Capabilities.APIVersions.Has .api -}}
{{- if and (not $there) (eq .mode "failIfMissing") -}}
{{- fail (printf "the cluster has no %s, and its renderMode is failIfMissing" .api) -}}
{{- end -}}
{{- if or $there (eq .mode "alwaysRender") }}yes{{ end -}}
{{- end -}}

{{/* {root, key, spec, values}: seconds from the end of a pod to its kill. */}}
{{- define "room.grace" -}}
{{- if .values.terminationGracePeriodSeconds -}}
{{- .values.terminationGracePeriodSeconds -}}
{{- else if eq .key "ingest" -}}
{{- add 5 (ceil (((.values.settings).drainSeconds) | default 8)) 17 -}}
{{- else if eq .key "runner" -}}
{{- add (ceil (((.values.settings).drainSeconds) | default 45)) 15 -}}
{{- else -}}
60
{{- end -}}
{{- end -}}
