// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes that NVIDIA's libraries have added. The driver has no name for their kernels that holds in another process, so the call is
//! captured once more, in a stream and into a graph of the worker's own, and its nodes are compared with those that were.
//!
//! The first time is before anything ends, so that a session whose calls do not give the same nodes is refused. All must be equal: kernels by
//! their names, shapes and parameters. Only addresses of the library's own device memory may be others in another worker, and words that
//! the library leaves unset ([`unset`], [`super::leftovers`]).

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::Arc;

use virtio_cuda_protocol::cuda::{
    ContextId, FunctionId, GraphId, GraphNodeId, KernelNode, NODE_HOST, NODE_KERNEL, NODE_MEMSET, StreamId,
};
use zerocopy::{FromBytes, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::leftovers::Leftovers;
use super::{call, unset};
use crate::call::lifecycle::Create;
use crate::call::{CallContext, ThreadState};
use crate::gpu::{
    CAPTURE_RELAXED, CUgraph, CUgraphNode, CUstream, Code, CuResult, CudaError, Links, NodeParameters,
};
use crate::handlers::vendor::{added, vendor_call};
use crate::objects::Object;
use crate::objects::graphs::{Captured, Capturing, Place, Record};
use crate::recipe::Class;
use crate::recipe::captured::{
    as_it_is, in_stream, is_making, is_same, is_setting_stream, read_before, read_call, settings_of,
};
use crate::recipe::kept::{Call, Key};
use crate::state::SessionState;
use crate::vendor::handles::charge;
use crate::words::contents::encode;

/// The name of the worker's own stream. Guests choose such names from the other end.
const STREAM: u64 = u64::MAX - 15;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// The least address of device memory: numbers below are not looked up.
const FIRST_ADDRESS: u64 = 1 << 32;
pub(super) const WORD: usize = 8;

/// The head of a node. Its name follows, its parameters, the offsets of addresses of the library's own as `u32`, and, where a call
/// comes for the first time, the calls before it, and the call.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    call: u64,
    place: u32,
    kind: u32,
    name: u32,
    parameters: u32,
    own: u32,
    before: u32,
    record: u64,
}

/// A handle of a captured call.
struct Known {
    is_live: bool,
    /// The calls that have made its present settings.
    now: Vec<Call>,
    /// The place of the call that has set its stream.
    stream: usize,
}

/// The nodes of a call that was captured once more.
struct Repeated {
    graph: CUgraph,
    nodes: Vec<CUgraphNode>,
    captured: Arc<Captured>,
    /// True if one of its handles has ended.
    has_ended: bool,
}

/// A node as far as it can be compared.
#[derive(Debug)]
struct Looked {
    kind: u32,
    name: Vec<u8>,
    /// Words that the library leaves unset are zero.
    parameters: Vec<u8>,
    /// The offsets of these words.
    unset: Vec<usize>,
    /// The length of what comes before a kernel's own parameters.
    head: usize,
}

/// Captures calls once more.
pub(super) struct Repeater {
    session: &'static SessionState,
    context: ContextId,
    thread: ThreadState,
    stream: Option<CUstream>,
    /// By the number of the call in the description.
    calls: BTreeMap<u64, Repeated>,
    /// The numbers of calls, by their addresses.
    numbers: BTreeMap<usize, u64>,
    leftovers: OnceCell<Leftovers>,
}

impl Repeater {
    pub fn new(session: &'static SessionState, context: ContextId) -> Self {
        Self {
            session,
            context,
            thread: ThreadState::default(),
            stream: None,
            calls: BTreeMap::new(),
            numbers: BTreeMap::new(),
            leftovers: OnceCell::new(),
        }
    }

