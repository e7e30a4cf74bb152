//! `claude -p`, asked for a session's knowledge: for people with a subscription and no key.
//!
//! A session of the client that ends would be captured, and its capture would start the client
//! again. Two guards stand against that: the client runs without hooks and plugins and keeps no
//! transcript, and nugget itself does nothing below a process that has `NUGGET_DISABLE`.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use knowledge::text::one_line;
use llm::Usage;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use crate::model_extractor::{Backend, BackendAnswer, BackendError, Cost, Question};

const OUTPUT_BYTES_MAX: u64 = 8 << 20;
const STDERR_BYTES_MAX: u64 = 64 << 10;
const STATUS_DEADLINE: Duration = Duration::from_secs(20);
/// How long it is believed that somebody is logged in, or is not.
const STATUS_AGE_MAX: Duration = Duration::from_secs(600);
/// All that stands in the arguments about the task; the session comes by standard input.
const PROMPT: &str =
    "The session is on standard input. Answer with the structured output that the schema asks for.";

/// The client of Claude Code, run for one answer. The session leaves this machine.
#[derive(Debug)]
pub struct ClaudeCode {
    settings: Settings,
    logged_in: Mutex<Option<(Instant, bool)>>,
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// A path, or a name to look for.
    pub program: PathBuf,
    pub model: String,
    /// For one answer; the client itself goes on for minutes with a key that is wrong.
    pub deadline: Duration,
    /// A folder of ours that it runs in, so that its sessions can be told from a person's.
    pub folder: PathBuf,
}

impl ClaudeCode {
    pub fn new(settings: Settings) -> Self {
        Self { settings, logged_in: Mutex::new(None) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.settings.program);
        command
            .args(arguments)
            .env_clear()
            .envs(environment(std::env::vars_os()))
            .env("NUGGET_DISABLE", "1")
            .current_dir(&self.settings.folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that it can be ended with all that it has started.
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str], input: &str, deadline: Duration) -> Result<Ran, Failed> {
        // Long before the first answer somebody may have cleaned the state folder.
        std::fs::create_dir_all(&self.settings.folder).map_err(Failed::Start)?;
        let stdin = if input.is_empty() { Stdio::null() } else { Stdio::piped() };
        let mut group = Group(self.command(arguments).stdin(stdin).spawn().map_err(Failed::Start)?);
        let child = &mut group.0;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A client that does not want to read on says why in its output.
                let _ = stdin.write_all(input.as_bytes()).await;
                let _ = stdin.shutdown().await;
            }
        };
        let work = async {
            let (_, stdout, stderr) =
                tokio::join!(feed, read(stdout, OUTPUT_BYTES_MAX), read(stderr, STDERR_BYTES_MAX));
            let status = child.wait().await.map_err(Failed::Start)?;
            Ok(Ran { status, stdout, stderr })
        };
        tokio::time::timeout(deadline, work).await.unwrap_or(Err(Failed::Deadline(deadline)))
    }

    async fn look_for_login(&self) -> bool {
        match self.run(&["auth", "status"], "", STATUS_DEADLINE).await {
            Ok(ran) => {
                let said: Option<Status> = serde_json::from_slice(&ran.stdout).ok();
                ran.status.success() && said.is_none_or(|said| said.logged_in.unwrap_or(true))
            }
            Err(_) => false,
        }
    }
}

