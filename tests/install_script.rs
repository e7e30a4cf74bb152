//! The install script checks the digest of what it downloads and replaces the program only when it is right.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A folder that holds a release of a program that prints its version.
fn make_release(folder: &Path) {
    let machine = Command::new("uname").arg("-m").output().unwrap();
    let machine = String::from_utf8(machine.stdout).unwrap();
    let script = r#"
        set -eu
        name=nugget-9.9.9-$1-unknown-linux-gnu
        mkdir "$name"
        printf '#!/bin/sh\necho nugget 9.9.9\n' > "$name/nugget"
        printf '#!/bin/sh\n' > "$name/nugget-guard"
        chmod 755 "$name/nugget" "$name/nugget-guard"
        tar czf "$name.tar.gz" "$name"
        sha256sum "$name.tar.gz" > SHA256SUMS
    "#;
    let status = Command::new("sh").args(["-c", script, "sh", machine.trim()]).current_dir(folder).status();
    assert!(status.unwrap().success());
}

fn install(release: &Path, into: &Path) -> Output {
    Command::new("sh")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(".github/install.sh"))
        .env("NUGGET_DOWNLOAD_URL", format!("file://{}", release.display()))
        .env("NUGGET_INSTALL_DIR", into)
        .output()
        .unwrap()
}

#[test]
fn a_release_is_installed_when_its_digest_is_right() {
    let folder = tempfile::tempdir().unwrap();
    make_release(folder.path());
    let into = folder.path().join("bin");
    let output = install(folder.path(), &into);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("installed nugget 9.9.9 as "));
    assert!(into.join("nugget").is_file() && into.join("nugget-guard").is_file());
}

#[test]
fn a_release_without_an_archive_for_this_machine_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let sums = format!("{}  nugget-9.9.9-riscv64gc-unknown-linux-gnu.tar.gz\n", "0".repeat(64));
    fs::write(folder.path().join("SHA256SUMS"), sums).unwrap();
    let output = install(folder.path(), &folder.path().join("bin"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with("error: the release has no archive for "), "{stderr}");
}

#[test]
fn a_changed_archive_is_refused_and_the_old_program_stays() {
    let folder = tempfile::tempdir().unwrap();
    make_release(folder.path());
    let into = folder.path().join("bin");
    fs::create_dir(&into).unwrap();
    fs::write(into.join("nugget"), "old").unwrap();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "gz") {
            let mut bytes = fs::read(&path).unwrap();
            bytes.push(0);
            fs::write(&path, bytes).unwrap();
        }
    }
    let output = install(folder.path(), &into);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing was installed"));
    assert_eq!(fs::read_to_string(into.join("nugget")).unwrap(), "old");
}
