//! The backend that runs `claude -p`, for people with a subscription and no key.
//!
//! The session of a client that we start must not be captured, or its capture would start the client again. The client
//! therefore runs without hooks and plugins and keeps no transcript, and nugget does nothing in a process that has
//! `NUGGET_DISABLE`.

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
/// How long the result of the login check is reused.
const STATUS_AGE_MAX: Duration = Duration::from_secs(600);
/// The prompt in the arguments. The session is passed by standard input, where other users cannot read it.
const PROMPT: &str =
    "The session is on standard input. Answer with the structured output that the schema asks for.";

/// Runs the client of Claude Code for each answer. The redacted session leaves this machine.
#[derive(Debug)]
pub struct ClaudeCode {
    settings: Settings,
    logged_in: Mutex<Option<(Instant, bool)>>,
}

/// How to run the client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The path of the program, or its name on `PATH`.
    pub program: PathBuf,
    /// The name of the model.
    pub model: String,
    /// The time limit for one answer; with a wrong key, the client itself retries for minutes.
    pub deadline: Duration,
    /// The folder in which it runs, so that its sessions can be distinguished from a person's.
    pub folder: PathBuf,
}

impl ClaudeCode {
    /// Asks through the client. Nothing is started yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, logged_in: Mutex::new(None) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.settings.program);
        command
            .args(arguments)
            .env_clear()
            .envs(client_environment(std::env::vars_os()))
            .env("NUGGET_DISABLE", "1")
            .current_dir(&self.settings.folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // So that its children can be killed with it.
        system::process::lead_own_group(command.as_std_mut());
        command
    }

    async fn run(&self, arguments: &[&str], input: &str, deadline: Duration) -> Result<RunOutput, RunError> {
        // Created each time, because the state folder may have been deleted since the start.
        system::file::create_private_folder(&self.settings.folder).map_err(RunError::Start)?;
        let stdin = if input.is_empty() { Stdio::null() } else { Stdio::piped() };
        let mut group = ProcessGroup(self.command(arguments).stdin(stdin).spawn().map_err(RunError::Start)?);
        let child = &mut group.0;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async {
            if let Some(mut stdin) = stdin {
                // If the client stops reading, its output says why.
                let _ = stdin.write_all(input.as_bytes()).await;
                let _ = stdin.shutdown().await;
            }
        };
        let work = async {
            let (_, stdout, stderr) =
                tokio::join!(feed, read_pipe(stdout, OUTPUT_BYTES_MAX), read_pipe(stderr, STDERR_BYTES_MAX));
            let status = child.wait().await.map_err(RunError::Start)?;
            Ok(RunOutput { status, stdout, stderr })
        };
        tokio::time::timeout(deadline, work).await.unwrap_or(Err(RunError::Deadline(deadline)))
    }

