// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The owner of shared objects: only processes of the same user of the same machine find objects that a process
//! offers or loads, and watch each other.

use std::os::unix::fs::MetadataExt;

use rustix::fs::{SealFlags, fcntl_get_seals};
use serde::{Deserialize, Serialize};
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use crate::guest::memory::Memory;

/// The start of the memory of a virtio-user process (`guest-lib/client/src/virtio_user/memory.rs`). A virtual machine
/// also has memory at a lower address: firmware and kernels of PCs begin in the first MiB.
const PROCESS_RAM: u64 = 1 << 32;

/// The user of a process of which the kernel does not tell it. No user has this id, and the processes do not watch each other.
const NOBODY: u32 = u32::MAX;

/// A user of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The machine.
    pub machine: Machine,
    /// The user id, as the machine's kernel reports it.
    pub uid: u32,
}

impl Owner {
    /// Returns the owner of a session on connection `connection` with this memory. The kernel of a virtual machine says the user
    /// (`said`), and this host's kernel that of a process on it. Both are of the same memory: a front-end can replace it at any time,
    /// and a machine says any user.
    pub fn of(connection: u64, memory: Option<&Memory>, said: u32) -> Self {
        let machine = memory.map_or(Machine::Virtual(connection), |memory| Machine::of(connection, memory));
        let uid = match (machine, memory) {
            (Machine::Host, Some(memory)) => user_of(memory),
            _ => said,
        };
        Self { machine, uid }
    }

    /// Returns whether a program of this user may watch those of `other`: its own ones, and as the root of a virtual machine all of
    /// that machine. Root of a container on the host is not root of its neighbours.
    pub fn may_watch(self, other: Self) -> bool {
        let is_root = self.uid == 0 && matches!(self.machine, Machine::Virtual(_));
        self.machine == other.machine && self.uid != NOBODY && (self.uid == other.uid || is_root)
    }
}

/// Returns the user of a virtio-user process: the owner of its memory file. The kernel says it, not the process.
///
/// Only a file with seals counts. It has no path, so that no other user can have opened it.
pub fn user_of(memory: &Memory) -> u32 {
    let owner = || {
        let file = memory.iter().next()?.file_offset()?.file();
        // Files on a `tmpfs` only have the seal against further ones.
        let is_sealed = fcntl_get_seals(file).ok()?.contains(SealFlags::SHRINK);
        is_sealed.then(|| file.metadata().ok()).flatten().map(|meta| meta.uid())
    };
    owner().unwrap_or(NOBODY)
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

    #[test]
    fn users_watch_their_own_programs() {
        let owner = |machine, uid| Owner { machine, uid };
        let [first, second] = [Machine::Virtual(1), Machine::Virtual(2)];
        assert!(owner(first, 5).may_watch(owner(first, 5)) && owner(first, 0).may_watch(owner(first, 5)));
        assert!(!owner(first, 5).may_watch(owner(first, 6)) && !owner(first, 5).may_watch(owner(first, 0)));
        assert!(!owner(first, 0).may_watch(owner(second, 0)) && !owner(first, 5).may_watch(owner(second, 5)));
        assert!(owner(Machine::Host, 5).may_watch(owner(Machine::Host, 5)));
        assert!(!owner(Machine::Host, 0).may_watch(owner(Machine::Host, 5)));
        assert!(!owner(Machine::Host, NOBODY).may_watch(owner(Machine::Host, NOBODY)));
    }

    #[test]
    fn the_user_is_the_owner_of_a_sealed_file() {
        use vm_memory::FileOffset;
        let memory = |file: std::fs::File| {
            file.set_len(4096).unwrap();
            let file = FileOffset::new(file, 0);
            Memory::from_ranges_with_files(&[(GuestAddress(1 << 32), 4096, Some(file))]).unwrap()
        };
        let sealed = memory(vhost_cuda_common::files::memory_file(c"memory").unwrap());
        assert_eq!(user_of(&sealed), NOBODY, "not sealed yet");
        crate::guest::memory::protect(&sealed).unwrap();
        assert_eq!(user_of(&sealed), rustix::process::geteuid().as_raw());
        let path = vmm_sys_util::tempfile::TempFile::new().unwrap().into_file();
        assert_eq!(user_of(&memory(path)), NOBODY);
        assert_eq!(user_of(&Memory::new()), NOBODY);
        let owner = |memory: &Memory| Owner::of(3, Some(memory), 77);
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(owner(&sealed), Owner { machine: Machine::Host, uid: own }, "whatever it says");
        let low = Memory::from_ranges(&[(GuestAddress(0), 4096)]).unwrap();
        let said = Owner { machine: Machine::Virtual(3), uid: 77 };
        assert_eq!((owner(&low), Owner::of(3, None, 77)), (said, said));
    }
}
