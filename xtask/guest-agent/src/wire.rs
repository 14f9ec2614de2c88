// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages between host and guest on the agent's serial port: frames of a little-endian length and a message.

use std::io::{Read, Write};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The name of the virtio-serial port.
pub const PORT: &str = "vhost-cuda.agent";
/// The maximum number of input bytes in flight to one command.
pub const INPUT_WINDOW: usize = 64 * 1024;
/// The maximum size of a frame in bytes. Bounds the allocations of either side.
const MAX_FRAME: usize = 16 << 20;

/// Identifies a running command; the host chooses it.
pub type CommandId = u32;

/// The files that a command sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Root {
    /// The host's files, read-only, under a layer of memory that takes the writes.
    Host,
    /// The initramfs: busybox and the module.
    Initramfs,
}

/// A command to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments.
    pub arguments: Vec<ByteBuf>,
    /// The whole environment.
    pub environment: Vec<(ByteBuf, ByteBuf)>,
    /// The working directory.
    pub directory: ByteBuf,
    /// The files that it sees.
    pub root: Root,
}

/// From the host.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToGuest {
    /// Start a command.
    Run(CommandId, Command),
    /// Bytes of its standard input; none at all ends it.
    Input(CommandId, ByteBuf),
    /// Send it a signal.
    Signal(CommandId, i32),
    /// Switch the machine off.
    PowerOff,
}

/// The output stream of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// From the guest.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToHost {
    /// The machine is ready. Contains the errors of its setup.
    Ready(Vec<String>),
    /// The command wrote this.
    Output(CommandId, Stream, ByteBuf),
    /// The command has taken so many bytes of input.
    InputTaken(CommandId, u32),
    /// The command has ended: its status, or 128 and the signal. All its output came before.
    Exited(CommandId, i32),
    /// The command did not start.
    Failed(CommandId, String),
}

/// Writes one message.
pub fn send<T: Serialize>(port: &mut impl Write, message: &T) -> Result<()> {
    let body = postcard::to_stdvec(message)?;
    ensure!(body.len() <= MAX_FRAME, "A message of {} bytes is too long for the agent", body.len());
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    port.write_all(&frame)?;
    Ok(())
}

/// Reads one message.
pub fn receive<T: for<'a> Deserialize<'a>>(port: &mut impl Read) -> Result<T> {
    let mut length = [0; 4];
    port.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    ensure!(length <= MAX_FRAME, "The agent sent a frame of {length} bytes");
    let mut body = vec![0; length];
    port.read_exact(&mut body)?;
    Ok(postcard::from_bytes(&body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in() -> Result<()> {
        let mut bytes = Vec::new();
        send(&mut bytes, &ToHost::Output(7, Stream::Stderr, ByteBuf::from(vec![0, 255, 10])))?;
        send(&mut bytes, &ToHost::Exited(7, 130))?;
        let mut reader = bytes.as_slice();
        let first: ToHost = receive(&mut reader)?;
        assert!(matches!(first, ToHost::Output(7, Stream::Stderr, b) if b[..] == [0, 255, 10]));
        let second: ToHost = receive(&mut reader)?;
        assert!(matches!(second, ToHost::Exited(7, 130)));
        assert!(reader.is_empty());
        Ok(())
    }

    #[test]
    fn a_frame_without_bound_is_refused() {
        let bytes = u32::MAX.to_le_bytes();
        assert!(receive::<ToHost>(&mut bytes.as_slice()).is_err());
    }
}
