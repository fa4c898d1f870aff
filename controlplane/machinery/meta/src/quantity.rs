//! Resource quantities: exact fixed-point numbers with a suffix, such as `500m`, `1Gi` or `1e3`.
//!
//! Values are whole numbers of billionths, so nothing is lost between parsing and printing: what is finer than a
//! billionth is rounded away from zero, and what is larger than 2^63-1 is cut to it, as the API does.
//! Source: <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

const NANO: i128 = 1_000_000_000;
const MAX: i128 = i64::MAX as i128 * NANO;

/// How a quantity was written, which decides how it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityFormat {
    /// `k`, `M`, `G`, … and `m`, `u`, `n`.
    DecimalSi,
    /// `Ki`, `Mi`, `Gi`, …
    BinarySi,
    /// `e3`.
    DecimalExponent,
}

/// An exact quantity. Compares by value: `1000m` equals `1`.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nano: i128,
    format: QuantityFormat,
}

/// Why text is not a quantity; worded as clients know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number is malformed.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// No such suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    /// Zero, printed `0`.
    pub const ZERO: Self = Self {
        nano: 0,
        format: QuantityFormat::DecimalSi,
    };

    /// A whole number.
    pub fn from_units(units: i64, format: QuantityFormat) -> Self {
        Self {
            nano: i128::from(units) * NANO,
            format,
        }
    }

    /// A number of thousandths, such as milli-CPUs.
    pub fn from_milli(milli: i64, format: QuantityFormat) -> Self {
        Self {
            nano: i128::from(milli) * (NANO / 1000),
            format,
        }
    }

    /// The value in whole units, rounded away from zero, within `i64`.
    pub fn units(&self) -> i64 {
        clamp(div_away(self.nano, NANO))
    }

    /// The value in thousandths, rounded away from zero, within `i64`.
    pub fn milli(&self) -> i64 {
        clamp(div_away(self.nano, NANO / 1000))
    }

    /// The value in billionths.
    pub fn nano(&self) -> i128 {
        self.nano
    }

    /// Whether the value is whole.
    pub fn is_integer(&self) -> bool {
        self.nano % NANO == 0
    }

    /// -1, 0 or 1.
    pub fn signum(&self) -> i32 {
        match self.nano.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// How it was written.
    pub fn format(&self) -> QuantityFormat {
        self.format
    }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

fn div_away(value: i128, by: i128) -> i128 {
    let quotient = value / by;
    if value % by == 0 {
        quotient
    } else {
        quotient + value.signum()
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            None => return Err(QuantityError::Format),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let number_end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(number_end);
        if number.is_empty() || !suffix_is_well_formed(suffix) {
            return Err(QuantityError::Format);
        }
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(QuantityError::Numeric);
        }
        let (scale, mut format) = parse_suffix(suffix)?;
        let magnitude = match scale {
            Scale::Ten(exponent) => decimal(whole, fraction, exponent),
            Scale::Two(power) => binary(whole, fraction, power),
        }
        .min(MAX);
        if format == QuantityFormat::BinarySi && magnitude > 0 && magnitude < NANO {
            format = QuantityFormat::DecimalSi;
        }
        Ok(Self {
            nano: if negative { -magnitude } else { magnitude },
            format,
        })
    }
}

enum Scale {
    Ten(i64),
    Two(u32),
}

/// Letters, then at most a sign, then digits.
fn suffix_is_well_formed(suffix: &str) -> bool {
    let rest = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    rest.bytes().all(|b| b.is_ascii_digit())
}

fn parse_suffix(suffix: &str) -> Result<(Scale, QuantityFormat), QuantityError> {
    use QuantityFormat::{BinarySi, DecimalExponent, DecimalSi};
    Ok(match suffix {
        "n" => (Scale::Ten(-9), DecimalSi),
        "u" => (Scale::Ten(-6), DecimalSi),
        "m" => (Scale::Ten(-3), DecimalSi),
        "" => (Scale::Ten(0), DecimalSi),
        "k" => (Scale::Ten(3), DecimalSi),
        "M" => (Scale::Ten(6), DecimalSi),
        "G" => (Scale::Ten(9), DecimalSi),
        "T" => (Scale::Ten(12), DecimalSi),
        "P" => (Scale::Ten(15), DecimalSi),
        "E" => (Scale::Ten(18), DecimalSi),
        "Ki" => (Scale::Two(10), BinarySi),
        "Mi" => (Scale::Two(20), BinarySi),
        "Gi" => (Scale::Two(30), BinarySi),
        "Ti" => (Scale::Two(40), BinarySi),
        "Pi" => (Scale::Two(50), BinarySi),
        "Ei" => (Scale::Two(60), BinarySi),
        other => {
            let exponent = other.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
            let exponent = exponent.parse::<i64>().map_err(|_| QuantityError::Suffix)?;
            (Scale::Ten(exponent), DecimalExponent)
        }
    })
}

