// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Determines the glibc version that a library needs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::progress::output_of;

/// The oldest C library of guests and containers: that of Ubuntu 18.04. PyTorch's wheels need 2.28.
pub const OLDEST_GLIBC: &str = "2.27";

/// Refuses a library that needs a newer glibc than [`OLDEST_GLIBC`].
pub fn check(library: &Path) -> Result<()> {
    let table = output_of(Command::new("objdump").arg("-T").arg(library))?;
    let newer = newer(&table, OLDEST_GLIBC).context("A version is not a number")?;
    if !newer.is_empty() {
        bail!("{} needs a glibc newer than {OLDEST_GLIBC}: {}", library.display(), newer.join(", "));
    }
    Ok(())
}

/// The functions of objdump's table that `oldest` lacks, with their versions.
fn newer(table: &str, oldest: &str) -> Option<Vec<String>> {
    let number = |version: &str| -> Option<Vec<u32>> {
        version.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>()
    };
    let oldest = number(oldest)?;
    let mut found = Vec::new();
    for line in table.lines().filter(|line| line.contains("*UND*")) {
        let mut words = line.split_whitespace().rev();
        let (name, version) = (words.next()?, words.next()?.trim_matches(['(', ')']));
        let Some(version) = version.strip_prefix("GLIBC_") else { continue };
        if number(version).is_none_or(|version| version > oldest) {
            found.push(format!("{name} of {version}"));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::newer;

    const TABLE: &str = "\
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.2.5) free
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.28)  fcntl64
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.34)  pthread_create
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_PRIVATE) _dl_something
0000000000000000      DF *UND*\t0000000000000000 (GCC_3.3)     _Unwind_Backtrace
0000000000000000  w   D  *UND*\t0000000000000000  Base        __gmon_start__
00000000000451a0 g    DF .text\t0000000000000005  libcuda.so.1 cuInit
";

    #[test]
    fn newer_versions_are_found() {
        assert_eq!(newer(TABLE, "2.28").unwrap(), ["pthread_create of 2.34", "_dl_something of PRIVATE"]);
        assert_eq!(newer(TABLE, "2.34").unwrap(), ["_dl_something of PRIVATE"]);
    }
}
