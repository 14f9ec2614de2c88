// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that takes the place of freed memory.

use crate::cu::{self, cu};

/// CU_POINTER_ATTRIBUTE_BUFFER_ID
const BUFFER_ID: u32 = 7;
/// CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY
const READ_MOSTLY: u32 = 1;

#[test]
fn memory_at_a_used_address_is_another_one() {
    cu::use_primary_context();
    let mut ids = Vec::new();
    // Other tests allocate, too: some rounds get the address of the one before.
    for round in 0..20 {
        let (mut ptr, mut id, mut read_mostly) = (0, 0_u64, 9_u32);
        assert_eq!(cu!(cuMemAllocManaged(&mut ptr, 4096, 1)), 0);
        assert_eq!(cu!(cuPointerGetAttribute((&raw mut id).cast(), BUFFER_ID, ptr)), 0);
        assert!(!ids.contains(&id), "{id} in {ids:?}");
        ids.push(id);
        assert_eq!(cu!(cuMemRangeGetAttribute((&raw mut read_mostly).cast(), 4, READ_MOSTLY, ptr, 64)), 0);
        assert_eq!(read_mostly, 0, "round {round}");
        assert_eq!(cu!(cuMemAdvise(ptr, 64, READ_MOSTLY, 0)), 0);
        assert_eq!(cu!(cuMemFree_v2(ptr)), 0);
    }
}
