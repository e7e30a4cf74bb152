//! Decides in which domain imported units are.

use std::collections::BTreeMap;
use std::io::{self, BufRead, IsTerminal as _, Write};

use knowledge::{Document, Domain};

use super::exported;
use super::proposal::counted;
use super::sources::{self, SourceFile};
use crate::error::{CliError, USAGE};

/// How many domains are named.
const NAMED_MAX: usize = 8;

/// Sets the domain of all files to `wanted`. Without it they have the names of their folders, which a person at a
/// terminal is asked about; the result says so to anybody else.
pub(super) fn decide(
    files: &mut [SourceFile],
    wanted: Option<&str>,
    may_ask: bool,
) -> Result<Option<String>, CliError> {
    if let Some(wanted) = wanted {
        set(files, wanted)?;
        return Ok(None);
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for file in files.iter().filter(|file| !names_its_domain(file)) {
        let domain = Domain::sanitized(file.domain.as_deref().unwrap_or_default());
        *counts.entry(domain.as_str().to_owned()).or_default() += 1;
    }
    if counts.is_empty() {
        return Ok(None);
    }
    let named =
        counts.iter().take(NAMED_MAX).map(|(name, count)| format!("{name} ({})", counted(*count, "file")));
    let mut named = named.collect::<Vec<_>>().join(", ");
    if counts.len() > NAMED_MAX {
        named.push_str(&format!(" and {} more", counts.len() - NAMED_MAX));
    }
    if may_ask && io::stdin().is_terminal() && io::stderr().is_terminal() {
        let answer = ask(&named, &mut io::stdin().lock(), &mut io::stderr())?;
        return answer.map_or(Ok(()), |answer| set(files, &answer)).map(|()| None);
    }
    Ok(Some(format!(
        "domains, by the names of the folders: {named}; --domain NAME puts all notes into one\n"
    )))
}

/// Whether a file says itself in which domain its unit is, or becomes no unit.
fn names_its_domain(file: &SourceFile) -> bool {
    sources::read(&file.path).is_ok_and(|raw| {
        exported::unit_of_brain(&raw, file).is_some()
            || exported::is_index_of_export(&raw, file)
            || Document::parse(&raw).is_ok_and(|document| document.get("domain").is_some())
    })
}

fn set(files: &mut [SourceFile], domain: &str) -> Result<(), CliError> {
    if knowledge::name::tag(domain).is_empty() {
        return Err(CliError::new(format!("{domain:?} cannot be a domain"))
            .code(USAGE)
            .hint("a domain has letters, digits and hyphens, such as `billing`"));
    }
    for file in files {
        file.domain = Some(domain.to_owned());
    }
    Ok(())
}

/// The one domain that a person types; `None` to keep what is proposed.
fn ask(named: &str, input: &mut impl BufRead, output: &mut impl Write) -> io::Result<Option<String>> {
    write!(
        output,
        "domains, by the names of the folders: {named}\nEnter keeps them; or type one domain for all notes: "
    )?;
    output.flush()?;
    let mut answer = String::new();
    if input.read_line(&mut answer)? == 0 {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "nothing was imported: the question has no answer",
        ));
    }
    Ok(Some(answer.trim().to_owned()).filter(|answer| !answer.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_keeps_the_folders_and_a_word_replaces_them() {
        for (typed, expected) in
            [("\n", None), (" billing \n", Some("billing")), ("web shop", Some("web shop"))]
        {
            let mut shown = Vec::new();
            let answer = ask("notes (3 files)", &mut typed.as_bytes(), &mut shown).unwrap();
            assert_eq!(answer.as_deref(), expected);
            assert!(String::from_utf8(shown).unwrap().contains("notes (3 files)"));
        }
        assert!(ask("notes", &mut &b""[..], &mut Vec::new()).is_err(), "a closed input imports nothing");
    }
}
