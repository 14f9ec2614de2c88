// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A daemon with another version of the protocol only, for tests of the refusal.

use std::io;
use std::process::ExitCode;

use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_cuda_tests::backend::{self, Memory};
use vhost_user_backend::{VhostUserBackendMut, VringRwLock};
use virtio_cuda_protocol::transport::{CONFIG_MAGIC, Config, PROTOCOL_VERSION};
use vmm_sys_util::epoll::EventSet;
use zerocopy::FromZeros;

/// The version that this daemon reports.
const VERSION: u32 = PROTOCOL_VERSION + 41;

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
        backend::QUEUE_SIZE
    }
    fn features(&self) -> u64 {
        1 << 32 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }
    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        backend::protocol_features()
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
        backend::piece(&config, offset, size)
    }
    fn set_config(&mut self, _offset: u32, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn handle_event(&mut self, _: u16, _: EventSet, _: &[Self::Vring], _: usize) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> ExitCode {
    backend::serve(|queues| OtherVersion { queues })
}
