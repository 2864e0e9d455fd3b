{{- define "room.deployment" }}
{{- $root := .root }}
{{- $values := .values }}
{{- $kafka := hasKey .spec.settings "kafka" }}
{{- $database := or (hasKey .spec.settings "database") (hasKey .spec.settings "overflow") }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "room.fullname" $root }}-{{ .key }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "room.labels" . | nindent 4 }}
  {{- with $values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if eq $values.autoscaling.type "none" }}
  replicas: {{ $values.replicas }}
  {{- end }}
  revisionHistoryLimit: {{ $values.revisionHistoryLimit }}
  minReadySeconds: {{ $values.minReadySeconds }}
  strategy:
    {{- toYaml $values.strategy | nindent 4 }}
  selector:
    matchLabels:
      {{- include "room.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "room.podLabels" . | nindent 8 }}
        {{- with $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ .name }}
        {{- $made := include "room.madeSecrets" $root }}
        {{- if $made }}
        checksum/secrets: {{ $made | sha256sum }}
        {{- end }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- with include "room.pullSecrets" $root | trim }}{{ . | nindent 6 }}{{- end }}
      serviceAccountName: {{ include "room.serviceAccount" . }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ include "room.grace" . }}
      {{- with $root.Values.podSecurityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with include "room.placement" $values | trim }}{{ . | nindent 6 }}{{- end }}
      topologySpreadConstraints:
        {{- if kindIs "invalid" $values.topologySpreadConstraints }}
        {{- range $topology := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
        - topologyKey: {{ $topology }}
          maxSkew: 1
          whenUnsatisfiable: ScheduleAnyway
          matchLabelKeys: [pod-template-hash]
          labelSelector:
            matchLabels:
              {{- include "room.selector" $ | nindent 14 }}
        {{- end }}
        {{- else }}
        {{- toYaml $values.topologySpreadConstraints | nindent 8 }}
        {{- end }}
      {{- with $values.initContainers }}
      initContainers:
        {{- tpl (toYaml .) $root | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .name }}
          image: {{ include "room.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [{{ .spec.command }}]
          {{- with $root.Values.containerSecurityContext }}
          securityContext:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            {{- if eq .key "ingest" }}
            - {name: http, containerPort: 8080}
            {{- else if eq .key "admin" }}
            - {name: http, containerPort: 8090}
            {{- end }}
            - {name: operations, containerPort: 9464}
          env:
            - {name: ROOM_LOG__FORMAT, value: json}
            {{- with include "room.settingsEnv" (dict "root" $root "key" .key "settings" .spec.settings) | trim }}{{ . | nindent 12 }}{{- end }}
            {{- with include "room.secretEnv" (dict "root" $root "secrets" .spec.secrets) | trim }}{{ . | nindent 12 }}{{- end }}
            {{- with include "room.caEnv" (dict "root" $root "kafka" $kafka "database" $database) | trim }}{{ . | nindent 12 }}{{- end }}
            {{- with include "room.telemetryEnv" . | trim }}{{ . | nindent 12 }}{{- end }}
            {{- with $values.extraEnv }}
            {{- tpl (toYaml .) $root | nindent 12 }}
            {{- end }}
          {{- with $values.extraEnvFrom }}
          envFrom:
            {{- tpl (toYaml .) $root | nindent 12 }}
          {{- end }}
          startupProbe:
            httpGet: {path: /livez, port: operations}
            {{- toYaml $values.startupProbe | nindent 12 }}
          livenessProbe:
            httpGet: {path: /livez, port: operations}
            {{- toYaml $values.livenessProbe | nindent 12 }}
          readinessProbe:
            httpGet: {path: /readyz, port: operations}
            {{- toYaml $values.readinessProbe | nindent 12 }}
          {{- if eq .key "ingest" }}
          lifecycle:
            preStop:
              {{- if semverCompare ">=1.30.0-0" $root.Capabilities.KubeVersion.Version }}
              sleep: {seconds: 5}
              {{- else }}
              exec: {command: [sleep, "5"]}
              {{- end }}
          {{- end }}
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          volumeMounts:
            {{- with include "room.mounts" (dict "root" $root "secrets" .spec.secrets "kafka" $kafka "database" $database) | trim }}{{ . | nindent 12 }}{{- end }}
            {{- with $values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
        {{- with $values.extraContainers }}
        {{- tpl (toYaml .) $root | nindent 8 }}
        {{- end }}
      volumes:
        {{- with include "room.volumes" (dict "root" $root "secrets" .spec.secrets "kafka" $kafka "database" $database) | trim }}{{ . | nindent 8 }}{{- end }}
        {{- with $values.extraVolumes }}
        {{- tpl (toYaml .) $root | nindent 8 }}
        {{- end }}
{{- end }}

{{- define "room.mounts" }}
- {name: tmp, mountPath: /tmp}
{{- if trim (include "room.secretVolume" .) }}
- {name: secrets, mountPath: /run/secrets/room, readOnly: true}
{{- end }}
{{- include "room.caMounts" . }}
{{- end }}

{{- define "room.volumes" }}
- {name: tmp, emptyDir: {sizeLimit: 64Mi}}
{{- include "room.secretVolume" . }}
{{- include "room.caVolumes" . }}
{{- end }}

{{/* Where pods go, of components and jobs. */}}
{{- define "room.placement" }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "room.serviceAccount" -}}
{{- if .values.serviceAccount.name -}}
{{- .values.serviceAccount.name -}}
{{- else if .values.serviceAccount.create -}}
{{- include "room.fullname" .root }}-{{ .key -}}
{{- else -}}
default
{{- end -}}
{{- end -}}
