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
imagePullPolicy: {{ .Values.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
