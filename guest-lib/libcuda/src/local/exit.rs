// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The end of the process. Static destructors of the program may still make calls. Once this library's destructor has
//! run, calls return `CUDA_ERROR_DEINITIALIZED`. The session ends when the kernel closes its descriptor.

extern "C" fn destructor() {
    virtio_cuda_client::process::exiting();
}

// SAFETY: the dynamic linker calls the functions of this section, which take no arguments, at exit.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;
