//! `nugget runtime`: shows what runs the embedding model, and installs the ONNX Runtime for a model of the user's own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use brain::paths;
use embed::{Embedder, Runtime, Settings};
use serde_json::json;

use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::{output, settings};

/// The version to download. The digests are those that the registries publish for these files.
const VERSION: &str = "1.30.0";
const NPM_INTEGRITY: &str =
    "sha512-twhs1C2C/BFkz1yc5OY0KIU2GUq6DURO7hD4bx5Q2Qy3nAMJwRXW8xU3NVczE29VA9lolLOYepoD8fjTGOfIqw==";
const BUILDS: &[Build] = &[
    Build {
        machine: ("linux", "x86_64"),
        wheel_platform: "manylinux_2_28_x86_64",
        wheel_sha256: "fa688e7891a6aa206636fe7372e27ee75fd17713289f6b4fc7b190e0a7de9328",
        npm_path: "package/bin/napi-v6/linux/x64/libonnxruntime.so.1",
        file: "libonnxruntime.so.1.30.0",
    },
    Build {
        machine: ("linux", "aarch64"),
        wheel_platform: "manylinux_2_28_aarch64",
        wheel_sha256: "6c32a000d5139a38ba9349030b0032e3331acb559d596b22738d9d2b343a2b83",
        npm_path: "package/bin/napi-v6/linux/arm64/libonnxruntime.so.1",
        file: "libonnxruntime.so.1.30.0",
    },
    Build {
        machine: ("macos", "aarch64"),
        wheel_platform: "macosx_14_0_arm64",
        wheel_sha256: "001ed726c9bd5e2bc92faade7d37d889e9606a350b7d5529f0227df2e3bb57fd",
        npm_path: "package/bin/napi-v6/darwin/arm64/libonnxruntime.1.30.0.dylib",
        file: "libonnxruntime.1.30.0.dylib",
    },
];

struct Build {
    /// Operating system and architecture, as Rust names them.
    machine: (&'static str, &'static str),
    wheel_platform: &'static str,
    wheel_sha256: &'static str,
    npm_path: &'static str,
    /// The name under which nugget looks for it.
    file: &'static str,
}

const AFTER: &str = "\
The built-in model needs no runtime. A model of your own (`embed.model`) needs
the ONNX Runtime library. It is searched for at `embed.runtime_library`, at
ORT_DYLIB_PATH, beside the executable, and where `install` puts it.

Examples:
  nugget runtime
  nugget runtime install --dry-run
  nugget runtime install --via npm";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct RuntimeArgs {
    #[command(subcommand)]
    command: Option<Action>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Download the ONNX Runtime library with your pip or npm, and check its digest
    Install {
        /// The program to use [default: pip, or npm if there is no pip]
        #[arg(long)]
        via: Option<Via>,
        /// Print what would be done; change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Via {
    Pip,
    Npm,
}

impl RuntimeArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let config = context.config()?;
        let settings = settings::embedding(&config);
        match self.command {
            None => show(&settings, self.json)?,
            Some(Action::Install { via, dry_run }) => install(via, dry_run, self.json)?,
        }
        Ok(())
    }
}

fn show(settings: &Settings, as_json: bool) -> Result<(), CliError> {
    let (runtime, passed_over) = embed::find_runtime(settings);
    let is_measured = !matches!(runtime, Runtime::Provider { .. } | Runtime::Missing);
    let times = if is_measured { Some(measure(settings)?) } else { None };
    let model = embed::model_name(settings);
    if as_json {
        let milliseconds = |time: Duration| (time.as_secs_f64() * 10_000.0).round() / 10.0;
        return output::print_json(&json!({
            "runtime": runtime.to_string(),
            "model": model,
            "load_ms": times.map(|(load, _)| milliseconds(load)),
            "question_ms": times.map(|(_, question)| milliseconds(question)),
            "passed_over": passed_over,
        }));
    }
    let mut text =
        format!("runtime  {}\nmodel    {}", output::safe(&runtime.to_string()), output::safe(&model));
    if let Some((load, question)) = times {
        text.push_str(&format!(
            ", loaded in {} ms, then {} ms for a question",
            load.as_millis(),
            question.as_millis()
        ));
    }
    text.push('\n');
    for reason in &passed_over {
        text.push_str(&format!("skipped {}\n", output::safe(reason)));
    }
    if runtime == Runtime::Missing {
        text.push_str("hint: `nugget runtime install` installs it\n");
    }
    output::print(&text)
}