    /// Returns a node of a captured call as bytes.
    ///
    /// Errors: the reason for which it cannot be made again.
    pub fn describe(&mut self, node: CUgraphNode, (captured, place): Place) -> Result<Vec<u8>, String> {
        let failed = |error: CudaError| format!("a graph has kernels of NVIDIA's libraries: {error}");
        let address = Arc::as_ptr(&captured) as usize;
        let (number, is_new) = match self.numbers.get(&address) {
            Some(number) => (*number, false),
            None => {
                let number = self.numbers.len() as u64;
                self.repeat(number, captured.clone()).map_err(failed)?;
                self.numbers.insert(address, number);
                (number, true)
            }
        };
        let (there, _) = self.look(node).map_err(failed)?;
        let (again, _) = self.node(number, place).and_then(|node| self.look(node)).map_err(failed)?;
        let is_one = (there.kind, &there.name, there.parameters.len())
            == (again.kind, &again.name, again.parameters.len());
        if !is_one || offsets(&there.parameters).any(|at| self.differs(&there.parameters, &again, at)) {
            return Err(
                "a graph has kernels of NVIDIA's libraries that the same call does not add again".into()
            );
        }
        let own: Vec<u32> = offsets(&there.parameters)
            .filter(|offset| self.is_of_library(word(&there.parameters, *offset)))
            .map(|offset| offset as u32)
            .collect();
        let has_ended = self.calls.get(&number).is_none_or(|repeated| repeated.has_ended);
        if has_ended && !own.is_empty() {
            return Err("a graph uses memory of a handle of NVIDIA's libraries that has ended".into());
        }
        let (before, record) = match is_new {
            true => (&captured.before.bytes[..], &captured.call.bytes[..]),
            false => (&[][..], &[][..]),
        };
        let head = Head {
            call: number,
            place,
            kind: there.kind,
            name: there.name.len() as u32,
            parameters: there.parameters.len() as u32,
            own: own.len() as u32,
            before: before.len() as u32,
            record: record.len() as u64,
        };
        Ok([head.as_bytes(), &there.name, &there.parameters, own.as_bytes(), before, record].concat())
    }

    /// Adds a node to a graph by [`Self::describe`]'s bytes, of which nothing is trusted. The node is the one that the library adds now.
    ///
    /// Errors: the driver's; `CUDA_ERROR_INVALID_IMAGE` for a kernel that is another one now, `CUDA_ERROR_INVALID_VALUE`.
    pub fn make(&mut self, graph: GraphId, name: GraphNodeId, bytes: &[u8]) -> CuResult<()> {
        let invalid = CudaError::INVALID_VALUE;
        let (head, rest) = Head::read_from_prefix(bytes).map_err(|_| invalid)?;
        let lengths = [
            head.name as usize,
            head.parameters as usize,
            (head.own as usize).checked_mul(size_of::<u32>()).ok_or(invalid)?,
            head.before as usize,
            usize::try_from(head.record).map_err(|_| invalid)?,
        ];
        let (mut rest, mut parts) = (rest, Vec::new());
        for length in lengths {
            let (part, others) = rest.split_at_checked(length).ok_or(invalid)?;
            parts.push(part);
            rest = others;
        }
        let &[of_name, parameters, own, before, record] = &parts[..] else { return Err(invalid) };
        if !rest.is_empty() {
            return Err(invalid);
        }
        if !record.is_empty() {
            let kept = |bytes: &[u8]| Ok(Record::new(bytes.into(), charge(bytes.len())?));
            let before = self.session.graphs.share_record(before.to_vec(), |bytes| charge(bytes).ok());
            let before = before.ok_or(CudaError::OUT_OF_MEMORY)?;
            self.repeat(head.call, Arc::new(Captured { before, call: kept(record)? }))?;
        }
        let (now, mut wanted) = self.node(head.call, head.place).and_then(|node| self.look(node))?;
        let is_own = |offset: usize| {
            own.as_chunks::<4>().0.iter().any(|own| u32::from_le_bytes(*own) as usize == offset)
                && self.is_of_library(word(&now.parameters, offset))
        };
        if (now.kind, &now.name[..], now.parameters.len()) != (head.kind, of_name, parameters.len()) {
            log::error!(
                "a call of a library adds another kernel now: {}, not {}",
                String::from_utf8_lossy(&now.name),
                String::from_utf8_lossy(of_name)
            );
            return Err(CudaError::INVALID_IMAGE);
        }
        let differs = |offset: &usize| !is_own(*offset) && self.differs(parameters, &now, *offset);
        if let Some(offset) = offsets(parameters).find(differs) {
            log::error!(
                "a call of a library adds its kernel {} with other parameters now: {:02x?} at byte {offset} of {}, not {:02x?}",
                String::from_utf8_lossy(of_name),
                rest_of(&now.parameters, offset),
                parameters.len(),
                rest_of(parameters, offset)
            );
            return Err(CudaError::INVALID_IMAGE);
        }
        let captured = self.calls.get(&head.call).map(|repeated| repeated.captured.clone()).ok_or(invalid)?;
        let cx = call(self.session, &mut self.thread, self.context, &[]);
        let graphs = &cx.session.graphs;
        let added = graphs.take_node_name(name).and_then(|_name| {
            let raw_graph = cx.graph(graph)?;
            // SAFETY: the library has added a node with these parameters itself, by a call that was checked.
            let (raw, _) = unsafe { cx.gpu().add_node(raw_graph, &Links::default(), &mut wanted) }?;
            graphs.add_node(name, raw, graph, None);
            graphs.set_captured(graph, raw, (captured, head.place));
            Ok(())
        });
        self.thread.held.release();
        added
    }

