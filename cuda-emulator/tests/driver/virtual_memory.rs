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
/// More pieces than all other tests together have at a time.
const MANY: usize = 256;

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
    // The handle is no longer needed, and the same memory can be mapped at two addresses.
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

#[test]
fn memory_of_the_host_is_one_for_cpu_and_device() {
    let module = cu::load_module();
    let store = function(module, "store");
    let node = CUmemLocation { kind: 3, id: 0 };
    let prop = CUmemAllocationProp { location: node, handle_types: 0, ..PROP };
    let access = [READ_WRITE, CUmemAccessDesc { location: node, flags: 3 }];
    let (mut bytes, mut free, mut left, mut total) = (0, 0, 0, 0);
    assert_eq!(cu!(cuMemGetAllocationGranularity(&mut bytes, &prop, 0)), 0);
    assert_eq!(bytes, PIECE);
    assert_eq!(cu!(cuMemGetInfo_v2(&mut free, &mut total)), 0);
    let (mut base, mut moved, mut one, mut two, mut many) = (0, 0, 0, 0, 0);
    for (location, result) in [((3, 7), INVALID_VALUE), ((4, 0), INVALID_VALUE), ((2, 5), 0), ((3, 0), 0)] {
        let location = CUmemLocation { kind: location.0, id: location.1 };
        let made = cu!(cuMemCreate(&mut one, PIECE, &CUmemAllocationProp { location, ..prop }, 0));
        assert_eq!(made, result, "{location:?}");
        if made == 0 {
            assert_eq!(cu!(cuMemRelease(one)), 0);
        }
    }
    assert_eq!(cu!(cuMemCreate(&mut one, PIECE, &CUmemAllocationProp { handle_types: 1, ..prop }, 0)), 801);
    assert_eq!(cu!(cuMemCreate(&mut one, PIECE, &prop, 0)), 0);
    assert_eq!(cu!(cuMemCreate(&mut two, 2 * PIECE, &prop, 0)), 0);
    // Other tests have memory of the device meanwhile, but much less.
    assert_eq!(cu!(cuMemCreate(&mut many, MANY * PIECE, &prop, 0)), 0);
    assert_eq!(cu!(cuMemGetInfo_v2(&mut left, &mut total)), 0);
    assert!(free < left + MANY / 2 * PIECE, "{free} - {left} bytes of the device's");
    assert_eq!(cu!(cuMemRelease(many)), 0);
    assert_eq!(cu!(cuMemAddressReserve(&mut base, 4 * PIECE, 0, 0, 0)), 0);
    for (offset, part) in [(PIECE, PIECE), (0, 3 * PIECE), (0, PIECE / 2)] {
        assert_eq!(cu!(cuMemMap(base, part, offset, two, 0)), 801, "{part} bytes from {offset} on");
    }
    assert_eq!(cu!(cuMemMap(base, PIECE, 0, one, 0)), 0);
    let middle = base + PIECE as u64;
    assert_eq!(cu!(cuMemMap(middle, 2 * PIECE, 0, two, 0)), 0);
    assert_eq!(cu!(cuMemsetD8_v2(base, 0, 4)), INVALID_VALUE, "no access");
    assert_eq!(cu!(cuMemSetAccess(base, 3 * PIECE, access.as_ptr(), 2)), 0);
    let mut flags = 7;
    for location in [DEVICE, node, CUmemLocation { kind: 2, id: 0 }] {
        assert_eq!(cu!(cuMemGetAccess(&mut flags, &location, middle)), 0);
        assert_eq!(flags, 3);
    }
    // The CPU writes, a copy crosses the seam, and a kernel writes.
    let words = (middle - 4) as *mut u32;
    // SAFETY: both words lie in mappings that stay for now.
    unsafe {
        words.write_volatile(5);
        words.add(1).write_volatile(6);
    }
    let copy = upload(&[0u32; 2]);
    assert_eq!(cu!(cuMemcpyAsync(copy, middle - 4, 8, null_mut())), 0);
    assert_eq!(download::<u32>(copy, 2), [5, 6]);
    assert_eq!(launch(store, 1, 1, 0, params![middle]), 0);
    assert_eq!(cu!(cuCtxSynchronize()), 0);
    // SAFETY: both words lie in mappings that stay until `cuMemUnmap` below; the kernel has ended.
    assert_eq!(unsafe { [words.read_volatile(), words.add(1).read_volatile()] }, [5, 1]);
    let mut kind = 0u32;
    assert_eq!(cu!(cuPointerGetAttribute((&raw mut kind).cast(), 2, base)), 0);
    assert_eq!(kind, 1);
    // Elsewhere it is the same memory.
    assert_eq!(cu!(cuMemUnmap(base, 3 * PIECE)), 0);
    assert_eq!(cu!(cuMemAddressReserve(&mut moved, 4 * PIECE, 0, 0, 0)), 0);
    assert_eq!(cu!(cuMemMap(moved + PIECE as u64, 2 * PIECE, 0, two, 0)), 0);
    assert_eq!(cu!(cuMemSetAccess(moved + PIECE as u64, 2 * PIECE, access.as_ptr(), 2)), 0);
    // SAFETY: the first word of the mapping, which stays for now.
    assert_eq!(unsafe { ((moved + PIECE as u64) as *const u32).read_volatile() }, 1);
    assert_eq!(cu!(cuMemUnmap(moved, 4 * PIECE)), 0);
    for base in [base, moved] {
        assert_eq!(cu!(cuMemAddressFree(base, 4 * PIECE)), 0);
    }
    for handle in [one, two] {
        assert_eq!(cu!(cuMemRelease(handle)), 0);
    }
}

