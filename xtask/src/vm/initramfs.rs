// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file system that the guest starts with: the agent, busybox, the module.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cpio::newc::{Builder, ModeFileType, trailer};

use crate::paths::Paths;

/// Debian's static busybox.
const BUSYBOX: &str = "/bin/busybox";
/// The path at which the agent looks for a module to load.
const MODULE: &str = "virtio_cuda.ko";
/// The path of a module that the agent must not load, for a test.
const MODULE_NOT_LOADED: &str = "not-loaded/virtio_cuda.ko";
/// Folders that the kernel or the agent expect.
const FOLDERS: [&str; 10] =
    ["bin", "dev", "host", "layer", "modules", "not-loaded", "proc", "root", "sys", "tmp"];

/// A static busybox: Debian's, or the bundle's.
pub fn busybox(paths: &Paths) -> PathBuf {
    paths.bundle.as_ref().map_or_else(|| BUSYBOX.into(), |bundle| bundle.join("kernel/busybox"))
}

/// The contents of the archive.
pub struct Contents<'a> {
    /// The first process.
    pub agent: &'a Path,
    /// See [`busybox`].
    pub busybox: &'a Path,
    /// Our module.
    pub module: Option<&'a Path>,
    /// The agent loads it.
    pub load_module: bool,
    /// Modules that the agent loads before.
    pub guest_modules: &'a [PathBuf],
}

/// Writes the archive.
pub fn write(target: &Path, contents: &Contents) -> Result<()> {
    let mut archive = BufWriter::new(File::create(target)?);
    for (folder, inode) in FOLDERS.iter().zip(1..) {
        let entry = Builder::new(folder).mode(0o755).set_mode_file_type(ModeFileType::Directory).ino(inode);
        entry.write(&mut archive, 0).finish()?;
    }
    let mut files = vec![("init".to_owned(), contents.agent), ("bin/busybox".to_owned(), contents.busybox)];
    for (module, number) in contents.guest_modules.iter().zip(10..) {
        files.push((format!("modules/{number}.ko"), module));
    }
    if let Some(module) = contents.module {
        files.push((if contents.load_module { MODULE } else { MODULE_NOT_LOADED }.to_owned(), module));
    }
    for ((name, file), inode) in files.into_iter().zip(100..) {
        let content = fs::read(file).with_context(|| format!("Cannot read {}", file.display()))?;
        let length = u32::try_from(content.len()).with_context(|| format!("{name} is too long"))?;
        let entry = Builder::new(&name).mode(0o755).set_mode_file_type(ModeFileType::Regular).ino(inode);
        let mut writer = entry.write(&mut archive, length);
        writer.write_all(&content)?;
        writer.finish()?;
    }
    trailer(&mut archive)?.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn busybox_can_read_the_archive() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let (archive, agent) = (folder.path().join("archive"), folder.path().join("agent"));
        fs::write(&agent, "the agent")?;
        let modules = [agent.clone()];
        let contents = Contents {
            agent: &agent,
            busybox: Path::new(BUSYBOX),
            module: Some(&agent),
            load_module: true,
            guest_modules: &modules,
        };
        write(&archive, &contents)?;
        let output = Command::new(BUSYBOX).args(["cpio", "-t"]).stdin(File::open(&archive)?).output()?;
        assert!(output.status.success(), "{output:?}");
        let names = String::from_utf8(output.stdout)?;
        for name in ["init", "bin/busybox", "modules/10.ko", "virtio_cuda.ko", "proc"] {
            assert!(names.lines().any(|line| line == name), "{name} is not in {names}");
        }
        Ok(())
    }
}
