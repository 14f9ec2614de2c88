// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures as SVG.

use std::error::Error;

use anyhow::{Result, anyhow};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::report::{Measured, Metric, Place, Report, size};

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn Error>>;

/// Calls whose latency and CPU time are shown, with the bytes that they copy.
const CALLS: [(&str, u64); 8] = [
    ("launch", 0),
    ("launch_synchronize", 0),
    ("cudaEventRecord", 0),
    ("cudaEventQuery", 0),
    ("cudaStreamCreate", 0),
    ("cudaMalloc_4KiB", 0),
    ("copy_h2d_pageable", 4096),
    ("copy_d2h_pageable", 4096),
];
/// Kinds of memory, each with a panel for each direction.
const KINDS: [&str; 4] = ["pageable", "pageable_again", "heap", "pinned"];
/// Copies below this are a matter of latency.
const MIN_BYTES: u64 = 1 << 20;
const GRID: RGBColor = RGBColor(221, 221, 221);

/// Returns the names and the contents of the files.
pub fn all(report: &Report) -> Result<[(String, String); 3]> {
    let draw = |name: &str, size: (u32, u32), plot: fn(&Report, &Area<'_>) -> Drawn| -> Result<_> {
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let drawn = area.fill(&WHITE).map_err(Into::into).and_then(|()| plot(report, &area));
        drawn.and_then(|()| Ok(area.present()?)).map_err(|error| anyhow!("{name}: {error}"))?;
        drop(area);
        Ok((name.to_owned(), text))
    };
    Ok([
        draw("bandwidth.svg", (1100, 620), bandwidth)?,
        draw("latency.svg", (1100, 420), latency)?,
        draw("cpu.svg", (1100, 420), cpu)?,
    ])
}

/// The same colour for a place everywhere (Okabe and Ito's, which all readers can distinguish).
fn colour(place: Place) -> RGBColor {
    match place {
        Place::Native => RGBColor(0, 0, 0),
        Place::VirtioUser => RGBColor(0, 114, 178),
        Place::Vm => RGBColor(213, 94, 0),
    }
}

/// Bandwidth over size; a panel for each kind of memory and direction.
fn bandwidth(report: &Report, area: &Area<'_>) -> Drawn {
    let (head, body) = area.split_vertically(30);
    legend(report, &head, "Bandwidth of copies (GB/s) over their size")?;
    let panels = body.split_evenly((2, KINDS.len()));
    for (row, direction) in ["h2d", "d2h"].into_iter().enumerate() {
        for (column, kind) in KINDS.into_iter().enumerate() {
            let name = format!("copy_{direction}_{kind}");
            panel(report, &panels[row * KINDS.len() + column], &name)?;
        }
    }
    Ok(())
}

