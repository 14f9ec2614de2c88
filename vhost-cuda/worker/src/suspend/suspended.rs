// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a session between moves.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::thread;

use parking_lot::Mutex;

use super::digests::{Digest, Kernel, Key};
use super::held::Way;
use super::pages::Pages;
use super::store::{Name, Store};
use crate::memory::parts::Part;
use crate::memory::window::Registration;
use crate::objects::Object;
use crate::objects::contexts::Retains;
use crate::recipe::steps::Again;
use crate::recipe::variables::Variables;

/// The driver's objects of a session, while they have ended.
#[derive(Debug)]
pub struct Deep {
    /// The devices of all that has ended: one at least.
    pub devices: Vec<i32>,
    /// The calls that make them again.
    pub again: Again,
    /// The contents of variables of device code.
    pub variables: Variables,
    /// The retains of primary contexts.
    pub retains: Retains,
    /// Pages of the guest's process that are registered with the GPU.
    pub registrations: Vec<Registration>,
}

/// Times of events whose records have ended ([`super::times`]), in milliseconds of the host's clock.
#[derive(Debug, Default)]
pub struct Times {
    /// Those of records that have ended, by the names of their events.
    pub past: HashMap<u64, f64>,
    /// The records that the last resumption has made, by the names of their contexts.
    pub begins: HashMap<u64, Begin>,
}

/// A record whose time is known.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The context with which it ends.
    pub context: Weak<Object>,
    /// The driver's event.
    pub event: usize,
    /// Its time.
    pub at: f64,
}

/// Digests of chunks that were sent, by their addresses.
pub type Sent = HashMap<u64, Digest>;

/// The state of a session's moves.
#[derive(Debug, Default)]
pub struct Suspension {
    /// True while a thread moves.
    pub is_moving: AtomicBool,
    /// True while contexts end that are made again.
    pub makes_again: AtomicBool,
    /// `None` while the session runs. Locked across each move.
    pub suspended: Mutex<Option<Suspended>>,
    /// Host memory for contents.
    pub pages: Arc<Pages>,
    /// The way for contents, and the id of the request that it is for.
    pub lent: Mutex<Option<(u64, Way)>>,
    /// The contents of the last suspension, while the session runs.
    pub kept: Mutex<Option<Store>>,
    /// The digests of chunks that have gone ahead of the machine, by their addresses. Locked while a pass sends some.
    pub sent: Mutex<Sent>,
    /// The key of the session's digests.
    pub key: OnceLock<Key>,
    /// The kernel that computes digests, by the device for which it was loaded.
    pub kernels: Mutex<BTreeMap<i32, Kernel>>,
    /// Times of events whose records have ended.
    pub times: Mutex<Times>,
}

impl Suspension {
    /// Gives up the contents of the last suspension, if the session runs.
    pub fn forget(&self) {
        let kept = self.kept.lock().take();
        // Unmapping takes long. Without a thread it is done here.
        let _ = thread::Builder::new().name("suspend-forget".into()).spawn(move || drop(kept));
    }
}

/// A suspended session.
#[derive(Debug, Default)]
pub struct Suspended {
    /// The contents.
    pub store: Store,
    /// Allocations of `cuMemCreate` by their names. Memory of `cuMemAlloc` stays in its table, because it may end
    /// meanwhile with its context.
    pub created: Vec<(u64, Part)>,
    /// The objects of the driver, if they have ended, too.
    pub deep: Option<Deep>,
    /// The session's graphs as bytes, while they have ended. They are made again after the memory that is in them.
    pub graphs: Vec<u8>,
    /// The name of the contents that were written, and are in host memory still.
    pub written: Option<Name>,
    /// The name of the contents if they have left host memory.
    pub saved: Option<Name>,
    /// Device memory that was given back, in bytes.
    pub moved_bytes: u64,
    /// The part of the contents that the last suspension copied, in bytes: the rest is zeros, or was there already.
    pub copied_bytes: u64,
}