/// How long it takes to load the model, and to embed a question after the first one.
fn measure(settings: &Settings) -> Result<(Duration, Duration), CliError> {
    const QUESTION: &str = "how do we keep workers from piling up when the queue grows?";
    let started = Instant::now();
    let embedder = Embedder::load(settings)?;
    let load = started.elapsed();
    embedder.embed_query(QUESTION)?;
    let started = Instant::now();
    embedder.embed_query(QUESTION)?;
    Ok((load, started.elapsed()))
}

fn install(via: Option<Via>, dry_run: bool, as_json: bool) -> Result<(), CliError> {
    let machine = (std::env::consts::OS, std::env::consts::ARCH);
    let Some(build) = BUILDS.iter().find(|build| build.machine == machine) else {
        return Err(CliError::new(format!("there is no library for {} on {}", machine.0, machine.1))
            .hint("the built-in runtime is used; to use your own library set `embed.runtime_library`"));
    };
    let folder = paths::runtime_folder();
    let place = folder.join(build.file);
    let via = match via {
        Some(via) => via,
        None if pip().is_some() => Via::Pip,
        None => Via::Npm,
    };
    if dry_run {
        let (what, digest) = match via {
            Via::Pip => (
                format!("onnxruntime {VERSION} ({}) by pip", build.wheel_platform),
                format!("sha256:{}", build.wheel_sha256),
            ),
            Via::Npm => (format!("onnxruntime-node {VERSION} by npm"), NPM_INTEGRITY.to_owned()),
        };
        if as_json {
            return output::print_json(&json!({
                "dry_run": true, "changed": false, "version": VERSION, "download": what, "digest": digest,
                "library": place,
            }));
        }
        return output::print(&format!(
            "would download {what}\nwith digest    {digest}\nto             {}\n",
            place.display()
        ));
    }
    let installed = |is_changed: bool| json!({ "dry_run": false, "changed": is_changed, "version": VERSION, "library": place });
    if embed::probe(&place).is_some() {
        if as_json {
            return output::print_json(&installed(false));
        }
        output::print(&format!("ONNX Runtime {VERSION} is already installed: {}\n", place.display()))?;
        return Ok(());
    }
    paths::create_private_folder(&folder)?;
    // In the same folder, so that the last step is a rename. It is removed in any case.
    let scratch = tempfile::Builder::new().prefix(".fetch-").tempdir_in(&folder)?;
    let spinner = output::spinner(format!("downloading ONNX Runtime {VERSION}"));
    let downloaded = match via {
        Via::Pip => download_with_pip(build, scratch.path()),
        Via::Npm => download_with_npm(build, scratch.path()),
    };
    spinner.finish_and_clear();
    let library = downloaded?;
    if embed::probe(&library).is_none() {
        return Err(CliError::new(format!(
            "the downloaded file is not an ONNX Runtime library: {}",
            file_name(&library)
        ))
        .hint("nothing was installed; the built-in runtime is used"));
    }
    fs::set_permissions(&library, system::file::permissions(0o700))?;
    File::open(&library)?.sync_all()?;
    fs::rename(&library, &place)?;
    File::open(&folder)?.sync_all()?;
    let settings = Settings { runtime_library: Some(place.clone()), ..Settings::default() };
    match measure(&settings) {
        Ok(_) if as_json => output::print_json(&installed(true)),
        Ok((load, question)) => output::print(&format!(
            "installed ONNX Runtime {VERSION}: {}\nthe model loads in {} ms, then {} ms for a question\n",
            place.display(),
            load.as_millis(),
            question.as_millis()
        )),
        Err(error) => {
            fs::remove_file(&place)?;
            Err(error.hint("the library does not work here and was removed; the built-in runtime is used"))
        }
    }
}

