// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A daemon that implements the transport and answers the operations of `guest-driver/selftest/driver_test.h` instead
//! of CUDA calls, for tests of the guest's driver alone.

mod calls;
mod chain;
mod pages;
mod sessions;

use std::io;
use std::process::ExitCode;

use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_cuda_tests::backend::{self, Memory};
use vhost_user_backend::{VhostUserBackendMut, VringT};
use virtio_cuda_protocol::transport::{CONFIG_MAGIC, Config, PROTOCOL_VERSION};
use vm_memory::GuestAddressSpace;
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};
use zerocopy::FromZeros;

use chain::{Chain, Snapshot, Vring};
use sessions::{MAX_SESSIONS, Sessions};

/// `VIRTIO_F_VERSION_1`, `VIRTIO_F_EVENT_IDX` and `VIRTIO_F_INDIRECT_DESC`.
const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 28;

/// One connection.
struct Echo {
    queues: u32,
    memory: Option<Memory>,
    sessions: Sessions,
}

impl Echo {
    fn serve(&mut self, vring: &Vring, memory: &Snapshot) -> Option<()> {
        loop {
            vring.disable_notification().ok()?;
            while let Some(chain) = Chain::next(vring, memory) {
                self.sessions.handle(chain);
            }
            if !vring.enable_notification().ok()? {
                return Some(());
            }
        }
    }
}

impl VhostUserBackendMut for Echo {
    type Bitmap = ();
    type Vring = Vring;

    fn num_queues(&self) -> usize {
        self.queues as usize + 1
    }
    fn max_queue_size(&self) -> usize {
        backend::QUEUE_SIZE
    }
    fn features(&self) -> u64 {
        FEATURES | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }
    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        backend::protocol_features()
    }
    fn set_event_idx(&mut self, _enabled: bool) {}
    fn update_memory(&mut self, memory: Memory) -> io::Result<()> {
        self.memory = Some(memory);
        Ok(())
    }
    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let mut config = Config::new_zeroed();
        config.magic = CONFIG_MAGIC;
        config.protocol_version = PROTOCOL_VERSION;
        config.num_request_queues = self.queues;
        config.max_payload_bytes = 64 << 10;
        config.max_bulk_bytes = 64 << 20;
        config.max_sessions = MAX_SESSIONS;
        config.max_outstanding = 256;
        backend::piece(&config, offset, size)
    }
    fn set_config(&mut self, _offset: u32, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }
    // Without one a connection never ends, and there is no next one.
    fn exit_event(&self, _thread: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()
    }
    fn handle_event(&mut self, event: u16, _: EventSet, vrings: &[Vring], _: usize) -> io::Result<()> {
        let Some(memory) = self.memory.as_ref().map(GuestAddressSpace::memory) else { return Ok(()) };
        let Some((events, requests)) = vrings.split_last() else { return Ok(()) };
        // An error is one of the ring: the guest sees that nothing is answered.
        if let Some(vring) = requests.get(usize::from(event)) {
            self.serve(vring, &memory);
        }
        self.sessions.send_events(events, &memory);
        Ok(())
    }
}

fn main() -> ExitCode {
    backend::serve(|queues| Echo { queues, memory: None, sessions: Sessions::default() })
}
