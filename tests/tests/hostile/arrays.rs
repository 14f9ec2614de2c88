// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory mapped where no array is, or from where no memory is: NVIDIA's driver does not notice sums that overflow.

use anyhow::{Result, ensure};
use vhost_cuda_tests::frontend::CallParts;
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::{
    ARRAY_MAP_INFO_BYTES, AllocationId, AllocationProperties, ArrayDescriptor, ArrayMapInfo, Location, Opcode,
};

use crate::calls::{CONTEXT, INVALID_VALUE, Session, encoded, in_context};
use crate::{Target, attack};

const INVALID_HANDLE: i32 = 400;
const SPARSE: u64 = 0x2000;
const DEFERRED: u64 = 0x2010;
const MEMORY: u64 = 0x2020;
const MEMORY_BYTES: u64 = 2 << 20;
/// Side of a tile of single-channel `float`s.
const TILE: u32 = 128;

pub fn collect(suite: &mut Suite) {
    attack(suite, "arrays::maps_outside_arrays_and_memory", maps_outside_arrays_and_memory);
}

fn create(session: &mut Session, name: u64, flags: u32) -> Result<()> {
    let of = ArrayDescriptor { width: 256, height: 256, depth: 0, format: 0x20, channels: 1, flags };
    let arguments = [&name.to_le_bytes()[..], &encoded(&of)?].concat();
    session.expect(&CallParts::new(Opcode::cuArray3DCreate_v2, &arguments).context(CONTEXT), &[0])?;
    Ok(())
}

fn map(session: &mut Session, maps: &[ArrayMapInfo], allowed: &[i32]) -> Result<()> {
    let list = maps.iter().map(encoded).collect::<Result<Vec<_>>>()?.concat();
    session.expect(&in_context(Opcode::cuMemMapArrayAsync, &[0]).bulk(&list), allowed)?;
    Ok(())
}

fn maps_outside_arrays_and_memory(target: &mut Target) -> Result<()> {
    let mut session = Session::open(target)?;
    create(&mut session, SPARSE, 0x40)?;
    create(&mut session, DEFERRED, 0x80)?;
    let properties = AllocationProperties {
        kind: 1,
        location: Location { kind: 1, id: 0 },
        usage: 1,
        ..AllocationProperties::default()
    };
    let allocate =
        [&MEMORY.to_le_bytes()[..], &MEMORY_BYTES.to_le_bytes(), &encoded(&properties)?, &[0; 8]].concat();
    session.expect(&CallParts::new(Opcode::cuMemCreate, &allocate).context(CONTEXT), &[0])?;

    // Level and layer, position, size.
    let tile = |place: [u32; 3], size: [u32; 3]| ArrayMapInfo {
        resource: SPARSE,
        subresource: [0, 0, place[0], place[1], place[2], size[0], size[1], size[2]],
        operation: 1,
        memory: AllocationId(MEMORY),
        device_mask: 1,
        ..ArrayMapInfo::default()
    };
    let good = tile([TILE, 0, 0], [TILE, TILE, 1]);
    map(&mut session, &[good], &[0])?;
    let deferred = ArrayMapInfo { resource: DEFERRED, subresource: [0; 8], ..good };
    map(&mut session, &[deferred], &[0])?;

    let far = 0u32.wrapping_sub(TILE);
    for (place, size) in [
        ([2 * TILE, 0, 0], [TILE, TILE, 1]),
        ([far, 0, 0], [2 * TILE, TILE, 1]),
        ([0, far, 0], [TILE, 2 * TILE, 1]),
        ([0, 0, u32::MAX], [TILE, TILE, 2]),
        ([1, 0, 0], [TILE, TILE, 1]),
        ([0, 0, 0], [far, far, 1]),
    ] {
        map(&mut session, &[tile(place, size)], &[INVALID_VALUE])?;
    }
    for offset in [MEMORY_BYTES, MEMORY_BYTES - 1, !0xffff, u64::MAX, 1 << 63] {
        map(&mut session, &[ArrayMapInfo { offset, ..good }], &[INVALID_VALUE])?;
        map(&mut session, &[ArrayMapInfo { offset, ..deferred }], &[INVALID_VALUE])?;
    }
    for forged in [3, SPARSE, session.memory, u64::MAX] {
        let memory = AllocationId(forged);
        map(&mut session, &[ArrayMapInfo { memory, ..good }], &[INVALID_VALUE, INVALID_HANDLE])?;
    }
    for resource in [3, MEMORY, u64::MAX] {
        map(&mut session, &[ArrayMapInfo { resource, ..good }], &[INVALID_VALUE, INVALID_HANDLE])?;
    }
    for wrong in [
        ArrayMapInfo { device_mask: 0, ..good },
        ArrayMapInfo { device_mask: u32::MAX, ..good },
        ArrayMapInfo { resource_kind: 2, ..good },
        ArrayMapInfo { resource_kind: 1, ..good },
        ArrayMapInfo { subresource: [1, 0, 0, 0, 0, TILE, TILE, 1], ..good },
        ArrayMapInfo { subresource: [0, 1, 0, 0, 0, TILE, TILE, 1], ..good },
    ] {
        map(&mut session, &[wrong], &[INVALID_VALUE, INVALID_HANDLE])?;
        // One wrong element invalidates the list.
        map(&mut session, &[good, wrong], &[INVALID_VALUE, INVALID_HANDLE])?;
    }
    map(&mut session, &[], &[INVALID_VALUE])?;
    ensure!(encoded(&good)?.len() == ARRAY_MAP_INFO_BYTES, "an element has another size");
    session.greet()
}
