// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Managed memory that moves ([`crate::memory::moving`]): which allocations there are, who owns their blocks, and the
//! process's means to notice touches.

pub mod blocks;
pub mod faults;
pub mod pages;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use cuda_environment::speed;
use virtio_cuda_client::protocol::{AllocationId, StreamId};
use virtio_cuda_ring::Outstanding;

use crate::state::memory::pinned::Pinned;
use crate::state::memory::window::MovingWindow;
use crate::state::moving::blocks::{Blocks, Twins};
use crate::state::moving::faults::Faults;
use crate::state::moving::pages::{Pages, Store};

/// The minimum size in bytes of managed allocations that move; 0 turns moving off.
const VARIABLE: &str = "VIRTIO_CUDA_MANAGED";
/// Default minimum size. Shorter allocations stay where both sides always have access, because programs use them as
/// flags.
const MIN_BYTES: u64 = 2 << 20;

/// The memory that work may use.
#[derive(Clone, Copy, Debug)]
pub enum Uses {
    /// Any memory: a kernel may follow pointers.
    Anything,
    /// Two ranges: address and bytes.
    Memory([(u64, u64); 2]),
}

/// The work that uses an allocation (`cuStreamAttachMemAsync`; CUDA programming guide, "Data visibility and concurrent
/// CPU + GPU access with streams"). A touch of the program waits for this work only. Memory is nevertheless sent before
/// any work, because natively the GPU sees it in other streams, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// `CU_MEM_ATTACH_GLOBAL`: any work.
    Global,
    /// `CU_MEM_ATTACH_HOST`: no work.
    Host,
    /// `CU_MEM_ATTACH_SINGLE`: the work of a stream of a context.
    Stream {
        /// The context.
        context: u64,
        /// The stream, which the program created.
        stream: StreamId,
    },
}

/// Managed memory that moves belongs to the GPU while this exists. It must exist until the work that uses the memory is
/// queued.
#[must_use]
#[derive(Debug, Default)]
pub struct Sent(#[expect(dead_code, reason = "held")] pub Option<RwLockReadGuard<'static, ()>>);

/// An allocation that moves.
#[derive(Debug)]
pub struct Moving {
    /// The address in the program and on the GPU.
    pub address: u64,
    /// Length in bytes, a multiple of the granularity of device memory.
    pub bytes: u64,
    /// The context in which it was created.
    pub context: u64,
    /// True while the pages are registered with the GPU ([`crate::memory::moving::rest`]), and nothing moves.
    pub rests: AtomicBool,
    pub state: Mutex<State>,
}

/// The memory that the GPU has at the allocation's address.
#[derive(Debug)]
pub enum Home {
    /// Device memory.
    Device(AllocationId),
    /// The pages of the program, which are registered.
    Host(Vec<Pinned>),
    /// None: changing it has failed.
    Nowhere,
}

#[derive(Debug)]
pub struct State {
    pub blocks: Blocks,
    pub twins: Twins,
    pub attachment: Attachment,
    pub home: Home,
    /// `None` after it was freed.
    pub pages: Option<Pages>,
}

/// All allocations that move.
#[derive(Debug, Default)]
pub struct Movings {
    pub window: MovingWindow,
    pub table: RwLock<BTreeMap<u64, Arc<Moving>>>,
    /// Set once one exists: other programs then need not take the locks.
    pub any: AtomicBool,
    /// Counts the blocks that the program owns and that were not sent since. A count begins when the program gets a
    /// block.
    pub to_send: Outstanding,
    /// The number of shared blocks. Those that a thread is sending count until they are sent.
    pub shared: AtomicUsize,
    /// Held while blocks are sent.
    pub sending: Mutex<()>,
    /// Held for reading from the sending of blocks until the work that uses them is queued, and for writing while
    /// blocks are fetched.
    pub gate: RwLock<()>,
    /// True while a thread that fetches waits for the gate: other threads do not begin to queue work.
    pub gate_is_wanted: AtomicBool,
    /// `None`: this process cannot detect touches.
    pub means: OnceLock<Option<Means>>,
}

/// The parts that exist once per process.
#[derive(Debug)]
pub struct Means {
    pub faults: Faults,
    pub store: Store,
}

impl Moving {
    /// Changes which work uses the memory. Takes effect at once: the program must have waited for other work on the
    /// memory before.
    pub fn attach(&self, attachment: Attachment) {
        self.state().attachment = attachment;
    }

    /// Returns whether the memory stays in host memory, where both sides have access at all times.
    pub fn rests(&self) -> bool {
        self.rests.load(Ordering::Acquire)
    }

    /// Notes whether the memory stays in host memory.
    pub fn set_rests(&self, rests: bool) {
        self.rests.store(rests, Ordering::Release);
    }

    pub fn attachment(&self) -> Attachment {
        self.state().attachment
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Movings {
    /// Returns whether an allocation of `bytes` bytes should move.
    pub fn wants(&self, bytes: u64) -> bool {
        static CHOSEN: OnceLock<u64> = OnceLock::new();
        let chosen = || std::env::var(VARIABLE).ok().and_then(|value| value.trim().parse().ok());
        let usual = || if speed::is_on() { MIN_BYTES } else { 0 };
        match *CHOSEN.get_or_init(|| chosen().unwrap_or_else(usual)) {
            0 => false,
            least => bytes >= least,
        }
    }

    /// Returns whether any allocation moves.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Returns whether blocks are shared.
    pub fn any_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire) != 0
    }

    /// Returns whether blocks must be sent before work that may use them.
    pub fn any_to_send(&self) -> bool {
        self.any() && !self.to_send.is_none()
    }

    /// Returns the allocation that contains `address`.
    pub fn at(&self, address: u64) -> Option<Arc<Moving>> {
        if !self.any() {
            return None;
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let (_, moving) = table.range(..=address).next_back()?;
        (address - moving.address < moving.bytes).then(|| moving.clone())
    }

    /// Returns the descriptor that reports touches, if there is one.
    pub fn faults(&self) -> Option<&Faults> {
        self.means.get()?.as_ref().map(|means| &means.faults)
    }

    pub fn all(&self) -> Vec<Arc<Moving>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub fn add(&self, moving: Arc<Moving>) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(moving.address, moving);
        self.to_send.begin();
        self.any.store(true, Ordering::Release);
    }

    pub fn remove(&self, moving: &Moving) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(&moving.address);
        self.any.store(!table.is_empty(), Ordering::Release);
    }
}
