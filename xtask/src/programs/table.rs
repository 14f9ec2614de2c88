// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of the programs: `tests/programs/programs.toml`. It is part of this binary, so that a bundle needs no
//! sources.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

const TABLE: &str = include_str!("../../../tests/programs/programs.toml");
const SOURCES: &[(&str, &str)] = &[
    ("operators.py", include_str!("../../../tests/programs/torch/operators.py")),
    ("compiled.py", include_str!("../../../tests/programs/torch/compiled.py")),
    ("libraries.py", include_str!("../../../tests/programs/nvidia/libraries.py")),
    ("training.py", include_str!("../../../tests/programs/torch/training.py")),
    ("decoding.py", include_str!("../../../tests/programs/torch/decoding.py")),
    ("distributed.py", include_str!("../../../tests/programs/torch/distributed.py")),
    ("collectives.py", include_str!("../../../tests/programs/torch/collectives.py")),
    ("peers.py", include_str!("../../../tests/programs/torch/peers.py")),
    ("allocations.py", include_str!("../../../tests/programs/torch/allocations.py")),
    ("offloaded.py", include_str!("../../../tests/programs/torch/offloaded.py")),
    ("geometric.py", include_str!("../../../tests/programs/torch/geometric.py")),
    ("rounds.py", include_str!("../../../tests/programs/torch/rounds.py")),
    ("vllm_engine.py", include_str!("../../../tests/programs/serving/vllm_engine.py")),
    ("clients.py", include_str!("../../../tests/programs/serving/clients.py")),
    ("small_llama.py", include_str!("../../../tests/programs/serving/small_llama.py")),
    ("llama_server.py", include_str!("../../../tests/programs/serving/llama_server.py")),
    ("random_gguf.py", include_str!("../../../tests/programs/serving/random_gguf.py")),
    ("ranks.py", include_str!("../../../tests/programs/torch/ranks.py")),
    ("checks.py", include_str!("../../../tests/programs/checks.py")),
    ("models.py", include_str!("../../../tests/programs/torch/models.py")),
    ("inductor.py", include_str!("../../../tests/programs/torch/inductor.py")),
    ("profiler.py", include_str!("../../../tests/programs/torch/profiler.py")),
    ("step.py", include_str!("../../../tests/programs/torch/step.py")),
    ("molecules.py", include_str!("../../../tests/programs/others/molecules.py")),
    ("cupy_suite.py", include_str!("../../../tests/programs/others/cupy_suite.py")),
    ("managed.py", include_str!("../../../tests/programs/torch/managed.py")),
    ("ggml.py", include_str!("../../../tests/programs/others/ggml.py")),
    ("quantised.py", include_str!("../../../tests/programs/others/quantised.py")),
    ("boosting.py", include_str!("../../../tests/programs/others/boosting.py")),
    ("answers.py", include_str!("../../../tests/programs/others/answers.py")),
    ("trees.py", include_str!("../../../tests/programs/others/trees.py")),
    ("neighbours.py", include_str!("../../../tests/programs/others/neighbours.py")),
    ("traced.py", include_str!("../../../tests/programs/others/traced.py")),
    ("traced_profile.py", include_str!("../../../tests/programs/others/traced_profile.py")),
    ("translation.py", include_str!("../../../tests/programs/others/translation.py")),
    ("fitted.py", include_str!("../../../tests/programs/others/fitted.py")),
    ("bindings.py", include_str!("../../../tests/programs/nvidia/bindings.py")),
    ("rapids.py", include_str!("../../../tests/programs/nvidia/rapids.py")),
    ("warp_simulation.py", include_str!("../../../tests/programs/nvidia/warp_simulation.py")),
    ("tensors.py", include_str!("../../../tests/programs/nvidia/tensors.py")),
    ("compression.py", include_str!("../../../tests/programs/nvidia/compression.py")),
    ("jpeg.py", include_str!("../../../tests/programs/nvidia/jpeg.py")),
    ("kernels.py", include_str!("../../../tests/programs/others/kernels.py")),
    ("circuits.py", include_str!("../../../tests/programs/others/circuits.py")),
    ("nonuniform.py", include_str!("../../../tests/programs/others/nonuniform.py")),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    program: Vec<Program>,
}

/// A program. It prints `same NAME: VALUE` for what must be as natively, and `time NAME: NUMBER ms`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its file, a Python program.
    pub file: String,
    /// A description.
    pub what: String,
    /// The Python module that it tests. Without it, the program is left out unless it is named.
    pub module: Option<String>,
    /// A description of the file or folder that it takes as `--input PATH`. It is left out if nobody names one.
    pub input: Option<String>,
    /// It takes `--write FILE` on the first way and `--compare FILE` on the others.
    #[serde(default)]
    pub reference: bool,
}

/// Returns the programs with these names, or all if no name is given.
pub fn programs(only: &[String]) -> Result<Vec<Program>> {
    let Table { program: mut programs } = toml::from_str(TABLE).context("programs.toml cannot be read")?;
    if let Some(unknown) = only.iter().find(|name| !programs.iter().any(|program| program.name == **name)) {
        let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
        bail!("There is no program {unknown}, only {}", names.join(", "));
    }
    programs.retain(|program| only.is_empty() || only.contains(&program.name));
    Ok(programs)
}

/// Writes all programs into `folder`, side by side, because they import each other.
pub fn unpack(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    for (name, source) in SOURCES {
        let file = folder.join(name);
        fs::write(&file, source).with_context(|| format!("Cannot write {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_its_source() {
        let programs = programs(&[]).expect("the table can be read");
        assert!(programs.iter().all(|program| SOURCES.iter().any(|(name, _)| *name == program.file)));
        assert!(super::programs(&["none".to_owned()]).is_err());
    }
}
