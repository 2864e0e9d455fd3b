{{/* What stands around one Deployment. */}}
{{- define "room.around" }}
{{- $root := .root }}
{{- $values := .values }}
{{- $full := printf "%s-%s" (include "room.fullname" $root) .key }}
{{- $least := ternary $values.replicas $values.autoscaling.minReplicas (eq $values.autoscaling.type "none") }}
{{- if $values.serviceAccount.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "room.serviceAccount" . }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "room.labels" . | nindent 4 }}
  {{- with $values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
{{- if and $values.pdb.enabled (gt (int $least) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $full }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "room.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ $values.pdb.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "room.selector" . | nindent 6 }}
{{- end }}
{{- if eq $values.autoscaling.type "hpa" }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $full }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "room.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ $full }}}
  minReplicas: {{ $values.autoscaling.minReplicas }}
  maxReplicas: {{ $values.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ $values.autoscaling.targetCPUUtilizationPercentage }}}
    {{- with $values.autoscaling.metrics }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  behavior:
    {{- toYaml $values.autoscaling.behavior | nindent 4 }}
{{- else if eq $values.autoscaling.type "keda" }}
{{- if include "room.rendered" (dict "root" $root "mode" $root.Values.keda.renderMode "api" "keda.sh/v1alpha1") }}
{{- include "room.scaledObject" . }}
{{- end }}
{{- end }}
{{- if $values.service }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $full }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "room.labels" . | nindent 4 }}
  {{- with $values.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ $values.service.type }}
  ports:
    - {name: http, port: {{ $values.service.port }}, targetPort: http, appProtocol: http}
  selector:
    {{- include "room.selector" . | nindent 4 }}
  {{- with $values.service.spec }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- if ($values.ingress).enabled }}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ $full }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "room.labels" . | nindent 4 }}
  {{- with $values.ingress.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with $values.ingress.className }}
  ingressClassName: {{ . }}
  {{- end }}
  rules:
    - host: {{ $values.ingress.host | quote }}
      http:
        paths:
          - path: {{ $values.ingress.path }}
            pathType: Prefix
            backend: {service: {name: {{ $full }}, port: {name: http}}}
  {{- with $values.ingress.tlsSecret }}
  tls:
    - hosts: [{{ $values.ingress.host | quote }}]
      secretName: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "room.scaledObject" }}
{{- $root := .root }}
{{- $auto := .values.autoscaling }}
{{- $full := printf "%s-%s" (include "room.fullname" $root) .key }}
{{- $kafka := $root.Values.kafka }}
{{- $protocol := $kafka.securityProtocol | default "PLAINTEXT" }}
{{- $sasl := hasPrefix "SASL" $protocol }}
{{- $tls := hasSuffix "SSL" $protocol }}
{{- $auth := and (ne .key "runner") (or $sasl (and $tls (or $kafka.ca.secret $kafka.ca.configMap))) }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ $full }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "room.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ $full }}}
  pollingInterval: {{ $auto.pollingInterval }}
  minReplicaCount: {{ $auto.minReplicas }}
  maxReplicaCount: {{ $auto.maxReplicas }}
  fallback: {failureThreshold: 5, replicas: {{ $auto.fallbackReplicas }}}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {{- toYaml $auto.behavior | nindent 8 }}
  triggers:
    {{- if eq .key "runner" }}
    - type: prometheus
      metadata:
        serverAddress: {{ $root.Values.keda.prometheusAddress | quote }}
        query: sum(room_cycle_slots{state="busy"{{ with $root.Values.keda.prometheusSelector }},{{ . }}{{ end }}})
        threshold: {{ div (mul (int ((.values.settings).slots | default 8)) (int $auto.busyPercentage)) 100 | max 1 | quote }}
    {{- else }}
    - type: kafka
      metadata:
        bootstrapServers: {{ $kafka.bootstrapServers | quote }}
        consumerGroup: {{ .spec.group }}
        topic: {{ .spec.topic }}
        lagThreshold: {{ int $auto.lagThreshold | quote }}
        activationLagThreshold: {{ int $auto.activationLagThreshold | quote }}
        offsetResetPolicy: earliest
        {{- if $tls }}
        tls: enable
        {{- end }}
        {{- if $sasl }}
        sasl: {{ get (dict "PLAIN" "plaintext" "SCRAM-SHA-256" "scram_sha256" "SCRAM-SHA-512" "scram_sha512") ($kafka.saslMechanism | default "SCRAM-SHA-512") }}
        {{- end }}
      {{- if $auth }}
      authenticationRef: {name: {{ $full }}-kafka}
      {{- end }}
    {{- end }}
{{- if $auth }}
---
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata:
  name: {{ $full }}-kafka
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "room.labels" . | nindent 4 }}
spec:
  {{- if $sasl }}
  env:
    - {parameter: username, name: ROOM_KAFKA__SASL_USERNAME, containerName: {{ .name }}}
  {{- end }}
  {{- if or $sasl (and $tls $kafka.ca.secret) }}
  secretTargetRef:
    {{- if $sasl }}
    - parameter: password
      name: {{ include "room.secretName" (dict "root" $root "name" "kafkaSaslPassword") }}
      key: {{ $root.Values.secrets.kafkaSaslPassword.key }}
    {{- end }}
    {{- if and $tls $kafka.ca.secret }}
    - {parameter: ca, name: {{ $kafka.ca.secret }}, key: {{ $kafka.ca.key }}}
    {{- end }}
  {{- end }}
  {{- if and $tls $kafka.ca.configMap (not $kafka.ca.secret) }}
  configMapTargetRef:
    - {parameter: ca, name: {{ $kafka.ca.configMap }}, key: {{ $kafka.ca.key }}}
  {{- end }}
{{- end }}
{{- end }}
