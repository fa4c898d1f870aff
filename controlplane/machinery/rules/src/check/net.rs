//! Addresses, host names and paths.

use std::net::IpAddr;

use minato_meta::FieldErrors;

use super::{Path, Report as _};

/// An IP address.
pub(crate) fn ip(errors: &mut FieldErrors, at: &Path<'_>, text: &str) -> Option<IpAddr> {
    let parsed = text.parse().ok();
    if parsed.is_none() {
        errors.invalid(
            at,
            text,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        );
    }
    parsed
}

/// An IP address that a packet can be sent to from elsewhere.
pub(crate) fn non_special_ip(errors: &mut FieldErrors, at: &Path<'_>, text: &str) {
    let Some(address) = ip(errors, at, text) else { return };
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments().first().is_some_and(|s| s & 0xffc0 == 0xfe80),
    };
    let link_local_multicast = match address {
        IpAddr::V4(v4) => matches!(v4.octets(), [224, 0, 0, _]),
        IpAddr::V6(v6) => v6.segments().first().is_some_and(|s| s & 0xff0f == 0xff02),
    };
    let why = if address.is_unspecified() {
        "may not be unspecified (0.0.0.0 or ::)"
    } else if address.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    } else if link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    } else if link_local_multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    } else {
        return;
    };
    errors.invalid(at, text, why);
}

/// A network such as `10.0.0.0/8`.
pub(crate) fn cidr(errors: &mut FieldErrors, at: &Path<'_>, text: &str) -> Option<(IpAddr, u8)> {
    let parsed = parse_cidr(text);
    if parsed.is_none() {
        errors.invalid(
            at,
            text,
            "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        );
    }
    parsed
}

/// Address and prefix length of a network.
pub(crate) fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    if !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
    let most = if address.is_ipv4() { 32 } else { 128 };
    (length <= most).then_some((address, length))
}

/// A path that begins with `/`.
pub(crate) fn absolute_path(errors: &mut FieldErrors, at: &Path<'_>, text: &str) {
    if !text.starts_with('/') {
        errors.invalid(at, text, "must be an absolute path");
    }
}

/// A path that stays below where it begins.
pub(crate) fn relative_path(errors: &mut FieldErrors, at: &Path<'_>, text: &str) {
    if text.starts_with('/') {
        errors.invalid(at, text, "must be a relative path");
    }
    no_backsteps(errors, at, text);
}

/// A path without `..`.
pub(crate) fn no_backsteps(errors: &mut FieldErrors, at: &Path<'_>, text: &str) {
    if text.split('/').any(|part| part == "..") {
        errors.invalid(at, text, "must not contain '..'");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses() {
        for (text, fine) in [
            ("192.0.2.1", true),
            ("2001:db8::1", true),
            ("127.0.0.1", false),
            ("0.0.0.0", false),
            ("169.254.1.1", false),
            ("fe80::1", false),
            ("224.0.0.5", false),
            ("x", false),
        ] {
            let mut errors = FieldErrors::default();
            non_special_ip(&mut errors, &Path::Root, text);
            assert_eq!(errors.is_empty(), fine, "{text}");
        }
    }

    #[test]
    fn networks() {
        assert_eq!(parse_cidr("10.0.0.0/8").map(|c| c.1), Some(8));
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "::/129", "a/1"] {
            assert!(parse_cidr(bad).is_none(), "{bad}");
        }
    }
}
