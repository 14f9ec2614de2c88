// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The GPUs whose shards are given out.

use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

use crate::bytes;

/// The maximum length of a GPU's id: a UUID of a MIG device, and the limit of paths of sockets (108 bytes).
const ID_LENGTH: usize = 48;
/// Prints a line `UUID, MEMORY` for each GPU; memory in MiB.
const QUERY: [&str; 2] = ["--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"];

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
pub fn find(named: &[Gpu]) -> Result<Vec<Gpu>> {
    let gpus = if named.is_empty() { listed()? } else { named.to_vec() };
    ensure!(!gpus.is_empty(), "There is no GPU: nvidia-smi lists none");
    for (at, gpu) in gpus.iter().enumerate() {
        ensure!(gpus[..at].iter().all(|other| other.id != gpu.id), "GPU {} is named twice", gpu.id);
    }
    Ok(gpus)
}

fn listed() -> Result<Vec<Gpu>> {
    let output = Command::new("nvidia-smi").args(QUERY).output();
    let output =
        output.context("Cannot run nvidia-smi: install NVIDIA's driver, or name GPUs by --gpu ID=BYTES")?;
    if !output.status.success() {
        bail!("nvidia-smi failed ({}): {}", output.status, String::from_utf8_lossy(&output.stdout).trim());
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

fn parse(text: &str) -> Result<Vec<Gpu>> {
    let gpu = |line: &str| -> Result<Gpu> {
        let (id, memory) = line.split_once(", ").with_context(|| format!("nvidia-smi printed `{line}`"))?;
        format!("{id}={}M", memory.trim()).parse().map_err(anyhow::Error::msg)
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(gpu).collect()
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

    #[test]
    fn gpus_of_nvidia_smi_are_read() {
        let text = "GPU-0f3b9c1e-0000-4000-8000-000000000001, 81559\nGPU-1, 143771\n";
        let gpus = parse(text).unwrap();
        assert_eq!((gpus.len(), gpus[1].memory), (2, 143_771 << 20));
        assert!(parse("No devices were found").is_err() && parse("GPU-1, [N/A]").is_err());
        assert!(find(&[gpus[0].clone(), gpus[0].clone()]).is_err());
    }
}
