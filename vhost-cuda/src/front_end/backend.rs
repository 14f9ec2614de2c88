// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The vhost-user side of a device: features, configuration space, queues, device state.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use log::{Level, debug, log};
use parking_lot::Mutex;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost_cuda_common::link::{MAX_BULK_BYTES, MAX_PAYLOAD_BYTES};
use vhost_user_backend::bitmap::BitmapMmapRegion;
use vhost_user_backend::{VhostUserBackend, VringT};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_cuda_protocol::transport::{CONFIG_MAGIC, Config, PROTOCOL_VERSION, STATUS_BACKEND_UP};
use virtio_queue::{DescriptorChain, QueueOwnedT, QueueT};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};
use zerocopy::IntoBytes;

use crate::confine::threads;
use crate::front_end::device::Device;
use crate::front_end::migration::{ahead, load, save};
use crate::guest::memory::{SharedMemory, Snapshot};
use crate::guest::request;
use crate::guest::ring::{Ring, Start, Unanswered, Vring};
use crate::hand_over::freeze;
use crate::limits::throttle::Throttle;
use crate::sessions::session::MAX_OUTSTANDING;

/// QEMU 10.0 sets every queue to 1024 entries whatever the configured size is, so a smaller maximum cannot be
/// offered.
const MAX_QUEUE_SIZE: usize = 1024;
/// `VHOST_F_LOG_ALL`: the backend maintains a dirty log during migration.
const VHOST_F_LOG_ALL: u32 = 26;

/// The first reserved field of the configuration, which a front-end reads and its guest does not see: contents may go ahead of a machine.
const BACKEND_LIVE: u32 = 1;

/// The time for idle threads to end, and for a transfer that has failed.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);

/// A front-end may transfer states in a loop, and each may fail.
static TRANSFERS: Throttle = Throttle::new(20, Duration::from_secs(10));
static FAILURES: Throttle = Throttle::new(20, Duration::from_secs(10));

/// A transfer. Its result has the sessions whose contents have gone ahead, if that was its purpose.
type Transferring = JoinHandle<io::Result<Option<HashSet<u64>>>>;

/// Serves one device to one front-end.
pub struct Backend {
    device: Arc<Device>,
    transfer: Mutex<Option<Transferring>>,
    /// The exit event of each queue's thread: the descriptor that the library gets, and its other end.
    exit_events: Mutex<Vec<(RawFd, Option<EventNotifier>)>>,
}

impl Backend {
    /// Creates a backend for `device`.
    pub fn new(device: Arc<Device>) -> Arc<Self> {
        Arc::new(Self { device, transfer: Mutex::default(), exit_events: Mutex::default() })
    }

