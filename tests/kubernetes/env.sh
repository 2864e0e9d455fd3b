# Sourced by the other scripts: where things live and which ports are used.
# The caller may set
#   ROOM_KUBERNETES_HOME     where the program and the cluster's data go
#   ROOM_KUBERNETES_PORT     the first of five ports in a row, all on the loopback
#   ROOM_KUBERNETES_VERSION  an older minor version for the parts to act as, such as 1.34
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${ROOM_KUBERNETES_HOME:=${XDG_CACHE_HOME:-$HOME/.cache}/room-kubernetes}"
: "${ROOM_KUBERNETES_PORT:=16443}"
: "${ROOM_KUBERNETES_VERSION:=}"
BIN=$ROOM_KUBERNETES_HOME/bin
CRDS=$ROOM_KUBERNETES_HOME/crds
RUN=$ROOM_KUBERNETES_HOME/run
export KUBECONFIG=$RUN/admin.kubeconfig
# helm and kubectl keep caches and settings; keep those out of the user's home.
export KUBECACHEDIR=$RUN/kubectl-cache
export HELM_CACHE_HOME=$RUN/helm/cache HELM_CONFIG_HOME=$RUN/helm/config HELM_DATA_HOME=$RUN/helm/data
export PATH=$BIN:$PATH
