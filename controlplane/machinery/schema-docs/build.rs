//! Collects the doc comments of the `k8s-openapi` crate, which are the descriptions of the API, into compressed blobs.
//!
//! The descriptions are upstream's words, so they are not kept in this repository; they are where the types are. Reading
//! the sources costs well under a second, against minutes for compiling that crate with its schema feature.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a build script reports by failing, and its message is what the developer sees"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Folder of the minor in the sources of the crate; the same minor as the feature in the workspace.
const MINOR: &str = "v1_36";
/// Between a definition's name, its fields and their texts; none of them holds control characters.
const UNIT: char = '\u{1f}';
const RECORD: char = '\u{1e}';

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let sources = k8s_openapi_sources().join("src").join(MINOR);
    println!("cargo::rerun-if-changed={}", sources.display());
    let mut packages: BTreeMap<String, String> = BTreeMap::new();
    visit(&sources, &mut packages);
    assert!(packages.len() > 20, "no definitions found in {}", sources.display());

    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap());
    let mut index = String::from("pub(crate) static PACKAGES: &[(&str, &[u8])] = &[\n");
    for (number, (package, text)) in packages.iter().enumerate() {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text.as_bytes()).unwrap();
        let file = out.join(format!("{number}.deflate"));
        fs::write(&file, encoder.finish().unwrap()).unwrap();
        index.push_str(&format!("    ({package:?}, include_bytes!({file:?})),\n"));
    }
    index.push_str("];\n");
    fs::write(out.join("packages.rs"), index).unwrap();
}

/// Where cargo keeps the sources of the crate that the workspace depends on.
fn k8s_openapi_sources() -> PathBuf {
    let manifest = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("Cargo.toml");
    // Of this platform only: what other platforms need was never downloaded.
    let output = Command::new(std::env::var("CARGO").unwrap())
        .args(["metadata", "--format-version=1", "--offline", "--filter-platform"])
        .arg(std::env::var("TARGET").unwrap())
        .arg("--manifest-path")
        .arg(&manifest)
        .output()
        .expect("cargo metadata runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("cargo metadata: {e}: {}", String::from_utf8_lossy(&output.stderr)));
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages
        .iter()
        .find(|p| p["name"] == "k8s-openapi")
        .expect("k8s-openapi is in the workspace");
    Path::new(package["manifest_path"].as_str().unwrap())
        .parent()
        .unwrap()
        .to_owned()
}

fn visit(folder: &Path, packages: &mut BTreeMap<String, String>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            visit(&path, packages);
        } else if let Some((definition, record)) = read(&fs::read_to_string(&path).unwrap()) {
            // The generic list has a name without a package; its fields are described nowhere else either.
            if let Some((package, _)) = definition.rsplit_once('.') {
                packages.entry(package.to_owned()).or_default().push_str(&record);
            }
        }
    }
}

/// The definition of a source file, and its record: name, description, then pairs of field and description.
fn read(source: &str) -> Option<(String, String)> {
    let definition = source.lines().next()?.strip_prefix("// Generated from definition ")?;
    let definition = definition.strip_prefix("io.k8s.")?.trim().to_owned();
    // `"minReadySeconds" => Field::Key_min_ready_seconds,` ties the names of Rust to those of JSON.
    let names: BTreeMap<&str, &str> = source
        .lines()
        .filter_map(|line| {
            let (json, rust) = line.trim().split_once("\" => Field::Key_")?;
            Some((rust.trim_end_matches(','), json.trim_start_matches('"')))
        })
        .collect();
    let mut record = definition.clone();
    let mut comment: Vec<&str> = Vec::new();
    let mut described = false;
    for line in source.lines() {
        let trimmed = line.trim();
        if let Some(text) = trimmed.strip_prefix("///") {
            comment.push(text.strip_prefix(' ').unwrap_or(text));
        } else if !described && trimmed.starts_with("pub ") {
            record.push(UNIT);
            record.push_str(&comment.join("\n"));
            comment.clear();
            described = true;
            if !trimmed.ends_with('{') {
                break;
            }
        } else if let Some(field) = line.strip_prefix("    pub ") {
            let field = field.split(':').next()?.trim();
            // Rust keywords take a trailing underscore, in the field and in the key alike.
            if let Some(name) = names.get(field.trim_start_matches("r#")) {
                record.push(UNIT);
                record.push_str(name);
                record.push(UNIT);
                record.push_str(&comment.join("\n"));
            }
            comment.clear();
        } else if described && trimmed == "}" {
            break;
        } else if !trimmed.starts_with("#[") {
            comment.clear();
        }
    }
    record.push(RECORD);
    described.then_some((definition, record))
}
