// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The owner of shared objects: only processes of the same user of the same machine find objects that a process
//! offers or loads.

use serde::{Deserialize, Serialize};
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use crate::front_end::memory::Memory;

/// The start of the memory of a virtio-user process (`guest-lib/client/src/virtio_user/memory.rs`). A virtual machine
/// also has memory at a lower address: firmware and kernels of PCs begin in the first MiB.
const PROCESS_RAM: u64 = 1 << 32;

/// A user of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The machine.
    pub machine: Machine,
    /// The user id, as the machine's kernel reports it.
    pub uid: u32,
}

/// The machine of a front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Machine {
    /// A virtual machine: the number of its connection.
    Virtual(u64),
    /// This host: virtio-user processes, each with a connection of its own, share like processes of one machine.
    Host,
}

impl Machine {
    /// Returns the machine of connection `connection` with this memory. The VMM chose the addresses, not the guest.
    pub fn of(connection: u64, memory: &Memory) -> Self {
        let is_process =
            memory.num_regions() > 0 && memory.iter().all(|region| region.start_addr().0 >= PROCESS_RAM);
        if is_process { Self::Host } else { Self::Virtual(connection) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::GuestAddress;

    #[test]
    fn machines_are_told_from_processes_by_where_their_memory_lies() {
        let memory = |ranges: &[(GuestAddress, usize)]| Memory::from_ranges(ranges).unwrap();
        let high = (GuestAddress(1 << 32), 4096);
        assert_eq!(Machine::of(3, &memory(&[high])), Machine::Host);
        assert_eq!(Machine::of(3, &memory(&[(GuestAddress(0), 4096), high])), Machine::Virtual(3));
        assert_eq!(Machine::of(3, &Memory::new()), Machine::Virtual(3));
    }
}