    fn node(&self, number: u64, place: u32) -> CuResult<CUgraphNode> {
        let repeated = self.calls.get(&number).ok_or(CudaError::INVALID_VALUE)?;
        repeated.nodes.get(place as usize).copied().ok_or(CudaError::INVALID_VALUE)
    }

    /// Returns what can be compared of a node, and its parameters for another one.
    fn look(&self, node: CUgraphNode) -> CuResult<(Looked, NodeParameters)> {
        let gpu = &self.session.gpu;
        let (kind,) = gpu.cuGraphNodeGetType(node)?;
        let (mut unset, mut first) = (Vec::new(), usize::MAX);
        let (name, parameters, wanted) = match kind {
            NODE_KERNEL => {
                let mut layouts = Vec::new();
                let layout = |function, kernel| {
                    layouts = gpu.parameters(gpu.code_of(function, kernel)?)?.0;
                    Ok(layouts.clone())
                };
                let (function, kernel, shape, parameters) = gpu.kernel_node(node, layout)?;
                let code = gpu.code_of(function, kernel)?;
                let name = gpu.code_name(code)?;
                let (function, kernel) = match code {
                    Code::Function(function) => (function, null_mut()),
                    Code::Kernel(kernel) => (null_mut(), kernel),
                };
                let head = encode(&KernelNode { function: FunctionId(0), ..shape })?;
                let mut bytes = padded(head, &parameters);
                first = bytes.len() - parameters.len();
                unset = unset::offsets(&name, &layouts, &parameters).map(|offset| first + offset).collect();
                unset.iter().for_each(|offset| bytes[*offset..*offset + WORD].fill(0));
                (name, bytes, NodeParameters::Kernel(function, kernel, shape, parameters))
            }
            NODE_MEMSET => {
                let shape = gpu.memset_node(node)?;
                let context = self.session.contexts.get(self.context)?.object.raw();
                (Vec::new(), encode(&shape)?, NodeParameters::Memset(shape, context))
            }
            // The emulator's libraries compute in functions, whose data it keeps.
            NODE_HOST if self.session.emulated => {
                let (function, data) = gpu.host_node(node)?;
                let function = function.ok_or(CudaError::INVALID_VALUE)?;
                (Vec::new(), Vec::new(), NodeParameters::Host(function, data))
            }
            _ => return Err(CudaError::NOT_SUPPORTED),
        };
        Ok((Looked { kind, name, parameters, unset, head: first }, wanted))
    }

    /// Returns whether a number is an address of device memory that is not the program's.
    fn is_of_library(&self, word: Option<u64>) -> bool {
        let is_address = |word: &u64| *word >= FIRST_ADDRESS && word >> 48 == 0;
        word.filter(is_address).is_some_and(|word| {
            self.session.check(word, 1).is_err() && self.session.gpu.is_device_memory(word)
        })
    }

    /// Returns whether a word has another meaning now than in the parameters `then`.
    fn differs(&self, then: &[u8], now: &Looked, offset: usize) -> bool {
        // A worker of the release before writes words that are unset as they are.
        if rest_of(then, offset) == rest_of(&now.parameters, offset) || now.unset.contains(&offset) {
            return false;
        }
        let own = |parameters| word(parameters, offset).filter(|_| offset >= now.head);
        let (Some(then), Some(now)) = (own(then), own(&now.parameters)) else { return true };
        let is_of_program = [then, now].iter().any(|word| self.session.check(*word, 1).is_ok());
        is_of_program || !self.leftovers.get_or_init(Leftovers::of_process).explain(then, now)
    }

