#!/usr/bin/env bash
# Starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok
# on the loopback, with three simulated nodes. Ends with a kubeconfig to use.
set -euo pipefail
. "$(dirname "$0")/env.sh"
[ -x "$BIN/local-k8s" ] || { echo "run build.sh all first" >&2; exit 1; }
"$HERE/down.sh"
mkdir -p "$RUN/log" "$RUN/pid" && cd "$RUN"

api=$ROOM_KUBERNETES_PORT etcd=$((api + 1)) peer=$((api + 2)) controllers=$((api + 3)) scheduler=$((api + 4))
version=(${ROOM_KUBERNETES_VERSION:+--emulated-version=$ROOM_KUBERNETES_VERSION --min-compatibility-version=$ROOM_KUBERNETES_VERSION})

start() { # NAME ARGS...: runs one part in the background
  local name=$1
  "$BIN/local-k8s" "$@" >"log/$name" 2>&1 </dev/null &
  echo $! >"pid/$name"
}

wait_for() { # SECONDS WHAT COMMAND...
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    for pid in pid/*; do
      kill -0 "$(cat "$pid")" 2>/dev/null || { echo "${pid#pid/} ended early:" >&2; tail -n 20 "log/${pid#pid/}" >&2; exit 1; }
    done
    [ $SECONDS -lt $deadline ] || { echo "no $what after waiting" >&2; tail -n 20 log/* >&2; exit 1; }
    sleep 0.1
  done
}

# One bearer token for each client; the groups are upstream's, so RBAC is real.
token() { head -c 24 /dev/urandom | base64 | tr -d '/+=\n'; }
admin=$(token) cm=$(token) sched=$(token)
umask 077
cat >tokens.csv <<END
$admin,admin,admin,system:masters
$cm,system:kube-controller-manager,cm
$sched,system:kube-scheduler,sched
END
openssl genrsa -out service-account.key 2048 2>/dev/null

kubeconfig() { # FILE TOKEN
  cat >"$1" <<END
apiVersion: v1
kind: Config
clusters: [{name: local, cluster: {server: "https://127.0.0.1:$api", certificate-authority: "$RUN/certs/apiserver.crt"}}]
users: [{name: user, user: {token: "$2"}}]
contexts: [{name: local, context: {cluster: local, user: user}}]
current-context: local
END
}
kubeconfig admin.kubeconfig "$admin"
kubeconfig controllers.kubeconfig "$cm"
kubeconfig scheduler.kubeconfig "$sched"

start etcd --name local --data-dir data --unsafe-no-fsync --logger zap --log-level warn \
  --listen-client-urls "http://127.0.0.1:$etcd" --advertise-client-urls "http://127.0.0.1:$etcd" \
  --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
  --initial-cluster "local=http://127.0.0.1:$peer"
start kube-apiserver "${version[@]}" --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --secure-port "$api" \
  --etcd-servers "http://127.0.0.1:$etcd" --cert-dir certs --endpoint-reconciler-type none \
  --token-auth-file tokens.csv --authorization-mode RBAC --anonymous-auth=false \
  --service-cluster-ip-range 10.96.0.0/16 --allow-privileged \
  --service-account-issuer https://kubernetes.default.svc.cluster.local \
  --service-account-key-file service-account.key --service-account-signing-key-file service-account.key
wait_for 60 apiserver kubectl get --raw /readyz

start kube-controller-manager "${version[@]}" --kubeconfig controllers.kubeconfig \
  --bind-address 127.0.0.1 --secure-port "$controllers" --cert-dir certs-controllers --leader-elect=false \
  --use-service-account-credentials --service-account-private-key-file service-account.key \
  --root-ca-file certs/apiserver.crt
start kube-scheduler "${version[@]}" --kubeconfig scheduler.kubeconfig \
  --bind-address 127.0.0.1 --secure-port "$scheduler" --cert-dir certs-scheduler --leader-elect=false
"$BIN/local-k8s" kwok-node-stages >node-stages.yaml
start kwok --kubeconfig admin.kubeconfig --manage-all-nodes --node-lease-duration-seconds 40 \
  --cidr 10.244.0.0/16 --node-ip 127.0.0.1 --config node-stages.yaml --config "$HERE/stages.yaml"

for i in 0 1 2; do
  cat <<END
apiVersion: v1
kind: Node
metadata:
  name: node-$i
  labels: {kubernetes.io/hostname: node-$i, kubernetes.io/os: linux, kubernetes.io/arch: amd64, topology.kubernetes.io/zone: zone-$i}
status:
  allocatable: {cpu: "8", memory: 32Gi, pods: "110"}
  capacity: {cpu: "8", memory: 32Gi, pods: "110"}
---
END
done | kubectl create -f - >/dev/null
wait_for 60 "ready nodes" kubectl wait --for=condition=Ready node --all --timeout=1s
wait_for 60 "default service account" kubectl get serviceaccount default
echo "cluster up in ${SECONDS}s; export KUBECONFIG=$KUBECONFIG"
