//! The `minato` binary: subcommands and assembly, nothing else.

fn main() {}
