//! `nugget runtime`, with stand-ins for the user's pip and npm, because tests query no registry.

use std::path::PathBuf;
use std::process::Output;

use crate::support::{Sandbox, write_script};

/// Creates a folder with stand-in programs and the real `sh` and `tar`.
fn install_stand_ins(sandbox: &Sandbox, scripts: &[(&str, &str)]) -> PathBuf {
    let folder = sandbox.path().join("programs");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, script) in scripts {
        write_script(&folder.join(name), script);
    }
    folder
}

fn run(sandbox: &Sandbox, scripts: &[(&str, &str)], arguments: &[&str]) -> (Output, String) {
    let folder = install_stand_ins(sandbox, scripts);
    let output = sandbox
        .command()
        .args(arguments)
        // The real tools that the stand-ins need come after them on the PATH.
        .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
        .env("XDG_DATA_HOME", sandbox.path().join("data"))
        .env("OPENAI_API_KEY", "canary-key-of-another")
        .output()
        .unwrap();
    let printed =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, printed)
}

/// Counts what is left of an attempt, hidden files included.
fn installed_files(sandbox: &Sandbox) -> usize {
    std::fs::read_dir(sandbox.path().join("data/nugget/runtime")).map_or(0, Iterator::count)
}

const NO_PIP: &[(&str, &str)] = &[("python3", "exit 1"), ("pip3", "exit 1"), ("pip", "exit 1")];

#[test]
fn runtime_reports_what_runs_the_model() {
    let sandbox = Sandbox::new();
    let printed = sandbox.json(["runtime", "--json"]);
    assert!(printed["runtime"].is_string() && printed["load_ms"].as_f64().unwrap() > 0.0, "{printed}");
    let mut command = sandbox.command();
    command.args(["runtime"]).env("NUGGET_EMBED_MODEL", "/nonexistent/model.onnx");
    command.env("ORT_DYLIB_PATH", "/nonexistent/libonnxruntime.so");
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(text.contains("no ONNX Runtime library") && text.contains("nugget runtime install"), "{text}");
    assert!(text.contains("skipped /nonexistent/libonnxruntime.so: not an ONNX Runtime library"), "{text}");
}

#[test]
fn a_dry_run_names_what_would_be_fetched_and_fetches_nothing() {
    let sandbox = Sandbox::new();
    for (via, digest) in [("pip", "sha256:"), ("npm", "sha512-")] {
        let (output, printed) = run(&sandbox, &[], &["runtime", "install", "--via", via, "--dry-run"]);
        assert!(
            output.status.success() && printed.contains(digest) && printed.contains("onnxruntime"),
            "{printed}"
        );
        assert!(!sandbox.path().join("data").exists());
    }
}

#[test]
fn without_pip_and_npm_the_error_says_what_to_do() {
    let sandbox = Sandbox::new();
    let (output, printed) = run(&sandbox, NO_PIP, &["runtime", "install", "--via", "pip"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(printed.contains("pip was not found") && printed.contains("hint: "), "{printed}");
    assert_eq!(installed_files(&sandbox), 0);
}

#[test]
fn a_failed_or_wrong_download_is_not_installed() {
    let refusing = "case \"$*\" in *--version*) exit 0;; esac
echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.' >&2; exit 1";
    // Checks its arguments and delivers a text file under the right name.
    let delivering = r#"case "$*" in *--version*) exit 0;; esac
[ -z "$OPENAI_API_KEY" ] || exit 9
case "$*" in *--require-hashes*--only-binary=:all:*|*--only-binary=:all:*--require-hashes*) ;; *) exit 8;; esac
while [ $# -gt 0 ]; do case "$1" in --target) target=$2;; --requirement) list=$2;; esac; shift; done
grep -q -- '^onnxruntime==[0-9.]* --hash=sha256:[0-9a-f]\{64\}$' "$list" || exit 7
mkdir -p "$target/onnxruntime/capi"
for name in libonnxruntime.so.1.30.0 libonnxruntime.1.30.0.dylib; do echo text > "$target/onnxruntime/capi/$name"; done"#;
    let tampered = r#"echo '[{"integrity": "sha512-other", "filename": "x.tgz"}]'"#;
    for (scripts, via, why) in [
        (&[("python3", refusing)][..], "pip", "DO NOT MATCH THE HASHES"),
        (&[("python3", delivering)], "pip", "not an ONNX Runtime library"),
        (&[("npm", tampered)], "npm", "published digest"),
        (&[("npm", "echo 'npm error code ENOTFOUND' >&2; exit 1")], "npm", "ENOTFOUND"),
    ] {
        let sandbox = Sandbox::new();
        let (output, printed) = run(&sandbox, scripts, &["runtime", "install", "--via", via]);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains(why) && printed.contains("hint: nothing was installed"), "{printed}");
        assert_eq!(installed_files(&sandbox), 0, "{printed}");
    }
}
