// SPDX-License-Identifier: Apache-2.0 OR MIT
//! QEMU with our device: Debian's source, Debian's patches, ours; cut down, static, with its firmware.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::apt::Apt;
use super::cache::{Entry, Key, c_compiler_version, meaningful_lines, newest_version};
use super::kernel::jobs;
use crate::paths::Paths;
use crate::progress::Step;

/// The suite whose QEMU the patches are for: a stable one, which gets fixes.
const SUITE: &str = "trixie";
/// QEMU 10 wants a newer Meson than Debian 12 has.
const MESON_SUITE: &str = "bookworm-backports";
/// The name of `devices.mak` in the source tree.
const DEVICES: &str = "vhost-cuda";
const BINARY: &str = "qemu-system-x86_64";
/// QEMU's own firmware that an x86 guest with a `-kernel` needs.
const OPTION_ROMS: [&str; 3] = ["linuxboot_dma.bin", "kvmvapic.bin", "pvh.bin"];
const SEABIOS: &str = "bios-256k.bin";

const CONFIGURE: [&str; 18] = [
    "--python=/usr/bin/python3",
    "--target-list=x86_64-softmmu",
    "--static",
    "--without-default-features",
    "--without-default-devices",
    "--disable-download",
    "--disable-docs",
    "--disable-tools",
    "--disable-guest-agent",
    "--disable-user",
    "--disable-werror",
    "--disable-install-blobs",
    "--enable-system",
    "--enable-tcg",
    "--enable-kvm",
    "--enable-attr",
    "--enable-virtfs",
    "--enable-vhost-user",
];

/// The patched QEMU.
#[derive(Debug, Clone)]
pub struct Qemu {
    /// The program.
    pub binary: PathBuf,
    /// Its firmware, for `-L`.
    pub data: PathBuf,
}

impl Qemu {
    /// Finds what [`setup`] made.
    pub fn find(paths: &Paths) -> Result<Self> {
        if let Some(bundle) = &paths.bundle {
            let folder = bundle.join("qemu");
            return Ok(Self { binary: folder.join(BINARY), data: folder.join("share") });
        }
        let hint = "run: cargo xtask setup --only qemu";
        let version = cached_source(&paths.cache).context(hint)?;
        let entry = entry(paths, &version)?;
        if !entry.is_complete() {
            bail!("QEMU is not built with these patches; {hint}");
        }
        Ok(Self { binary: entry.path.join(BINARY), data: entry.path.join("share") })
    }
}

/// Makes sure that QEMU is built.
pub fn setup(paths: &Paths) -> Result<()> {
    let step = Step::new("qemu", &paths.setup_logs())?;
    let version = source(paths, &step)?;
    let entry = entry(paths, &version)?;
    let shown = upstream_version(&version);
    if entry.is_complete() {
        step.cached(shown);
        return Ok(());
    }
    entry.begin_empty()?;
    let work = Work { paths, step: &step, folder: entry.path.join("work") };
    work.unpack(&version)?;
    work.patch()?;
    work.configure()?;
    step.note(&format!("building {shown}, 3 to 8 minutes on 2 cores"));
    let mut ninja = work.in_build("ninja");
    step.run(ninja.arg(format!("-j{}", jobs())).arg(BINARY))?;
    step.run(work.in_build("strip").arg("-o").arg(entry.path.join(BINARY)).arg(BINARY))?;
    work.firmware(&entry.path.join("share"))?;
    fs::remove_dir_all(&work.folder)?;
    entry.complete()?;
    step.done(shown);
    Ok(())
}

/// Returns the folder of QEMU, even if it is not built yet; none without a source.
pub fn current_folder(paths: &Paths) -> Result<Option<PathBuf>> {
    let version = cached_source(&paths.cache);
    version.map(|version| Ok(entry(paths, &version)?.path)).transpose()
}

/// Our patches, in order.
pub fn patches(paths: &Paths) -> Result<Vec<PathBuf>> {
    let folder = paths.root.join("qemu-patches");
    let files = fs::read_dir(&folder).with_context(|| format!("Cannot read {}", folder.display()))?;
    let mut patches: Vec<PathBuf> = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "patch"))
        .collect();
    patches.sort();
    Ok(patches)
}

/// Unpacks the files of QEMU's source that match `pattern` into `target`.
pub fn unpack_source(paths: &Paths, target: &Path, pattern: &str, step: &Step) -> Result<()> {
    let version = source(paths, step)?;
    fs::create_dir_all(target)?;
    let mut tar = Command::new("tar");
    tar.arg("-xJf").arg(archive(paths, &version, ".orig.tar.xz")?);
    tar.arg("-C").arg(target).args(["--strip-components=1", "--wildcards", pattern]);
    step.run(&mut tar)
}

fn source(paths: &Paths, step: &Step) -> Result<String> {
    if let Some(version) = cached_source(&paths.cache) {
        return Ok(version);
    }
    let apt = Apt::open(&paths.cache, step)?;
    let version = apt.newest_source("qemu", SUITE)?;
    let entry = Entry::named(&paths.cache, "qemu-source", &version);
    entry.begin_empty()?;
    apt.source("qemu", &version, &entry.path, step)?;
    let meson = apt.newest("meson", Some(MESON_SUITE))?;
    apt.unpack("meson", &meson, &entry.path.join("meson"), step)?;
    let seabios = apt.newest("seabios", Some(MESON_SUITE))?;
    apt.unpack("seabios", &seabios, &entry.path.join("seabios"), step)?;
    entry.complete()?;
    Ok(version)
}

