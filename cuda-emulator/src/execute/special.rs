// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Special registers.

use super::lanes::instance;
use super::state::{Flow, Machine};
use crate::code::{Handler, Instr, lanes_of};

/// Cycles a nanosecond: what `%clock` counts in.
const CLOCK_GIGAHERTZ: f64 = 1.5;

fn each<D: Copy + 'static, Op: Fn(&mut Machine<'_>, usize) -> D + Copy + 'static>(_: Op) -> Handler {
    unsafe fn run<D: Copy + 'static, Op: Fn(&mut Machine<'_>, usize) -> D + Copy + 'static>(
        machine: &mut Machine<'_>,
        instr: &Instr,
    ) -> Flow {
        let operation = instance::<Op>();
        for lane in lanes_of(machine.mask) {
            let value = operation(machine, lane);
            // SAFETY: the destination is as wide as `D`.
            unsafe { *machine.target::<D>(instr.ops[0]).add(lane) = value };
        }
        Flow::Next
    }
    run::<D, Op>
}

/// The same value in all lanes, computed once.
fn uniform<D: Copy + 'static, Op: Fn(&mut Machine<'_>) -> D + Copy + 'static>(_: Op) -> Handler {
    unsafe fn run<D: Copy + 'static, Op: Fn(&mut Machine<'_>) -> D + Copy + 'static>(
        machine: &mut Machine<'_>,
        instr: &Instr,
    ) -> Flow {
        let value = instance::<Op>()(machine);
        // SAFETY: the destination is as wide as `D`.
        unsafe { machine.set_lanes(instr.ops[0], &[value; 32]) };
        Flow::Next
    }
    run::<D, Op>
}

fn nanoseconds(machine: &Machine<'_>) -> u64 {
    machine.grid.started.elapsed().as_nanos() as u64
}

fn clock(machine: &Machine<'_>) -> u64 {
    (nanoseconds(machine) as f64 * CLOCK_GIGAHERTZ) as u64
}

fn wall_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map(|time| time.as_nanos() as u64).unwrap_or(0)
}

