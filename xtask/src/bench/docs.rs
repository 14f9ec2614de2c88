// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Brings figures into `docs/performance.md`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::report::{Place, Report};
use super::{plots, split, table};

/// The page, below the repository.
const PAGE: &str = "docs/performance.md";
/// Plots, and the figures that they and the table were made of.
const FOLDER: &str = "docs/performance";
/// The figures in it.
const FIGURES: &str = "figures.json";
/// This module writes the part of the page between these lines.
const BEGIN: &str = "<!-- written by `cargo xtask bench --update-docs`: begin -->\n";
const END: &str = "<!-- end -->\n";

/// Writes table, plots and figures of `report`.
pub fn update(root: &Path, report: &Report) -> Result<()> {
    let page = root.join(PAGE);
    let text = fs::read_to_string(&page).with_context(|| format!("Cannot read {}", page.display()))?;
    let text = with_section(&text, &section(report)?)?;
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder)?;
    for (name, plot) in plots::all(report)? {
        fs::write(folder.join(name), plot)?;
    }
    report.write(&folder.join(FIGURES))?;
    fs::write(&page, text).with_context(|| format!("Cannot write {}", page.display()))
}

/// `page` with `section` between the two lines.
fn with_section(page: &str, section: &str) -> Result<String> {
    let parts = page.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) =
        parts.with_context(|| format!("{PAGE} lacks the lines {} and {}", BEGIN.trim(), END.trim()))?;
    Ok(format!("{head}{BEGIN}{section}{END}{tail}"))
}

fn section(report: &Report) -> Result<String> {
    let device = report.places.values().next().map(|measured| measured.device.as_str()).unwrap_or_default();
    let accelerator = report
        .places
        .get(&Place::Vm)
        .and_then(|vm| vm.accelerator.as_ref())
        .map(|accelerator| format!("; the virtual machine runs under {accelerator}"))
        .unwrap_or_default();
    let mut text = format!("\n{}, {device}, {}{accelerator}.\n\n", report.date, report.machine);
    for (name, _) in plots::all(report)? {
        let title = name.trim_end_matches(".svg");
        text.push_str(&format!("![{title}](performance/{name})\n\n"));
    }
    text.push_str(&table::table(report));
    text.push('\n');
    let split = split::table(report);
    if !split.is_empty() {
        text.push_str(&split);
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_figures_in_the_repository() -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
        let report = Report::read(&[root.join(FOLDER).join(FIGURES)])?;
        let page = fs::read_to_string(root.join(PAGE))?;
        assert!(
            page == with_section(&page, &section(&report)?)?,
            "run: cargo xtask bench --update-docs {FOLDER}/{FIGURES}"
        );
        for (name, plot) in plots::all(&report)? {
            assert!(fs::read_to_string(root.join(FOLDER).join(&name))? == plot, "{name} is not up to date");
        }
        Ok(())
    }
}
