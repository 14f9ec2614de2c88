// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Each row of the call table that takes a handle races with the destruction of an object of that kind, or has a
//! reason why not.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use virtio_cuda_protocol::cuda::Opcode;
use virtio_cuda_protocol::cuda::table::ROWS;

use super::own_kinds;
use crate::Target;
use crate::calls::Session;

/// The object gets its name by the call.
const MAKES_IT: &str = "makes the object";

/// Rows that do not race, and why.
const WITHOUT: &[(&str, Opcode, &str)] = &[
    ("ContextId", Opcode::cuDevicePrimaryCtxRetain, MAKES_IT),
    ("ContextId", Opcode::cuCtxEnablePeerAccess, "needs a second device"),
    ("ContextId", Opcode::cuCtxDisablePeerAccess, "needs a second device"),
    ("ArrayId", Opcode::cuArrayGetPlane, "arrays of several planes are not served"),
    ("EventId", Opcode::cuIpcOpenEventHandle, MAKES_IT),
    ("TexRefId", Opcode::cuModuleGetTexRef, MAKES_IT),
    ("MemoryPoolId", Opcode::cuDeviceGetDefaultMemPool, MAKES_IT),
    ("MemoryPoolId", Opcode::cuMemPoolImportFromShareableHandle, MAKES_IT),
    ("MemoryPoolId", Opcode::cuMemPoolImportPointer, "needs a pool of another process"),
    ("AllocationId", Opcode::cuMemImportFromShareableHandle, MAKES_IT),
    ("ModuleId", Opcode::module_load_known, MAKES_IT),
    ("ModuleId", Opcode::cuModuleLoadDataEx, MAKES_IT),
    ("LibraryId", Opcode::library_load_known, MAKES_IT),
    ("MipmappedArrayId", Opcode::cuExternalMemoryGetMappedMipmappedArray, MAKES_IT),
    ("GraphExecId", Opcode::cuGraphInstantiateWithParams, MAKES_IT),
    ("StreamId", Opcode::cuGraphInstantiateWithParams, "the stream is the legacy one or none"),
    ("StreamId", Opcode::cuMemcpyHtoD_v2, "the stream is a default one"),
    ("StreamId", Opcode::cuMemMapArrayAsync, "needs an allocation for each tile"),
    ("StreamId", Opcode::capture_memcpy, "needs pinned memory of the guest"),
    ("StreamId", Opcode::cuStreamAddCallback, "a stream waits for a function that the guest never runs"),
    ("StreamId", Opcode::launch_updatable, "device code only can change its node"),
    ("FunctionId", Opcode::launch_updatable, "device code only can change its node"),
];

/// See the head of this file.
pub fn all_are_there(target: &mut Target) -> Result<()> {
    let session = Session::open(target)?;
    let mut there = BTreeSet::new();
    let mut kinds: BTreeSet<&str> = BTreeSet::new();
    for (_, kind) in own_kinds() {
        let kind = kind(&session);
        kinds.extend(kind.handles);
        let calls = kind.make.iter().chain(&kind.uses).chain([&kind.destroy]);
        for opcode in calls.map(|parts| parts.opcode) {
            there.extend(kind.handles.iter().map(|handle| (*handle, opcode)));
        }
    }
    let mut wrong = Vec::new();
    for row in ROWS {
        for handle in row.inputs.iter().map(|input| input.of).filter(|handle| kinds.contains(handle)) {
            let is_there = there.contains(&(handle, row.opcode));
            let without = WITHOUT.iter().any(|(of, call, _)| *of == handle && *call as u32 == row.opcode);
            if is_there == without {
                wrong.push(format!("{handle}: {}", row.name));
            }
        }
    }
    ensure!(
        wrong.is_empty(),
        "either no object is used by these while it is destroyed, or `WITHOUT` has them needlessly:\n{}",
        wrong.join("\n")
    );
    Ok(())
}
