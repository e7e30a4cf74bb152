//! Finds what a person names by its id or by the beginning of one.

use knowledge::name::nfc;
use queue::{Capture, Queue};

use crate::error::{CliError, MISSING, USAGE};

/// How many ids an error lists.
const LISTED_MAX: usize = 5;
/// How many words of a set an error lists.
const KNOWN_MAX: usize = 15;
/// How alike an id must be to be offered in place of one that does not exist (Jaro-Winkler, 0 to 1).
const LIKENESS_MIN: f64 = 0.7;
/// The fewest characters of a session's id that stand for its capture.
const SESSION_CHARS_MIN: usize = 4;

/// The position of the id that `given` is, or is the beginning of. A table's `…` at its end is ignored.
///
/// `what` is the word for one of the things, as in "unit".
pub(crate) fn position(ids: &[&str], given: &str, what: &str) -> Result<usize, CliError> {
    let prefix = &*nfc(given.trim().trim_end_matches('…'));
    if let Some(found) = ids.iter().position(|id| *id == prefix) {
        return Ok(found);
    }
    let begins: Vec<usize> = match prefix {
        "" => Vec::new(),
        prefix => (0..ids.len()).filter(|&at| ids[at].starts_with(prefix)).collect(),
    };
    match begins.as_slice() {
        [found] => Ok(*found),
        [] => {
            let error = CliError::new(format!("there is no {what} {given:?}")).code(MISSING);
            Err(match nearest(ids.iter().copied(), prefix).as_slice() {
                [] => error,
                near => error.hint(format!("did you mean {}?", listed(near))),
            })
        }
        several => {
            let first: Vec<&str> = several.iter().take(LISTED_MAX).map(|&at| ids[at]).collect();
            let more = match several.len() - first.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Err(CliError::new(format!("{given:?} is the beginning of {} {what} ids", several.len()))
                .code(USAGE)
                .hint(format!("give more of one: {}{more}", first.join(", "))))
        }
    }
}

/// The words that are most like `given`, best first: those that contain it, or are spelled alike.
pub(crate) fn nearest<'a>(words: impl Iterator<Item = &'a str>, given: &str) -> Vec<&'a str> {
    let given = given.to_lowercase();
    let likeness = |word: &str| match given.len() >= 3 && word.to_lowercase().contains(&given) {
        true => 1.0,
        false => strsim::jaro_winkler(&given, &word.to_lowercase()),
    };
    let mut near: Vec<(f64, &str)> =
        words.map(|word| (likeness(word), word)).filter(|(likeness, _)| *likeness >= LIKENESS_MIN).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    near.into_iter().take(3).map(|(_, word)| word).collect()
}

/// An error that says what may be meant, or what there is.
pub(crate) fn unknown(message: String, given: &str, known: &[&str]) -> CliError {
    if known.is_empty() {
        return CliError::new(message).code(MISSING);
    }
    let hint = match nearest(known.iter().copied(), given).as_slice() {
        [] => {
            let more = match known.len().saturating_sub(KNOWN_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("give one of {}{more}", known[..known.len().min(KNOWN_MAX)].join(", "))
        }
        near => format!("did you mean {}?", listed(near)),
    };
    CliError::new(message).code(MISSING).hint(hint)
}

/// `a`, `b` or `c`, as code.
pub(crate) fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [head @ .., last] if !head.is_empty() => format!("{} or {last}", head.join(", ")),
        quoted => quoted.concat(),
    }
}

/// The capture with this number, or of the session whose id begins so.
pub(crate) fn capture(queue: &Queue, given: &str) -> Result<Capture, CliError> {
    if let Ok(number) = given.parse::<i64>()
        && let Some(capture) = queue.capture(number)?
    {
        return Ok(capture);
    }
    let captures = queue.captures(usize::MAX >> 1)?;
    let sessions: Vec<String> = captures.iter().map(|capture| capture.session_id.short()).collect();
    let of_session: Vec<&Capture> = match given.len() >= SESSION_CHARS_MIN {
        true => captures.iter().filter(|capture| capture.session_id.as_str().starts_with(given)).collect(),
        false => Vec::new(),
    };
    let numbers = |captures: &[&Capture]| {
        let first = captures.iter().take(LISTED_MAX);
        first
            .map(|capture| format!("{} ({})", capture.id, capture.session_id.short()))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match of_session.as_slice() {
        [capture] => Ok((*capture).clone()),
        [] => {
            // One number is not like another.
            let is_number = given.parse::<i64>().is_ok();
            let near =
                if is_number { Vec::new() } else { nearest(sessions.iter().map(String::as_str), given) };
            let near: Vec<&Capture> = captures
                .iter()
                .zip(&sessions)
                .filter(|(_, session)| near.contains(&session.as_str()))
                .map(|(capture, _)| capture)
                .collect();
            let latest: Vec<&Capture> = captures.iter().collect();
            let hint = match (near.is_empty(), captures.is_empty()) {
                (false, _) => format!("did you mean {}?", numbers(&near)),
                (true, false) => {
                    format!("`nugget status` lists the captures; the latest: {}", numbers(&latest))
                }
                (true, true) => "nothing has been captured yet".to_owned(),
            };
            Err(CliError::new(format!("there is no capture {given}")).code(MISSING).hint(hint))
        }
        several => Err(CliError::new(format!(
            "{given:?} is the beginning of the session of {} captures",
            several.len()
        ))
        .code(USAGE)
        .hint(format!("give the number of one: {}", numbers(several)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [&str; 4] = ["bounded-worker-pools", "bounded-worker-pools-in-go", "cache-owners", "caches"];

    #[test]
    fn a_whole_id_wins_over_one_that_it_begins() {
        assert_eq!(position(&IDS, "bounded-worker-pools", "unit").unwrap(), 0);
        assert_eq!(position(&IDS, "bounded-worker-pools-", "unit").unwrap(), 1);
        assert_eq!(position(&IDS, "cache-…", "unit").unwrap(), 2);
    }

    #[test]
    fn an_ambiguous_beginning_lists_what_it_may_mean() {
        let error = position(&IDS, "cache", "unit").unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (USAGE, "\"cache\" is the beginning of 2 unit ids"));
        assert_eq!(error.hint.unwrap(), "give more of one: cache-owners, caches");
    }

    #[test]
    fn a_miss_offers_what_is_near() {
        let error = position(&IDS, "bonded-worker-pool", "unit").unwrap_err();
        assert_eq!(error.code, MISSING);
        assert_eq!(
            error.hint.unwrap(),
            "did you mean `bounded-worker-pools` or `bounded-worker-pools-in-go`?"
        );
        assert_eq!(
            position(&IDS, "owners", "unit").unwrap_err().hint.unwrap(),
            "did you mean `cache-owners`?"
        );
        assert_eq!(position(&IDS, "xyz", "unit").unwrap_err().hint, None);
        assert_eq!(position(&IDS, "", "unit").unwrap_err().code, MISSING);
    }
}