    /// Closes the descriptors that the library leaks: it takes the exit events' descriptors and never closes them.
    /// Must be called only after the `VhostUserDaemon` was dropped.
    pub fn close_exit_events(&self) {
        for (fd, _) in std::mem::take(&mut *self.exit_events.lock()) {
            // SAFETY: `exit_event` gave this descriptor away by value to the library, which turned it into a
            // raw one (`into_raw_fd`) and dropped its epoll; nobody else owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    /// Ends the threads of queues that the library started before it failed, because it forgets them.
    pub fn end_threads(self: &Arc<Self>) {
        for (_, notifier) in self.exit_events.lock().iter() {
            let _ = notifier.as_ref().map(EventNotifier::notify);
        }
        let deadline = Instant::now() + EXIT_PATIENCE;
        // Each of the threads has one reference, and so has the caller.
        while Arc::strong_count(self) > 1 {
            if Instant::now() >= deadline {
                return;
            }
            thread::sleep(EXIT_PATIENCE / 1000);
        }
        self.close_exit_events();
    }

    fn config(&self) -> Config {
        // Files beside the state have all contents.
        let backend = if self.device.settings.contents.is_none() { BACKEND_LIVE } else { 0 };
        Config {
            magic: CONFIG_MAGIC,
            protocol_version: PROTOCOL_VERSION,
            num_request_queues: self.device.settings.num_queues,
            max_payload_bytes: MAX_PAYLOAD_BYTES,
            max_bulk_bytes: MAX_BULK_BYTES,
            max_sessions: self.device.settings.max_sessions,
            max_outstanding: MAX_OUTSTANDING as u32,
            status: STATUS_BACKEND_UP,
            driver_version: self.device.driver_version.load(Ordering::Relaxed),
            reserved: [backend, 0, 0, 0, 0, 0],
        }
    }

    /// Serves all waiting requests of queue `index`.
    fn serve(&self, index: usize, vring: &Vring, memory: &Snapshot) {
        let ring = &self.device.rings[index];
        loop {
            // An inaccessible ring is noticed below.
            let _ = vring.disable_notification();
            loop {
                let chain = match next_chain(vring, memory) {
                    Ok(Some(chain)) => chain,
                    Ok(None) => break,
                    // It stays as it is until the driver's next notification, which is wanted.
                    Err(error) => {
                        let _ = vring.enable_notification();
                        return debug!("Queue {index} cannot be read: {error}");
                    }
                };
                let head = chain.head_index();
                // A chain may refer to memory that the front-end has added since the last one.
                let memory = self.device.memory().unwrap_or_else(|| memory.clone());
                let (request, slot) = request::parse(&memory, chain);
                let chain = ring.accept(vring, memory, head, slot);
                self.device.handle(request, chain);
                if !ring.goes_on() {
                    return;
                }
            }
            if !vring.enable_notification().unwrap_or(false) {
                return;
            }
        }
    }
}

impl Backend {
    /// Takes up the chains that another backend has not answered. One that a worker has goes on; the others begin again.
    fn take_up(&self, ring: &Arc<Ring>, vring: &Vring, memory: &Snapshot) {
        let chains = ring.take_inherited();
        if chains.is_empty() {
            return;
        }
        let (table, size) = {
            let state = vring.get_ref();
            (state.get_queue().desc_table(), state.get_queue().size())
        };
        for Unanswered { head, session, request: number } in chains {
            let descriptors = request::descriptors(memory, table, size, head).into_iter();
            let (request, slot) = request::parse(memory, descriptors);
            let chain = ring.accept(vring, memory.clone(), head, slot);
            self.device.take_up(session, number, request, chain);
        }
        ring.taken_up();
    }
}

/// Takes the next chain, if the queue has one.
///
/// Errors: it does not run, or is not consistent.
fn next_chain(
    vring: &Vring,
    memory: &Snapshot,
) -> Result<Option<DescriptorChain<Snapshot>>, virtio_queue::Error> {
    let mut state = vring.get_mut();
    let next = state.get_queue_mut().iter(memory.clone())?.next();
    Ok(next)
}

/// The state of a device is transferred as long as this exists: its program is not replaced.
struct Transfer<'a>(&'a Device);

impl<'a> Transfer<'a> {
    fn begin(device: &'a Device) -> Self {
        let _permit = freeze::permit();
        device.transfers.store(true, Ordering::Release);
        Self(device)
    }
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        self.0.transfers.store(false, Ordering::Release);
    }
}

impl VhostUserBackend for Backend {
    type Bitmap = BitmapMmapRegion;
    type Vring = Vring;

    fn num_queues(&self) -> usize {
        self.device.rings.len()
    }

    fn max_queue_size(&self) -> usize {
        MAX_QUEUE_SIZE
    }

    fn features(&self) -> u64 {
        // Without the packed ring, which virtio-queue does not implement.
        1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | 1 << VHOST_F_LOG_ALL
            | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        use VhostUserProtocolFeatures as Feature;
        Feature::MQ
            | Feature::CONFIG
            | Feature::REPLY_ACK
            | Feature::CONFIGURE_MEM_SLOTS
            | Feature::RESET_DEVICE
            | Feature::LOG_SHMFD
            | Feature::DEVICE_STATE
    }

    fn acked_features(&self, features: u64) {
        debug!("connection {}: features {features:#x}", self.device.connection);
    }

    fn reset_device(&self) {
        // The library disables the queues but does not report that they are stopped.
        for (index, ring) in self.device.rings.iter().enumerate() {
            ring.stop(index as u32);
        }
        self.device.reset();
    }

