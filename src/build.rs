//! How the programs are linked, on Linux with glibc: so that a process that lives four milliseconds does not spend a
//! tenth of them in the dynamic loader (`docs/decisions/0011-programs-that-start-fast.md`). Other platforms, and
//! machines without the static unwinder, link as ever.

use std::env::var;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    let target = |key: &str| var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    let is_cross_build = var("TARGET").ok() != var("HOST").ok();
    if target("OS") != "linux" || target("ENV") != "gnu" || is_cross_build {
        return;
    }
    // At a fixed address nothing in the program has to be relocated: ten thousand pointers otherwise, in forty pages.
    println!("cargo::rustc-link-arg-bins=-no-pie");
    // The unwinder is the only reason to load libgcc_s.so.
    let linker = var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
    let found = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output().ok();
    let found = found.and_then(|found| String::from_utf8(found.stdout).ok()).unwrap_or_default();
    // A library that it does not find it prints as it was asked for, without a folder.
    if Path::new(found.trim()).is_absolute() {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