fn cached_source(cache: &Path) -> Option<String> {
    newest_version(cache, "qemu-source", "")
}

/// `10.0.13` of `1:10.0.13+ds-0+deb13u1`.
fn upstream_version(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    version.split(['+', '-']).next().unwrap_or(version)
}

fn archive(paths: &Paths, version: &str, suffix: &str) -> Result<PathBuf> {
    let folder = Entry::named(&paths.cache, "qemu-source", version).path;
    let mut files = fs::read_dir(&folder)?.filter_map(|file| Some(file.ok()?.path()));
    files
        .find(|path| path.to_string_lossy().ends_with(suffix))
        .with_context(|| format!("{} has no *{suffix}", folder.display()))
}

fn entry(paths: &Paths, version: &str) -> Result<Entry> {
    let devices = fs::read_to_string(paths.root.join("qemu-patches/devices.mak"))?;
    let mut key = Key::default()
        .input("source", version)
        .input("configure", &CONFIGURE.join(" "))
        .input("devices", &meaningful_lines(&devices))
        .input("cc", &c_compiler_version()?);
    for patch in patches(paths)? {
        key = key.input("patch", &fs::read_to_string(patch)?);
    }
    Ok(Entry::new(&paths.cache, "qemu", key))
}

/// A build in progress. Its folder is removed afterwards.
struct Work<'a> {
    paths: &'a Paths,
    step: &'a Step,
    folder: PathBuf,
}

impl Work<'_> {
    fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    fn unpack(&self, version: &str) -> Result<()> {
        self.step.note("unpacking");
        for (folder, suffix) in [("source", ".orig.tar.xz"), ("debian", ".debian.tar.xz")] {
            let target = self.folder.join(folder);
            fs::create_dir_all(&target)?;
            let mut tar = Command::new("tar");
            tar.arg("-xJf").arg(archive(self.paths, version, suffix)?).args(["--strip-components=1", "-C"]);
            self.step.run(tar.arg(target))?;
        }
        for tool in ["meson", "seabios"] {
            let from = Entry::named(&self.paths.cache, "qemu-source", version).path.join(tool);
            self.step.run(Command::new("cp").arg("-r").arg(from).arg(self.folder.join(tool)))?;
        }
        Ok(())
    }

    fn patch(&self) -> Result<()> {
        self.step.note("applying patches");
        let folder = self.folder.join("debian/patches");
        let series =
            fs::read_to_string(folder.join("series")).context("Debian's source has no patch series")?;
        let names = series.lines().filter_map(|line| line.split('#').next()?.split_whitespace().next());
        let debian = names.map(|name| folder.join(name));
        for patch in debian.chain(patches(self.paths)?) {
            let mut command = Command::new("patch");
            command
                .args(["-p1", "-s", "--no-backup-if-mismatch", "-i"])
                .arg(&patch)
                .current_dir(self.source());
            self.step.run(&mut command).with_context(|| format!("{} does not apply", patch.display()))?;
        }
        let devices = self.source().join(format!("configs/devices/x86_64-softmmu/{DEVICES}.mak"));
        fs::copy(self.paths.root.join("qemu-patches/devices.mak"), devices)?;
        Ok(())
    }

    fn configure(&self) -> Result<()> {
        self.step.note("configuring");
        fs::create_dir_all(self.folder.join("build"))?;
        let mut configure = self.in_build("../source/configure");
        configure.args(CONFIGURE).arg(format!("--with-devices-x86_64={DEVICES}"));
        self.step.run(&mut configure)
    }

    /// A command in the build folder that sees the newer Meson, and no Python but Debian's.
    fn in_build(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.join("build"));
        command.env("PYTHONPATH", self.folder.join("meson/usr/lib/python3/dist-packages"));
        command.env("PATH", format!("{}:/usr/bin:/bin", self.folder.join("meson/usr/bin").display()));
        command.env_remove("MAKEFLAGS");
        command
    }

    /// The option ROMs are built from QEMU's source, the BIOS is Debian's.
    fn firmware(&self, target: &Path) -> Result<()> {
        self.step.note("collecting firmware");
        fs::create_dir_all(target)?;
        let roms = self.folder.join("roms");
        fs::create_dir_all(&roms)?;
        let source = self.source();
        let settings =
            format!("TOPSRC_DIR={}\nCC=gcc\nOBJCOPY=objcopy\nPYTHON=/usr/bin/python3\n", source.display());
        fs::write(roms.join("config.mak"), settings)?;
        let mut make = Command::new("make");
        make.arg("-f").arg(source.join("pc-bios/optionrom/Makefile")).args(OPTION_ROMS);
        self.step.run(make.current_dir(&roms).env_remove("MAKEFLAGS"))?;
        for rom in OPTION_ROMS {
            fs::copy(roms.join(rom), target.join(rom))?;
        }
        fs::copy(self.folder.join("seabios/usr/share/seabios").join(SEABIOS), target.join(SEABIOS))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_and_debian_parts_are_not_shown() {
        assert_eq!(upstream_version("1:10.0.13+ds-0+deb13u1"), "10.0.13");
        assert_eq!(upstream_version("7.2-1"), "7.2");
    }
}
