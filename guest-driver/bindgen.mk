# SPDX-License-Identifier: GPL-2.0-only
# Bindings of what the kernel's own `bindings` crate lacks: linux/virtio.h and our glue. Every other type is
# the kernel crate's, hence --no-recursive-allowlist and the glob import.

# Flags of gcc that clang does not know (list of rust/Makefile, Linux 7.2).
virtio_bindgen_skip := -mno-fp-ret-in-387 -mpreferred-stack-boundary=% -mskip-rax-setup \
	-mgeneral-regs-only -msign-return-address=% -mindirect-branch=thunk-extern \
	-mindirect-branch-register -mfunction-return=thunk-extern -mrecord-mcount \
	-mabi=lp64 -mindirect-branch-cs-prefix -mstack-protector-guard% -mtraceback=no \
	-mno-pointers-to-nested-functions -mno-string -mno-strict-align -mstrict-align \
	-mdirect-extern-access -mexplicit-relocs -mno-check-zero-division \
	-fconserve-stack -falign-jumps=% -falign-loops=% -femit-struct-debug-baseonly \
	-fno-ipa-cp-clone -fno-ipa-sra -fno-partial-inlining -fplugin-arg-arm_ssp_per_task_plugin-% \
	-fno-reorder-blocks -fno-allow-store-data-races -fasan-shadow-offset=% \
	-fzero-call-used-regs=% -fno-stack-clash-protection \
	-fno-inline-functions-called-once -fsanitize=bounds-strict -fstrict-flex-arrays=% \
	-fmin-function-alignment=% -fzero-init-padding-bits=% \
	-fdiagnostics-show-context -fdiagnostics-show-context=% --param=% -fno-isolate-erroneous-paths-dereference

virtio_bindgen_cflags = $(filter-out $(virtio_bindgen_skip) $(CC_FLAGS_LTO), $(c_flags)) \
	-fno-builtin -D__BINDGEN__ -DMODULE -w --target=x86_64-linux-gnu

quiet_cmd_virtio_bindgen = BINDGEN [M] $@
      cmd_virtio_bindgen = $(BINDGEN) $< --rust-target 1.85 --use-core \
	--with-derive-default --ctypes-prefix kernel::ffi --no-layout-tests \
	--formatter none --no-debug '.*' --no-doc-comments --enable-function-attribute-detection \
	--no-recursive-allowlist \
	--with-derive-custom-struct '.*=MaybeZeroable' \
	--allowlist-type 'virtio_(device|driver|config_ops|map|map_ops)|virtqueue|virtqueue_info|vq_callback_t' \
	--allowlist-type 'vringh_config_ops|virtio_shm_region|irq_affinity' \
	--opaque-type 'vringh_config_ops|virtio_map_ops|virtio_map|virtio_config_ops' \
	--allowlist-function '(un|__)register_virtio_driver|virtio_reset_device' \
	--allowlist-function 'virtqueue_(add_sgs|kick_prepare|notify|get_buf|disable_cb|enable_cb|is_broken|get_vring_size|detach_unused_buf)' \
	--allowlist-function 'virtio_cuda_.*' --allowlist-type 'virtio_cuda_(watch|statistic)' \
	--allowlist-var 'VIRTIO_F_.*|VIRTIO_DEV_ANY_ID' \
	--raw-line 'use kernel::bindings::*;' --raw-line 'use pin_init::MaybeZeroable;' \
	-o $@ -- $(virtio_bindgen_cflags)

$(obj)/virtio_generated.rs: $(src)/virtio_glue.h $(src)/bindgen.mk FORCE
	$(call if_changed_dep,virtio_bindgen)

targets += virtio_generated.rs
clean-files += virtio_generated.rs