/// Downloads with pip, which rejects a file with another digest.
fn download_with_pip(build: &Build, scratch: &Path) -> Result<PathBuf, CliError> {
    let Some(mut command) = pip() else {
        return Err(CliError::new("pip was not found")
            .code(USAGE)
            .hint("install pip, try --via npm, or set `embed.runtime_library` to your own library"));
    };
    let (requirements, target) = (scratch.join("requirements.txt"), scratch.join("wheel"));
    fs::write(&requirements, format!("onnxruntime=={VERSION} --hash=sha256:{}\n", build.wheel_sha256))?;
    // The same wheel for every Python version: only the library in it is used.
    command
        .args(["install", "--quiet", "--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes"])
        .args(["--python-version", "3.12", "--implementation", "cp", "--abi", "cp312"])
        .args(["--platform", build.wheel_platform, "--target"])
        .arg(&target)
        .arg("--requirement")
        .arg(&requirements);
    check_status(command.output()?, "pip", "npm")?;
    Ok(target.join("onnxruntime/capi").join(build.file))
}

/// Downloads with npm, which prints the digest; it must be the known one.
fn download_with_npm(build: &Build, scratch: &Path) -> Result<PathBuf, CliError> {
    let mut command = without_secrets("npm");
    command
        .args(["pack", "--json", "--ignore-scripts", "--pack-destination"])
        .arg(scratch)
        .arg(format!("onnxruntime-node@{VERSION}"));
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(CliError::new("npm was not found")
                .code(USAGE)
                .hint("install npm, try --via pip, or set `embed.runtime_library` to your own library"));
        }
        output => check_status(output?, "npm", "pip")?,
    };
    let packed: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let text = |name: &str| packed[0][name].as_str().unwrap_or_default().to_owned();
    if text("integrity") != NPM_INTEGRITY {
        return Err(CliError::new("the file that npm downloaded does not have the published digest")
            .hint("nothing was installed; try --via pip"));
    }
    let archive = scratch.join(file_name(Path::new(&text("filename"))));
    let mut command = without_secrets("tar");
    command.arg("-xzf").arg(archive).arg("-C").arg(scratch).arg(build.npm_path);
    check_status(command.output()?, "tar", "pip")?;
    Ok(scratch.join(build.npm_path))
}

/// The command for pip, if there is one.
fn pip() -> Option<Command> {
    [("python3", &["-m", "pip"][..]), ("pip3", &[]), ("pip", &[])].into_iter().find_map(
        |(program, before)| {
            let mut command = without_secrets(program);
            command.args(before);
            let mut probe = without_secrets(program);
            probe.args(before).arg("--version");
            probe.output().is_ok_and(|output| output.status.success()).then_some(command)
        },
    )
}

/// A command without API keys and tokens in its environment.
fn without_secrets(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let tokens = ["GITHUB_TOKEN", "GH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN"];
        if text.ends_with("_API_KEY") || tokens.contains(&&*text) {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    command
}

fn check_status(output: Output, program: &str, other: &str) -> Result<Output, CliError> {
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line = stderr.lines().rfind(|line| line.to_lowercase().contains("err"));
    let line = line.or(stderr.lines().next_back()).unwrap_or("no message");
    Err(CliError::new(format!("{program} failed to download ONNX Runtime {VERSION}: {}", output::safe(line)))
        .hint(format!(
            "nothing was installed; try --via {other}, or set `embed.runtime_library` to your own library"
        )))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
