// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use virtio_cuda_protocol::cuda::{
    CALL_TABLE_VERSION, CallHeader, DeviceOrdinal, OLDEST_CALL_TABLE_VERSION, Opcode, ResultHeader,
};
use zerocopy::{FromBytes, IntoBytes};

use super::Session;
use crate::transport::{Limits, Pieces, Reply, Request, Transport, UserMemory};
use crate::{Call, ClientError, CudaError, calls};

/// A worker that knows the versions from `oldest` to `newest`, as `session_hello` of the daemon answers.
#[derive(Debug)]
struct Worker {
    oldest: u32,
    newest: u32,
    agreed: AtomicU32,
    /// The numbers of the calls that it got.
    calls: Arc<Mutex<Vec<u32>>>,
}

impl Transport for Worker {
    fn limits(&self) -> Limits {
        let bytes = 64 << 10;
        Limits { payload_bytes: bytes, bulk_bytes: bytes, copy_bytes: bytes, outstanding: 8, kept_bytes: 0 }
    }

    fn pieces(&self, _: UserMemory) -> Pieces {
        Pieces { piece_bytes: 4096, at_once: 1 }
    }

    unsafe fn call(&self, request: Request<'_>) -> Result<Reply, ClientError> {
        let (header, rest) = CallHeader::read_from_prefix(request.payload).expect("a header");
        self.calls.lock().expect("no panic").push(header.opcode);
        let (mut result, mut results) = (0, Vec::new());
        if header.opcode == Opcode::session_hello as u32 {
            let (asked, _) = u32::read_from_prefix(rest).expect("a version");
            let is_known = (self.oldest..=self.newest).contains(&asked);
            self.agreed.store(if is_known { asked } else { 0 }, Ordering::Relaxed);
            let answer = if is_known { asked } else { self.newest };
            results.extend([answer, 13_000, 1].iter().flat_map(|word: &u32| word.to_le_bytes()));
        } else if self.agreed.load(Ordering::Relaxed) == 0 {
            result = CudaError::SYSTEM_DRIVER_MISMATCH.code();
        } else {
            results.extend([7; 8]);
        }
        let head = ResultHeader { result, results_bytes: results.len() as u32, ..ResultHeader::default() };
        let reply = [head.as_bytes(), &results].concat();
        request.reply[..reply.len()].copy_from_slice(&reply);
        Ok(Reply { bytes: reply.len(), tag: 0 })
    }

    fn unpin(&self, _: u64) -> Result<(), ClientError> {
        Ok(())
    }

    fn share(&self, _: usize) -> Result<(*mut u8, u64), ClientError> {
        Err(ClientError::Protocol)
    }

    fn map(&self, _: UserMemory) -> Result<(), ClientError> {
        Err(ClientError::Protocol)
    }

    fn unmap(&self, _: UserMemory) {}

    fn adopt(&self, _: UserMemory, _: bool) -> Result<(), ClientError> {
        Ok(())
    }

    fn release(&self, _: UserMemory) {}

    fn in_child(&self) {}
}

type Calls = Arc<Mutex<Vec<u32>>>;

/// A session with a worker of these versions, and the calls that the worker gets.
fn session(oldest: u32, newest: u32) -> (Result<Session, ClientError>, Calls) {
    let calls = Calls::default();
    let worker = Worker { oldest, newest, agreed: AtomicU32::new(0), calls: calls.clone() };
    (Session::over(Box::new(worker)), calls)
}

/// The result of a call of the newest version, and whether it came to the worker.
fn newest_call(session: &Session, calls: &Calls) -> (Result<u64, CudaError>, bool) {
    assert_eq!(Opcode::cuDeviceGetCliqueCount.since(), 5);
    let result = calls::cuDeviceGetCliqueCount(&mut Call::internal(session).direct(), DeviceOrdinal(0));
    let came = calls.lock().expect("no panic").contains(&(Opcode::cuDeviceGetCliqueCount as u32));
    (result, came)
}

#[test]
fn a_worker_of_the_same_release_gets_all_calls() {
    let (session, calls) = session(OLDEST_CALL_TABLE_VERSION, CALL_TABLE_VERSION);
    assert_eq!(newest_call(&session.expect("a session"), &calls), (Ok(0x0707_0707_0707_0707), true));
    assert_eq!(calls.lock().unwrap().len(), 2, "one greeting is enough");
}

#[test]
fn a_newer_worker_serves_an_older_library() {
    let (session, calls) = session(OLDEST_CALL_TABLE_VERSION, CALL_TABLE_VERSION + 7);
    assert!(newest_call(&session.expect("a session"), &calls).0.is_ok());
}

#[test]
fn an_older_worker_gets_only_calls_that_it_knows() {
    let (session, calls) = session(OLDEST_CALL_TABLE_VERSION - 1, OLDEST_CALL_TABLE_VERSION);
    let session = session.expect("a session");
    assert_eq!(newest_call(&session, &calls), (Err(CudaError::NOT_SUPPORTED), false));
    let known = calls::cuDeviceCanAccessPeer(
        &mut Call::internal(&session).direct(),
        DeviceOrdinal(0),
        DeviceOrdinal(1),
    );
    assert_ne!(known, Err(CudaError::NOT_SUPPORTED));
    assert!(calls.lock().unwrap().contains(&(Opcode::cuDeviceCanAccessPeer as u32)));
}

#[test]
fn workers_without_a_version_in_common_are_refused() {
    for (oldest, newest) in
        [(1, OLDEST_CALL_TABLE_VERSION - 1), (CALL_TABLE_VERSION + 1, CALL_TABLE_VERSION + 2)]
    {
        let (session, calls) = session(oldest, newest);
        let Err(ClientError::Version { ours, theirs, .. }) = session else { panic!("{newest} is served") };
        assert_eq!((ours, theirs), (CALL_TABLE_VERSION, newest));
        assert!(calls.lock().unwrap().len() <= 2);
    }
}
