// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worker: one process that executes the CUDA calls of one guest process.

mod call;
mod copy;
mod copy_charge;
mod courier;
mod devices;
mod dispatch;
mod ending;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gpu;
mod handlers;
mod home;
mod memory;
mod objects;
mod outstanding;
mod profile;
mod recipe;
mod renewal;
mod run;
pub mod sandbox;
mod serve;
mod sharing;
mod start;
mod state;
mod suspend;
mod trace;
mod vendor;
mod words;

use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;

use log::{debug, error};
use virtio_cuda_protocol::transport::PAGE_BYTES;

use ending::{end_process, end_process_of_guest};
use memory::pages::{GuestFile, GuestPages};
use run::replies::Replies;
use serve::executor::Executors;
use state::SessionState;
use vhost_cuda_common::args::WorkerArgs;
use vhost_cuda_common::link::{
    self, TO_ACCOUNT, TO_AHEAD, TO_CALL, TO_CLOSE, TO_CONTENTS, TO_DEEPEN, TO_ENTER, TO_FORGET, TO_LEAVE,
    TO_LOAD, TO_MEMORY, TO_POOL, TO_PROFILE, TO_RECIPE, TO_REGION, TO_RESUME, TO_RESUME_REFUSED, TO_SAVE,
    TO_SAVED, TO_SHARE, TO_STAY, TO_STOP, TO_SUSPEND, TO_UNPIN,
};

/// Runs a worker until its session or its daemon ends.
pub fn run(args: &WorkerArgs) -> ExitCode {
    let Some((link, session)) = start::start(args) else { return ExitCode::FAILURE };
    // Objects that end at any time refer to it. It lives until the process ends.
    let session: &'static SessionState = Box::leak(Box::new(session));
    courier::start(&session.gpu, &session.sharing);
    match serve(&link, session) {
        Ok(()) => debug!("the session is closed"),
        Err(error) => error!("worker: the daemon's socket: {error}"),
    }
    // Without destructors, because threads may be inside libcuda. The kernel frees all resources.
    // SAFETY: a plain system call that does not return.
    unsafe { libc::_exit(0) }
}

fn serve(link: &UnixStream, session: &'static SessionState) -> std::io::Result<()> {
    let replies = Arc::new(Replies::new(link.try_clone()?));
    let waking = replies.clone();
    session.gate.on_wake(move || waking.wake());
    let mut executors = Executors::new(session, replies.clone());
    let mut regions = Vec::new();
    let mut assigned = false;
    while let Some(mut frame) = link::receive_frame(link)? {
        // The first frame arrives with the session.
        if !std::mem::replace(&mut assigned, true) {
            start::set_name(start::NAME_SESSION);
        }
        match frame.header.kind {
            TO_CALL | TO_UNPIN | TO_SHARE | TO_PROFILE | TO_RECIPE | TO_DEEPEN | TO_SAVE | TO_SAVED
            | TO_LOAD => executors.submit(frame),
            TO_REGION => {
                let region = link::region_of(&frame.payload)?;
                let file = match (frame.file, &session.mapper) {
                    (Some(file), _) if region.page_bytes > PAGE_BYTES => {
                        Some(GuestFile::Huge(Arc::new(file)))
                    }
                    (Some(file), _) => Some(GuestFile::Whole(Arc::new(file))),
                    (None, Some(mapper)) => Some(GuestFile::Named(mapper.file(region.number))),
                    (None, None) => None,
                };
                if let (Some(file), true) = (file, regions.len() < link::MAX_REGIONS as usize) {
                    regions.push((region, file));
                }
            }
            TO_MEMORY => {
                session.set_memory(GuestPages::map(std::mem::take(&mut regions))?);
                session.mapper.iter().for_each(|mapper| mapper.refresh());
            }
            TO_ACCOUNT => session.allocations().quota.join(link::share_of(&frame)?),
            TO_SUSPEND | TO_RESUME => suspend::start(session, &frame, &replies, serve::again::MAKERS),
            TO_RESUME_REFUSED => session.gate.refuse(),
            TO_FORGET => session.suspension.forget(),
            TO_POOL => suspend::keep_pool(session, &frame),
            TO_CONTENTS => suspend::saving::lend(session, &mut frame),
            TO_LEAVE => renewal::leave(session, &mut executors, &mut frame, &replies),
            TO_STAY => renewal::stay(session, &mut executors),
            TO_STOP => renewal::stopping::stop(session, &mut executors, &frame, &replies),
            TO_AHEAD => suspend::ahead::start(session, &mut frame, &replies),
            TO_ENTER => renewal::enter(session, &mut executors, &mut frame, &replies),
            TO_CLOSE => return Ok(()),
            kind => debug!("a frame of unknown kind {kind}"),
        }
    }
    Ok(())
}
