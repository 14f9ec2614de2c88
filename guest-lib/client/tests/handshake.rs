// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Daemons that the library must refuse, clearly and without hanging: a few lines of vhost-user stand in for
//! one.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::JoinHandle;

use virtio_cuda_client::virtio_user::VirtioUser;
use virtio_cuda_client::{ClientError, CudaError};
use virtio_cuda_protocol::transport::{CONFIG_MAGIC, Config, PROTOCOL_VERSION};
use zerocopy::{FromZeros, IntoBytes};

/// vhost-user requests.
const GET_FEATURES: u32 = 1;
const GET_PROTOCOL_FEATURES: u32 = 15;
const GET_CONFIG: u32 = 24;
/// Flags of a header: version 1, reply, the front-end wants an answer.
const VERSION_1: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

const PROTOCOL_FEATURES: u64 = 1 << 30;
const VIRTIO_1: u64 = 1 << 32;
/// MQ, REPLY_ACK, CONFIG.
const USUAL_PROTOCOL_FEATURES: u64 = 1 << 0 | 1 << 3 | 1 << 9;

#[derive(Clone, Copy)]
struct FakeDaemon {
    features: u64,
    protocol_features: u64,
    config: Config,
    /// Messages after which it hangs up.
    patience: u32,
}

fn fixture_daemon() -> FakeDaemon {
    let mut config = Config::new_zeroed();
    config.magic = CONFIG_MAGIC;
    config.protocol_version = PROTOCOL_VERSION;
    config.num_request_queues = 1;
    config.max_payload_bytes = 65536;
    config.max_bulk_bytes = 1 << 20;
    config.max_outstanding = 16;
    FakeDaemon {
        features: PROTOCOL_FEATURES | VIRTIO_1,
        protocol_features: USUAL_PROTOCOL_FEATURES,
        config,
        patience: u32::MAX,
    }
}

impl FakeDaemon {
    /// Serves one connection until the other side or its patience ends it.
    fn serve(self, mut stream: UnixStream) {
        for _ in 0..self.patience {
            let mut header = [0u32; 3];
            if stream.read_exact(header.as_mut_bytes()).is_err() {
                return;
            }
            let [request, flags, bytes] = header;
            let mut payload = vec![0u8; bytes as usize];
            if stream.read_exact(&mut payload).is_err() {
                return;
            }
            let reply = match request {
                GET_FEATURES => self.features.as_bytes().to_vec(),
                GET_PROTOCOL_FEATURES => self.protocol_features.as_bytes().to_vec(),
                // Offset, size and flags come back before the bytes.
                GET_CONFIG => [&payload[..12], self.config.as_bytes()].concat(),
                _ if flags & NEED_REPLY != 0 => 0u64.as_bytes().to_vec(),
                _ => continue,
            };
            let header = [request, VERSION_1 | REPLY, reply.len() as u32];
            if stream.write_all(&[header.as_bytes(), &reply].concat()).is_err() {
                return;
            }
        }
    }

    fn start(self, name: &str) -> (PathBuf, JoinHandle<()>) {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket in the target folder");
        let daemon = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            self.serve(stream);
        });
        (path, daemon)
    }

    /// The error of a session with this daemon.
    fn refusal(self, name: &str) -> ClientError {
        let (path, daemon) = self.start(name);
        let error = VirtioUser::connect(&path).err().expect("the daemon is refused");
        daemon.join().expect("the fake daemon ends");
        std::fs::remove_file(&path).expect("the socket is there");
        error
    }
}

#[test]
fn another_protocol_version_is_named_with_ours() {
    let mut daemon = fixture_daemon();
    daemon.config.protocol_version = PROTOCOL_VERSION + 41;
    let error = daemon.refusal("version");
    assert_eq!(error.result(), CudaError::SYSTEM_DRIVER_MISMATCH);
    let text = error.to_string();
    assert!(text.contains(&format!("speaks virtio-cuda {PROTOCOL_VERSION}, ")), "{text}");
    assert!(text.contains(&format!("the other side {}:", PROTOCOL_VERSION + 41)), "{text}");
}

#[test]
fn another_device_is_refused() {
    let mut daemon = fixture_daemon();
    daemon.config.magic = 0x1234;
    let error = daemon.refusal("magic");
    assert_eq!(error.result(), CudaError::NO_DEVICE);
    assert!(error.to_string().contains("no virtio-cuda device"), "{error}");
}

#[test]
fn missing_features_are_refused() {
    let without_virtio_1 = FakeDaemon { features: PROTOCOL_FEATURES, ..fixture_daemon() };
    assert!(matches!(without_virtio_1.refusal("virtio1"), ClientError::Daemon { .. }));
    let without_config = FakeDaemon { protocol_features: 1, ..fixture_daemon() };
    assert!(matches!(without_config.refusal("config"), ClientError::Daemon { .. }));
}

#[test]
fn daemon_that_hangs_up_is_an_error_at_every_step() {
    // Seven messages, and six for the queue; after the last one the queue itself goes unanswered.
    for patience in 0..=13 {
        let error = FakeDaemon { patience, ..fixture_daemon() }.refusal(&format!("patience{patience}"));
        assert!(
            matches!(error, ClientError::Daemon { .. } | ClientError::SessionLost),
            "{patience}: {error}"
        );
    }
}

#[test]
fn missing_socket_is_no_device() {
    let error = VirtioUser::connect("/nonexistent/socket".as_ref()).err().expect("nothing is there");
    assert_eq!(error.result(), CudaError::NO_DEVICE);
    assert!(error.to_string().contains("/nonexistent/socket"), "{error}");
}