/// Billionths of `whole.fraction * 10^exponent`; more than [`MAX`] when it is larger.
fn decimal(whole: &str, fraction: &str, exponent: i64) -> i128 {
    let digits: String = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let shift = exponent
        .saturating_add(9)
        .saturating_sub(i64::try_from(fraction.len()).unwrap_or(i64::MAX));
    if length.saturating_add(shift) > 37 {
        return i128::MAX;
    }
    if shift >= 0 {
        let power = u32::try_from(shift).unwrap_or(u32::MAX);
        return parse_digits(digits).saturating_mul(10i128.saturating_pow(power));
    }
    let keep = usize::try_from(length.saturating_add(shift).max(0)).unwrap_or(0);
    let (kept, cut) = digits.split_at(keep);
    parse_digits(kept) + i128::from(cut.bytes().any(|b| b != b'0'))
}

/// Billionths of `whole.fraction * 2^power`.
fn binary(whole: &str, fraction: &str, power: u32) -> i128 {
    let unit = 1i128 << power;
    let whole = parse_digits(whole.trim_start_matches('0'))
        .saturating_mul(unit)
        .saturating_mul(NANO);
    // Two groups of eighteen digits keep every product below 2^127; what is cut after them is far below a billionth of
    // the result and only rounds it up.
    let (first, cut) = fraction.split_at(fraction.len().min(18));
    let (second, cut) = cut.split_at(cut.len().min(18));
    let scale = 10i128.pow(u32::try_from(first.len()).unwrap_or(18));
    let second_scale = 10i128.pow(u32::try_from(second.len()).unwrap_or(18));
    let low = parse_digits(second) * unit;
    let product = parse_digits(first) * unit + low / second_scale;
    let rest = product % scale * NANO;
    let inexact = rest % scale != 0 || low % second_scale != 0 || cut.bytes().any(|b| b != b'0');
    whole
        .saturating_add(product / scale * NANO)
        .saturating_add(rest / scale)
        .saturating_add(i128::from(inexact))
}

fn parse_digits(digits: &str) -> i128 {
    if digits.is_empty() {
        return 0;
    }
    digits.parse().unwrap_or(i128::MAX)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        if self.format == QuantityFormat::BinarySi && self.nano.abs() >= 1024 * NANO && self.is_integer() {
            let mut number = self.nano / NANO;
            let mut power = 0;
            while number % 1024 == 0 && power < 6 {
                number /= 1024;
                power += 1;
            }
            return write!(f, "{number}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let mut number = self.nano;
        let mut exponent = -9;
        while number % 1000 == 0 && exponent < 18 {
            number /= 1000;
            exponent += 3;
        }
        if self.format == QuantityFormat::DecimalExponent {
            return match exponent {
                0 => write!(f, "{number}"),
                _ => write!(f, "{number}e{exponent}"),
            };
        }
        let suffix = match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            0 => "",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            _ => "E",
        };
        write!(f, "{number}{suffix}")
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

/// Keeps the format of the left side, unless that is zero.
fn joined_format(a: &Quantity, b: &Quantity) -> QuantityFormat {
    if a.nano == 0 { b.format } else { a.format }
}

impl Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            nano: self.nano.saturating_add(other.nano),
            format: joined_format(&self, &other),
        }
    }
}
impl Sub for Quantity {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            nano: self.nano.saturating_sub(other.nano),
            format: joined_format(&self, &other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        text.parse::<Quantity>().unwrap().to_string()
    }

    #[test]
    fn canonical_forms() {
        for (given, wanted) in [
            ("0", "0"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("+1", "1"),
            ("-0.25", "-250m"),
            ("1024Mi", "1Gi"),
            ("1023Ki", "1023Ki"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1Ki", "1Ki"),
            ("512", "512"),
            ("100000", "100k"),
            ("1.5G", "1500M"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12e-1", "1200e-3"),
            ("1E", "1E"),
            ("0.0000000001", "1n"),
            ("1e-20", "1e-9"),
            ("99999999999999999999", "9223372036854775807"),
            ("-99999999999999999999999999999999999999999999", "-9223372036854775807"),
            ("1e999999999", "9223372036854775807"),
            ("00001", "1"),
            ("0.1Ki", "102400m"),
            ("128974848", "128974848"),
            ("129e6", "129e6"),
            ("123Mi", "123Mi"),
            ("100n", "100n"),
        ] {
            assert_eq!(canonical(given), wanted, "{given}");
            assert_eq!(canonical(&canonical(given)), wanted, "printing {given} is stable");
        }
    }

    #[test]
    fn bad_texts() {
        use QuantityError::{Format, Numeric, Suffix};
        for (text, error) in [
            ("", Format),
            ("x", Format),
            ("1 Gi", Format),
            ("1.1.1", Numeric),
            (".", Numeric),
            ("1i", Suffix),
            ("1mm", Suffix),
            ("1e", Suffix),
            ("1ki", Suffix),
            ("1K", Suffix),
            ("--1", Format),
            ("1é", Format),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn order_and_arithmetic_are_exact() {
        let q = |s: &str| s.parse::<Quantity>().unwrap();
        assert_eq!(q("1"), q("1000m"));
        assert!(q("1Gi") > q("1G"));
        assert_eq!((q("100m") + q("0.2")).to_string(), "300m");
        assert_eq!((q("1Gi") - q("512Mi")).to_string(), "512Mi");
        assert_eq!((q("0") + q("1Gi")).to_string(), "1Gi");
        assert_eq!((q("1m").units(), q("1m").milli(), q("1n").milli()), (1, 1, 1));
    }
}
