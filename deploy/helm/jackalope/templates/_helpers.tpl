{{- define "jackalope.name" -}}
{{- if contains "jackalope" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-jackalope{{ end -}}
{{- end }}

{{- define "jackalope.selector" -}}
app.kubernetes.io/name: jackalope
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: broker
{{- end }}

{{- define "jackalope.labels" -}}
app.kubernetes.io/name: jackalope
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "jackalope.isCluster" -}}
{{- if gt (int .Values.replicas) 1 }}yes{{ end -}}
{{- end }}

{{- /* What the values cannot say together, said before anything is made. */ -}}
{{- define "jackalope.check" -}}
{{- if not (has (int .Values.replicas) (list 1 3 5)) }}
{{- fail (printf "replicas is %v: a broker is alone (1), or a cluster of 3 or 5 nodes" .Values.replicas) }}
{{- end }}
{{- if not .Values.auth.insecure }}
{{- if not .Values.tls.secretName }}
{{- fail "tls.secretName is empty: name a secret with tls.crt and tls.key, or accept traffic that can be read with auth.insecure=true" }}
{{- end }}
{{- if not .Values.auth.keys }}
{{- fail "auth.keys is empty: put in what `jackalope keys new` prints, or accept that every client may do everything with auth.insecure=true" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "jackalope.config" -}}
{{- $name := include "jackalope.name" . -}}
{{- $config := dict "data" (dict "folder" "/data/broker") "native" (dict "host" "0.0.0.0") "http" (dict "host" "0.0.0.0") "log" (dict "format" "json") -}}
{{- $_ := set $config "auth" (dict "keys" .Values.auth.keys "insecure" .Values.auth.insecure) -}}
{{- if .Values.amqp.enabled }}{{ $_ := set $config "amqp" (dict "enabled" true "host" "0.0.0.0") }}{{ end -}}
{{- if .Values.grpc.enabled }}{{ $_ := set $config "grpc" (dict "enabled" true "host" "0.0.0.0") }}{{ end -}}
{{- if .Values.tls.secretName }}{{ $_ := set $config "tls" (dict "cert" "/tls/tls.crt" "key" "/tls/tls.key") }}{{ end -}}
{{- if include "jackalope.isCluster" . -}}
{{- $members := list -}}
{{- range $place := until (int .Values.replicas) -}}
{{- $pod := printf "%s-%d" $name $place -}}
{{- $members = append $members (printf "%s=%s.%s.%s.svc.%s" $pod $pod $name $.Release.Namespace $.Values.cluster.domain) -}}
{{- end -}}
{{- $_ := set $config "cluster" (dict "id" .Values.cluster.id "members" $members) -}}
{{- if and .Values.tls.secretName .Values.tls.hasAuthority }}{{ $_ := set $config "peer" (dict "ca" "/tls/ca.crt") }}{{ end -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.config)) -}}
{{- end }}

{{- define "jackalope.ports" -}}
- {name: native, port: 7420}
- {name: http, port: 7421}
{{- if .Values.amqp.enabled }}
- {name: amqp, port: 5672}
{{- end }}
{{- if .Values.grpc.enabled }}
- {name: grpc, port: 7422}
{{- end }}
{{- end }}
