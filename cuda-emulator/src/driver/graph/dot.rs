// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuGraphDebugDotPrint: a graph as text for Graphviz.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::fs;
use std::os::unix::ffi::OsStringExt;

use super::body::{self, CUgraph, Graph};
use super::work::Work;
use crate::driver::ffi::Text;
use crate::driver::result::{CUresult, CuResult};

fn label(work: &Work) -> String {
    match work {
        Work::Kernel(kernel) => {
            let ([gx, gy, gz], [bx, by, bz]) = (kernel.shape.grid, kernel.shape.block);
            let name = kernel.function.kernel().map_or("?", |kernel| &kernel.name);
            format!("KERNEL\\n{name}\\n<<<({gx},{gy},{gz}),({bx},{by},{bz}),{}>>>", kernel.shape.shared)
        }
        Work::Copy(copy) => {
            let Some(transfer) = &copy.transfer else { return "MEMCPY".to_owned() };
            let [width, rows, slices] = transfer.extent;
            let (to, from) = (transfer.to.address, transfer.from.address);
            format!("MEMCPY\\n{to:#x} from {from:#x}\\n{width} x {rows} x {slices}")
        }
        Work::Fill(fill) => {
            format!("MEMSET\\n{:#x}\\n{} x {}", fill.to, fill.extent[0], fill.extent[1])
        }
        Work::Host(_) => "HOST".to_owned(),
        Work::Child(_) => "GRAPH".to_owned(),
        Work::Conditional(_) => "CONDITIONAL".to_owned(),
        Work::Semaphores(_) => "EXT_SEMAS".to_owned(),
        Work::Empty => "EMPTY".to_owned(),
        Work::EventWait(event, _) => format!("EVENT_WAIT\\n{event:?}"),
        Work::EventRecord(event, _) => format!("EVENT_RECORD\\n{event:?}"),
        Work::Alloc(memory) => format!("MEM_ALLOC\\n{:#x}", memory.ptr),
        Work::Free(ptr, _) => format!("MEM_FREE\\n{ptr:#x}"),
        Work::MemOps(operations) => format!("BATCH_MEM_OP\\n{}", operations.len()),
    }
}

fn write(graph: &Graph, text: &mut String) -> fmt::Result {
    let name = graph.handle.0;
    writeln!(text, "subgraph cluster_{name} {{\nlabel=\"graph_{name}\"")?;
    let nodes = graph.lock().clone();
    for (handle, node) in &nodes {
        writeln!(text, "node_{handle} [shape=box, label=\"{}\"]", label(&node.work))?;
        for (from, _) in &node.dependencies {
            writeln!(text, "node_{} -> node_{handle}", from.0)?;
        }
        match &node.work {
            Work::Child(child) => write(child, text)?,
            Work::Conditional(node) => node.graphs.iter().try_for_each(|graph| write(graph, text))?,
            _ => {}
        }
    }
    text.push_str("}\n");
    Ok(())
}

fn debug_dot_print(graph: CUgraph, path: Text, _flags: u32) -> CuResult<()> {
    let graph = body::find(graph)?;
    let path = OsString::from_vec(path.text()?.into_bytes());
    let mut text = String::from("digraph dot {\n");
    write(&graph, &mut text).map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)?;
    text.push_str("}\n");
    fs::write(path, text).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
}

crate::driver::ffi::entries! { after_init
    cuGraphDebugDotPrint => debug_dot_print(graph: CUgraph, path: Text, flags: u32);
}