/// Bytes that are reserved at the wanted address if it is free.
const LONG: usize = 32 << 20;

/// Returns two adjacent reservations. Concurrent tests may take the place of the second.
fn reserve_neighbours() -> [u64; 2] {
    for _ in 0..100 {
        let (mut both, mut first, mut second) = (0, 0, 0);
        assert_eq!(cu!(cuMemAddressReserve(&mut both, 2 * LONG, 0, 0, 0)), 0);
        assert_eq!(cu!(cuMemAddressFree(both, 2 * LONG)), 0);
        assert_eq!(cu!(cuMemAddressReserve(&mut first, LONG, 0, both, 0)), 0);
        assert_eq!(cu!(cuMemAddressReserve(&mut second, LONG, 0, first + LONG as u64, 0)), 0);
        if second == first + LONG as u64 {
            return [first, second];
        }
        for base in [first, second] {
            assert_eq!(cu!(cuMemAddressFree(base, LONG)), 0);
        }
    }
    panic!("no neighbours in 100 attempts");
}

#[test]
fn calls_reach_over_reservations_side_by_side() {
    cu::use_primary_context();
    let [first, second] = reserve_neighbours();
    let mut memory = 0;
    assert_eq!(cu!(cuMemCreate(&mut memory, PIECE, &PROP, 0)), 0);
    let both = second - PIECE as u64;
    for at in [both, second] {
        assert_eq!(cu!(cuMemMap(at, PIECE, 0, memory, 0)), 0);
    }
    assert_eq!(cu!(cuMemSetAccess(both, 2 * PIECE, &READ_WRITE, 1)), 0);
    assert_eq!(cu!(cuMemSetAccess(both, 3 * PIECE, &READ_WRITE, 1)), INVALID_VALUE);
    assert_eq!(cu!(cuMemsetD8_v2(second, 9, 4)), 0);
    assert_eq!(download::<u32>(both, 1), [0x0909_0909]);
    assert_eq!(cu!(cuMemUnmap(both, LONG + 2 * PIECE)), INVALID_VALUE, "over the end");
    assert_eq!(cu!(cuMemUnmap(both, 2 * PIECE)), 0);
    assert_eq!(cu!(cuMemRelease(memory)), 0);
    for base in [first, second] {
        assert_eq!(cu!(cuMemAddressFree(base, LONG)), 0);
    }
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

/// As NVIDIA's driver 580 does. A log without room is not touched.
#[test]
fn the_last_size_of_a_log_counts() {
    cu::use_primary_context();
    for (sizes, written) in [([64, 8], 8), ([64, 0], 0), ([8, 64], 64)] {
        let (mut log, mut module) = ([0x7b_u8; 128], null_mut());
        // CU_JIT_ERROR_LOG_BUFFER and its size
        let mut names = [5, 6, 6];
        let mut values = [log.as_mut_ptr().cast(), sizes[0] as *mut c_void, sizes[1] as *mut c_void];
        let text =
            ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k() { frobnicate.u32 %r, %r; }\0";
        let image = text.as_ptr().cast();
        let loaded = cu!(cuModuleLoadDataEx(&mut module, image, 3, names.as_mut_ptr(), values.as_mut_ptr()));
        assert_eq!(loaded, INVALID_PTX);
        let used = log.iter().position(|byte| *byte == 0x7b).expect("a part that is not used");
        assert!(log[used..].iter().all(|byte| *byte == 0x7b));
        assert!(used <= written && (used == written || written == 64), "{used} bytes of {written}");
        assert_eq!(values[1] as usize, sizes[0], "the first size is not an output");
    }
}
