{{/* Names, short enough for suffixes and pod numbers. */}}
{{- define "lorogo.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "lorogo.fullname" -}}
{{- $name := include "lorogo.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lorogo.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else if .Values.serviceAccount.create -}}
{{- include "lorogo.fullname" . -}}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{/* Labels of one kind of pod: (dict "root" $ "part" "server"). The selector labels never change. */}}
{{- define "lorogo.selector" -}}
app.kubernetes.io/name: {{ include "lorogo.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "lorogo.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{ include "lorogo.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: lorogo
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{/* An image: (dict "root" $ "image" .Values.images.server) */}}
{{- define "lorogo.image" -}}
{{- $images := .root.Values.images -}}
{{- $name := .image.repository -}}
{{- if $images.registry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" $images.registry) $name -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .root.Chart.AppVersion $images.tag) -}}
{{- end -}}
{{- end -}}

{{/* Common pod spec: (dict "root" $ "part" "server" "values" .Values.server) */}}
{{- define "lorogo.pod" -}}
{{- $root := .root -}}
serviceAccountName: {{ include "lorogo.serviceAccount" $root }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $root.Values.user }}
  runAsGroup: {{ $root.Values.user }}
  fsGroup: {{ $root.Values.user }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "lorogo.spread" -}}
{{- $selector := include "lorogo.selector" . -}}
{{- with .root.Values.topologySpread }}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml . | nindent 4 | trim }}
    labelSelector:
      matchLabels: {{- $selector | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Without the chart's version: unrelated changes of the chart restart no pod. */}}
{{- define "lorogo.podMetadata" -}}
labels:
  {{- include "lorogo.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/part-of: lorogo
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .values.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Common container spec. */}}
{{- define "lorogo.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* A probe: (dict "probe" .Values.server.probes.liveness "path" "/healthz" "port" "health" "scheme" "HTTP") */}}
{{- define "lorogo.probe" -}}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
  scheme: {{ .scheme }}
periodSeconds: {{ .probe.periodSeconds }}
timeoutSeconds: {{ .probe.timeoutSeconds }}
failureThreshold: {{ .probe.failureThreshold }}
{{- end -}}

{{/* NATS URL and TLS files as environment variables, which also serve commands run in the pod. */}}
{{- define "lorogo.natsEnv" -}}
- name: LOROGO_NATS
  {{- if .Values.nats.urlSecret.name }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.nats.urlSecret.name }}
      key: {{ .Values.nats.urlSecret.key }}
  {{- else }}
  value: {{ .Values.nats.url | quote }}
  {{- end }}
{{- with .Values.nats.tls }}
{{- if .secret }}
{{- if .ca }}
- {name: LOROGO_NATS_CA, value: /etc/lorogo/nats-ca.crt}
{{- end }}
{{- if .cert }}
- {name: LOROGO_NATS_CERT, value: /etc/lorogo/nats.crt}
- {name: LOROGO_NATS_KEY, value: /etc/lorogo/nats.key}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The ports of NATS, from its URLs. */}}
{{- define "lorogo.natsPorts" -}}
{{- $ports := list -}}
{{- range splitList "," .Values.nats.url -}}
{{- $ports = append $ports (regexFind ":[0-9]+/?$" (trim .) | trimAll ":/" | default "4222" | int) -}}
{{- end -}}
{{- uniq $ports | toJson -}}
{{- end -}}

{{/* Files in /etc/lorogo: (dict "root" $ "secrets" (list .Values.secrets.server)) */}}
{{- define "lorogo.files" -}}
{{- $values := .root.Values -}}
name: files
projected:
  # With the pod's fsGroup they are 0440 and owned by root, as lorogo requires of secret files.
  defaultMode: 0400
  sources:
    {{- range .secrets }}
    - secret:
        name: {{ .name }}
        items:
          {{- range .files }}
          - {key: {{ .key | quote }}, path: {{ .path | quote }}}
          {{- end }}
    {{- end }}
    {{- with $values.nats.tls }}
    {{- if .secret }}
    - secret:
        name: {{ .secret }}
        items:
          {{- if .ca }}
          - {key: {{ .ca | quote }}, path: nats-ca.crt}
          {{- end }}
          {{- if .cert }}
          - {key: {{ .cert | quote }}, path: nats.crt}
          - {key: {{ .key | quote }}, path: nats.key}
          {{- end }}
    {{- end }}
    {{- end }}
{{- end -}}

{{/* Command options from a map: true is a flag; false and null are omitted. */}}
{{- define "lorogo.options" -}}
{{- range $name, $value := . }}
{{- if kindIs "bool" $value }}
{{- if $value }}
- --{{ $name }}
{{- end }}
{{- else if not (kindIs "invalid" $value) }}
- {{ printf "--%s=%s" $name (include "lorogo.text" $value) | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A value as text: Helm reads numbers as floats, and would write a large one as 1e+06. */}}
{{- define "lorogo.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . -}}{{- int64 . -}}{{- else -}}{{- . -}}{{- end -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* Checks that the schema cannot express. */}}
{{- define "lorogo.check" -}}
{{- $server := .Values.server -}}
{{- if and (eq $server.durability "replicated") (le (int $server.replicas) (int $server.journalReplicas)) -}}
{{- fail (printf "server.replicas is %d: with durability replicated and journalReplicas %d it must be above journalReplicas, or nothing is ever ACKed" (int $server.replicas) (int $server.journalReplicas)) -}}
{{- end -}}
{{- if and (eq $server.durability "stream") $server.archive -}}
{{- fail "server.archive contradicts server.durability stream, which keeps no journal" -}}
{{- end -}}
{{- if and .Values.pipeline.enabled (not .Values.pipeline.journals) (not $server.archive) -}}
{{- fail "pipeline.enabled needs something to read: server.archive (which servers fill), or pipeline.journals" -}}
{{- end -}}
{{- with .Values.gateway.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail "gateway.autoscaling.minReplicas is above maxReplicas" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.nats.tls.cert (not .Values.nats.tls.key) -}}
{{- fail "nats.tls.cert needs nats.tls.key, the key of the certificate" -}}
{{- end -}}
{{- end -}}

{{/* NetworkPolicies. Nodes always reach their own pods, so probes need no rule. */}}
{{- define "lorogo.policyHead" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "lorogo.fullname" .root }}-{{ .part }}
  labels: {{- include "lorogo.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "lorogo.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
{{- end -}}

{{- define "lorogo.toNames" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end -}}

{{- define "lorogo.toPorts" -}}
- ports:
    {{- range .ports }}
    - {protocol: TCP, port: {{ int . }}}
    {{- end }}
  {{- with .to }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
