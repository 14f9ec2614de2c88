// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The owners of parts of a GPU. Each has a daemon.

use std::collections::HashSet;

use anyhow::{Context, Result, ensure};

use crate::claim::{self, Claim};
use crate::shards::{Inventory, Shards};

/// The beginning of the names of claims.
pub const CLAIM: &str = "claim-";
/// The file of a container with shards.
pub const SHARDS_FILE: &str = "shards";
/// The file of a claim.
pub const CLAIM_FILE: &str = "claim";

/// An owner of a part of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A container with shards. The kubelet lists those that there are; it does not say when one ends.
    Shards(Shards),
    /// A claim. The kubelet says when it begins and when it ends.
    Claim(Claim),
}

impl Owner {
    /// Reads the contents of a file (`SHARDS_FILE` or `CLAIM_FILE`) of the owner with that name.
    ///
    /// Errors: no plugin of this inventory has written them.
    pub fn parse(inventory: &Inventory, name: &str, file: &str, text: &str) -> Result<Self> {
        let owner = if file == CLAIM_FILE {
            let uid = name.strip_prefix(CLAIM).context("It is not the name of a claim")?;
            Self::Claim(Claim::parse(inventory, uid, text).context("It does not have a claim of this node")?)
        } else {
            Self::Shards(inventory.check(&text.lines().collect::<Vec<_>>())?)
        };
        ensure!(owner.name() == name, "It is the file of {}", owner.name());
        Ok(owner)
    }

    /// The name of its file, and the contents.
    pub fn file(&self) -> (&'static str, String) {
        match self {
            Self::Shards(shards) => (SHARDS_FILE, shards.ids().collect::<Vec<_>>().join("\n")),
            Self::Claim(claim) => (CLAIM_FILE, claim.text()),
        }
    }

    /// A name that no other owner has at the same time. It follows from the ids of the shards, or the claim's UID.
    pub fn name(&self) -> String {
        match self {
            Self::Shards(shards) => shards.name(),
            Self::Claim(claim) => format!("{CLAIM}{}", claim.uid()),
        }
    }

    /// The name of the claim with that UID.
    ///
    /// Errors: it is not a UID.
    pub fn name_of_claim(uid: &str) -> Result<String, claim::Refused> {
        claim::check_uid(uid)?;
        Ok(format!("{CLAIM}{uid}"))
    }

    /// The maximum length of names.
    pub fn longest_name(inventory: &Inventory) -> usize {
        let shard = inventory.ids().map(|id| id.len()).max().unwrap_or(0);
        shard.max(CLAIM.len() + claim::UID_LENGTH)
    }

    /// Returns whether it is a claim.
    pub fn is_claim(&self) -> bool {
        matches!(self, Self::Claim(_))
    }

    /// Returns whether it exists by the kubelet's list of the ids of shards, which has no claims.
    pub fn is_listed(&self, ids: &HashSet<String>) -> bool {
        match self {
            Self::Shards(shards) => shards.ids().any(|id| ids.contains(&id)),
            Self::Claim(_) => true,
        }
    }

    /// The request of a claim that it is for.
    pub fn request(&self) -> Option<&str> {
        match self {
            Self::Shards(_) => None,
            Self::Claim(claim) => Some(claim.request()),
        }
    }

    /// The id of the GPU.
    pub fn gpu(&self) -> &str {
        match self {
            Self::Shards(shards) => shards.gpu(),
            Self::Claim(claim) => claim.gpu(),
        }
    }

    /// Device memory, in bytes.
    pub fn memory(&self) -> u64 {
        match self {
            Self::Shards(shards) => shards.memory(),
            Self::Claim(claim) => claim.memory(),
        }
    }

    /// The weight of its GPU time, 1 to 10,000.
    pub fn weight(&self) -> u64 {
        match self {
            Self::Shards(shards) => shards.count() as u64,
            Self::Claim(claim) => claim.weight(),
        }
    }

    /// Returns whether both cannot exist at the same time.
    pub fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Shards(one), Self::Shards(other)) => one.overlap(other),
            (Self::Claim(one), Self::Claim(other)) => one.uid() == other.uid(),
            _ => false,
        }
    }
}
