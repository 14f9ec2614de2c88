// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The vhost-user front-end's side of setting the device up.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use range_alloc::RangeAllocator;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_cuda_protocol::transport::{
    CONFIG_MAGIC, Config, MAX_REQUEST_QUEUES, PAGE_BYTES, PROTOCOL_VERSION,
};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::FromBytes;

use super::memory::{MAX_RAM_BYTES, RAM_BASE, RamRange, SharedRam};
use super::pages::{FileRegion, FileRegions};
use super::queue::RequestQueue;
use crate::ClientError;
use crate::ring::Layout;
use crate::transport::UserMemory;

/// Time limit for one step of a daemon. A daemon that serves another process answers only after that process has ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// The maximum number of request queues to set up: threads spread over them.
const MAX_QUEUES: u32 = 4;
/// The bytes of guest memory, the part without memory included: addresses have 46 bits on the oldest machines.
const GUEST_BYTES: u64 = 1 << 45;

/// A connected daemon and its offer.
pub struct Connection {
    frontend: Frontend,
    /// The device's configuration space.
    pub config: Config,
    /// Request queues to set up.
    pub queues: u32,
    /// Pages of guest memory behind the memfd.
    behind: Mutex<RangeAllocator<u64>>,
}

/// Returns a function that makes the message of a failure.
fn refused<E: std::fmt::Display>(path: &Path, step: &'static str) -> impl FnOnce(E) -> ClientError {
    move |error| ClientError::Daemon { path: path.display().to_string(), reason: format!("{step}: {error}") }
}

impl Connection {
    /// Connects and negotiates features. The virtqueues come later.
    pub fn open(path: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path)
            .map_err(|source| ClientError::NoDevice { path: path.display().to_string(), source })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut frontend = Frontend::from_stream(stream, u64::from(MAX_REQUEST_QUEUES) + 1);

        let offered = frontend.get_features().map_err(refused(path, "features"))?;
        let needed = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() | 1 << VIRTIO_F_VERSION_1;
        if offered & needed != needed {
            return Err(refused(path, "features")(format!("{offered:#x} offered, {needed:#x} needed")));
        }
        let offered = frontend.get_protocol_features().map_err(refused(path, "protocol features"))?;
        let needed = VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::REPLY_ACK;
        if !offered.contains(needed) {
            return Err(refused(path, "protocol features")(format!(
                "{offered:?} offered, {needed:?} needed"
            )));
        }
        let wanted = needed | VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        frontend.set_protocol_features(offered & wanted).map_err(refused(path, "protocol features"))?;
        frontend.set_owner().map_err(refused(path, "ownership"))?;
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);

        let config = read_config(&mut frontend).map_err(refused(path, "configuration"))?;
        if config.magic != CONFIG_MAGIC {
            return Err(refused(path, "configuration")("this is no virtio-cuda device"));
        }
        if config.protocol_version != PROTOCOL_VERSION {
            return Err(ClientError::Version {
                what: "virtio-cuda",
                ours: PROTOCOL_VERSION,
                theirs: config.protocol_version,
            });
        }
        let features = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() | 1 << VIRTIO_F_VERSION_1;
        frontend.set_features(features).map_err(refused(path, "features"))?;
        let queues = config.num_request_queues.clamp(1, MAX_QUEUES);
        let behind = Mutex::new(RangeAllocator::new(MAX_RAM_BYTES / PAGE_BYTES..GUEST_BYTES / PAGE_BYTES));
        Ok(Self { frontend, config, queues, behind })
    }

    /// Sends the memory to the daemon and starts the queues.
    pub fn start(
        &mut self,
        path: &Path,
        ram: &SharedRam,
        queues: &[RequestQueue],
    ) -> Result<(), ClientError> {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: RAM_BASE,
            memory_size: ram.bytes(),
            userspace_addr: ram.at(0) as u64,
            mmap_offset: 0,
            mmap_handle: ram.fd(),
        };
        self.frontend.set_mem_table(&[region]).map_err(refused(path, "memory table"))?;
        for (index, queue) in queues.iter().enumerate() {
            self.start_queue(index, ram.at(queue.range.offset) as u64, &queue.kick, &queue.call)
                .map_err(refused(path, "request queue"))?;
        }
        Ok(())
    }

    fn start_queue(&mut self, index: usize, at: u64, kick: &EventFd, call: &EventFd) -> vhost::Result<()> {
        let layout = Layout::new(super::queue::SLOTS);
        let size = 2 * super::queue::SLOTS;
        self.frontend.set_vring_num(index, size)?;
        self.frontend.set_vring_addr(
            index,
            &VringConfigData {
                queue_max_size: size,
                queue_size: size,
                flags: 0,
                desc_table_addr: at,
                used_ring_addr: at + layout.used as u64,
                avail_ring_addr: at + layout.avail as u64,
                log_addr: None,
            },
        )?;
        self.frontend.set_vring_base(index, 0)?;
        self.frontend.set_vring_call(index, call)?;
        self.frontend.set_vring_kick(index, kick)?;
        self.frontend.set_vring_enable(index, true)
    }
}

impl Connection {
    fn behind(&self) -> MutexGuard<'_, RangeAllocator<u64>> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The description of a stretch of a file for the daemon.
fn region_info(range: RamRange, address: u64, mmap_offset: u64, file: RawFd) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: range.guest_address(),
        memory_size: range.bytes,
        userspace_addr: address,
        mmap_offset,
        mmap_handle: file,
    }
}

impl FileRegions for Connection {
    fn add(&self, file: &File, offset: u64, memory: UserMemory) -> Result<FileRegion, ClientError> {
        let pages = memory.bytes as u64 / PAGE_BYTES;
        let range = self.behind().allocate_range(pages).map_err(|_| ClientError::Limit)?;
        let region = FileRegion {
            range: RamRange { offset: range.start * PAGE_BYTES, bytes: pages * PAGE_BYTES },
            address: memory.address as u64,
            file_offset: offset,
        };
        let info = region_info(region.range, region.address, offset, file.as_raw_fd());
        match self.frontend.clone().add_mem_region(&info) {
            Ok(_) => Ok(region),
            Err(error) => {
                log::debug!("The daemon does not take a file as memory: {error}");
                self.behind().free_range(range);
                Err(ClientError::Fault)
            }
        }
    }

    fn remove(&self, region: FileRegion) {
        let FileRegion { range, address, file_offset } = region;
        // The message carries no file.
        match self.frontend.clone().remove_mem_region(&region_info(range, address, file_offset, -1)) {
            Ok(()) => {
                let first = range.offset / PAGE_BYTES;
                self.behind().free_range(first..first + range.bytes / PAGE_BYTES);
            }
            // Its addresses are not used again.
            Err(error) => log::debug!("The daemon does not give a file back: {error}"),
        }
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.frontend.as_raw_fd()
    }
}

fn read_config(frontend: &mut Frontend) -> Result<Config, io::Error> {
    let zeros = [0u8; size_of::<Config>()];
    let (_, bytes) = frontend
        .get_config(0, zeros.len() as u32, VhostUserConfigFlags::empty(), &zeros)
        .map_err(io::Error::other)?;
    Config::read_from_bytes(&bytes).map_err(|_| io::Error::other("wrong length"))
}
