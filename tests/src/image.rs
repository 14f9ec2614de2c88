// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The image of the cluster's containers: busybox, CUDA programs, and the C library of this machine.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::running::run;

/// The name of the image.
pub const NAME: &str = "test.local/cuda:1";
/// The commands of busybox in the image.
const COMMANDS: [&str; 4] = ["sh", "sleep", "cat", "ls"];
const LIMIT: Duration = Duration::from_secs(120);

/// Writes the image's archive, in the form of `docker save`, into `folder`. `contents` are programs, which the image has as
/// `/bin/NAME`, and libraries, whose needs alone it has. Returns the archive.
pub fn write(folder: &Path, cluster: &Path, contents: &[PathBuf]) -> Result<PathBuf> {
    let root = folder.join("root");
    fs::create_dir_all(root.join("bin"))?;
    fs::copy(cluster.join("root/bin/busybox"), root.join("bin/busybox"))
        .context("busybox-static is not unpacked")?;
    for command in COMMANDS {
        symlink("busybox", root.join("bin").join(command))?;
    }
    let mut libraries = BTreeSet::new();
    for file in contents {
        libraries.extend(needs(file)?);
        let name = file.file_name().and_then(|name| name.to_str()).context("A program without a name")?;
        if !name.contains(".so") {
            // Compiled programs have the digest of their source in the name.
            let name = name.rsplit_once('-').map_or(name, |(name, _)| name);
            fs::copy(file, root.join("bin").join(name))?;
        }
    }
    for library in libraries {
        let target = root.join(library.strip_prefix("/")?);
        fs::create_dir_all(target.parent().context("A library in no folder")?)?;
        fs::copy(&library, target)?;
    }
    let layer = folder.join("layer.tar");
    tar(&root, &layer, &["."])?;
    let digest = Sha256::digest(fs::read(&layer)?);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let configuration = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{"Env":["PATH=/bin"],"Cmd":["/bin/sleep","2147483647"]}},"rootfs":{{"type":"layers","diff_ids":["sha256:{digest}"]}}}}"#
    );
    fs::write(folder.join("config.json"), configuration)?;
    let manifest = format!(r#"[{{"Config":"config.json","RepoTags":["{NAME}"],"Layers":["layer.tar"]}}]"#);
    fs::write(folder.join("manifest.json"), manifest)?;
    let archive = folder.join("image.tar");
    tar(folder, &archive, &["config.json", "manifest.json", "layer.tar"])?;
    fs::remove_dir_all(root)?;
    Ok(archive)
}

/// The shared libraries that a file needs and the dynamic linker finds here, and the linker itself.
fn needs(file: &Path) -> Result<Vec<PathBuf>> {
    let outcome = run(Command::new("ldd").arg(file), "", LIMIT)?;
    outcome.expect_exit(0)?;
    // Lines are `name => path (address)` and `path (address)`.
    let paths = outcome.stdout.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}

fn tar(folder: &Path, archive: &Path, names: &[&str]) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(folder).arg("-cf").arg(archive).args(names);
    run(&mut tar, "", LIMIT)?.expect_exit(0)
}
