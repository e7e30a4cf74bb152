//! What computes vectors, and the search for the ONNX Runtime library that a model of the user's own needs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ort::environment::Environment;

use crate::error::Error;
use crate::settings::{ModelChoice, Provider, RemoteModel, Settings};

/// What computes the vectors in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// The library of ONNX Runtime 1.`minor`.
    OnnxRuntime {
        /// The minor version.
        minor: u32,
        /// The library's file.
        library: PathBuf,
    },
    /// The forward pass of the built-in model, always available.
    BuiltIn,
    /// Nothing: the user's own model needs the ONNX Runtime library, and there is none.
    Missing,
    /// No runtime in this process: a provider computes the vectors.
    Provider {
        /// The protocol.
        provider: Provider,
        /// The base address.
        url: String,
    },
    /// There is no model: vectors have a text's words alone.
    Off,
}

impl Runtime {
    pub(crate) fn for_provider(model: &RemoteModel) -> Self {
        Self::Provider { provider: model.provider, url: model.url.clone() }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnnxRuntime { minor, library } => {
                write!(f, "ONNX Runtime 1.{minor} ({})", library.display())
            }
            Self::BuiltIn => f.write_str("built in"),
            Self::Missing => f.write_str("no ONNX Runtime library"),
            Self::Provider { provider, url } => write!(f, "{provider} at {url}"),
            Self::Off => f.write_str("no model, words alone"),
        }
    }
}

/// The runtime of the process. The environment is kept here because ort makes only one, and it must outlive every
/// session.
pub(crate) struct Backend {
    pub(crate) environment: Environment,
    pub(crate) runtime: Runtime,
}

static BACKEND: OnceLock<Result<Backend, String>> = OnceLock::new();

/// The backend of the process, which the first call chooses.
pub(crate) fn backend(settings: &Settings) -> Result<&'static Backend, Error> {
    if find(settings).0 == Runtime::Missing {
        return Err(Error::NoLibrary);
    }
    BACKEND.get_or_init(|| choose(settings)).as_ref().map_err(|what| Error::Runtime(what.clone()))
}

/// The runtime that these settings choose, and the ONNX Runtime libraries that were skipped, each with the reason.
/// Nothing is started.
pub fn find_runtime(settings: &Settings) -> (Runtime, Vec<String>) {
    match &settings.model {
        ModelChoice::BuiltIn => (Runtime::BuiltIn, Vec::new()),
        ModelChoice::Off => (Runtime::Off, Vec::new()),
        ModelChoice::Remote(remote) => (Runtime::for_provider(remote), Vec::new()),
        ModelChoice::Onnx(_) => find(settings),
    }
}

/// The runtime that [`backend`] would choose, without starting it, and the libraries that it would skip.
fn find(settings: &Settings) -> (Runtime, Vec<String>) {
    let mut skipped = Vec::new();
    for candidate in candidates(settings) {
        // After a failed `init_from` ort treats the next call as done and works on memory that was never initialised.
        // So each library is probed, and `init_from` is called once, for the one that is usable.
        match usable_version(&candidate) {
            Ok(minor) => return (Runtime::OnnxRuntime { minor, library: candidate }, skipped),
            Err(why) => skipped.push(format!("{}: {why}", candidate.display())),
        }
    }
    (Runtime::Missing, skipped)
}

/// The minor version of the ONNX Runtime library at this path, if it is usable.
pub fn probe(library: &Path) -> Option<u32> {
    usable_version(library).ok()
}

/// The minor version of a usable library, or why it is not usable.
fn usable_version(library: &Path) -> Result<u32, String> {
    match ort::util::probe(library) {
        Some(minor) if minor >= ort::MINOR_VERSION => Ok(minor),
        Some(minor) => Err(format!("ONNX Runtime 1.{minor}, at least 1.{} is needed", ort::MINOR_VERSION)),
        None => Err("not an ONNX Runtime library".to_owned()),
    }
}

fn choose(settings: &Settings) -> Result<Backend, String> {
    let (runtime, skipped) = find(settings);
    for reason in &skipped {
        tracing::warn!(reason, "skipped a runtime library");
    }
    let Runtime::OnnxRuntime { library, .. } = &runtime else {
        return Err("there is no ONNX Runtime library".to_owned());
    };
    let builder = ort::init_from(library).map_err(|e| format!("{}: {e}", library.display()))?;
    let environment = builder.build().map_err(|e| e.to_string())?;
    tracing::debug!(%runtime, "chose the model runtime");
    Ok(Backend { environment, runtime })
}

/// The places of a library in order of precedence: the settings, the environment, beside the executable, the folder of
/// downloaded libraries.
fn candidates(settings: &Settings) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let environment = std::env::var_os("ORT_DYLIB_PATH").filter(|path| !path.is_empty()).map(PathBuf::from);
    for named in settings.runtime_library.clone().into_iter().chain(environment) {
        match std::path::absolute(&named) {
            Ok(folder) if folder.is_dir() => found.extend(libraries_in(&folder)),
            // A named library that is missing stays in the list, so that this is reported.
            Ok(file) => found.push(file),
            Err(_) => found.push(named),
        }
    }
    if let Ok(executable) = std::env::current_exe()
        && let Some(folder) = executable.parent()
    {
        found.extend(libraries_in(folder));
        found.extend(libraries_in(&folder.join("../lib")));
    }
    found.extend(settings.runtime_folder.iter().flat_map(|folder| libraries_in(folder)));
    found.dedup();
    found
}

/// The ONNX Runtime libraries in a folder, of any version, newest name first.
fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let stem = format!("{}onnxruntime", std::env::consts::DLL_PREFIX);
    let suffix = std::env::consts::DLL_SUFFIX;
    let is_library = |name: &str| match name.strip_prefix(&stem) {
        // `.so`, `.so.1.24.0`, `.1.24.0.dylib`, and not `_providers_shared.so`.
        Some(rest) => rest.starts_with(suffix) || rest.starts_with('.') && rest.ends_with(suffix),
        None => false,
    };
    let mut libraries: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_library))
        .map(|entry| entry.path())
        .collect();
    libraries.sort();
    libraries.reverse();
    libraries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_displayed_with_version_and_path() {
        let library = PathBuf::from("/opt/libonnxruntime.so");
        let shown = Runtime::OnnxRuntime { minor: 24, library }.to_string();
        assert_eq!(shown, "ONNX Runtime 1.24 (/opt/libonnxruntime.so)");
        assert_eq!(Runtime::BuiltIn.to_string(), "built in");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_runtime_libraries_of_a_folder_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["libonnxruntime.so", "libonnxruntime.so.1.24.1", "libonnxruntime_providers_shared.so", "x.so"]
        {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<_> = libraries_in(folder.path())
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["libonnxruntime.so.1.24.1", "libonnxruntime.so"]);
    }
}