    async fn check_login(&self) -> Result<bool, String> {
        match self.run(&["auth", "status"], "", STATUS_DEADLINE).await {
            Ok(output) => {
                let status: Option<LoginStatus> = serde_json::from_slice(&output.stdout).ok();
                Ok(output.status.success() && status.is_none_or(|status| status.logged_in.unwrap_or(true)))
            }
            // It is not installed.
            Err(RunError::Start(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            // As while it is updated.
            Err(RunError::Start(error)) => Err(format!("it cannot be started: {error}")),
            Err(RunError::Deadline(deadline)) => {
                Err(format!("`auth status` gave no answer within {deadline:?}"))
            }
        }
    }
}

/// What the client printed, and how it ended.
struct RunOutput {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Why the client did not finish.
enum RunError {
    Start(std::io::Error),
    Deadline(Duration),
}

/// A child process that is killed with its whole group, because the client starts helpers that would outlive it.
struct ProcessGroup(Child);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // Only before it was waited for: afterwards another process may have the id.
        if let Some(id) = self.0.id() {
            system::process::kill_group(id);
        }
    }
}

/// Reads up to `bytes_max` bytes and discards the rest.
async fn read_pipe(pipe: Option<impl tokio::io::AsyncRead + Unpin>, bytes_max: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = (&mut pipe).take(bytes_max).read_to_end(&mut bytes).await;
        // Drained, because a full pipe would block the client.
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    bytes
}

/// The variables that the client needs, and no others.
///
/// The key is left out because it would be billed instead of the subscription, and so are the variables of the
/// session that started us.
fn client_environment(all: impl Iterator<Item = (OsString, OsString)>) -> HashMap<OsString, OsString> {
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
    const PREFIXES: &[&str] = &["LC_", "XDG_", "SSL_CERT_", "NODE_EXTRA_CA", "AWS_", "GOOGLE_", "ANTHROPIC_"];
    all.filter(|(name, _)| {
        let name = name.to_string_lossy();
        let is_proxy = matches!(
            name.to_ascii_lowercase().as_str(),
            "http_proxy" | "https_proxy" | "no_proxy" | "all_proxy"
        );
        let is_wanted = NAMES.contains(&&*name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
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

    async fn is_ready(&self) -> Result<bool, String> {
        let mut cached = self.logged_in.lock().await;
        match *cached {
            Some((at, logged_in)) if at.elapsed() < STATUS_AGE_MAX => Ok(logged_in),
            _ => {
                let logged_in = self.check_login().await?;
                *cached = Some((Instant::now(), logged_in));
                Ok(logged_in)
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
            Ok(output) => interpret(&output),
            Err(RunError::Start(error)) => BackendAnswer {
                cost: Cost::Free,
                result: Err(BackendError::Permanent(format!("it cannot be started: {error}"))),
            },
            Err(RunError::Deadline(deadline)) => {
                let message = format!("no answer within {deadline:?} (`extract.deadline_seconds`)");
                BackendAnswer { cost: Cost::Unknown, result: Err(BackendError::Slow(message)) }
            }
        }
    }
}

/// The output of `claude auth status`, as far as it is used.
#[derive(Deserialize)]
struct LoginStatus {
    #[serde(rename = "loggedIn")]
    logged_in: Option<bool>,
}

/// The output of `claude -p --output-format json`, as far as it is used.
#[derive(Deserialize)]
struct PrintedAnswer {
    #[serde(default)]
    is_error: bool,
    #[serde(default)]
    errors: Vec<Value>,
    api_error_status: Option<u16>,
    stop_reason: Option<String>,
    terminal_reason: Option<String>,
    result: Option<String>,
    structured_output: Option<Value>,
    total_cost_usd: Option<f64>,
    usage: Option<Usage>,
    #[serde(default, rename = "modelUsage")]
    models: serde_json::Map<String, Value>,
}

fn interpret(output: &RunOutput) -> BackendAnswer {
    let printed: PrintedAnswer = match serde_json::from_slice(&output.stdout) {
        Ok(printed) => printed,
        Err(_) => {
            let stderr = one_line(&String::from_utf8_lossy(&output.stderr), 200);
            let error = if output.status.success() {
                BackendError::Malformed("it printed no JSON".to_owned())
            } else {
                BackendError::Permanent(format!("it ended with {}: {stderr}", output.status))
            };
            // As one that does not know an option. Nothing tells what one had done that was killed.
            let asked_nothing =
                output.stdout.is_empty() && output.status.code().is_some_and(|code| code != 0);
            let cost = if asked_nothing { Cost::Free } else { Cost::Unknown };
            return BackendAnswer { cost, result: Err(error) };
        }
    };
    let microdollars = printed.total_cost_usd.filter(|dollars| (0.0..1e6).contains(dollars));
    let microdollars = microdollars.map(|dollars| (dollars * 1e6).ceil() as u64);
    let usage = printed.usage.unwrap_or_default();
    let cost = match (usage.tokens(), microdollars.unwrap_or_default()) {
        (0, 0) => Cost::Free,
        _ => {
            let model = printed.models.keys().next();
            let model = model.map_or_else(|| "claude".to_owned(), |model| one_line(model, 80));
            Cost::Known { model, usage, microdollars }
        }
    };
    let message = || {
        let said = printed.result.as_deref().or_else(|| printed.errors.first()?.as_str());
        one_line(said.unwrap_or("it gave no reason"), 200)
    };
    let is_cut = printed.stop_reason.as_deref() == Some("max_tokens");
    let cut_off = || BackendError::TooLarge("its answer was cut off".to_owned());
    let result = if printed.is_error || !output.status.success() {
        let is_full = printed.terminal_reason.as_deref() == Some("prompt_too_long");
        Err(match printed.api_error_status {
            Some(413) => BackendError::TooLarge(message()),
            Some(400) if is_full => BackendError::TooLarge(message()),
            // A login that has ended, or a model that the subscription lacks, is what a person can fix.
            Some(401..=404 | 408 | 429 | 500..=599) => {
                BackendError::Busy { message: message(), retry_after: None }
            }
            Some(_) => BackendError::Permanent(message()),
            None if is_full => BackendError::TooLarge(message()),
            None if is_cut => cut_off(),
            // The model answered, but not in the form that is asked for: the client gives up after five requests of its own.
            None if !matches!(cost, Cost::Free) => BackendError::GaveUp(message()),
            // A failure of the network.
            None => BackendError::Busy { message: message(), retry_after: None },
        })
    } else {
        match (printed.stop_reason.as_deref(), printed.structured_output) {
            (Some("refusal"), _) => Err(BackendError::Refused),
            _ if is_cut => Err(cut_off()),
            (_, Some(value)) => Ok(value),
            (_, None) => Err(BackendError::Malformed("it returned no structured output".to_owned())),
        }
    };
    BackendAnswer { cost, result }
}

/// The folder in which the client runs, below the state folder.
pub fn working_folder(state: &Path) -> PathBuf {
    state.join("claude")
}

#[cfg(test)]
mod tests;
