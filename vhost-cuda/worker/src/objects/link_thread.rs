// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread of a link. NVIDIA's driver 580 corrupts its heap when a link is begun, filled and completed by
//! different threads, even if they take turns. A guest may use several threads, so each link has a thread that makes
//! all its calls.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use super::jit::JitArguments;
use crate::gpu::{CUcontext, CUlinkState, CuResult, CudaError, Driver};

/// Options for the compiler, as addresses: [`JitArguments::as_raw`].
#[derive(Debug, Clone, Copy)]
struct Options {
    count: c_uint,
    numbers: usize,
    values: usize,
}

impl Options {
    fn of(arguments: &mut JitArguments) -> Self {
        let (count, numbers, values) = arguments.as_raw();
        Self { count, numbers: numbers as usize, values: values as usize }
    }
}

/// An input of a link, as addresses.
#[derive(Debug, Clone, Copy)]
pub struct Input {
    /// `CUjitInputType`.
    pub kind: u32,
    /// Its contents.
    pub contents: usize,
    /// Their length, in bytes.
    pub bytes: usize,
    /// Its name, with a NUL at the end.
    pub name: usize,
}

#[derive(Debug)]
enum Step {
    Create(Options),
    Add(Input, Options),
    Complete,
    Destroy,
}

/// The answer of a step: address and length of the image, for the step that makes it.
type Answer = CuResult<(usize, usize)>;

#[derive(Debug)]
struct Ask {
    /// The context that is current in the asking thread. That thread keeps it until the answer comes.
    context: usize,
    step: Step,
    answer: SyncSender<Answer>,
}

/// The channel to a link's thread. Dropping it ends the link and then the thread.
#[derive(Debug)]
pub struct LinkThread {
    gpu: &'static Driver,
    asks: Sender<Ask>,
    /// True once the driver was asked to end the link.
    ended: bool,
}

impl LinkThread {
    /// Starts a thread and begins a link in it.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY` without a thread; the driver's errors.
    ///
    /// # Safety
    ///
    /// `arguments` must stay at their address as long as the link lives.
    pub unsafe fn begin(gpu: &'static Driver, arguments: &mut JitArguments) -> CuResult<Self> {
        let (asks, asked) = channel();
        let run = move || serve(gpu, &asked);
        thread::Builder::new().name("link".into()).spawn(run).map_err(|_| CudaError::OUT_OF_MEMORY)?;
        let thread = Self { gpu, asks, ended: false };
        thread.ask(Step::Create(Options::of(arguments)))?;
        Ok(thread)
    }

    /// Adds an input.
    ///
    /// Errors: the driver's errors.
    ///
    /// # Safety
    ///
    /// The input must stay at its address as long as the link lives.
    pub unsafe fn add(&self, input: Input, arguments: &mut JitArguments) -> CuResult<()> {
        self.ask(Step::Add(input, Options::of(arguments))).map(drop)
    }

    /// Completes the link. Returns address and length, in bytes, of the image; the driver keeps it until the link
    /// ends.
    ///
    /// Errors: the driver's errors.
    pub fn complete(&self) -> CuResult<(usize, usize)> {
        self.ask(Step::Complete)
    }

    /// Ends the link.
    ///
    /// Errors: the driver's errors.
    pub fn destroy(mut self) -> CuResult<()> {
        self.ended = true;
        self.ask(Step::Destroy).map(drop)
    }

    fn ask(&self, step: Step) -> Answer {
        let (context,) = self.gpu.cuCtxGetCurrent()?;
        let (answer, answered) = sync_channel(1);
        let ask = Ask { context: context as usize, step, answer };
        self.asks.send(ask).map_err(|_| CudaError::UNKNOWN)?;
        answered.recv().map_err(|_| CudaError::UNKNOWN)?
    }
}

impl Drop for LinkThread {
    fn drop(&mut self) {
        if !self.ended {
            // Until this is answered the driver may look at the inputs.
            let _ = self.ask(Step::Destroy);
        }
    }
}

fn serve(gpu: &'static Driver, asked: &Receiver<Ask>) {
    let mut served = Served { gpu, raw: 0 };
    while let Ok(ask) = asked.recv() {
        let made_current = gpu.cuCtxSetCurrent(ask.context as CUcontext);
        let answer = made_current.and_then(|()| served.step(&ask.step));
        // The context may end when the asking thread continues.
        let _ = gpu.cuCtxSetCurrent(std::ptr::null_mut());
        let _ = ask.answer.send(answer);
    }
}

/// The side of the thread.
struct Served {
    gpu: &'static Driver,
    /// The driver's handle, or 0 without a link.
    raw: usize,
}

impl Served {
    fn step(&mut self, step: &Step) -> Answer {
        match *step {
            Step::Create(options) => {
                let (numbers, values) = (options.numbers as *mut c_uint, options.values as *mut *mut c_void);
                // SAFETY: the options live as long as the link: `LinkThread::begin`.
                let (raw,) = unsafe { self.gpu.cuLinkCreate_v2(options.count, numbers, values) }?;
                self.raw = raw as usize;
                Ok((0, 0))
            }
            Step::Add(input, options) => {
                let (numbers, values) = (options.numbers as *mut c_uint, options.values as *mut *mut c_void);
                let (contents, name) = (input.contents as *mut c_void, input.name as *const _);
                // SAFETY: the input lives as long as the link (`LinkThread::add`), and the options until `ask` has
                // its answer. The guest controls the contents: the effect of bad ones stays in this process, which
                // serves that guest alone.
                unsafe {
                    self.gpu.cuLinkAddData_v2(
                        self.raw as CUlinkState,
                        input.kind as c_int,
                        contents,
                        input.bytes,
                        name,
                        options.count,
                        numbers,
                        values,
                    )
                }?;
                Ok((0, 0))
            }
            Step::Complete => {
                // SAFETY: the link is the driver's, and used by this thread alone.
                let (image, bytes) = unsafe { self.gpu.cuLinkComplete(self.raw as CUlinkState) }?;
                Ok((image as usize, bytes))
            }
            Step::Destroy => match std::mem::take(&mut self.raw) {
                0 => Ok((0, 0)),
                raw => self.gpu.cuLinkDestroy(raw as CUlinkState).map(|()| (0, 0)),
            },
        }
    }
}
