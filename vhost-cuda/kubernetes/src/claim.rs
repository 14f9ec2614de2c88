// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Claims of Kubernetes' dynamic resource allocation (DRA): a part of a GPU, by memory and weight.

use crate::shards::Inventory;

/// The length of a UUID, which the UIDs of the apiserver are.
pub const UID_LENGTH: usize = 36;
/// The maximum length of the name of a request: two DNS labels of 63 bytes, and a slash.
const REQUEST_LENGTH: usize = 127;
/// The sum of the weights of a GPU. So a weight is the percentage of GPU time that is left in full competition.
pub const WEIGHTS: u64 = 100;
/// The weight of a claim that asks for none.
pub const DEFAULT_WEIGHT: u64 = 1;
/// The unit of device memory, in bytes: claims have multiples of it, and at least one.
pub const MEMORY_UNIT: u64 = 1 << 20;

/// An allocated claim.
///
/// # Invariants
/// The GPU is in the inventory that made the value, and has that much memory. `uid` and `request` are names without slashes at
/// their ends, dots at their beginnings and control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    uid: String,
    request: String,
    gpu: String,
    memory: u64,
    weight: u64,
}

/// The reasons for which a claim is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its UID, shortened.
    #[error("`{0}` is not the UID of a claim")]
    Uid(String),
    /// The name of its request, shortened.
    #[error("`{0}` is not the name of a request")]
    Request(String),
    /// It has a GPU that this node does not have.
    #[error("This node has no GPU `{0}`")]
    Gpu(String),
    /// It has an amount of memory that the GPU cannot give.
    #[error(
        "{memory} bytes of memory are not a multiple of {MEMORY_UNIT} from {MEMORY_UNIT} to the GPU's {limit}"
    )]
    Memory {
        /// The claim's memory, in bytes.
        memory: u64,
        /// The GPU's memory, in bytes.
        limit: u64,
    },
    /// It has a weight that is not one.
    #[error("{0} is not a weight: 1 to {WEIGHTS}")]
    Weight(u64),
}

impl Claim {
    /// Checks the parts of a claim: its UID, the name of its request, the id of the GPU, the memory in bytes, and the weight.
    /// All memory of the GPU counts as a multiple.
    pub fn new(
        inventory: &Inventory,
        uid: &str,
        request: &str,
        gpu: &str,
        memory: u64,
        weight: u64,
    ) -> Result<Self, Refused> {
        check_uid(uid)?;
        let is_word = |word: &str| {
            let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            let bytes = word.as_bytes();
            let is_inside = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
            ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(is_inside)
        };
        if request.len() > REQUEST_LENGTH || !request.splitn(2, '/').all(is_word) {
            return Err(Refused::Request(shortened(request)));
        }
        let limit = inventory.gpu(gpu).ok_or_else(|| Refused::Gpu(shortened(gpu)))?.memory;
        let is_multiple = memory.is_multiple_of(MEMORY_UNIT) || memory == limit;
        if memory < MEMORY_UNIT || memory > limit || !is_multiple {
            return Err(Refused::Memory { memory, limit });
        }
        if !(1..=WEIGHTS).contains(&weight) {
            return Err(Refused::Weight(weight));
        }
        Ok(Self { uid: uid.to_owned(), request: request.to_owned(), gpu: gpu.to_owned(), memory, weight })
    }

    /// The contents of its file.
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}\n{}\n", self.request, self.gpu, self.memory, self.weight)
    }

    /// Reads the contents of a file of the claim with that UID. `None`: no plugin of this inventory has written them.
    pub fn parse(inventory: &Inventory, uid: &str, text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().collect();
        let [request, gpu, memory, weight] = lines[..] else { return None };
        Self::new(inventory, uid, request, gpu, memory.parse().ok()?, weight.parse().ok()?).ok()
    }

    /// The UID.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The request of the claim, without the name of the alternative that was allocated: containers refer to the request.
    pub fn request(&self) -> &str {
        self.request.split('/').next().unwrap_or_default()
    }

    /// The id of the GPU.
    pub fn gpu(&self) -> &str {
        &self.gpu
    }

    /// Device memory, in bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// The weight of its GPU time.
    pub fn weight(&self) -> u64 {
        self.weight
    }
}

/// Checks the UID of a claim, which is a part of names of files.
pub fn check_uid(uid: &str) -> Result<(), Refused> {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if uid.len() == UID_LENGTH && uid.bytes().all(is_inside) {
        Ok(())
    } else {
        Err(Refused::Uid(shortened(uid)))
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::Gpu;

    const UID: &str = "5e0a2b1c-0000-4000-8000-000000000001";

    fn inventory() -> Inventory {
        Inventory::new(&[Gpu { id: "0".into(), memory: (4 << 30) + 5 }], 1 << 30).unwrap()
    }

    fn claim(uid: &str, request: &str, gpu: &str, memory: u64, weight: u64) -> Result<Claim, Refused> {
        Claim::new(&inventory(), uid, request, gpu, memory, weight)
    }

    #[test]
    fn claims_are_checked() {
        let good = claim(UID, "gpu/large", "0", 3 << 20, 100).unwrap();
        assert_eq!((good.request(), good.memory(), good.weight()), ("gpu", 3 << 20, 100));
        assert!(claim(UID, "gpu", "0", (4 << 30) + 5, 1).is_ok());
        for uid in ["", "..", "../../../../../../../../../../../etcx", &UID[1..], &"x".repeat(1 << 20)] {
            assert!(matches!(claim(uid, "gpu", "0", 1 << 20, 1), Err(Refused::Uid(_))), "{uid:.50}");
        }
        for request in ["", "/", "a/", "/a", "a/b/c", "a b", "a\nb", "-a", &"x".repeat(128)] {
            let refused = claim(UID, request, "0", 1 << 20, 1);
            assert!(matches!(refused, Err(Refused::Request(_))), "{request}");
        }
        assert!(matches!(claim(UID, "gpu", "1", 1 << 20, 1), Err(Refused::Gpu(_))));
        for memory in [0, (1 << 20) - 1, (1 << 20) + 1, (4 << 30) + 6, 5 << 30, u64::MAX] {
            let refused = claim(UID, "gpu", "0", memory, 1);
            assert!(matches!(refused, Err(Refused::Memory { .. })), "{memory}");
        }
        for weight in [0, 101, u64::MAX] {
            assert_eq!(claim(UID, "gpu", "0", 1 << 20, weight), Err(Refused::Weight(weight)));
        }
    }

    #[test]
    fn files_are_read_back() {
        let written = claim(UID, "gpu/large", "0", 3 << 20, 7).unwrap();
        assert_eq!(Claim::parse(&inventory(), UID, &written.text()), Some(written));
        for bad in
            ["", "gpu\n0\n1048576\n", "gpu\n1\n1048576\n1\n", "gpu\n0\n1\n1\n", "gpu\n0\n1048576\n1\n1\n"]
        {
            assert_eq!(Claim::parse(&inventory(), UID, bad), None, "{bad}");
        }
    }
}