struct Ran {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

enum Failed {
    Start(std::io::Error),
    Deadline(Duration),
}

/// A child whose whole group ends with it. The client starts helpers that would outlive it.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // Only while it has not been waited for: afterwards the number may be somebody else's.
        if let Some(id) = self.0.id().and_then(|id| i32::try_from(id).ok())
            && let Some(group) = rustix::process::Pid::from_raw(id)
        {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

async fn read(pipe: Option<impl tokio::io::AsyncRead + Unpin>, bytes_max: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = (&mut pipe).take(bytes_max).read_to_end(&mut bytes).await;
        // What is too much is read and thrown away: a full pipe would hold the client up.
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    bytes
}

/// What the client needs of the environment, and nothing else: not the key, which it would bill in
/// place of the subscription, nor what it was told by the session that we were started from.
fn environment(all: impl Iterator<Item = (OsString, OsString)>) -> HashMap<OsString, OsString> {
    const NAMES: &[&str] = &[
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TERM",
        "CLAUDE_CONFIG_DIR",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_VERTEX",
        "CLAUDE_CODE_USE_FOUNDRY",
        "CLOUD_ML_REGION",
        "DBUS_SESSION_BUS_ADDRESS",
    ];
    const BEGINNINGS: &[&str] =
        &["LC_", "XDG_", "SSL_CERT_", "NODE_EXTRA_CA", "AWS_", "GOOGLE_", "ANTHROPIC_"];
    all.filter(|(name, _)| {
        let name = name.to_string_lossy();
        let is_proxy = matches!(
            name.to_ascii_lowercase().as_str(),
            "http_proxy" | "https_proxy" | "no_proxy" | "all_proxy"
        );
        let is_wanted =
            NAMES.contains(&&*name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
        (is_wanted || is_proxy) && name != "ANTHROPIC_API_KEY"
    })
    .collect()
}

#[async_trait]
impl Backend for ClaudeCode {
    fn name(&self) -> &'static str {
        "claude-p"
    }

    fn model(&self) -> &str {
        &self.settings.model
    }

    async fn is_ready(&self) -> bool {
        let mut known = self.logged_in.lock().await;
        match *known {
            Some((at, logged_in)) if at.elapsed() < STATUS_AGE_MAX => logged_in,
            _ => {
                let logged_in = self.look_for_login().await;
                *known = Some((Instant::now(), logged_in));
                logged_in
            }
        }
    }

    async fn ask(&self, question: &Question) -> BackendAnswer {
        let schema = question.tool.schema.to_string();
        let arguments = [
            "-p",
            PROMPT,
            "--output-format",
            "json",
            "--json-schema",
            &schema,
            "--tools",
            "",
            "--system-prompt",
            question.system,
            "--strict-mcp-config",
            "--safe-mode",
            "--no-session-persistence",
            "--model",
            &self.settings.model,
        ];
        match self.run(&arguments, &question.user, self.settings.deadline).await {
            Ok(ran) => understood(&ran),
            Err(Failed::Start(error)) => BackendAnswer {
                cost: Cost::Free,
                result: Err(BackendError::Permanent(format!("it cannot be started: {error}"))),
            },
            Err(Failed::Deadline(deadline)) => {
                let what = format!("no answer within {deadline:?}");
                BackendAnswer {
                    cost: Cost::Unknown,
                    result: Err(BackendError::Busy { message: what, retry_after: None }),
                }
            }
        }
    }
}

/// What `claude auth status` prints, as far as it matters.
#[derive(Deserialize)]
struct Status {
    #[serde(rename = "loggedIn")]
    logged_in: Option<bool>,
}

/// What `claude -p --output-format json` prints, as far as it matters.
#[derive(Deserialize)]
struct Printed {
    #[serde(default)]
    is_error: bool,
    api_error_status: Option<u16>,
    stop_reason: Option<String>,
    terminal_reason: Option<String>,
    result: Option<String>,
    structured_output: Option<Value>,
    total_cost_usd: Option<f64>,
    #[serde(default)]
    usage: Usage,
    #[serde(default, rename = "modelUsage")]
    models: serde_json::Map<String, Value>,
}

fn understood(ran: &Ran) -> BackendAnswer {
    let printed: Printed = match serde_json::from_slice(&ran.stdout) {
        Ok(printed) => printed,
        Err(_) => {
            let stderr = one_line(&String::from_utf8_lossy(&ran.stderr), 200);
            let trouble = if ran.status.success() {
                BackendError::Malformed("it printed no JSON".to_owned())
            } else {
                BackendError::Permanent(format!("it ended with {}: {stderr}", ran.status))
            };
            return BackendAnswer { cost: Cost::Unknown, result: Err(trouble) };
        }
    };
    let cost = match printed.usage.tokens() {
        0 => Cost::Free,
        _ => {
            let microdollars = printed.total_cost_usd.filter(|dollars| (0.0..1e6).contains(dollars));
            Cost::Known {
                model: printed
                    .models
                    .keys()
                    .next()
                    .map_or_else(|| "claude".to_owned(), |model| one_line(model, 80)),
                usage: printed.usage,
                microdollars: microdollars.map(|dollars| (dollars * 1e6).ceil() as u64),
            }
        }
    };
    let said = || one_line(printed.result.as_deref().unwrap_or("it gave no reason"), 200);
    let result = if printed.is_error || !ran.status.success() {
        let is_full = printed.terminal_reason.as_deref() == Some("prompt_too_long");
        Err(match printed.api_error_status {
            Some(413) => BackendError::TooLarge(said()),
            Some(400) if is_full => BackendError::TooLarge(said()),
            Some(408 | 429 | 500..=599) => BackendError::Busy { message: said(), retry_after: None },
            Some(_) => BackendError::Permanent(said()),
            // The client's own limits and failures of the network carry no status.
            None if is_full => BackendError::TooLarge(said()),
            None => BackendError::Busy { message: said(), retry_after: None },
        })
    } else {
        match (printed.stop_reason.as_deref(), printed.structured_output) {
            (Some("refusal"), _) => Err(BackendError::Refused),
            (Some("max_tokens"), _) => Err(BackendError::TooLarge("its answer was cut off".to_owned())),
            (_, Some(value)) => Ok(value),
            (_, None) => Err(BackendError::Malformed("it gave no structured output".to_owned())),
        }
    };
    BackendAnswer { cost, result }
}

/// Where the client runs, below the folder that nugget keeps its state in.
pub fn folder(state: &Path) -> PathBuf {
    state.join("claude")
}

#[cfg(test)]
mod tests;
