//! Reads an option's whole number, and says within which range it must be.

use std::error::Error;
use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

/// Why a whole number is refused.
#[derive(Debug, thiserror::Error)]
enum RangeError {
    #[error("it must be from {0} to {1}")]
    Outside(String, String),
    #[error("it must be at least {0}")]
    Below(String),
    #[error("it is too large")]
    TooLarge,
}

/// A value parser for whole numbers in a range with a lower bound. Its errors say what the range is; clap's own say it in
/// a text that would have to be taken apart.
pub(crate) fn whole_number<N>(
    range: impl RangeBounds<N> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<N, Box<dyn Error + Send + Sync>> + Clone + Send + Sync + 'static
where
    N: TryFrom<i128> + PartialOrd + Display,
{
    move |text| {
        let number: i128 = text.parse()?;
        let error = match (range.start_bound(), range.end_bound(), N::try_from(number)) {
            (_, _, Ok(number)) if range.contains(&number) => return Ok(number),
            (Bound::Included(least), Bound::Included(most), _) => {
                RangeError::Outside(least.to_string(), most.to_string())
            }
            (_, _, Err(_)) if number > 0 => RangeError::TooLarge,
            (Bound::Included(least), ..) => RangeError::Below(least.to_string()),
            _ => RangeError::TooLarge,
        };
        Err(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_of_the_range_is_refused_with_its_bounds() {
        let days = whole_number(1_u32..=3650);
        assert_eq!(days("1").unwrap(), 1);
        assert_eq!(days("3650").unwrap(), 3650);
        for outside in ["0", "3651", "-7", "5000000000"] {
            assert_eq!(days(outside).unwrap_err().to_string(), "it must be from 1 to 3650");
        }
        let limit = whole_number(1_usize..);
        assert_eq!(limit("7").unwrap(), 7);
        assert_eq!(limit("0").unwrap_err().to_string(), "it must be at least 1");
        assert_eq!(limit("-7").unwrap_err().to_string(), "it must be at least 1");
        assert_eq!(limit("18446744073709551616").unwrap_err().to_string(), "it is too large");
        assert!(limit("many").unwrap_err().is::<std::num::ParseIntError>());
    }
}
