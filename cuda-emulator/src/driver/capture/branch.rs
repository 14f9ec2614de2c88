// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of each stream in a capture.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use cuda_abi::CUgraphEdgeData;

use super::Capture;
use crate::driver::graph::CUgraphNode;

/// A stream's part in a capture.
pub(super) struct Branch {
    pub(super) capture: Arc<Capture>,
    /// True if the capture began here.
    pub(super) origin: bool,
    /// The nodes that the next node depends on.
    pub(super) dependencies: Vec<(CUgraphNode, CUgraphEdgeData)>,
    /// A copy for cuStreamGetCaptureInfo, whose caller may read it until its next call.
    pub(super) shown: (Vec<CUgraphNode>, Vec<CUgraphEdgeData>),
}

/// All branches by the streams' ids, which are never used again.
static BRANCHES: LazyLock<Mutex<HashMap<u64, Branch>>> = LazyLock::new(Mutex::default);

/// A locked part of a stream, if it has one. No other part can change meanwhile. Must not be held while another one
/// is requested.
pub(super) struct Part {
    all: MutexGuard<'static, HashMap<u64, Branch>>,
    stream: u64,
}

/// Locks the part of the stream with this id.
pub(super) fn lock(stream: u64) -> Part {
    Part { all: BRANCHES.lock().unwrap_or_else(PoisonError::into_inner), stream }
}

impl Part {
    pub(super) fn get(&self) -> Option<&Branch> {
        self.all.get(&self.stream)
    }

    pub(super) fn get_mut(&mut self) -> Option<&mut Branch> {
        self.all.get_mut(&self.stream)
    }

    /// Makes the stream take part from now on.
    pub(super) fn set(&mut self, branch: Branch) {
        self.all.insert(self.stream, branch);
    }

    /// Ends the stream's part.
    pub(super) fn take(&mut self) -> Option<Branch> {
        self.all.remove(&self.stream)
    }
}
