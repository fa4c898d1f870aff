//! Numbers that may be percentages.

use minato_api::apimachinery::pkg::util::intstr::IntOrString;

use crate::error::{Error, Result};

/// Which way a percentage of pods is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    Up,
    Down,
}

/// `value`, of `total` if it is a percentage.
///
/// # Errors
/// [`Error::Invalid`] for text that is not a percentage.
pub(crate) fn scaled(value: &IntOrString, total: i32, round: Round) -> Result<i32> {
    match value {
        IntOrString::Int(number) => Ok(*number),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse::<i64>().ok());
            let percent = percent.ok_or_else(|| Error::Invalid(format!("{text:?} is not a percentage")))?;
            let product = percent.saturating_mul(i64::from(total));
            let quotient = match round {
                Round::Up => product.saturating_add(99).div_euclid(100),
                Round::Down => product.div_euclid(100),
            };
            Ok(i32::try_from(quotient).unwrap_or(i32::MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_as_told() {
        let percent = IntOrString::String("25%".to_owned());
        assert_eq!(scaled(&percent, 10, Round::Up).unwrap(), 3);
        assert_eq!(scaled(&percent, 10, Round::Down).unwrap(), 2);
        assert_eq!(scaled(&percent, 8, Round::Up).unwrap(), 2);
        assert_eq!(scaled(&IntOrString::Int(7), 1, Round::Up).unwrap(), 7);
        assert!(scaled(&IntOrString::String("7".to_owned()), 1, Round::Up).is_err());
    }
}
