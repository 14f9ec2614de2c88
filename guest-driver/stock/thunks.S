/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The compiled core branches and returns through the kernel's thunks, which mitigate Spectre v2 and Retbleed. A kernel
 * without these mitigations has no thunks: here are some that do nothing.
 */
#include <linux/linkage.h>

	.text
#if !defined(CONFIG_RETPOLINE) && !defined(CONFIG_MITIGATION_RETPOLINE)
.irp reg rax rbx rcx rdx rsi rdi rbp r8 r9 r10 r11 r12 r13 r14 r15
	.balign 16
SYM_CODE_START(__x86_indirect_thunk_\reg)
	jmp	*%\reg
	int3
SYM_CODE_END(__x86_indirect_thunk_\reg)
.endr
#endif
#if !defined(CONFIG_RETHUNK) && !defined(CONFIG_MITIGATION_RETHUNK)
	.balign 16
SYM_CODE_START(__x86_return_thunk)
	ret
	int3
SYM_CODE_END(__x86_return_thunk)
#endif
