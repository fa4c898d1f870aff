//! Container images made without a registry, as OCI archives that `ctr images import` takes: what sandboxes run, and
//! Debian's static busybox for demonstrations and tests.
//!
//! May depend on: tar, sha2. Nothing of ours.
//! Source: <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

/// Name of the image that [`busybox`] makes.
pub const BUSYBOX: &str = "minato.dev/busybox:1";
/// Name of the image that [`pause`] makes.
pub const PAUSE: &str = "minato.dev/pause:1";

/// The sandbox's first process: reaps what is handed to it and ends on TERM.
const PAUSE_SOURCE: &str = r#"
use std::os::raw::c_int;
unsafe extern "C" {
    fn signal(number: c_int, handler: usize) -> usize;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn pause() -> c_int;
    fn _exit(code: c_int) -> !;
}
extern "C" fn end(_: c_int) { unsafe { _exit(0) } }
extern "C" fn reap(_: c_int) { unsafe { while waitpid(-1, std::ptr::null_mut(), 1) > 0 {} } }
fn main() {
    unsafe {
        signal(2, end as *const () as usize);
        signal(15, end as *const () as usize);
        signal(17, reap as *const () as usize);
        loop { pause(); }
    }
}
"#;

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

enum Kind<'a> {
    File(&'a [u8]),
    Directory,
    Link(&'a str),
}

/// A tar archive under construction: the same entries give the same bytes.
struct Archive(tar::Builder<Vec<u8>>);

impl Archive {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn add(&mut self, name: &str, mode: u32, kind: &Kind<'_>) -> Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_mode(mode);
        header.set_mtime(0);
        let (entry_type, content): (_, &[u8]) = match kind {
            Kind::File(content) => (tar::EntryType::Regular, content),
            Kind::Directory => (tar::EntryType::Directory, &[]),
            Kind::Link(target) => {
                header.set_link_name(target)?;
                (tar::EntryType::Symlink, &[])
            }
        };
        header.set_entry_type(entry_type);
        header.set_size(u64::try_from(content.len())?);
        Ok(self.0.append_data(&mut header, name, content)?)
    }

    fn finish(self) -> Result<Vec<u8>> {
        Ok(self.0.into_inner()?)
    }
}

/// An OCI archive with one image of one layer. `config` is the image configuration's `config` object.
fn archive(name: &str, layer: &[u8], config: &serde_json::Value) -> Result<Vec<u8>> {
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "history": [{"created_by": "minato"}],
    })
    .to_string()
    .into_bytes();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(&config), "size": config.len()},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest(layer), "size": layer.len()}],
    })
    .to_string()
    .into_bytes();
    let index = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(&manifest), "size": manifest.len(),
            "annotations": {"io.containerd.image.name": name},
            "platform": {"architecture": "amd64", "os": "linux"},
        }],
    })
    .to_string();
    let mut tar = Archive::new();
    tar.add("oci-layout", 0o644, &Kind::File(br#"{"imageLayoutVersion":"1.0.0"}"#))?;
    tar.add("index.json", 0o644, &Kind::File(index.as_bytes()))?;
    tar.add("blobs/", 0o755, &Kind::Directory)?;
    tar.add("blobs/sha256/", 0o755, &Kind::Directory)?;
    for blob in [config.as_slice(), manifest.as_slice(), layer] {
        let path = digest(blob).replace(':', "/");
        tar.add(&format!("blobs/{path}"), 0o644, &Kind::File(blob))?;
    }
    tar.finish()
}

/// An image of Debian's static busybox with all its applets and an empty `/www`; its command is a shell.
///
/// # Errors
/// busybox-static is not installed.
pub fn busybox(name: &str) -> Result<Vec<u8>> {
    let program = Path::new("/bin/busybox");
    let bytes = std::fs::read(program).context("reading /bin/busybox (package busybox-static)")?;
    let output = Command::new(program)
        .arg("--list")
        .output()
        .context("running busybox")?;
    ensure!(output.status.success(), "busybox --list failed");
    let mut layer = Archive::new();
    for directory in [
        "bin/", "etc/", "home/", "proc/", "root/", "sys/", "usr/", "usr/bin/", "var/", "www/",
    ] {
        layer.add(directory, 0o755, &Kind::Directory)?;
    }
    layer.add("tmp/", 0o1777, &Kind::Directory)?;
    layer.add("bin/busybox", 0o755, &Kind::File(&bytes))?;
    for applet in String::from_utf8(output.stdout)?
        .lines()
        .filter(|applet| *applet != "busybox")
    {
        layer.add(&format!("bin/{applet}"), 0o777, &Kind::Link("busybox"))?;
    }
    let passwd = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n";
    layer.add("etc/passwd", 0o644, &Kind::File(passwd))?;
    layer.add("etc/group", 0o644, &Kind::File(b"root:x:0:\nnogroup:x:65534:\n"))?;
    let config = json!({"Cmd": ["sh"], "Env": ["PATH=/bin:/usr/bin"], "WorkingDir": "/"});
    archive(name, &layer.finish()?, &config)
}

/// The sandbox image: one small static program, compiled on first use and kept in `cache`.
///
/// # Errors
/// rustc or the C library's static archive is missing.
pub fn pause(name: &str, cache: &Path) -> Result<Vec<u8>> {
    let program = pause_program(cache)?;
    let bytes = std::fs::read(&program).with_context(|| format!("reading {}", program.display()))?;
    let mut layer = Archive::new();
    layer.add("pause", 0o755, &Kind::File(&bytes))?;
    archive(
        name,
        &layer.finish()?,
        &json!({"Entrypoint": ["/pause"], "WorkingDir": "/"}),
    )
}

fn pause_program(cache: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(cache)?;
    let name = digest(PAUSE_SOURCE.as_bytes()).replace(':', "-");
    let program = cache.join(format!("pause-{}", &name[..20]));
    if program.exists() {
        return Ok(program);
    }
    let directory = tempfile::tempdir_in(cache)?;
    let source = directory.path().join("pause.rs");
    std::fs::write(&source, PAUSE_SOURCE)?;
    let built = directory.path().join("pause");
    let output = Command::new("rustc")
        .args([
            "--edition=2024",
            "-O",
            "-C",
            "target-feature=+crt-static",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
            "-o",
        ])
        .args([&built, &source])
        .output()
        .context("running rustc")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "compiling pause failed: {text}");
    std::fs::rename(built, &program)?;
    Ok(program)
}
