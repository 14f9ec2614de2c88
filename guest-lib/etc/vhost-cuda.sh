# SPDX-License-Identifier: Apache-2.0 OR MIT
# For /etc/profile.d in guests that were made for CUDA.

# Programs that nvcc compiles here use the shared runtime, whatever their makefiles say.
export NVCC_APPEND_FLAGS="--cudart=shared${NVCC_APPEND_FLAGS:+ $NVCC_APPEND_FLAGS}"

# Programs that were compiled elsewhere find vhost-cuda's libraries.
case ":${LD_AUDIT:-}:" in
*/libvhost-cuda-audit.so:*) ;;
*) export LD_AUDIT="/usr/local/lib/vhost-cuda/libvhost-cuda-audit.so${LD_AUDIT:+:$LD_AUDIT}" ;;
esac
