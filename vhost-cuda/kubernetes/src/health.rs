// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The health of GPUs, by nvidia-smi. GPUs that it has never listed count as healthy: MIG devices, and those of the emulator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::nvidia_smi::{Look, NvidiaSmi};
use crate::shards::Inventory;

/// The number of looks in a row without an answer after which a GPU has failed. One can fail while the driver is busy.
const FAILURES: u32 = 2;

/// The ids of the GPUs that have failed.
pub type Failed = BTreeSet<String>;

/// Looks again and again, with a pause of `interval`, and sends the GPUs that have failed. Does not return.
pub async fn watch(
    inventory: &Inventory,
    mut nvidia_smi: NvidiaSmi,
    interval: Duration,
    sender: watch::Sender<Failed>,
) {
    let mut counts = Counts::default();
    loop {
        let look = nvidia_smi.look().await;
        counts.count(inventory, &look);
        let failed = counts.failed();
        // Only changes are said, however long a GPU fails.
        sender.send_if_modified(|before| {
            for gpu in failed.difference(before) {
                let why = if look.complaint.is_empty() { "it is not listed" } else { &look.complaint };
                log::error!("GPU {gpu} has failed, and is not given to new pods. nvidia-smi: {why}");
            }
            for gpu in before.difference(&failed) {
                log::info!("GPU {gpu} answers again");
            }
            let is_changed = *before != failed;
            *before = failed;
            is_changed
        });
        sleep(interval).await;
    }
}

/// The number of looks in a row without an answer, for each GPU that has ever answered.
#[derive(Debug, Default)]
struct Counts(BTreeMap<String, u32>);

impl Counts {
    fn count(&mut self, inventory: &Inventory, look: &Look) {
        for gpu in inventory.gpus() {
            if look.ids.contains(&gpu.id) {
                self.0.insert(gpu.id.clone(), 0);
            } else if let Some(failures) = self.0.get_mut(&gpu.id) {
                *failures = failures.saturating_add(1);
            }
        }
    }

    fn failed(&self) -> Failed {
        let failed = self.0.iter().filter(|(_, failures)| **failures >= FAILURES);
        failed.map(|(gpu, _)| gpu.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::Gpu;

    #[test]
    fn two_looks_without_an_answer_are_a_failure() {
        let gpu = |id: &str| Gpu { id: id.into(), memory: 4 << 30 };
        let inventory = Inventory::new(&[gpu("0"), gpu("GPU-1"), gpu("MIG-2")], 1 << 30).unwrap();
        let mut counts = Counts::default();
        let mut after = |ids: &[&str]| {
            let ids = ids.iter().map(|id| (*id).to_owned()).collect();
            counts.count(&inventory, &Look { ids, complaint: String::new() });
            counts.failed().into_iter().collect::<Vec<_>>()
        };
        // None has answered before.
        for _ in 0..3 {
            assert!(after(&[]).is_empty());
        }
        assert!(after(&["0", "GPU-0", "1", "GPU-1"]).is_empty());
        assert!(after(&["0", "GPU-0"]).is_empty());
        assert_eq!(after(&["0", "GPU-0"]), ["GPU-1"]);
        assert_eq!(after(&[]), ["GPU-1"]);
        assert_eq!(after(&[]), ["0", "GPU-1"]);
        // A success between two failures.
        assert_eq!(after(&["GPU-1"]), ["0"]);
        assert_eq!(after(&[]), ["0"]);
        assert_eq!(after(&["GPU-1", "0"]), Vec::<String>::new());
    }
}
