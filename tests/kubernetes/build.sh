#!/usr/bin/env bash
# build.sh helm: Helm alone, which `make chart` needs. build.sh all: the control plane too, in one program, and links to its
# parts. Nothing but Go and its modules is needed. Does nothing when the sources are those of the last build.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$HERE/control-plane"
sources=$(cat go.mod go.sum main.go | sha256sum)
mkdir -p "$BIN" "$CRDS"

definitions() { # MODULE FOLDER KINDS...: definitions of custom resources, from their projects' own modules
  local module=$1 folder=$2 dir
  shift 2
  dir=$(cd "$CRDS" && GOFLAGS=-mod=mod go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
  for kind in "$@"; do install -m 644 "$dir/$folder/$kind.yaml" "$CRDS/"; done
}
if [ ! -e "$CRDS/go.mod" ]; then (cd "$CRDS" && go mod init definitions 2>/dev/null); fi
definitions github.com/prometheus-operator/prometheus-operator@v0.85.0 example/prometheus-operator-crd \
  monitoring.coreos.com_{podmonitors,prometheusrules,servicemonitors}
definitions github.com/kedacore/keda/v2@v2.21.0 config/crd/bases keda.sh_{scaledobjects,triggerauthentications}

if [ "$(cat "$BIN/built-from" 2>/dev/null)" = "$sources" ]; then exit 0; fi
if [ "${1:-all}" = helm ]; then
  if [ "$(cat "$BIN/helm-built-from" 2>/dev/null)" = "$sources" ]; then exit 0; fi
  echo "building Helm: about 10 minutes the first time"
  go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$BIN/helm" helm.sh/helm/v4/cmd/helm
  echo "$sources" >"$BIN/helm-built-from"
  exit 0
fi
echo "building a control plane of Kubernetes: about 25 minutes the first time"
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
at=k8s.io/component-base/version
go build -trimpath -buildvcs=false \
  -ldflags "-s -w -X $at.gitVersion=$version -X $at.gitMajor=1 -X $at.gitMinor=${minor%%.*}" \
  -o "$BIN/local-k8s" .
for part in kubectl helm; do ln -sf local-k8s "$BIN/$part"; done
echo "$sources" >"$BIN/built-from"
echo "built $("$BIN/local-k8s" kube-apiserver --version), $(du -m "$BIN/local-k8s" | cut -f1) MB, in ${SECONDS}s"
