// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reservations and allocations of a session that goes to another worker.

use std::collections::BTreeSet;

use virtio_cuda_protocol::cuda::Location;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Reservations;
use crate::gpu::{
    ACCESS_READ_WRITE, ALLOCATION_PINNED, HANDLE_TYPE_FILE, LOCATION_DEVICE, RawAccess, RawAllocation,
    RawLocation,
};
use crate::memory::parts::Part;

/// The bits of the access of a device in [`MappingRow::access`].
const ACCESS_BITS: u32 = 2;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SpanRow {
    /// The first address.
    pub base: u64,
    /// Bytes.
    pub bytes: u64,
}

/// An allocation of `cuMemCreate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CreatedRow {
    /// Its name.
    pub name: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The number of times that the program holds it.
    pub held: u32,
    /// `CU_MEM_HANDLE_TYPE_*` bits.
    pub handle_types: u32,
    /// 1 if network cards may reach it, or 0.
    pub gpu_direct_rdma: u32,
    /// The number of its device.
    pub device: u32,
}

/// A mapping of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MappingRow {
    /// Its first address.
    pub base: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The allocation's name.
    pub name: u64,
    /// The `CUmemAccess_flags` of the devices: two bits for each, from the lowest on.
    pub access: u64,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Reserved addresses.
    pub reserved: Vec<SpanRow>,
    /// The part of these that is lent to the window.
    pub lent: Vec<SpanRow>,
    /// Allocations.
    pub created: Vec<CreatedRow>,
    /// Mappings.
    pub mappings: Vec<MappingRow>,
}

impl Reservations {
    /// Returns all of them, ordered. `None` if there is something that goes to no other worker. All memory is away.
    pub fn rows(&self) -> Option<Rows> {
        if !self.offered.is_empty() || !self.externals.is_empty() || !self.array_maps.is_empty() {
            return None;
        }
        let span = |(&base, &bytes): (&u64, &u64)| SpanRow { base, bytes };
        let mut created = Vec::new();
        for (&name, allocation) in &self.allocations {
            let properties = allocation.properties?;
            created.push(CreatedRow {
                name,
                bytes: allocation.bytes,
                held: allocation.held,
                handle_types: properties.handle_types,
                gpu_direct_rdma: properties.gpu_direct_rdma.into(),
                device: u32::try_from(properties.location.id).ok()?,
            });
        }
        created.sort_by_key(|row| row.name);
        let mut mappings = Vec::new();
        for (&base, mapping) in &self.mappings {
            let mut access = 0;
            for RawAccess { location, flags } in &mapping.access {
                let place = u32::try_from(location.id).ok().filter(|_| location.kind == LOCATION_DEVICE)?;
                access |= u64::from(*flags).checked_shl(ACCESS_BITS * place)?;
            }
            mappings.push(MappingRow { base, bytes: mapping.bytes, name: mapping.name, access });
        }
        Some(Rows {
            reserved: self.reserved.iter().map(span).collect(),
            lent: self.lent.iter().map(span).collect(),
            created,
            mappings,
        })
    }

    /// Enters reserved addresses of another worker.
    ///
    /// Errors: those of `reserve`, and a range that overlaps another one.
    pub fn restore_reserved(
        &mut self,
        rows: &[SpanRow],
        reserve: impl Fn(u64, u64) -> Result<(), String>,
    ) -> Result<(), String> {
        for &SpanRow { base, bytes } in rows {
            let is_new = base.checked_add(bytes).is_some() && bytes > 0 && !self.overlaps(base, bytes);
            if !is_new || self.check_room().is_err() {
                return Err("reserved addresses overlap, or are too many".to_owned());
            }
            reserve(base, bytes)?;
            self.reserve(base, bytes);
        }
        Ok(())
    }

    /// Enters allocations of another worker, whose contents are away, and their mappings, of these devices. Returns the allocations as they
    /// come back.
    ///
    /// Errors: the reason; some may be entered.
    pub fn restore_created(
        &mut self,
        devices: &[i32],
        created: &[CreatedRow],
        mappings: &[MappingRow],
    ) -> Result<Vec<(u64, Part)>, String> {
        let location = |number: u32| {
            let id = i32::try_from(number).ok().filter(|number| devices.contains(number))?;
            Some(RawLocation { kind: LOCATION_DEVICE, id })
        };
        for row in created {
            self.check_new(row.name).map_err(|_| "an allocation has no name of its own")?;
            if row.handle_types & !HANDLE_TYPE_FILE != 0 || row.gpu_direct_rdma > 1 || row.bytes == 0 {
                return Err("an allocation has properties that no call gives".to_owned());
            }
            let location = location(row.device).ok_or("an allocation is of a device that it does not see")?;
            self.insert(row.name, 0, row.bytes, Location { kind: LOCATION_DEVICE, id: location.id });
            let properties = RawAllocation {
                kind: ALLOCATION_PINNED,
                handle_types: row.handle_types,
                location,
                gpu_direct_rdma: row.gpu_direct_rdma as u8,
                ..RawAllocation::ZERO
            };
            self.asked_for(row.name, properties);
        }
        for row in mappings {
            self.check_map(row.base, row.bytes, 0, row.name).map_err(|_| "a mapping is where none can be")?;
            self.map(row.base, row.bytes, row.name);
            for number in 0..u64::BITS / ACCESS_BITS {
                let flags = (row.access >> (ACCESS_BITS * number)) as u32 & ACCESS_READ_WRITE;
                if flags > 0
                    && let Some(mapping) = self.mapping(row.base)
                {
                    // `CU_MEM_ACCESS_FLAGS_PROT_READ` is 1. There is no 2.
                    let location = location(number).filter(|_| flags != 2);
                    let location = location.ok_or("a mapping has an access that does not exist")?;
                    mapping.access.push(RawAccess { location, flags });
                }
            }
        }
        for row in created {
            if let Some(allocation) = self.allocations.get_mut(&row.name) {
                allocation.held = row.held;
            }
        }
        let movable = self.movable(&devices.iter().copied().collect::<BTreeSet<_>>());
        if movable.len() != self.allocations.len() {
            return Err("an allocation is none that can move".to_owned());
        }
        Ok(movable.into_iter().map(|(name, part)| (name, part.away())).collect())
    }
}
