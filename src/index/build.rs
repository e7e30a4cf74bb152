//! Links the C++ library that usearch needs statically, where it is there. Loading the shared one takes half of a millisecond of
//! every hook, a fifth of its time.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_gnu = std::env::var("TARGET").is_ok_and(|target| target.ends_with("linux-gnu"));
    let is_native = std::env::var_os("TARGET") == std::env::var_os("HOST");
    if !is_gnu || !is_native {
        return;
    }
    // A compiler that does not have it prints the name as it is.
    let found = Command::new("cc").arg("-print-file-name=libstdc++.a").output();
    let path = found.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let folder = path.as_deref().and_then(|path| Path::new(path.trim()).parent());
    if let Some(folder) = folder.filter(|folder| folder.is_absolute()) {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static:-bundle=stdc++");
    }
}
