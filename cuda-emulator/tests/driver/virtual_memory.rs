// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual memory management, and the linker.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use cuda_abi::{CUmemAccessDesc, CUmemAllocationProp, CUmemLocation};

use crate::cu::{self, Opaque, cu, download, function, launch, params, upload};

const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const INVALID_PTX: i32 = 218;
const PIECE: usize = 2 << 20;

const DEVICE: CUmemLocation = CUmemLocation { kind: 1, id: 0 };
const PROP: CUmemAllocationProp =
    CUmemAllocationProp { kind: 1, handle_types: 1, location: DEVICE, ..CUmemAllocationProp::ZERO };
const READ_WRITE: CUmemAccessDesc = CUmemAccessDesc { location: DEVICE, flags: 3 };

#[test]
fn pieces_make_one_range_that_can_grow() {
    let module = cu::load_module();
    let (mut bytes, mut base, mut one, mut two) = (0, 0, 0, 0);
    assert_eq!(cu!(cuMemGetAllocationGranularity(&mut bytes, &PROP, 0)), 0);
    assert_eq!(bytes, PIECE);
    assert_eq!(cu!(cuMemAddressReserve(&mut base, 3 * PIECE, 0, 0, 0)), 0);
    assert_eq!(cu!(cuMemCreate(&mut one, PIECE, &PROP, 0)), 0);
    assert_eq!(cu!(cuMemCreate(&mut two, PIECE, &PROP, 0)), 0);
    let store = function(module, "store");
    let middle = base + PIECE as u64;
    assert_eq!(cu!(cuMemMap(base, PIECE, 0, one, 0)), 0);
    // Mapped is not yet usable.
    let mut word = [5u32; 2];
    assert_eq!(cu!(cuMemcpyHtoD_v2(base, word.as_ptr().cast(), 4)), INVALID_VALUE);
    assert_eq!(cu!(cuMemMap(middle, PIECE, 0, two, 0)), 0);
    assert_eq!(cu!(cuMemMap(middle, PIECE, 0, one, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuMemSetAccess(base, 2 * PIECE, &READ_WRITE, 1)), 0);
    assert_eq!(cu!(cuMemSetAccess(base, PIECE / 2, &READ_WRITE, 1)), INVALID_VALUE);
    assert_eq!(cu!(cuMemSetAccess(base, 3 * PIECE, &READ_WRITE, 1)), INVALID_VALUE);
    // Across the border, by copies and by kernels.
    assert_eq!(cu!(cuMemcpyHtoD_v2(middle - 4, word.as_ptr().cast(), 8)), 0);
    assert_eq!(launch(store, 1, 1, 0, params![middle]), 0);
    assert_eq!(cu!(cuMemcpyDtoH_v2(word.as_mut_ptr().cast(), middle - 4, 8)), 0);
    assert_eq!(word, [5, 1]);
    // The handle is not needed any more, and the same memory can be at two places.
    let last = middle + PIECE as u64;
    assert_eq!(cu!(cuMemMap(last, PIECE, 0, two, 0)), 0);
    assert_eq!(cu!(cuMemSetAccess(last, PIECE, &READ_WRITE, 1)), 0);
    assert_eq!(download::<u32>(last, 1), [1]);
    assert_eq!(cu!(cuMemRelease(two)), 0);
    assert_eq!(cu!(cuMemRelease(two)), INVALID_VALUE);
    assert_eq!(cu!(cuMemAddressFree(base, 3 * PIECE)), INVALID_VALUE);
    assert_eq!(cu!(cuMemUnmap(base, PIECE / 2)), INVALID_VALUE);
    assert_eq!(cu!(cuMemUnmap(base, 3 * PIECE)), 0);
    assert_eq!(cu!(cuMemcpyDtoH_v2(word.as_mut_ptr().cast(), middle, 4)), INVALID_VALUE);
    assert_eq!(cu!(cuMemAddressFree(base, 3 * PIECE)), 0);
    assert_eq!(cu!(cuMemRelease(one)), 0);
}

#[test]
fn physical_memory_is_counted_and_can_be_shared() {
    cu::use_primary_context();
    let (mut handle, mut other, mut base, mut file) = (0, 0, 0, -1);
    assert_eq!(cu!(cuMemCreate(&mut handle, 1 << 40, &PROP, 0)), OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemCreate(&mut handle, 4096, &PROP, 0)), INVALID_VALUE);
    let elsewhere = CUmemAllocationProp { location: CUmemLocation { id: 9, ..DEVICE }, ..PROP };
    assert_eq!(cu!(cuMemCreate(&mut handle, PIECE, &elsewhere, 0)), 101);
    assert_eq!(cu!(cuMemCreate(&mut handle, PIECE, &PROP, 0)), 0);
    assert_eq!(cu!(cuMemExportToShareableHandle((&raw mut file).cast(), handle, 1, 0)), 0);
    let shared = file as usize as *mut c_void;
    assert_eq!(cu!(cuMemImportFromShareableHandle(&mut other, shared, 1)), 0);
    assert_ne!(cu!(cuMemImportFromShareableHandle(&mut base, 99_999 as *mut c_void, 1)), 0);
    assert_eq!(cu!(cuMemAddressReserve(&mut base, 2 * PIECE, 4 << 20, 0, 0)), 0);
    assert_eq!(base % (4 << 20), 0);
    assert_eq!(cu!(cuMemMap(base, PIECE, 0, handle, 0)), 0);
    assert_eq!(cu!(cuMemMap(base + PIECE as u64, PIECE, 0, other, 0)), 0);
    assert_eq!(cu!(cuMemSetAccess(base, 2 * PIECE, &READ_WRITE, 1)), 0);
    let word = 77u32;
    assert_eq!(cu!(cuMemcpyHtoD_v2(base, (&raw const word).cast(), 4)), 0);
    assert_eq!(download::<u32>(base + PIECE as u64, 1), [77]);
    assert_eq!(cu!(cuMemUnmap(base, 2 * PIECE)), 0);
    assert_eq!(cu!(cuMemAddressFree(base, 2 * PIECE)), 0);
    for handle in [handle, other] {
        assert_eq!(cu!(cuMemRelease(handle)), 0);
    }
    // SAFETY: the descriptor that this test was given.
    unsafe { libc::close(file) };
}

