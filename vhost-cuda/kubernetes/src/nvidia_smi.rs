// SPDX-License-Identifier: Apache-2.0 OR MIT
//! nvidia-smi: the GPUs that answer it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Prints a line `UUID, NUMBER, MEMORY` for each GPU; memory in MiB. A value of a GPU that fails is a text in brackets.
const QUERY: [&str; 2] = ["--query-gpu=uuid,index,memory.total", "--format=csv,noheader,nounits"];
/// The time limit for its answer. Without a process that keeps GPUs initialised it takes a second or more per GPU.
const ANSWER: Duration = Duration::from_secs(30);
/// The maximum size of its output, in bytes. A node has up to 128 GPUs, of about 60 bytes each.
const MAX_OUTPUT: u64 = 64 << 10;
/// The part of its words that a message shows, in characters.
const SHOWN: usize = 200;

/// A GPU that has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its UUID.
    pub uuid: String,
    /// Its number.
    pub number: u32,
    /// Its device memory, in MiB.
    pub mebibytes: u64,
}

/// The ids, UUIDs and numbers, of the GPUs that answer, and the reason why others may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The ids.
    pub ids: BTreeSet<String>,
    /// Words of nvidia-smi or of the system; empty if all GPUs that nvidia-smi knows have answered.
    pub complaint: String,
}

/// The program. One process of it runs at a time.
#[derive(Debug)]
pub struct NvidiaSmi {
    program: PathBuf,
    limit: Duration,
    /// A process that was killed and had not ended: the driver of a GPU that fails can hold it for ever.
    stuck: Option<Child>,
}

impl NvidiaSmi {
    /// The one that `PATH` finds.
    pub fn new() -> Self {
        Self { program: "nvidia-smi".into(), limit: ANSWER, stuck: None }
    }

    /// All GPUs.
    ///
    /// Errors: it cannot be run, it fails, or a GPU does not answer.
    pub async fn list(&mut self) -> Result<Vec<Answer>> {
        let (status, text) =
            self.run().await.context("Install NVIDIA's driver, or name GPUs by --gpu ID=BYTES")?;
        ensure!(status.success(), "nvidia-smi failed ({status}): {}", shown(text.trim()));
        let answer = |line| parse(line).with_context(|| format!("nvidia-smi printed `{}`", shown(line)));
        lines(&text).map(answer).collect()
    }

    /// The GPUs that answer, whatever the others do.
    pub async fn look(&mut self) -> Look {
        match self.run().await {
            Ok((status, text)) => Look::of(status.success(), &status.to_string(), &text),
            Err(error) => Look { ids: BTreeSet::new(), complaint: format!("{error:#}") },
        }
    }

    async fn run(&mut self) -> Result<(ExitStatus, String)> {
        if let Some(child) = &mut self.stuck {
            ensure!(child.try_wait()?.is_some(), "an nvidia-smi that was killed has not ended yet");
            self.stuck = None;
        }
        let mut command = Command::new(&self.program);
        command.args(QUERY).env("LC_ALL", "C").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("Cannot run {}", self.program.display()))?;
        let stdout = child.stdout.take();
        let read = async {
            let mut text = Vec::new();
            if let Some(stdout) = stdout {
                stdout.take(MAX_OUTPUT).read_to_end(&mut text).await?;
            }
            Ok::<_, std::io::Error>((child.wait().await?, text))
        };
        match timeout(self.limit, read).await {
            Ok(done) => {
                let (status, text) = done.context("Cannot read what nvidia-smi prints")?;
                Ok((status, String::from_utf8_lossy(&text).into_owned()))
            }
            Err(_) => {
                // Its end is looked for before the next one starts.
                let _ = child.start_kill();
                self.stuck = Some(child);
                bail!("nvidia-smi has not answered within {:?}", self.limit)
            }
        }
    }
}

