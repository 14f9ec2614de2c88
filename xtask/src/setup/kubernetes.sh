# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds the programs of a cluster from Debian's source package of Kubernetes, with Debian's Go.
# Arguments: a folder with the source's archive and the unpacked packages of Go; the folder for the programs.
set -eu
work=$1 programs=$2
export GOROOT="$work/go/usr/lib/go-1.19" GOPATH="$work/path" GOCACHE="$work/cache" GO111MODULE=off CGO_ENABLED=0
export PATH="$GOROOT/bin:$PATH"
mkdir -p "$work/source" "$GOPATH/src/k8s.io" "$programs"
tar -xzf "$work"/kubernetes_*.orig.tar.gz -C "$work/source" --strip-components=1
ln -sfn "$work/source" "$GOPATH/src/k8s.io/kubernetes"
cd "$GOPATH/src/k8s.io/kubernetes"

# The archive lacks one generated file.
go build -o "$work/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
packages=$(grep -rl --include='*.go' '+k8s:openapi-gen=' pkg cmd staging/src/k8s.io | xargs -n1 dirname | sort -u |
    grep -vE 'testdata|_examples|sample-|code-generator|/gengo|apiextensions-apiserver/examples' |
    sed 's,^staging/src/,k8s.io/kubernetes/vendor/,; s,^pkg,k8s.io/kubernetes/pkg,; s,^cmd,k8s.io/kubernetes/cmd,' |
    paste -sd,)
"$work/openapi-gen" --logtostderr -h hack/boilerplate/boilerplate.generatego.txt -O zz_generated.openapi -i "$packages" \
    -p k8s.io/kubernetes/pkg/generated/openapi -r "$work/violations" --output-base "$GOPATH/src"

for program in kubelet kube-apiserver kube-scheduler kube-controller-manager; do
    go build -ldflags '-s -w' -o "$programs/$program" "k8s.io/kubernetes/cmd/$program"
done