    /// Captures a call once more, under that number.
    fn repeat(&mut self, number: u64, captured: Arc<Captured>) -> CuResult<()> {
        let invalid = CudaError::INVALID_VALUE;
        if self.calls.contains_key(&number) {
            return Err(invalid);
        }
        let before = read_before(&captured.before.bytes).ok_or(invalid)?;
        let again =
            read_call(&captured.call.bytes).and_then(|call| in_stream(&call, STREAM)).ok_or(invalid)?;
        let stream = self.stream()?;
        let mut known: BTreeMap<Key, Known> = BTreeMap::new();
        for (index, (key, call)) in before.iter().enumerate() {
            let now = || settings_of(self.session, key);
            let entry = known.entry(*key).or_insert_with(|| {
                let now = now();
                Known { is_live: now.is_some(), now: now.unwrap_or_default(), stream: usize::MAX }
            });
            if is_setting_stream(call) {
                entry.stream = index;
            }
        }
        let set = self.set(&before, &known);
        let repeated = set.and_then(|()| self.capture(stream, &again));
        let ended: Vec<Key> = known.iter().filter(|(_, known)| !known.is_live).map(|(key, _)| *key).collect();
        for key in &ended {
            if let Class::Handle { library, kind } = key.class {
                self.session.vendor.end(library, kind, key.id);
            }
        }
        let restored = self.restore(&before, &known);
        let (graph, nodes) = repeated?;
        self.calls.insert(number, Repeated { graph, nodes, captured, has_ended: !ended.is_empty() });
        restored
    }

    /// Makes handles what they were.
    fn set(&mut self, before: &[(Key, Call)], known: &BTreeMap<Key, Known>) -> CuResult<()> {
        for (index, (key, call)) in before.iter().enumerate() {
            let Some(known) = known.get(key) else { continue };
            let is_there = match is_making(call) {
                true => known.is_live,
                false => known.is_live && stays(index, call, known.stream, &known.now),
            };
            if !is_there {
                self.library(&in_stream(call, STREAM).ok_or(CudaError::INVALID_VALUE)?)?;
            }
        }
        Ok(())
    }

    /// Makes handles what they are.
    fn restore(&mut self, before: &[(Key, Call)], known: &BTreeMap<Key, Known>) -> CuResult<()> {
        for (key, known) in known.iter().filter(|(_, known)| known.is_live) {
            let stayed: Vec<Call> = before
                .iter()
                .enumerate()
                .filter(|(index, (of, call))| of == key && stays(*index, call, known.stream, &known.now))
                .map(|(_, (_, call))| call.clone())
                .collect();
            for call in known.now.iter().filter(|call| !stayed.iter().any(|other| is_same(other, call))) {
                self.library(&as_it_is(call).ok_or(CudaError::INVALID_VALUE)?)?;
            }
        }
        Ok(())
    }

    /// Captures a call. Returns the graph with its nodes.
    fn capture(
        &mut self,
        stream: CUstream,
        again: &(u32, u32, Box<[u8]>),
    ) -> CuResult<(CUgraph, Vec<CUgraphNode>)> {
        let (gpu, graphs) = (&self.session.gpu, &self.session.graphs);
        gpu.cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED as u32)?;
        // So that the call sees that its stream captures.
        let own = Capturing::Stream(stream as usize);
        graphs.capture_begins(own);
        let info = gpu.capture_info(stream);
        let called = self.library(again);
        let nodes = info.as_ref().ok().and_then(|info| added(gpu, stream, info.graph, &[]));
        let ended = gpu.cuStreamEndCapture(stream);
        graphs.capture_ended(own, false);
        let (graph,) = ended?;
        match (called, nodes) {
            (Ok(()), Some(nodes)) => Ok((graph, nodes)),
            (called, _) => {
                let _ = gpu.cuGraphDestroy(graph);
                Err(called.err().unwrap_or(CudaError::INVALID_VALUE))
            }
        }
    }

    fn library(&mut self, (library, function, block): &(u32, u32, Box<[u8]>)) -> CuResult<()> {
        self.thread.make_current(self.session, self.context)?;
        let mut cx: CallContext<'_> = call(self.session, &mut self.thread, self.context, block);
        let answer = vendor_call(&mut cx, *library, *function);
        self.thread.held.release();
        answer
    }

    /// Returns the worker's own stream.
    fn stream(&mut self) -> CuResult<CUstream> {
        if let Some(stream) = self.stream {
            return Ok(stream);
        }
        self.thread.make_current(self.session, self.context)?;
        let cx = call(self.session, &mut self.thread, self.context, &[]);
        let made = StreamId(STREAM).reserve(&cx).and_then(|name| {
            let (stream,) = cx.gpu().cuStreamCreateWithPriority(NON_BLOCKING, 0)?;
            StreamId(STREAM).made(&cx, name, stream)?;
            Ok(stream)
        });
        self.thread.held.release();
        self.stream = Some(made?);
        made
    }
}

