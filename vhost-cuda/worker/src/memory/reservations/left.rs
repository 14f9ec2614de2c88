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
    /// Zero.
    pub reserved: u32,
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
    /// The `CUmemAccess_flags` of the device.
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
                reserved: 0,
            });
        }
        created.sort_by_key(|row| row.name);
        let mapping = |(&base, mapping): (&u64, &super::Mapping)| {
            let access = mapping.access.first().map_or(0, |access| u64::from(access.flags));
            MappingRow { base, bytes: mapping.bytes, name: mapping.name, access }
        };
        Some(Rows {
            reserved: self.reserved.iter().map(span).collect(),
            lent: self.lent.iter().map(span).collect(),
            created,
            mappings: self.mappings.iter().map(mapping).collect(),
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

    /// Enters allocations of another worker, whose contents are away, and their mappings, in memory of `device`. Returns the allocations as they
    /// come back.
    ///
    /// Errors: the reason; some may be entered.
    pub fn restore_created(
        &mut self,
        device: i32,
        created: &[CreatedRow],
        mappings: &[MappingRow],
    ) -> Result<Vec<(u64, Part)>, String> {
        let location = RawLocation { kind: LOCATION_DEVICE, id: device };
        for row in created {
            self.check_new(row.name).map_err(|_| "an allocation has no name of its own")?;
            if row.handle_types & !HANDLE_TYPE_FILE != 0 || row.gpu_direct_rdma > 1 || row.bytes == 0 {
                return Err("an allocation has properties that no call gives".to_owned());
            }
            // The only device.
            self.insert(row.name, 0, row.bytes, Location { kind: LOCATION_DEVICE, id: 0 });
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
            let flags = u32::try_from(row.access).ok().filter(|flags| *flags <= ACCESS_READ_WRITE);
            let flags = flags.ok_or("a mapping has an access that does not exist")?;
            if let Some(mapping) = self.mapping(row.base).filter(|_| flags > 0) {
                mapping.access.push(RawAccess { location, flags });
            }
        }
        for row in created {
            if let Some(allocation) = self.allocations.get_mut(&row.name) {
                allocation.held = row.held;
            }
        }
        let movable = self.movable(&BTreeSet::from([device]));
        if movable.len() != self.allocations.len() {
            return Err("an allocation is none that can move".to_owned());
        }
        Ok(movable.into_iter().map(|(name, part)| (name, part.away())).collect())
    }
}
