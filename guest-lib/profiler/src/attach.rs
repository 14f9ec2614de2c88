// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records a program that runs already. The daemon does it, for a session of this program's own.

use std::io::BufWriter;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use vhost_cuda_profile::event::Batch;
use vhost_cuda_profile::lines::Lines;
use vhost_cuda_profile::table::Tables;
use vhost_cuda_profile::timeline::Timeline;
use virtio_cuda_client::{Call, CudaError, Session, calls, open};

/// The number of bytes that are read at once: as many as fit into the answer of a lane.
const ROOM: usize = 48 << 10;
/// The pause between two looks at a recording that has nothing new.
const PAUSE: Duration = Duration::from_millis(20);
/// The time for the daemon to send what is left after the end of a recording.
const PATIENCE: Duration = Duration::from_secs(30);

/// Records process `pid` for `time`, or until it ends. Writes a timeline into `trace`, and returns the tables.
///
/// Errors: there is no device, the process is not one of this user with a session, and those of the file.
pub fn record(pid: u32, time: Duration, trace: Option<&Path>) -> Result<Tables> {
    let file = trace.map(crate::create).transpose()?;
    let mut timeline = file.map(|file| Timeline::new(BufWriter::new(file)));
    let session = open::session().map_err(|error| {
        anyhow!("Cannot open a session ({error}): VIRTIO_CUDA_LOG=error shows the reason")
    })?;
    calls::profile_start(&mut Call::internal(session), pid).map_err(|error| match error {
        CudaError::NOT_FOUND => anyhow!(
            "Process {pid} has no session, or is not yours: it must have called CUDA before, and in a container of the guest ids are \
             those outside of it"
        ),
        CudaError::NOT_SUPPORTED => anyhow!("The host's daemon is too old to record for guests"),
        error => anyhow!("Process {pid} cannot be recorded: {error}"),
    })?;
    let mut tables = Tables::default();
    let add = |batch: Batch| -> Result<()> {
        tables.add(&batch);
        timeline.as_mut().map_or(Ok(()), |timeline| timeline.add(&batch)).context("Cannot write the timeline")
    };
    receive(session, time, add)?;
    if let Some(timeline) = timeline {
        let (_, left_out) = timeline.finish().context("Cannot write the timeline")?;
        ensure!(left_out == 0, "{left_out} events are missing in the timeline: they have too many rows");
    }
    Ok(tables)
}

/// Passes what is recorded in `time` to `add`.
fn receive(session: &Session, time: Duration, mut add: impl FnMut(Batch) -> Result<()>) -> Result<()> {
    let until = Instant::now() + time;
    let (mut lines, mut room, mut is_stopped) = (Lines::default(), vec![0; ROOM], false);
    loop {
        if Instant::now() >= until && !is_stopped {
            calls::profile_stop(&mut Call::internal(session)).map_err(lost)?;
            is_stopped = true;
        }
        let (bytes, open, _) =
            calls::profile_read(&mut Call::internal(session).output(&mut room)).map_err(lost)?;
        let read = usize::try_from(bytes).map_or(ROOM, |bytes| bytes.min(ROOM));
        lines
            .add(&room[..read])
            .map_err(|error| anyhow!("The recording has ended: {error}"))?
            .into_iter()
            .try_for_each(&mut add)?;
        if open == 0 {
            return Ok(());
        }
        if Instant::now() >= until + PATIENCE {
            bail!("The daemon does not end the recording");
        }
        if read == 0 {
            thread::sleep(PAUSE);
        }
    }
}

fn lost(error: CudaError) -> anyhow::Error {
    anyhow!("The recording is lost: {error}")
}
