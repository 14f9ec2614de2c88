// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A daemon that speaks another version of the protocol, and nothing else: for tests of the refusal.
//! It takes the options of `vhost-user-cuda` and uses the socket and the number of queues.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use vhost::vhost_user::Listener;
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{VhostUserBackendMut, VhostUserDaemon, VringRwLock};
use virtio_cuda_protocol::transport::{CONFIG_MAGIC, Config, PROTOCOL_VERSION};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use zerocopy::{FromZeros, IntoBytes};

type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// What this daemon says that it speaks.
const VERSION: u32 = PROTOCOL_VERSION + 41;
/// Entries that QEMU 10 gives every queue.
const QUEUE_SIZE: usize = 1024;

struct OtherVersion {
    queues: u32,
}

impl VhostUserBackendMut for OtherVersion {
    type Bitmap = ();
    type Vring = VringRwLock<Memory>;

    fn num_queues(&self) -> usize {
        self.queues as usize + 1
    }
    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE
    }
    fn features(&self) -> u64 {
        1 << 32 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }
    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
    }
    fn set_event_idx(&mut self, _enabled: bool) {}
    fn update_memory(&mut self, _memory: Memory) -> io::Result<()> {
        Ok(())
    }
    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let mut config = Config::new_zeroed();
        config.magic = CONFIG_MAGIC;
        config.protocol_version = VERSION;
        config.num_request_queues = self.queues;
        let (start, end) = (offset as usize, offset.saturating_add(size) as usize);
        config.as_bytes().get(start..end).unwrap_or_default().to_vec()
    }
    fn set_config(&mut self, _offset: u32, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn handle_event(&mut self, _: u16, _: EventSet, _: &[Self::Vring], _: usize) -> io::Result<()> {
        Ok(())
    }
}

fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    arguments.next()
}

fn main() -> ExitCode {
    let Some(socket) = option("--socket-path").map(PathBuf::from) else {
        eprintln!("--socket-path PATH is missing");
        return ExitCode::FAILURE;
    };
    let queues = option("--num-queues").and_then(|text| text.parse().ok()).unwrap_or(2);
    let mut listener = match Listener::new(&socket, true) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("Cannot listen on {}: {error}", socket.display());
            return ExitCode::FAILURE;
        }
    };
    loop {
        let backend = std::sync::Arc::new(std::sync::RwLock::new(OtherVersion { queues }));
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let served = VhostUserDaemon::new("other-version".into(), backend, memory)
            .and_then(|mut daemon| daemon.start(&mut listener).and_then(|()| daemon.wait()));
        if let Err(error) = served {
            eprintln!("The front-end has gone: {error}");
        }
    }
}
