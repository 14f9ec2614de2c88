// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The apiserver, by kubectl: it knows the ways to reach and to trust an apiserver, and to prove who we are.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

/// The time limit for an answer of the apiserver. The kubelet waits for 45 s until a claim is prepared, and then asks again.
const ANSWER: Duration = Duration::from_secs(30);
/// The maximum size of an object. etcd takes 1.5 MiB.
const MAX_OBJECT: u64 = 2 << 20;
/// The part of kubectl's messages that an error shows, in bytes.
const SHOWN: usize = 400;

/// The apiserver.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// kubectl.
    pub kubectl: PathBuf,
}

/// The reasons for which the apiserver gives or takes no object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It has none with that path.
    #[error("{0} does not exist")]
    NotFound(String),
    /// Anything else.
    #[error("{program} {action} --raw {path} failed: {why}")]
    Failed {
        /// kubectl.
        program: String,
        /// The action.
        action: &'static str,
        /// The path of the object.
        path: String,
        /// kubectl's words, or ours.
        why: String,
    },
}

impl Cluster {
    /// Reads the object with that path.
    pub async fn get(&self, path: &str) -> Result<Vec<u8>, Error> {
        self.run("get", path, None).await
    }

    /// Makes an object in the collection with that path.
    pub async fn create(&self, path: &str, object: &[u8]) -> Result<(), Error> {
        self.run("create", path, Some(object)).await.map(drop)
    }

    /// Replaces the object with that path.
    pub async fn replace(&self, path: &str, object: &[u8]) -> Result<(), Error> {
        self.run("replace", path, Some(object)).await.map(drop)
    }

    async fn run(&self, action: &'static str, path: &str, input: Option<&[u8]>) -> Result<Vec<u8>, Error> {
        let failed = |why: String| Error::Failed {
            program: self.kubectl.display().to_string(),
            action,
            path: path.to_owned(),
            why,
        };
        let mut command = Command::new(&self.kubectl);
        command.args([action, "--raw", path]).kill_on_drop(true);
        if input.is_some() {
            // Otherwise it reads the schema of all objects first. The apiserver checks ours.
            command.args(["-f", "-", "--validate=false"]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = async {
            let mut child = command.spawn()?;
            let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
            let (mut answer, mut words) = (Vec::new(), Vec::new());
            let write = async {
                if let (Some(mut stdin), Some(input)) = (stdin, input) {
                    // It may end before it has read all; its words say why.
                    let _ = stdin.write_all(input).await;
                }
                Ok(())
            };
            let read = async {
                match stdout {
                    Some(stdout) => stdout.take(MAX_OBJECT + 1).read_to_end(&mut answer).await.map(drop),
                    None => Ok(()),
                }
            };
            let complain = async {
                match stderr {
                    Some(stderr) => stderr.take(MAX_OBJECT).read_to_end(&mut words).await.map(drop),
                    None => Ok(()),
                }
            };
            tokio::try_join!(write, read, complain)?;
            Ok::<_, std::io::Error>((child.wait().await?, answer, words))
        };
        let (status, answer, words) = match timeout(ANSWER, run).await {
            Ok(done) => done.map_err(|error| failed(error.to_string()))?,
            Err(_) => return Err(failed(format!("no answer within {ANSWER:?}"))),
        };
        if answer.len() as u64 > MAX_OBJECT {
            return Err(failed(format!("the object is larger than {MAX_OBJECT} bytes")));
        }
        if status.success() {
            return Ok(answer);
        }
        let words = String::from_utf8_lossy(&words[..words.len().min(SHOWN)]).trim().to_owned();
        if words.contains("(NotFound)") {
            return Err(Error::NotFound(path.to_owned()));
        }
        Err(failed(if words.is_empty() { status.to_string() } else { words }))
    }
}
