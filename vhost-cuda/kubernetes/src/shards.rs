// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shards of GPUs, and their ids for the kubelet. An id is that of the GPU, a hyphen and a number. No other file knows the form.

use std::collections::BTreeSet;

use crate::gpus::Gpu;

/// The maximum number of shards of a node. With 64 bytes for each, a list stays below 1 MiB; the kubelet takes messages of up to
/// 4 MiB.
const MAX_SHARDS: u64 = 16_384;
/// The maximum number of shards of a GPU: the largest weight of the daemon's `--share`.
const MAX_SHARDS_OF_GPU: u64 = 10_000;

/// The shards that the node has.
#[derive(Clone, Debug)]
pub struct Inventory {
    gpus: Vec<(Gpu, u32)>,
    memory: u64,
}

/// Shards of one GPU.
///
/// # Invariants
/// There is at least one; all are in the inventory that made the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    gpu: String,
    numbers: BTreeSet<u32>,
    memory: u64,
}

/// The reasons for which shards are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The request has no ids.
    #[error("The request has no shards")]
    None,
    /// An id that was not advertised, shortened.
    #[error("This node has no shard `{0}`")]
    Unknown(String),
    /// An id comes twice.
    #[error("Shard `{0}` is in the request twice")]
    Twice(String),
    /// The shards are of several GPUs.
    #[error(
        "The {count} shards are of several GPUs ({first}, {second}), but a container's must be of one. Its GPUs have up to \
         {largest} shards each: ask for less, or wait until a GPU has as many free ones"
    )]
    SeveralGpus {
        /// The number of shards.
        count: usize,
        /// One of the GPUs.
        first: String,
        /// Another one.
        second: String,
        /// The number of shards of the GPU that has most.
        largest: u32,
    },
    /// The inventory itself.
    #[error("GPU {gpu} has {count} shards of {memory} bytes: {limit}. Choose another --shard-memory")]
    Count {
        /// The GPU.
        gpu: String,
        /// The number of its shards.
        count: u64,
        /// Device memory per shard.
        memory: u64,
        /// The limit that is not met.
        limit: &'static str,
    },
}

impl Inventory {
    /// Divides GPUs into shards of `memory` bytes. What remains of a GPU is not given out.
    ///
    /// Errors: a GPU has no shard, or there are too many.
    pub fn new(gpus: &[Gpu], memory: u64) -> Result<Self, Refused> {
        let mut inventory = Self { gpus: Vec::new(), memory };
        let mut total = 0;
        for gpu in gpus {
            let count = gpu.memory / memory.max(1);
            total += count;
            let refused = |limit| Refused::Count { gpu: gpu.id.clone(), count, memory, limit };
            match u32::try_from(count) {
                Ok(0) => return Err(refused("it needs at least one")),
                Ok(_) if count > MAX_SHARDS_OF_GPU => return Err(refused("10000 are the limit for a GPU")),
                Ok(_) if total > MAX_SHARDS => return Err(refused("16384 are the limit for a node")),
                Ok(count) => inventory.gpus.push((gpu.clone(), count)),
                Err(_) => return Err(refused("10000 are the limit for a GPU")),
            }
        }
        Ok(inventory)
    }

    /// The ids of all shards.
    pub fn ids(&self) -> impl Iterator<Item = String> {
        self.gpus.iter().flat_map(|(gpu, count)| (0..*count).map(move |number| id(&gpu.id, number)))
    }

    /// The GPUs.
    pub fn gpus(&self) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().map(|(gpu, _)| gpu)
    }

    /// The GPU with that id.
    pub fn gpu(&self, id: &str) -> Option<&Gpu> {
        self.gpus().find(|gpu| gpu.id == id)
    }

    /// The device memory of a shard, in bytes.
    pub fn shard_memory(&self) -> u64 {
        self.memory
    }

    /// Checks ids of a request, or of a file.
    ///
    /// Errors: they are not shards of one GPU of this node.
    pub fn check<S: AsRef<str>>(&self, ids: &[S]) -> Result<Shards, Refused> {
        let mut shards: Option<Shards> = None;
        for id in ids.iter().map(AsRef::as_ref) {
            let (gpu, number) =
                self.find(id).ok_or_else(|| Refused::Unknown(id.chars().take(80).collect()))?;
            let shards = shards.get_or_insert_with(|| Shards {
                gpu: gpu.to_owned(),
                numbers: BTreeSet::new(),
                memory: self.memory,
            });
            if shards.gpu != gpu {
                return Err(Refused::SeveralGpus {
                    count: ids.len(),
                    first: shards.gpu.clone(),
                    second: gpu.to_owned(),
                    largest: self.gpus.iter().map(|(_, count)| *count).max().unwrap_or(0),
                });
            }
            if !shards.numbers.insert(number) {
                return Err(Refused::Twice(id.to_owned()));
            }
        }
        shards.ok_or(Refused::None)
    }

    /// Chooses `count` of the `available` ids, `required` among them: all of one GPU, of the fullest that has enough, so that
    /// the emptiest stay free for large requests. Returns as many as fit if no GPU has enough; the kubelet then takes any.
    pub fn prefer(&self, available: &[String], required: &[String], count: usize) -> Vec<String> {
        let wanted = required.iter().find_map(|id| self.find(id)).map(|(gpu, _)| gpu);
        let free = |gpu: &str| -> BTreeSet<u32> {
            let known = available.iter().chain(required).filter_map(|id| self.find(id));
            known.filter_map(|(of, number)| (of == gpu).then_some(number)).collect()
        };
        let gpus = self.gpus().map(|gpu| gpu.id.as_str());
        let possible = gpus.filter(|gpu| wanted.is_none_or(|wanted| wanted == *gpu));
        let (gpu, free) = possible
            .map(|gpu| (gpu, free(gpu)))
            .min_by_key(|(_, free)| match free.len() {
                enough if enough >= count => (false, enough),
                less => (true, usize::MAX - less),
            })
            .unwrap_or_default();
        let mut chosen: Vec<String> = required.iter().take(count).cloned().collect();
        let more = free.into_iter().map(|number| id(gpu, number)).filter(|id| !required.contains(id));
        let room = count.saturating_sub(chosen.len());
        chosen.extend(more.take(room));
        chosen
    }

    fn find(&self, id: &str) -> Option<(&str, u32)> {
        let (gpu, number) = id.rsplit_once('-')?;
        let (gpu, count) = self.gpus.iter().find(|(of, _)| of.id == gpu)?;
        let parsed: u32 = number.parse().ok()?;
        // One spelling per shard: `+1` and `01` are refused.
        (parsed < *count && parsed.to_string() == number).then_some((gpu.id.as_str(), parsed))
    }
}

