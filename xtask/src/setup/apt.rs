// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A package index of our own: newer suites than the machine's, without touching the machine's package lists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use super::cache::compare_versions;
use crate::progress::{Step, output_of};

/// The suites for packages for which the machine's own release is too old, and the releases whose kernels guests
/// have.
const SUITES: [&str; 4] = ["trixie", "trixie-backports", "bookworm", "bookworm-backports"];
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// An index older than this is fetched again before a look-up.
const INDEX_AGE: Duration = Duration::from_secs(6 * 3600);

/// apt-get locks its folders and does not wait for a lock, so concurrent steps take turns.
static TURN: Mutex<()> = Mutex::new(());

/// The private index. Only one exists at a time.
pub struct Apt {
    state: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Apt {
    /// Opens the index in `<cache>/apt`; fetches it if it is missing or old. Waits until no other one exists.
    pub fn open(cache: &Path, step: &Step) -> Result<Self> {
        // The mutex guards files only, which a panic leaves as an interrupted run does.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let apt = Self { state: cache.join("apt"), _turn: turn };
        for folder in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(apt.state.join(folder))?;
        }
        let fetched = apt.state.join("fetched");
        let age =
            fs::metadata(&fetched).and_then(|m| m.modified()).map(|at| SystemTime::now().duration_since(at));
        let (list, wanted) = (apt.state.join("sources.list"), sources_list(&mirror()?));
        let same = fs::read_to_string(&list).is_ok_and(|there| there == wanted);
        if same && matches!(age, Ok(Ok(age)) if age < INDEX_AGE) {
            return Ok(apt);
        }
        fs::write(apt.state.join("status"), "")?;
        fs::write(list, wanted)?;
        step.note("fetching the package index");
        step.run(apt.get().args(["update", "-q"]))?;
        fs::write(fetched, "")?;
        Ok(apt)
    }

    /// The newest version of a binary package, in `suite` only if given.
    pub fn newest(&self, package: &str, suite: Option<&str>) -> Result<String> {
        // A line is `package | version | <mirror> suite/main amd64 Packages`.
        let table = output_of(self.cache().args(["madison", package]))?;
        Self::pick(&table, suite, "Packages").with_context(|| format!("The package index has no {package}"))
    }

    /// The newest version of a source package in `suite`.
    pub fn newest_source(&self, package: &str, suite: &str) -> Result<String> {
        let table = output_of(self.cache().args(["madison", package]))?;
        Self::pick(&table, Some(suite), "Sources")
            .with_context(|| format!("The index of {suite} has no source package {package}"))
    }

    /// Lines for a sources.list with binary packages of `suites`.
    pub fn sources(&self, suites: &[&str]) -> Result<Vec<String>> {
        let mirror = mirror()?;
        Ok(suites.iter().map(|suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main")).collect())
    }

    /// Names of packages that begin with `prefix`.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        Ok(output_of(self.cache().args(["pkgnames", prefix]))?.lines().map(str::to_owned).collect())
    }

    /// Downloads a binary package into the current folder of the command and unpacks it into `target`.
    pub fn unpack(&self, package: &str, version: &str, target: &Path, step: &Step) -> Result<()> {
        fs::create_dir_all(target)?;
        let downloads = tempfile::tempdir_in(&self.state)?;
        step.note(&format!("downloading {package} {version}"));
        let wanted = format!("{package}={version}");
        step.run(self.get().args(["download", "-q", &wanted]).current_dir(&downloads))?;
        for file in fs::read_dir(&downloads)? {
            step.run(Command::new("dpkg-deb").arg("-x").arg(file?.path()).arg(target))?;
        }
        Ok(())
    }

    /// Downloads a source package into `target`.
    pub fn source(&self, package: &str, version: &str, target: &Path, step: &Step) -> Result<()> {
        let wanted = format!("{package}={version}");
        step.note(&format!("downloading the source of {package} {version}"));
        step.run(self.get().args(["source", "--download-only", "-q", &wanted]).current_dir(target))
    }

    fn pick(table: &str, suite: Option<&str>, kind: &str) -> Option<String> {
        let rows = table.lines().filter_map(|line| {
            let mut columns = line.split('|').map(str::trim);
            let (_, version, origin) = (columns.next()?, columns.next()?, columns.next()?);
            let suite_found = origin.split_whitespace().nth(1)?.split('/').next()?;
            let wanted = origin.ends_with(kind) && suite.is_none_or(|suite| suite == suite_found);
            wanted.then_some(version)
        });
        rows.max_by(|a, b| compare_versions(a, b)).map(str::to_owned)
    }

    fn get(&self) -> Command {
        self.command("apt-get")
    }

    fn cache(&self) -> Command {
        self.command("apt-cache")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let state = self.state.display();
        for option in [
            format!("Dir::State={state}/state"),
            format!("Dir::Cache={state}/cache"),
            format!("Dir::State::status={state}/status"),
            format!("Dir::Etc::SourceList={state}/sources.list"),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command
    }
}

fn sources_list(mirror: &str) -> String {
    let mut list = String::new();
    for suite in SUITES {
        for kind in ["deb", "deb-src"] {
            list += &format!("{kind} [signed-by={KEYRING}] {mirror} {suite} main non-free\n");
        }
    }
    list
}

/// The mirror that this machine takes its own release from.
fn mirror() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").context("Cannot read /etc/os-release")?;
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("/etc/os-release has no VERSION_CODENAME")?;
    let addresses = output_of(Command::new("apt-get").args(["update", "--print-uris"]))?;
    mirror_among(&addresses, codename).with_context(|| {
        format!("No package source in /etc/apt is for {codename}; this setup knows Debian 12 (bookworm)")
    })
}

/// A line is `'MIRROR/dists/SUITE/InRelease' FILE 0`.
fn mirror_among(addresses: &str, codename: &str) -> Option<String> {
    let index = format!("/dists/{codename}/InRelease'");
    addresses.lines().find_map(|line| Some(line.strip_prefix('\'')?.split_once(&index)?.0.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_is_that_of_the_main_suite() {
        let addresses = "'http://a.invalid/security/dists/bookworm-security/InRelease' a 0\n\
                         'http://b.invalid/debian/dists/bookworm/InRelease' b 0\n\
                         'http://c.invalid/debian/dists/bookworm/main/binary-amd64/Packages.xz' c 0 \n";
        assert_eq!(mirror_among(addresses, "bookworm").as_deref(), Some("http://b.invalid/debian"));
        assert_eq!(mirror_among(addresses, "sid"), None);
    }

    #[test]
    fn newest_row_of_the_right_suite_and_kind() {
        let table = "qemu | 1:10.0.13+ds-0+deb13u1 | http://m.invalid/debian trixie/main Sources\n\
                     qemu | 1:11.1.3+ds-1~bpo13+1 | http://m.invalid/debian trixie-backports/main Sources\n\
                     qemu | 1:10.0.2+ds-2 | http://m.invalid/debian trixie/main Sources\n";
        assert_eq!(Apt::pick(table, Some("trixie"), "Sources").as_deref(), Some("1:10.0.13+ds-0+deb13u1"));
        assert_eq!(Apt::pick(table, None, "Sources").as_deref(), Some("1:11.1.3+ds-1~bpo13+1"));
        assert_eq!(Apt::pick(table, None, "Packages"), None);
    }
}
