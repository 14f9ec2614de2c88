// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Common parts of the daemons for the driver's tests: they take the options of `vhost-user-cuda`, and use the socket
//! and the number of queues.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, RwLock};

use vhost::vhost_user::Listener;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost_user_backend::{VhostUserBackendMut, VhostUserDaemon, VringT};
use virtio_cuda_protocol::transport::Config;
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};
use zerocopy::IntoBytes;

/// The guest's memory.
pub type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// Entries that QEMU 10 gives every queue.
pub const QUEUE_SIZE: usize = 1024;

/// The features that a device with several queues and a configuration needs.
pub fn protocol_features() -> VhostUserProtocolFeatures {
    VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
}

/// A piece of the configuration; nothing outside of it.
pub fn piece(config: &Config, offset: u32, size: u32) -> Vec<u8> {
    let (start, end) = (offset as usize, offset.saturating_add(size) as usize);
    config.as_bytes().get(start..end).unwrap_or_default().to_vec()
}

fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    arguments.next()
}

/// Serves one connection after the other, each with what `make` makes for a number of request queues.
pub fn serve<B>(make: impl Fn(u32) -> B) -> ExitCode
where
    B: VhostUserBackendMut<Bitmap = ()> + Send + Sync + 'static,
    B::Vring: VringT<Memory> + Clone + Send + Sync,
{
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
        let backend = Arc::new(RwLock::new(make(queues)));
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let served = VhostUserDaemon::new("test".into(), backend, memory)
            .and_then(|mut daemon| daemon.start(&mut listener).and_then(|()| daemon.wait()));
        if let Err(error) = served {
            eprintln!("The front-end has gone: {error}");
        }
    }
}