fn panel(report: &Report, area: &Area<'_>, name: &str) -> Drawn {
    let points = |measured: &Measured| -> Vec<(f64, f64)> {
        let metrics = measured.metrics.iter().filter(|m| m.metric == name && m.bytes >= MIN_BYTES);
        metrics.map(|metric| ((metric.bytes as f64).log2(), metric.median)).collect()
    };
    let all: Vec<f64> = report
        .places
        .values()
        .flat_map(|m| &m.metrics)
        .filter(|m| m.unit == "GB/s")
        .map(|m| m.median)
        .collect();
    let top = all.iter().copied().fold(1.0, f64::max) * 1.05;
    let mut chart = ChartBuilder::on(area)
        .caption(name, ("sans-serif", 14))
        .margin(6)
        .margin_right(16)
        .x_label_area_size(22)
        .y_label_area_size(32)
        .build_cartesian_2d(20.0..30.0, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .x_labels(6)
        .x_label_formatter(&|log: &f64| size(1 << (*log as u32)))
        .draw()?;
    for (&place, measured) in &report.places {
        let (points, style) = (points(measured), colour(place).stroke_width(2));
        chart.draw_series([PathElement::new(points.clone(), style)])?;
        chart.draw_series(points.into_iter().map(|at| Circle::new(at, 3, colour(place).filled())))?;
    }
    Ok(())
}

/// Distribution of calls timed one by one: a line from the 5th to the 95th percentile, a box from the 25th to the
/// 75th, and the median.
fn latency(report: &Report, area: &Area<'_>) -> Drawn {
    let (head, body) = area.split_vertically(30);
    legend(report, &head, "Latency of a call (us): 5th, 25th, 50th, 75th and 95th percentile")?;
    let at = |metric: &Metric, percentile: f64| {
        metric.distribution.iter().find(|(p, _)| *p == percentile).map(|(_, us)| us.max(0.01).log10())
    };
    let mut all = Vec::new();
    for (slot, place, metric) in slots(report) {
        if let (Some(p5), Some(p25), Some(p50), Some(p75), Some(p95)) =
            (at(metric, 5.0), at(metric, 25.0), at(metric, 50.0), at(metric, 75.0), at(metric, 95.0))
        {
            all.push((slot, place, [p5, p25, p50, p75, p95]));
        }
    }
    let low = all.iter().map(|(_, _, p)| p[0]).fold(0.0, f64::min).floor();
    let high = all.iter().map(|(_, _, p)| p[4]).fold(1.0, f64::max).ceil();
    let mut chart = over_calls(&body, low..high, &power_of_ten)?;
    for (x, place, [p5, p25, p50, p75, p95]) in all {
        let (colour, half) = (colour(place), 0.1);
        chart.draw_series([PathElement::new(vec![(x, p5), (x, p95)], colour)])?;
        chart.draw_series([Rectangle::new([(x - half, p25), (x + half, p75)], colour.mix(0.4).filled())])?;
        chart.draw_series([PathElement::new(
            vec![(x - half, p50), (x + half, p50)],
            colour.stroke_width(3),
        )])?;
    }
    Ok(())
}

/// CPU time per call: how much of it is the calling process's, and how much there is with daemon and workers.
fn cpu(report: &Report, area: &Area<'_>) -> Drawn {
    let (head, body) = area.split_vertically(30);
    legend(report, &head, "CPU time of a call (us): calling process, and (pale) with daemon and workers")?;
    let log = |us: f64| us.max(0.01).log10();
    let both = |metric: &Metric| log(metric.cpu_us + metric.host_cpu_us.unwrap_or(0.0));
    let low = slots(report).iter().map(|(_, _, metric)| log(metric.cpu_us)).fold(0.0, f64::min).floor();
    let high = slots(report).iter().map(|(_, _, metric)| both(metric)).fold(1.0, f64::max).ceil();
    let mut chart = over_calls(&body, low..high, &power_of_ten)?;
    for (x, place, metric) in slots(report) {
        let bar = |to: f64, share: f64| {
            Rectangle::new([(x - 0.1, low), (x + 0.1, to)], colour(place).mix(share).filled())
        };
        chart.draw_series([bar(both(metric), 0.4), bar(log(metric.cpu_us), 1.0)])?;
    }
    Ok(())
}

/// Returns the position of each place's figure of each of [`CALLS`] on the x axis.
fn slots(report: &Report) -> Vec<(f64, Place, &Metric)> {
    let mut all = Vec::new();
    for (index, (name, bytes)) in CALLS.into_iter().enumerate() {
        for (&place, measured) in &report.places {
            if let Some(metric) = measured.find(name, bytes) {
                all.push((index as f64 + 0.25 * (place as u8 as f64 - 1.0), place, metric));
            }
        }
    }
    all
}

/// The label of a logarithm; none between the powers of ten.
fn power_of_ten(log: &f64) -> String {
    let whole = log.round();
    if (log - whole).abs() > 1e-6 {
        return String::new();
    }
    format!("{:.*}", (-whole).max(0.0) as usize, 10f64.powf(whole))
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A chart with [`CALLS`] along the x axis.
fn over_calls<'a, 'b>(
    area: &'a Area<'b>,
    y: std::ops::Range<f64>,
    label: &dyn Fn(&f64) -> String,
) -> Result<Chart<'a, 'b>, Box<dyn Error>> {
    let mut chart = ChartBuilder::on(area)
        .margin(6)
        .margin_right(16)
        .x_label_area_size(24)
        .y_label_area_size(44)
        .build_cartesian_2d(-0.5..CALLS.len() as f64 - 0.5, y)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .x_labels(CALLS.len() + 1)
        .x_label_formatter(&|x: &f64| {
            let call = (x.fract() == 0.0).then(|| CALLS.get(*x as usize)).flatten();
            match call {
                Some((name, 0)) => (*name).to_owned(),
                Some((name, bytes)) => format!("{name} {}", size(*bytes)),
                None => String::new(),
            }
        })
        .y_label_formatter(&|y| label(y))
        .draw()?;
    Ok(chart)
}

/// Title, and which colour is which place.
fn legend(report: &Report, area: &Area<'_>, title: &str) -> Drawn {
    area.draw_text(title, &("sans-serif", 17).into_text_style(area), (10, 8))?;
    let width = area.dim_in_pixel().0 as i32;
    let count = report.places.len() as i32;
    for (index, &place) in report.places.keys().enumerate() {
        let x = width - 110 * (count - index as i32);
        area.draw(&Rectangle::new([(x, 10), (x + 14, 22)], colour(place).filled()))?;
        area.draw_text(place.name(), &("sans-serif", 14).into_text_style(area), (x + 20, 10))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::metric;
    use super::*;

    #[test]
    fn logarithms_are_labelled_at_powers_of_ten() {
        let labels = [-2.0, -0.5, 0.0, 1.000_000_000_1, 1.5, 3.0].map(|log| power_of_ten(&log));
        assert_eq!(labels, ["0.01", "", "1", "10", "", "1000"]);
    }

    #[test]
    fn plots_show_each_place_and_need_none() -> Result<()> {
        let mut copy = metric("copy_h2d_pageable", 64 << 20, 30.0);
        copy.unit = "GB/s".to_owned();
        let measured = Measured { metrics: vec![metric("launch", 0, 2.5), copy], ..Default::default() };
        let report = Report { places: [(Place::Native, measured)].into(), ..Default::default() };
        for (name, plot) in all(&report)? {
            assert!(plot.contains("</svg>") && plot.contains("native"), "{name}: {plot}");
        }
        all(&Report::default()).map(drop)
    }
}
