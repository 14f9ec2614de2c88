// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Draws a part of a timeline as SVG, for documentation:
//!
//!     cargo run -p vhost-cuda-profile --example picture -- FILE.pftrace BEGIN_US END_US > picture.svg
//!
//! The two numbers are microseconds after the timeline's first event.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::{env, fs};

use vhost_cuda_profile::reader::{Slice, slices};

/// Measures in pixels.
const LEFT: u64 = 190;
const WIDTH: u64 = 900;
const ROW: u64 = 22;
const LETTER: u64 = 7;
/// The number of marks on the axis of time.
const MARKS: u64 = 6;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [file, begin, end] = &arguments[..] else {
        eprintln!("picture FILE.pftrace BEGIN_US END_US");
        return ExitCode::FAILURE;
    };
    match draw(file, begin, end) {
        Ok(picture) => {
            println!("{picture}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("picture: {error}");
            ExitCode::FAILURE
        }
    }
}

fn draw(file: &str, begin: &str, end: &str) -> Result<String, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let [begin, end] = [number(begin)?, number(end)?];
    if begin >= end {
        return Err(format!("{begin} is not before {end}"));
    }
    let bytes = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    let all = slices(&bytes)?;
    let first = all.first().ok_or("an empty timeline")?.time[0];
    let time = [begin, end].map(|us| first + 1000 * us);
    let shown: Vec<&Slice> = all
        .iter()
        .filter(|slice| slice.value.is_none() && slice.time[1] >= time[0] && slice.time[0] <= time[1])
        .collect();
    let mut rows: Vec<(u8, &str)> = shown.iter().map(|slice| (rank(slice), slice.row.as_str())).collect();
    rows.sort_unstable();
    rows.dedup();
    let height = ROW * (rows.len() as u64 + 2);
    let mut picture = format!(
        "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" \
         font-family=\"monospace\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        LEFT + WIDTH + 10
    );
    for (index, (_, name)) in rows.iter().enumerate() {
        let y = ROW * index as u64 + ROW;
        _ = writeln!(picture, "<text x=\"4\" y=\"{}\">{}</text>", y + 15, escaped(name));
        let of_row = shown.iter().filter(|slice| slice.row == *name);
        of_row.for_each(|slice| put(&mut picture, slice, y, time));
    }
    for mark in 0..=MARKS {
        let (x, us) = (LEFT + WIDTH * mark / MARKS, begin + (end - begin) * mark / MARKS);
        _ = writeln!(picture, "<path d=\"M{x} {ROW}V{}\" stroke=\"#ccc\"/>", height - ROW);
        _ = writeln!(picture, "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{us} us</text>", height - 6);
    }
    Ok(picture + "</svg>")
}

/// Draws a slice, with its name if there is room for it.
fn put(picture: &mut String, slice: &Slice, y: u64, [begin, end]: [u64; 2]) {
    let place = |time: u64| LEFT + (time.clamp(begin, end) - begin) * WIDTH / (end - begin);
    let [from, to] = slice.time.map(place);
    let width = (to - from).max(1);
    let color = match slice.category.as_str() {
        "kernel" => "#7fb069",
        "copy" | "fill" => "#5b9bd5",
        "gate" => "#d65f5f",
        "move" => "#e6a15c",
        "range" | "span" => "#c9a0dc",
        "api" => "#b8c4d6",
        _ => "#a9d6d6",
    };
    _ = writeln!(
        picture,
        "<rect x=\"{from}\" y=\"{}\" width=\"{width}\" height=\"{}\" fill=\"{color}\"><title>{}</title></rect>",
        y + 2,
        ROW - 4,
        escaped(&slice.name)
    );
    if slice.name.len() as u64 * LETTER < width {
        _ = writeln!(picture, "<text x=\"{}\" y=\"{}\">{}</text>", from + 2, y + 15, escaped(&slice.name));
    }
}

/// Returns the place of a row among others: as in Perfetto.
fn rank(slice: &Slice) -> u8 {
    let order =
        [&["span"][..], &["range"], &["api"], &["call"], &["gate"], &["move"], &["kernel", "copy", "fill"]];
    order.iter().position(|kinds| kinds.contains(&slice.category.as_str())).unwrap_or(order.len()) as u8
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
