#!/usr/bin/env bash
# Installs, upgrades, rolls back and removes the chart on a real control plane, which up.sh has started. Containers are
# simulated: what is shown here is what the API server, the controllers and Helm make of the chart's objects.
set -uo pipefail
. "$(dirname "$0")/env.sh"
chart=$HERE/../../deploy/helm/room
ns=room-live passed=0 failed=0 out=$RUN/live.out

check() { # SENTENCE COMMAND...: the command must succeed
  local sentence=$1 begin=$EPOCHREALTIME verdict=ok
  shift
  if "$@" >"$out" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)) verdict=FAIL; fi
  printf '%-4s %5.1fs  %s\n' $verdict "$(awk -v b="$begin" -v e="$EPOCHREALTIME" 'BEGIN{print e-b}')" "$sentence"
  if [ $verdict = FAIL ]; then sed 's/^/       | /' "$out"; fi
}
refused() { # PATTERN COMMAND...: the command must fail and say PATTERN
  local pattern=$1 said
  shift
  if said=$("$@" 2>&1); then echo "$said"; echo "was not refused"; return 1; fi
  echo "$said"
  grep -qE "$pattern" <<<"$said"
}
says() { # PATTERN COMMAND...: the command must succeed and say PATTERN
  local pattern=$1 said
  shift
  said=$("$@" 2>&1) && grep -qE "$pattern" <<<"$said" || { echo "$said"; return 1; }
}
eventually() { # PATTERN COMMAND...: within 30 s
  local end=$((SECONDS + 30)) said
  until said=$(says "$@"); do [ $SECONDS -lt $end ] || { echo "$said"; return 1; }; sleep 0.3; done
}
k() { kubectl -n $ns "$@"; }
h() { local verb=$1; shift; helm "$verb" -n $ns --timeout 90s "$@"; }
values=(--values "$chart/profiles/minimal.yaml" --values "$chart/profiles/production.yaml" --set defaults.replicas=2)
upgrade() { h upgrade room "$chart" "${values[@]}" --wait "$@"; }
images() { k get deployments -o 'jsonpath={range .items[*]}{.spec.template.spec.containers[0].image}{"\n"}{end}' | sort -u; }
ready() { k get deployments -o 'jsonpath={range .items[*]}{.spec.replicas}={.status.readyReplicas}{"\n"}{end}' | awk -F= '$1 != $2 {bad = 1} END {exit bad || NR != 7}'; }
evict() { # any one pod of a component
  local pod
  pod=$(k get pods -l "app.kubernetes.io/component=$1" --field-selector status.phase=Running -o 'jsonpath={.items[0].metadata.name}')
  printf '{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%s"}}' "$pod" |
    kubectl create --raw "/api/v1/namespaces/$ns/pods/$pod/eviction" -f -
}
nodes() { k get pods -l "app.kubernetes.io/component=$1" -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort -u | wc -l; }
leftovers() { # everything namespaced except what every namespace has
  local kinds
  kinds=$(kubectl api-resources --namespaced --verbs=list -o name | grep -vE '^events|metrics' | paste -sd,)
  k get "$kinds" -o name --ignore-not-found 2>/dev/null | grep -vE '^(configmap/kube-root-ca.crt|serviceaccount/default|secret/(room|kafka-cluster-ca-cert|postgresql-ca))$'
}
nothing_left() { local end=$((SECONDS + 30)); while [ -n "$(leftovers)" ]; do [ $SECONDS -lt $end ] || { leftovers; return 1; }; sleep 0.3; done; }
dry_run() { # PROFILES...: the server accepts all of it, warnings counted as errors
  local given=() profile
  for profile in "$@"; do given+=(--values "$chart/profiles/$profile.yaml"); done
  helm template room "$chart" --namespace $ns "${given[@]}" --api-versions monitoring.coreos.com/v1 --api-versions keda.sh/v1alpha1 |
    k --warnings-as-errors apply --dry-run=server -f -
}

printf 'acting as Kubernetes %s\n' "${ROOM_KUBERNETES_VERSION:-of its own version}"
kubectl delete namespace $ns --ignore-not-found >/dev/null 2>&1
kubectl create namespace $ns >/dev/null
kubectl label namespace $ns pod-security.kubernetes.io/{enforce,warn}=restricted >/dev/null
eventually default k get serviceaccount -o name >/dev/null

check "nothing of an operator is made where the cluster has none" \
  bash -c "! helm template room '$chart' ${values[*]@Q} | grep -E 'kind: (PodMonitor|ScaledObject)'"