impl Look {
    fn of(is_success: bool, status: &str, text: &str) -> Self {
        let (mut look, mut others) = (Self::default(), Vec::new());
        for line in lines(text) {
            match parse(line) {
                Some(Answer { uuid, number, .. }) => look.ids.extend([uuid, number.to_string()]),
                None => others.push(line),
            }
        }
        if !others.is_empty() {
            look.complaint = shown(&others.join("; "));
        } else if !is_success {
            status.clone_into(&mut look.complaint);
        }
        look
    }
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

fn parse(line: &str) -> Option<Answer> {
    let mut values = line.split(", ");
    let (uuid, number, memory) = (values.next()?, values.next()?, values.next()?);
    let answer = Answer {
        uuid: uuid.to_owned(),
        number: number.parse().ok()?,
        mebibytes: memory.trim().parse().ok()?,
    };
    values.next().is_none().then_some(answer)
}

/// A part of words for a message, on one line.
fn shown(words: &str) -> String {
    words.chars().map(|character| if character.is_control() { ' ' } else { character }).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn script(folder: &Path, text: &str, limit: Duration) -> NvidiaSmi {
        let program = folder.join("nvidia-smi");
        // By another process: a writer of ours could be inherited by a child of another test, and nothing executes such a file.
        fs::write(folder.join("text"), format!("#!/bin/sh\n{text}\n")).unwrap();
        let copied = std::process::Command::new("cp").arg(folder.join("text")).arg(&program).status();
        assert!(copied.unwrap().success());
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        NvidiaSmi { program, limit, stuck: None }
    }

    #[test]
    fn answers_are_read() {
        let answer = |uuid: &str, number, mebibytes| Some(Answer { uuid: uuid.into(), number, mebibytes });
        assert_eq!(parse("GPU-1, 0, 81559"), answer("GPU-1", 0, 81559));
        for bad in ["No devices were found", "GPU-1, 0, [N/A]", "GPU-1, 0", "GPU-1, 0, 1, 2", "GPU-1, -1, 5"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn gpus_that_fail_do_not_hide_others() {
        let lost = "Unable to determine the device handle for GPU0000:41:00.0: GPU is lost.";
        let look = Look::of(false, "exit status: 15", &format!("{lost}\nGPU-1, 1, 81559\n"));
        assert_eq!(look.ids.iter().collect::<Vec<_>>(), ["1", "GPU-1"]);
        assert_eq!(look.complaint, lost);
        let look = Look::of(true, "", "GPU-0, 0, [GPU is lost]\n\nGPU-1, 1, 81559\n");
        assert!(!look.ids.contains("GPU-0") && look.ids.contains("GPU-1"), "{look:?}");
        assert_eq!(Look::of(false, "exit status: 9", "").complaint, "exit status: 9");
        assert!(Look::of(true, "", &"x\n".repeat(1000)).complaint.len() <= SHOWN);
    }

    #[tokio::test]
    async fn it_is_run() {
        let temporary = tempfile::tempdir().unwrap();
        let good = "echo 'GPU-1, 0, 81559'; echo 'GPU-2, 1, 143771'";
        let mut smi = script(temporary.path(), good, ANSWER);
        assert_eq!(smi.list().await.unwrap()[1].mebibytes, 143_771);
        assert_eq!(smi.look().await.ids.len(), 4);
        let mut smi = script(temporary.path(), &format!("{good}; exit 15"), ANSWER);
        assert!(smi.list().await.unwrap_err().to_string().contains("exit status: 15"));
        assert_eq!(smi.look().await.ids.len(), 4);
        smi.program = temporary.path().join("none");
        let look = smi.look().await;
        assert!(look.ids.is_empty() && look.complaint.contains("Cannot run"), "{look:?}");
        assert!(format!("{:#}", smi.list().await.unwrap_err()).contains("--gpu ID=BYTES"));
    }

    #[tokio::test]
    async fn one_that_hangs_is_given_up() {
        let temporary = tempfile::tempdir().unwrap();
        let mut smi = script(temporary.path(), "exec sleep 600", Duration::from_millis(50));
        let look = smi.look().await;
        assert!(look.complaint.contains("not answered within 50ms"), "{look:?}");
        // It was killed, so that it ends, and the next one may start.
        smi.stuck.as_mut().unwrap().wait().await.unwrap();
        assert!(smi.look().await.complaint.contains("not answered within 50ms"));
        // One that does not end: a process of ours, which nobody has killed.
        smi.stuck = Some(Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap());
        assert!(smi.look().await.complaint.contains("has not ended yet"));
        assert!(smi.list().await.is_err());
    }
}
