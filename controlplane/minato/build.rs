//! Links the binary so that less of it must be in memory: functions that came out the same are kept once (typed views of
//! objects are generated for each kind, and much of that code is alike), and relocations, all of which are read at the
//! start, are packed.
//!
//! Only where the linker is known to be LLVM's, which is what rustc brings along for this target, and the C library to be
//! new enough: glibc 2.36.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = std::env::var("TARGET").unwrap_or_default();
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if release && target == "x86_64-unknown-linux-gnu" {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all,-z,pack-relative-relocs");
    }
}