    fn set_event_idx(&self, _enabled: bool) {
        // The library keeps it in each queue.
    }

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let config = self.config();
        let bytes = config.as_bytes().iter().copied().chain(std::iter::repeat(0));
        // The library bounds `size` by the length of a message.
        bytes.skip((offset as usize).min(size_of::<Config>())).take(size as usize).collect()
    }

    fn set_config(&self, offset: u32, bytes: &[u8]) -> io::Result<()> {
        // A VMM writes the field or the whole space. Only this field belongs to the driver.
        const FIELD: usize = std::mem::offset_of!(Config, driver_version);
        let field = FIELD.checked_sub(offset as usize).and_then(|start| bytes.get(start..start + 4));
        if let Some(field) = field {
            self.device.set_driver_version(u32::from_le_bytes([field[0], field[1], field[2], field[3]]));
        }
        Ok(())
    }

    fn update_memory(&self, memory: SharedMemory) -> io::Result<()> {
        self.device.update_memory(memory)
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        (0..self.num_queues()).map(|index| 1 << index).collect()
    }

    fn exit_event(&self, _thread_index: usize) -> Option<(EventConsumer, EventNotifier)> {
        let pair = new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()?;
        self.exit_events.lock().push((pair.0.as_raw_fd(), pair.1.try_clone().ok()));
        Some(pair)
    }

    fn stop_vring(&self, index: u32) -> io::Result<()> {
        // While the queues run: answers of calls that end go there.
        self.device.stop();
        if let Some(ring) = self.device.rings.get(index as usize) {
            ring.stop(index);
        }
        self.device.log_kept_pages();
        self.device.pause();
        Ok(())
    }

    fn handle_event(&self, _event: u16, _set: EventSet, vrings: &[Vring], index: usize) -> io::Result<()> {
        // The thread is the library's, and has read no byte of the guest so far.
        threads::read_foreign_bytes();
        // Never returns an error, which would end the queue's thread. Each thread has one queue, with its own number.
        let (Some(vring), Some(memory)) = (vrings.first(), self.device.memory()) else { return Ok(()) };
        let ring = &self.device.rings[index];
        let stops = self.device.stops();
        let start = ring.resume(vring);
        match start {
            Start::Stopped => return Ok(()),
            Start::Anew => {
                debug!("connection {}: the device was reset", self.device.connection);
                self.device.reset();
            }
            Start::Again | Start::Running => {}
        }
        self.take_up(ring, vring, &memory);
        // A queue that runs still while the front-end stops one after the other is no start.
        if start != Start::Running {
            self.device.go_on(&memory, stops);
        }
        self.device.unpause();
        if index + 1 == self.num_queues() {
            self.device.events.deliver(&memory);
        } else {
            self.serve(index, vring, &memory);
        }
        ring.pause();
        Ok(())
    }

    fn set_device_state_fd(
        &self,
        direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        file: File,
    ) -> io::Result<Option<File>> {
        let mut transfer = self.transfer.lock();
        // A front-end need not ask for the result of the one before. Contents that go ahead end with their pipe, or with the queues.
        let deadline = Instant::now() + EXIT_PATIENCE;
        while transfer.as_ref().is_some_and(|before| !before.is_finished()) {
            if Instant::now() >= deadline {
                debug!("connection {}: a transfer is refused: the last one goes on", self.device.connection);
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            thread::sleep(EXIT_PATIENCE / 1000);
        }
        let device = self.device.clone();
        // Queues stop and start in this thread, too.
        let is_ahead = direction == VhostTransferStateDirection::SAVE && !device.is_stopped();
        // The transfer may block, but this call may not.
        let begun = thread::Builder::new().name("device-state".into()).spawn(move || {
            let _transfer = Transfer::begin(&device);
            if is_ahead {
                let sent = ahead::send(&device, file).map(Some);
                debug!("connection {}: contents went ahead: {sent:?}", device.connection);
                return sent;
            }
            let result = match direction {
                VhostTransferStateDirection::SAVE => save::save(&device, file),
                VhostTransferStateDirection::LOAD => load::load(&device, file),
            };
            // A front-end need not ask for the result of a transfer that has failed on its side, too.
            match &result {
                Ok(()) => {
                    let level = TRANSFERS.level(Level::Info);
                    log!(level, "connection {}: device state transferred", device.connection);
                }
                Err(error) => {
                    let level = FAILURES.level(Level::Error);
                    log!(level, "connection {}: device state: {error}", device.connection);
                }
            }
            result.map(|()| None)
        })?;
        *transfer = Some(begun);
        Ok(None)
    }

    fn check_device_state(&self) -> io::Result<()> {
        let Some(transfer) = self.transfer.lock().take() else { return Ok(()) };
        let result = transfer.join().unwrap_or_else(|_| Err(io::Error::other("the transfer panicked")));
        // The front-end has all that was sent.
        result.map(|ahead| ahead.into_iter().for_each(|sessions| self.device.has_gone_ahead(sessions)))
    }
}
