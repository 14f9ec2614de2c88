// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `manual FOLDER` writes man pages and shell completions of the host's programs, for packages. An example, so that the
//! programs themselves do not carry the generators.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use vhost_cuda::args::Args;

fn main() -> anyhow::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).context("Usage: manual FOLDER")?);
    fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    for command in [Args::command(), vhost_cuda_libvirt::args::Args::command()] {
        let name = command.get_name().to_owned();
        // Generating completions adds a subcommand `help`, which needs no pages.
        let mut completed = command.clone();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            generate_to(shell, &mut completed, &name, &folder)?;
        }
        // A page for each subcommand, too.
        clap_mangen::generate_to(command, &folder)
            .with_context(|| format!("Cannot write manuals to {}", folder.display()))?;
    }
    Ok(())
}