impl Drop for Repeater {
    fn drop(&mut self) {
        for repeated in self.calls.values() {
            let _ = self.session.gpu.cuGraphDestroy(repeated.graph);
        }
        if self.stream.is_some()
            && let Ok(stream) = self.session.objects.streams.remove(STREAM)
        {
            let _ = Object::destroy(stream);
        }
    }
}

/// Returns whether a handle has a setting still, if its stream is set by the call at `stream`: what is set after the stream may depend on it.
fn stays(index: usize, call: &Call, stream: usize, now: &[Call]) -> bool {
    index < stream && now.iter().any(|other| is_same(other, call))
}

/// Returns the offsets of the words of parameters.
fn offsets(parameters: &[u8]) -> impl Iterator<Item = usize> + use<> {
    (0..parameters.len()).step_by(WORD)
}

fn rest_of(parameters: &[u8], offset: usize) -> &[u8] {
    parameters.get(offset..parameters.len().min(offset + WORD)).unwrap_or_default()
}

fn word(parameters: &[u8], offset: usize) -> Option<u64> {
    parameters.get(offset..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// Puts parameters behind a head, so that their words are words of the whole.
fn padded(mut head: Vec<u8>, parameters: &[u8]) -> Vec<u8> {
    head.resize(head.len().next_multiple_of(WORD), 0);
    head.extend_from_slice(parameters);
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::session::FuzzSession;

    #[test]
    fn nothing_is_trusted_of_a_node_from_another_worker() {
        let session = FuzzSession::new(false, true);
        let mut repeater = Repeater::new(session.state, ContextId(1));
        let head = Head {
            call: 0,
            place: 0,
            kind: NODE_KERNEL,
            name: 6,
            parameters: 16,
            own: 1,
            before: 0,
            record: 0,
        };
        let bytes = |head: Head, rest: usize| [head.as_bytes(), &vec![1; rest]].concat();
        let mut make = |bytes: &[u8]| repeater.make(GraphId(64), GraphNodeId(80), bytes);
        let whole = 6 + 16 + 4;
        for cut in 0..bytes(head, whole).len() {
            assert_eq!(make(&bytes(head, whole)[..cut]), Err(CudaError::INVALID_VALUE), "{cut}");
        }
        assert_eq!(make(&bytes(head, whole)), Err(CudaError::INVALID_VALUE), "a call that did not come");
        assert_eq!(make(&bytes(head, whole + 1)), Err(CudaError::INVALID_VALUE), "too long");
        for head in [
            Head { own: u32::MAX, ..head },
            Head { name: u32::MAX, ..head },
            Head { record: u64::MAX, ..head },
            Head { before: u32::MAX, ..head },
        ] {
            assert_eq!(make(&bytes(head, whole)), Err(CudaError::INVALID_VALUE));
        }
        let with_record = Head { before: 8, record: 64, ..head };
        assert_eq!(make(&bytes(with_record, whole + 72)), Err(CudaError::INVALID_VALUE), "no call");
        assert!(session.state.objects.streams.get(STREAM).is_err());
    }

    #[test]
    fn words_of_parameters_end_with_them() {
        let parameters = padded(vec![1; 5], &[2; 11]);
        assert_eq!((parameters.len(), offsets(&parameters).collect::<Vec<_>>()), (19, vec![0, 8, 16]));
        assert_eq!((word(&parameters, 8), word(&parameters, 16)), (Some(0x0202_0202_0202_0202), None));
        assert_eq!(rest_of(&parameters, 16), [2; 3]);
        assert!(rest_of(&parameters, 24).is_empty());
    }
}