const CALLER: &str = "
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 result) triple (.param .b32 value);
.visible .entry use(.param .u64 out) {
    .reg .b32 %r<2>; .reg .b64 %d<2>;
    ld.param.u64 %d1, [out];
    { .param .b32 value; .param .b32 result;
      st.param.b32 [value], 14;
      call.uni (result), triple, (value);
      ld.param.b32 %r1, [result]; }
    st.global.u32 [%d1], %r1;
    ret;
}
\0";

const CALLEE: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .func (.param .b32 result) triple (.param .b32 value) {
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [value];
    mul.lo.s32 %r2, %r1, 3;
    st.param.b32 [result], %r2;
    ret;
}
\0";

fn add(linker: Opaque, text: &str) -> i32 {
    let (data, bytes) = (text.as_ptr().cast_mut().cast(), text.len());
    cu!(cuLinkAddData_v2(linker, 1, data, bytes, null(), 0, null_mut(), null_mut()))
}

#[test]
fn texts_are_linked_into_an_image_that_loads() {
    cu::use_primary_context();
    let (mut linker, mut image, mut bytes, mut module) = (null_mut(), null_mut(), 0, null_mut());
    let mut log = [0u8; 256];
    // CU_JIT_ERROR_LOG_BUFFER and its size
    let (mut names, mut values) = ([5, 6], [log.as_mut_ptr().cast(), log.len() as *mut c_void]);
    assert_eq!(cu!(cuLinkCreate_v2(2, names.as_mut_ptr(), values.as_mut_ptr(), &mut linker)), 0);
    assert_eq!(add(linker, "nonsense\0"), INVALID_PTX);
    assert!(log.starts_with(b"PTX, line 1"), "{}", String::from_utf8_lossy(&log));
    assert_eq!(add(linker, CALLER), 0);
    assert_eq!(cu!(cuLinkComplete(linker, &mut image, &mut bytes)), INVALID_PTX);
    assert_eq!(add(linker, CALLEE), 0);
    assert_eq!(cu!(cuLinkComplete(linker, &mut image, &mut bytes)), 0);
    assert_eq!(cu!(cuModuleLoadData(&mut module, image)), 0);
    assert_eq!(cu!(cuLinkDestroy(linker)), 0);
    assert_eq!(cu!(cuLinkDestroy(linker)), 400);
    let out = upload(&[0u32]);
    assert_eq!(launch(function(module, "use"), 1, 1, 0, params![out]), 0);
    assert_eq!(download::<u32>(out, 1), [42]);
}
