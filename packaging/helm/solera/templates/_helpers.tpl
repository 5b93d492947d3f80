{{- define "solera.labels" -}}
app.kubernetes.io/name: solera
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "solera.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .root.Release.Name }}-{{ .component }}
  labels: {{- include "solera.labels" . | nindent 4 }}
  annotations:
    helm.sh/resource-policy: keep
spec:
  accessModes: [ReadWriteOnce]
  {{- with .values.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ .values.storage }}
{{- end }}

{{- define "solera.pod" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "solera.container" -}}
image: {{ .Values.image }}
{{ include "solera.strict" . }}
{{- end }}

{{- define "solera.strict" -}}
imagePullPolicy: {{ .Values.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "solera.nginx" -}}
{{- $folder := printf "/var/lib/solera/%s/" .Values.server.folder }}
{{- $port := printf "%v ssl" .Values.server.port }}
{{- range $path, $_ := .Files.Glob "nginx/*.conf" }}
{{ base $path }}: {{ $.Files.Get $path | replace "/var/lib/solera/films/" $folder | replace "8000 ssl" $port | quote }}
{{- end }}
{{- end }}
