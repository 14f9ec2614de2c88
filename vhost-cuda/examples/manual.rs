// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `manual FOLDER` writes the daemon's man page and shell completions, for packages. An example, so that the daemon itself
//! does not carry the generators.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use vhost_cuda::args::Args;

fn main() -> anyhow::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).context("Usage: manual FOLDER")?);
    fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    let mut command = Args::command();
    let name = command.get_name().to_owned();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, &name, &folder)?;
    }
    let page = folder.join(format!("{name}.1"));
    let mut file = File::create(&page).with_context(|| format!("Cannot create {}", page.display()))?;
    Ok(clap_mangen::Man::new(command).render(&mut file)?)
}
