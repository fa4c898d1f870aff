//! Tar archives (ustar) of a few small files, the same bytes every time.

/// What an entry is.
pub(crate) enum Kind<'a> {
    File(&'a [u8]),
    Directory,
    Link(&'a str),
}

/// An archive under construction.
#[derive(Default)]
pub(crate) struct Tar {
    bytes: Vec<u8>,
}

impl Tar {
    pub(crate) fn add(&mut self, name: &str, mode: u32, kind: &Kind<'_>) {
        assert!(name.len() <= 100, "name {name} is too long for ustar");
        let (flag, content, link): (u8, &[u8], &str) = match kind {
            Kind::File(content) => (b'0', content, ""),
            Kind::Directory => (b'5', &[], ""),
            Kind::Link(target) => (b'2', &[], target),
        };
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, format!("{mode:07o}\0").as_bytes());
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, &[flag]);
        put(157, link.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        self.bytes
    }
}