check "definitions of custom resources are taken" kubectl apply --server-side -f "$CRDS"
check "and served" kubectl wait --for=condition=Established crd --all --timeout=30s
for profiles in minimal "minimal production" "minimal production gitops" "minimal production openshift"; do
  # shellcheck disable=SC2086
  check "server-side dry run of $profiles, restricted, warnings counted as errors" dry_run $profiles
done
check "a pod that is not restricted would be told" refused 'would violate PodSecurity "restricted' \
  bash -c "helm template room '$chart' --namespace $ns ${values[*]@Q} --set containerSecurityContext.allowPrivilegeEscalation=true | kubectl -n $ns --warnings-as-errors apply --dry-run=server -f -"

for secret in room kafka-cluster-ca-cert postgresql-ca; do k create secret generic $secret --from-literal=x=y >/dev/null; done
check "values that can't work are refused before anything is made" refused 'publicUrl is missing' \
  h install room "$chart" "${values[@]}" --set publicUrl=
check "nothing was made" nothing_left
check "a migration that fails stops the install" refused 'pre-install' \
  h install room "$chart" "${values[@]}" --wait --set 'migrations.podAnnotations.room-test/fail=x'
check "at once: exit code 2 is not tried again" says '^1$' k get job room-migrations -o 'jsonpath={.status.failed}'
check "and no service was started" test -z "$(k get deployments -o name)"
check "it uninstalls" h uninstall room --wait
k delete job room-migrations >/dev/null 2>&1 # kept, so that one can see why
check "install: migrations, topics, then the services, all ready" h install room "$chart" "${values[@]}" --wait
check "seven deployments, every replica ready" ready
check "the jobs are gone" test -z "$(k get jobs -o name)"
check "custom resources are there" says 'scaledobject.*room-runner' k get scaledobjects,podmonitors -o name
check "pods of one service are on different nodes" test "$(nodes scheduler)" = 2
check "ingest's on three" test "$(nodes ingest)" = 3
check "helm test runs its pod to the end" h test room
check "which is gone" test -z "$(k get pod room-test -o name --ignore-not-found)"

check "a budget lets one pod of a service go" eventually Success evict matcher
check "and it comes back" k rollout status deployment room-matcher --timeout=30s
check "a budget that allows none away refuses" bash -c "helm upgrade -n $ns room '$chart' ${values[*]@Q} --set matcher.pdb.maxUnavailable=0 --wait --timeout 90s"
check "which it does" refused 'disruption budget' evict matcher

check "upgrade to another image" upgrade --set image.tag=0.2.0
check "every service runs it" test "$(images)" = room:0.2.0
check "a migration that fails stops the upgrade" refused 'pre-upgrade' \
  upgrade --set image.tag=0.3.0 --set 'migrations.podAnnotations.room-test/fail=x'
check "nothing else changed" test "$(images)" = room:0.2.0
check "everything still runs" ready
check "the failed job is kept to be looked at" k get job room-migrations
check "pods that never get ready are rolled back" refused 'rolled back|not ready|timed out|context deadline' \
  helm upgrade -n $ns --timeout 25s room "$chart" "${values[@]}" --set image.tag=0.4.0 --set 'ingest.podAnnotations.room-test/never-ready=x' --rollback-on-failure
check "to what ran before" bash -c "[ \"\$(kubectl -n $ns get deployment room-ingest -o 'jsonpath={.spec.template.spec.containers[0].image}')\" = room:0.2.0 ]"
check "rollback to the first revision that was good" h rollback room 1 --wait
check "every service runs its image" test "$(images)" = room:0.1.0
check "and is ready" ready

check "plain jobs instead of hooks" upgrade --values "$chart/profiles/gitops.yaml"
check "have names of their own" eventually 'room-migrations-[0-9a-f]{8}' k get jobs -o name
check "which another image changes, so that no immutable field is" upgrade --values "$chart/profiles/gitops.yaml" --set image.tag=0.5.0

check "uninstall" h uninstall room --wait
check "leaves nothing" nothing_left
check "secrets in values: install" h install room "$chart" "${values[@]}" --wait --set secrets.databaseDsn.value=postgresql://room@db/room
check "the hooks' copy of them is gone" refused NotFound k get secret room-hooks
check "uninstall" h uninstall room --wait
k delete secret room >/dev/null 2>&1
check "leaves nothing" nothing_left
check "the namespace goes away" kubectl delete namespace $ns --timeout=60s
printf '\n%d passed, %d failed\n' $passed $failed
[ $failed = 0 ]