impl Shards {
    /// The GPU, for `--gpus`.
    pub fn gpu(&self) -> &str {
        &self.gpu
    }

    /// Their number, which is the weight of their owner.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Their device memory, in bytes.
    pub fn memory(&self) -> u64 {
        self.memory * self.numbers.len() as u64
    }

    /// The ids.
    pub fn ids(&self) -> impl Iterator<Item = String> {
        self.numbers.iter().map(|number| id(&self.gpu, *number))
    }

    /// A name that no other shards have that exist at the same time, since each shard has one owner. It follows from the ids
    /// alone, so that paths in containers stay right when the plugin or the node restarts.
    pub fn name(&self) -> String {
        id(&self.gpu, self.numbers.first().copied().unwrap_or(0))
    }

    /// Returns whether a shard is in both.
    pub fn overlap(&self, other: &Self) -> bool {
        self.gpu == other.gpu && !self.numbers.is_disjoint(&other.numbers)
    }
}

fn id(gpu: &str, number: u32) -> String {
    format!("{gpu}-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory() -> Inventory {
        let gpu = |id: &str, memory| Gpu { id: id.into(), memory };
        Inventory::new(&[gpu("0", 4 << 30), gpu("GPU-1", (8 << 30) + 5)], 1 << 30).unwrap()
    }

    fn ids(gpu: &str, numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
        numbers.into_iter().map(|number| id(gpu, number)).collect()
    }

    #[test]
    fn gpus_are_divided() {
        let all: Vec<String> = inventory().ids().collect();
        assert_eq!(all, [ids("0", 0..4), ids("GPU-1", 0..8)].concat());
        let gpu = |memory| [Gpu { id: "0".into(), memory }];
        for (memory, shard) in [(1 << 20, 1 << 30), (80 << 30, 1 << 20)] {
            assert!(matches!(Inventory::new(&gpu(memory), shard), Err(Refused::Count { .. })), "{memory}");
        }
    }

    #[test]
    fn requests_are_checked() {
        let shards = inventory().check(&["GPU-1-7", "GPU-1-2"]).unwrap();
        assert_eq!((shards.gpu(), shards.count(), shards.memory()), ("GPU-1", 2, 2 << 30));
        assert_eq!(shards.name(), "GPU-1-2");
        assert!(shards.overlap(&inventory().check(&["GPU-1-7"]).unwrap()));
        assert!(!shards.overlap(&inventory().check(&["0-2"]).unwrap()));
        let refused = |ids: &[&str]| inventory().check(ids).unwrap_err();
        assert_eq!(refused(&[]), Refused::None);
        assert_eq!(refused(&["0-1", "0-1"]), Refused::Twice("0-1".into()));
        for bad in ["0-4", "0-01", "0-+1", "GPU-1-8", "2-0", "0", "", "../../x-1"] {
            assert_eq!(refused(&[bad]), Refused::Unknown(bad.into()));
        }
        assert_eq!(
            refused(&[&"x".repeat(1 << 20)]).to_string().len(),
            "This node has no shard ``".len() + 80
        );
        let said = refused(&["0-1", "GPU-1-1"]).to_string();
        assert!(said.contains("up to 8 shards each"), "{said}");
    }

    #[test]
    fn the_fullest_gpu_that_has_enough_is_preferred() {
        let inventory = inventory();
        let available = [ids("0", 1..4), ids("GPU-1", 0..8)].concat();
        assert_eq!(inventory.prefer(&available, &[], 2), ids("0", 1..3));
        assert_eq!(inventory.prefer(&available, &[], 4), ids("GPU-1", 0..4));
        assert_eq!(inventory.prefer(&available, &ids("GPU-1", [5]), 2), ids("GPU-1", [5, 0]));
        // None has enough.
        assert_eq!(inventory.prefer(&available, &[], 9).len(), 8);
        assert_eq!(inventory.prefer(&["x".into()], &["y".into()], 1), ["y"]);
    }
}
