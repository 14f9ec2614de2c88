// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks join their clusters and wait for each other.

use std::rc::Rc;

use crate::execute::state::{Block, Cluster};

impl Block {
    /// Lets the lanes go on that waited for a phase that is over.
    pub(super) fn release_from_cluster(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        if cluster.phase.get() == self.cluster_phase {
            return;
        }
        self.cluster_phase = cluster.phase.get();
        if let Some(shadow) = &mut self.shadow {
            shadow.next_epoch();
        }
        for warp in &mut self.warps {
            warp.at_barrier &= !std::mem::take(&mut warp.at_cluster);
        }
    }

    /// Returns whether the block, in which nothing can run, may still be freed by the others of its cluster.
    pub(super) fn waits_for_cluster(&self, ran: bool) -> bool {
        let Some(cluster) = &self.cluster else { return false };
        if ran {
            cluster.idle.set(0);
            return true;
        }
        cluster.idle.set(cluster.idle.get() + 1);
        let patience = 4 * cluster.shared.borrow().len() as u32 + 4;
        self.warps.iter().any(|warp| warp.at_cluster != 0) && cluster.idle.get() < patience
    }

    /// Adds the block to a cluster, with rank `shared.len()`.
    pub(super) fn join(&mut self, cluster: &Rc<Cluster>, threads: u32) {
        cluster.shared.borrow_mut().push(self.shared.as_mut_ptr() as u64);
        cluster.live.set(cluster.live.get() + threads);
        self.cluster_phase = 0;
        self.cluster = Some(Rc::clone(cluster));
    }
}
