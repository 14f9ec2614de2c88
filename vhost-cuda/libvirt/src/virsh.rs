// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libvirt, through virsh.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

const PROGRAM: &str = "virsh";
/// The state of a domain that does not run, in virsh's words.
const SHUT_OFF: &str = "shut off";

/// A libvirt.
#[derive(Clone, Debug)]
pub struct Virsh<'a> {
    /// Its URI; None: virsh's default.
    pub connect: Option<&'a str>,
}

impl Virsh<'_> {
    /// An error unless the domain exists and is shut off.
    pub fn check_shut_off(&self, domain: &str) -> Result<()> {
        let state = self.run(&["domstate", domain], "").context("`virsh list --all` shows the domains")?;
        let state = state.trim();
        ensure!(
            state == SHUT_OFF,
            "Domain {domain} is {state}. QEMU's command line is read at its start: shut the domain down first (`virsh \
             shutdown {domain}`)"
        );
        Ok(())
    }

    /// The XML that the domain starts with, with its secrets: they would be lost otherwise when it is defined again.
    pub fn definition(&self, domain: &str) -> Result<String> {
        self.run(&["dumpxml", "--inactive", "--security-info", domain], "")
    }

    /// Defines a domain.
    pub fn define(&self, xml: &str) -> Result<()> {
        self.run(&["define", "/dev/stdin"], xml).map(drop)
    }

    /// Runs virsh with `input`; its output.
    fn run(&self, words: &[&str], input: &str) -> Result<String> {
        let mut command = Command::new(PROGRAM);
        command.arg("--quiet").env("LC_ALL", "C");
        if let Some(uri) = self.connect {
            command.args(["--connect", uri]);
        }
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().context("Cannot start virsh. It is in the package libvirt-clients")?;
        let written = child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()));
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("virsh {}: {}", words.join(" "), error.trim());
        }
        written.context("virsh has not read its input")?;
        String::from_utf8(output.stdout).context("virsh has printed something other than UTF-8")
    }
}