/// The handler that writes a special register (without `%`) to `ops[0]`, and the bytes of that register.
pub(crate) fn read(name: &str) -> Option<(Handler, u32)> {
    let handler = match name {
        "tid.x" => each(|m, lane| m.warp().tid[0][lane]),
        "tid.y" => each(|m, lane| m.warp().tid[1][lane]),
        "tid.z" => each(|m, lane| m.warp().tid[2][lane]),
        "ntid.x" => uniform(|m| m.grid.launch.block[0]),
        "ntid.y" => uniform(|m| m.grid.launch.block[1]),
        "ntid.z" => uniform(|m| m.grid.launch.block[2]),
        "ctaid.x" => uniform(|m| m.block.index[0]),
        "ctaid.y" => uniform(|m| m.block.index[1]),
        "ctaid.z" => uniform(|m| m.block.index[2]),
        "nctaid.x" => uniform(|m| m.grid.launch.grid[0]),
        "nctaid.y" => uniform(|m| m.grid.launch.grid[1]),
        "nctaid.z" => uniform(|m| m.grid.launch.grid[2]),
        "clusterid.x" => uniform(|m| m.block.index[0] / m.grid.cluster[0]),
        "clusterid.y" => uniform(|m| m.block.index[1] / m.grid.cluster[1]),
        "clusterid.z" => uniform(|m| m.block.index[2] / m.grid.cluster[2]),
        "nclusterid.x" => uniform(|m| m.grid.launch.grid[0] / m.grid.cluster[0]),
        "nclusterid.y" => uniform(|m| m.grid.launch.grid[1] / m.grid.cluster[1]),
        "nclusterid.z" => uniform(|m| m.grid.launch.grid[2] / m.grid.cluster[2]),
        "cluster_ctaid.x" => uniform(|m| m.block.index[0] % m.grid.cluster[0]),
        "cluster_ctaid.y" => uniform(|m| m.block.index[1] % m.grid.cluster[1]),
        "cluster_ctaid.z" => uniform(|m| m.block.index[2] % m.grid.cluster[2]),
        "cluster_ctarank" => uniform(|m| m.rank()),
        "cluster_nctaid.x" => uniform(|m| m.grid.cluster[0]),
        "cluster_nctaid.y" => uniform(|m| m.grid.cluster[1]),
        "cluster_nctaid.z" => uniform(|m| m.grid.cluster[2]),
        "cluster_nctarank" => uniform(|m| m.grid.cluster.iter().product::<u32>()),
        // 1 if the launch has clusters, else 0 (see `is_explicit_cluster` of lowering).
        "is_explicit_cluster" => {
            uniform(|m| u32::from(m.grid.launch.cluster.or(m.grid.launch.kernel.cluster).is_some()))
        }
        "clusterid.w" | "cluster_ctaid.w" => uniform(|_| 0_u32),
        "nclusterid.w" | "cluster_nctaid.w" => uniform(|_| 1_u32),
        "tid.w" | "ctaid.w" => uniform(|_| 0_u32),
        "ntid.w" | "nctaid.w" => uniform(|_| 1_u32),
        "laneid" => each(|_, lane| lane as u32),
        "warpid" => uniform(|m| m.warp().index),
        "nwarpid" => uniform(|m| m.block.warps.len() as u32),
        "smid" => uniform(|m| {
            let [x, y, z] = m.block.index.map(u64::from);
            let [nx, ny, _] = m.grid.launch.grid.map(u64::from);
            ((x + nx * (y + ny * z)) % u64::from(m.grid.launch.multiprocessors.max(1))) as u32
        }),
        "nsmid" => uniform(|m| m.grid.launch.multiprocessors),
        "gridid" => return Some((uniform(|m| m.grid.launch.grid_id), 8)),
        "clock" => uniform(|m| clock(m) as u32),
        "clock_hi" => uniform(|m| (clock(m) >> 32) as u32),
        "clock64" => return Some((uniform(|m| clock(m)), 8)),
        "globaltimer" => return Some((uniform(|_| wall_clock()), 8)),
        "globaltimer_lo" => uniform(|_| wall_clock() as u32),
        "globaltimer_hi" => uniform(|_| (wall_clock() >> 32) as u32),
        "lanemask_eq" => each(|_, lane| 1_u32 << lane),
        "lanemask_le" => each(|_, lane| u32::MAX >> (31 - lane)),
        "lanemask_lt" => each(|_, lane| (1_u32 << lane) - 1),
        "lanemask_ge" => each(|_, lane| u32::MAX << lane),
        "lanemask_gt" => each(|_, lane| (u32::MAX << lane) << 1),
        "dynamic_smem_size" => uniform(|m| m.grid.launch.dynamic_shared),
        "total_smem_size" | "aggr_smem_size" => uniform(|m| m.grid.shared_bytes),
        "reserved_smem_offset_begin" | "reserved_smem_offset_0" => uniform(|m| m.grid.reserved_start),
        // The reserved memory of cooperative_groups: 288 bytes.
        "reserved_smem_offset_1" => uniform(|m| m.grid.reserved_start + 512),
        "reserved_smem_offset_end" => uniform(|m| m.grid.shared_bytes),
        "reserved_smem_offset_cap" => uniform(|m| m.grid.shared_bytes - m.grid.reserved_start),
        // The workspace of a cooperative launch, as cooperative_groups reads it.
        "envreg1" => uniform(|m| (m.grid.workspace >> 32) as u32),
        "envreg2" => uniform(|m| m.grid.workspace as u32),
        "current_graph_exec" => return Some((uniform(|m| m.grid.launch.device.current_graph()), 8)),
        _ if name.starts_with("pm") && name.ends_with("_64") && is_zero(&name[..name.len() - 3]) => {
            return Some((uniform(|_| 0_u64), 8));
        }
        _ if is_zero(name) => uniform(|_| 0_u32),
        _ => return None,
    };
    Some((handler, 4))
}

/// Registers that hold nothing here: the other environment registers and the performance counters.
fn is_zero(name: &str) -> bool {
    let numbered = |prefix: &str, count: u32| {
        name.strip_prefix(prefix).and_then(|digits| digits.parse::<u32>().ok()).is_some_and(|n| n < count)
    };
    numbered("envreg", 32) || numbered("pm", 8)
}
