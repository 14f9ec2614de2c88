// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The graphs of all executors of a session. Their number is limited, and a call that may end a context ends them first: the driver
//! frees a part of a graph with its context, and must not be called for it afterwards.

use std::sync::{Arc, Weak};

use log::debug;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::gpu::{CuResult, Driver, OneKernel, while_current, with_capture_relaxed};
use crate::objects::Object;

/// The maximum number of graphs per worker: each takes a tenth of a megabyte of the GPU.
pub(super) const MAX_GRAPHS: usize = 128;

/// The graph of a kernel. Its executor launches it; other ones may end it.
#[derive(Debug)]
pub(super) struct Graph {
    /// `None` if it has ended.
    kernel: Mutex<Option<OneKernel>>,
    context: Weak<Object>,
}

impl Graph {
    /// Passes the graph to `launch`. Returns `None` if another executor has ended it or is about to.
    pub(super) fn with<T>(&self, launch: impl FnOnce(&OneKernel) -> T) -> Option<T> {
        self.kernel.try_lock()?.as_ref().map(launch)
    }

    /// Ends it, unless it is being launched just now.
    pub(super) fn end(&self, gpu: &Driver) {
        let Some(kernel) = self.kernel.try_lock().and_then(|mut kernel| kernel.take()) else { return };
        // After the context's end a call that was launching meanwhile may have left it.
        let Some(context) = self.context.upgrade() else { return };
        let end = || while_current(gpu, context.raw(), || gpu.end_one_kernel(kernel));
        if let Err(error) = with_capture_relaxed(gpu, end) {
            debug!("a prepared launch does not end: {error}");
        }
    }

    /// Returns whether it takes no more memory of the GPU.
    fn is_over(&self) -> bool {
        self.context.strong_count() == 0 || self.kernel.try_lock().is_some_and(|kernel| kernel.is_none())
    }
}

/// The graphs of a session.
#[derive(Debug, Default)]
pub(super) struct Graphs(RwLock<Vec<Arc<Graph>>>);

impl Graphs {
    /// Makes a graph in a context. `None`: not now, because there are too many, or because of a call that changes launches.
    ///
    /// Errors: those of `make`.
    pub(super) fn make(
        &self,
        context: &Weak<Object>,
        make: impl FnOnce() -> CuResult<OneKernel>,
    ) -> Option<CuResult<Arc<Graph>>> {
        let mut graphs = self.0.try_write()?;
        graphs.retain(|graph| !graph.is_over());
        if graphs.len() >= MAX_GRAPHS {
            return None;
        }
        Some(make().map(|kernel| {
            let graph = Arc::new(Graph { kernel: Mutex::new(Some(kernel)), context: context.clone() });
            graphs.push(graph.clone());
            graph
        }))
    }

    /// Ends the graphs of all executors. None is made until the result is dropped.
    pub(super) fn end_all(&self, gpu: &Driver) -> Changing<'_> {
        let graphs = self.0.read();
        graphs.iter().for_each(|graph| graph.end(gpu));
        Changing(graphs)
    }
}

/// Held during a call that changes what launches do.
#[derive(Debug)]
#[must_use]
pub struct Changing<'g>(#[allow(dead_code)] RwLockReadGuard<'g, Vec<Arc<Graph>>>);

#[cfg(test)]
pub(super) mod tests {
    use std::borrow::Cow;
    use std::ptr::without_provenance_mut;

    use virtio_cuda_protocol::cuda::LaunchShape;

    use super::*;
    use crate::gpu::{Code, Launch};

    pub fn object(number: usize) -> Arc<Object> {
        Arc::new(Object::new(without_provenance_mut::<u8>(number)))
    }

    pub fn kernel(gpu: &Driver) -> CuResult<OneKernel> {
        let shape = LaunchShape { grid: [1; 3], block: [1; 3], ..LaunchShape::default() };
        let launch = Launch { shape, more: Vec::new(), params: Cow::Borrowed(&[]) };
        gpu.one_kernel(Code::Function(without_provenance_mut(64)), &launch)
    }

    fn fill(graphs: &Graphs, gpu: &Driver, context: &Arc<Object>) -> Vec<Arc<Graph>> {
        let make = || graphs.make(&Arc::downgrade(context), || kernel(gpu))?.ok();
        std::iter::from_fn(make).take(MAX_GRAPHS + 1).collect()
    }

    /// Executors keep graphs of a context until they look, some for ever.
    #[test]
    fn graphs_of_a_context_that_has_ended_do_not_count() {
        let (gpu, graphs) = (Driver::null(), Graphs::default());
        let first = object(8);
        let kept = fill(&graphs, &gpu, &first);
        assert_eq!(kept.len(), MAX_GRAPHS);
        let second = object(16);
        assert!(fill(&graphs, &gpu, &second).is_empty());
        drop(first);
        assert_eq!(fill(&graphs, &gpu, &second).len(), MAX_GRAPHS);
        kept[0].end(&gpu);
    }

    #[test]
    fn a_call_that_ends_a_context_ends_the_graphs_of_all_executors() {
        let (gpu, graphs, context) = (Driver::null(), Graphs::default(), object(8));
        let kept = fill(&graphs, &gpu, &context);
        let changing = kept[0].with(|_| graphs.end_all(&gpu)).expect("it is there");
        assert!(kept[1..].iter().all(|graph| graph.with(|_| ()).is_none()));
        assert!(kept[0].with(|_| ()).is_some(), "it was being launched");
        assert!(fill(&graphs, &gpu, &context).is_empty(), "the call is not over");
        drop(changing);
        assert_eq!(fill(&graphs, &gpu, &context).len(), MAX_GRAPHS - 1);
    }
}
