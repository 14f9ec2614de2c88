// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The GPUs whose shards are given out.

use std::str::FromStr;

use anyhow::{Result, ensure};

use crate::bytes;
use crate::nvidia_smi::{Answer, NvidiaSmi};

/// The maximum length of a GPU's id: a UUID of a MIG device, and the limit of paths of sockets (108 bytes).
const ID_LENGTH: usize = 48;

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its number or UUID, for the daemon's `--gpus`. It is a part of names of files.
    pub id: String,
    /// The device memory to give out, in bytes.
    pub memory: u64,
}

impl FromStr for Gpu {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (id, memory) =
            text.split_once('=').ok_or_else(|| format!("`{text}` is not a GPU and its memory, as 0=80G"))?;
        let is_id = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if id.is_empty() || id.len() > ID_LENGTH || id.starts_with('-') || !id.bytes().all(is_id) {
            return Err(format!("`{id}` is not the number or UUID of a GPU"));
        }
        Ok(Self { id: id.to_owned(), memory: bytes::parse(memory)? })
    }
}

/// Returns `named`, or all GPUs that nvidia-smi lists if none is named.
///
/// Errors: there is no GPU, nvidia-smi cannot be run, or a GPU is named twice.
pub async fn find(named: &[Gpu], nvidia_smi: &mut NvidiaSmi) -> Result<Vec<Gpu>> {
    let gpus = if named.is_empty() { listed(nvidia_smi).await? } else { named.to_vec() };
    ensure!(!gpus.is_empty(), "There is no GPU: nvidia-smi lists none");
    for (at, gpu) in gpus.iter().enumerate() {
        ensure!(gpus[..at].iter().all(|other| other.id != gpu.id), "GPU {} is named twice", gpu.id);
    }
    Ok(gpus)
}

async fn listed(nvidia_smi: &mut NvidiaSmi) -> Result<Vec<Gpu>> {
    let answers = nvidia_smi.list().await?;
    let gpu = |answer: &Answer| format!("{}={}M", answer.uuid, answer.mebibytes).parse();
    answers.iter().map(gpu).collect::<Result<_, String>>().map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_have_ids_that_are_names_of_files() {
        assert_eq!("0=4G".parse(), Ok(Gpu { id: "0".into(), memory: 4 << 30 }));
        for bad in ["0", "=4G", "../x=4G", "a b=4G", "-=4G", "0=4", &format!("{}=4G", "x".repeat(49))] {
            assert!(bad.parse::<Gpu>().is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn gpus_have_different_ids() {
        let gpu = |id: &str| Gpu { id: id.into(), memory: 4 << 30 };
        let find = async |gpus: &[Gpu]| find(gpus, &mut NvidiaSmi::new()).await;
        assert_eq!(find(&[gpu("0"), gpu("1")]).await.unwrap().len(), 2);
        assert!(find(&[gpu("0"), gpu("0")]).await.is_err());
    }
}
