//! Units of another brain, or of an export of one: their files are proposed as they are, byte for byte, but for what is
//! hidden, secret or enforced.

use extract::text_index::text_digest;
use git::{CommitId, Repository};
use knowledge::{Document, Unit, text};
use serde_yaml::Value;

use super::comparison::KnownTexts;
use super::proposal::{ENFORCE_LEFT_OUT, ProposedUnit};
use super::sources::{LeftOut, SourceFile};
use crate::error::CliError;

/// What becomes of a file that is a unit of a brain: a unit, or why it is none. `None` for any other file, and for one
/// whose id another unit has.
pub(super) fn exported_unit(
    raw: &str,
    source: &SourceFile,
    known: &mut KnownTexts,
    repository: &Repository,
    base: CommitId,
    left_out: &mut Vec<LeftOut>,
) -> Result<Option<Result<ProposedUnit, String>>, CliError> {
    let Some((path, unit)) = unit_of_brain(raw, source) else { return Ok(None) };
    let id = unit.id.as_str();
    let digest = text_digest(raw);
    let ours = repository.read_at(base, &path)?;
    let our_text = ours.as_deref().and_then(|ours| std::str::from_utf8(ours).ok()).unwrap_or_default();
    let Some(Cleaned { content, is_stripped, is_freed }) = cleaned(raw, our_text) else { return Ok(None) };
    let updates = match ours {
        Some(_) if [raw, &content].iter().any(|text| with_lf(text) == with_lf(our_text)) => {
            return Ok(Some(Err(format!("known already: {id} in the brain"))));
        }
        Some(content) if is_older(&unit, &content, &path) => {
            return Ok(Some(Err(format!("known already: {id} in the brain, where it was changed later"))));
        }
        Some(_) => true,
        // Another unit has the id.
        None if known.unique_id(&unit.id, "0000") != unit.id => return Ok(None),
        None => false,
    };
    if let Some(reason) = known.reason_against(&unit, &digest, updates) {
        return Ok(Some(Err(reason)));
    }
    if is_stripped {
        let reason = "without what is hidden, private or secret in it".to_owned();
        left_out.push(LeftOut { what: source.shown.clone(), reason });
    }
    if is_freed {
        let what = format!("{}: enforce", source.shown);
        left_out.push(LeftOut { what, reason: ENFORCE_LEFT_OUT.to_owned() });
    }
    Ok(Some(Ok(ProposedUnit::verbatim(path, &unit, source, &content, updates, digest))))
}

/// The file of a unit as it is proposed.
struct Cleaned {
    content: String,
    /// Whether it was without something hidden, private or secret.
    is_stripped: bool,
    /// Whether it is without an `enforce`.
    is_freed: bool,
}

/// Takes out of a unit's file what is hidden, private or secret, but for comments that are in `ours`, the brain's file, and
/// an `enforce` that this has not.
fn cleaned(raw: &str, ours: &str) -> Option<Cleaned> {
    let plain = with_lf(raw);
    let is_stripped = transcript::clean(raw) != plain.trim() || text::strip_hidden(raw) != plain;
    let content = match is_stripped {
        true => text::strip_hidden_to_store(&transcript::clean(raw), ours) + "\n",
        false => raw.to_owned(),
    };
    let mut document = Document::parse(content).ok()?;
    let allowed = Document::parse(ours).ok().and_then(|ours| ours.get("enforce"));
    let enforce = document.get("enforce").filter(|enforce| !enforce.is_null());
    let is_freed = enforce.is_some() && enforce != allowed;
    if is_freed {
        document.set("enforce", &allowed.unwrap_or(Value::Null));
    }
    Some(Cleaned { content: document.as_str().to_owned(), is_stripped, is_freed })
}

/// A text whose lines do not end as on Windows.
fn with_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Whether the brain's file at this path is of a later change than the unit.
fn is_older(unit: &Unit, content: &[u8], path: &str) -> bool {
    let ours = std::str::from_utf8(content).ok().and_then(|raw| Document::parse(raw).ok()?.unit(path).ok());
    let ours = ours.and_then(|ours| ours.last_modified);
    ours.zip(unit.last_modified).is_some_and(|(ours, theirs)| theirs < ours)
}

/// Whether a file is the list of units that `nugget export` writes beside them.
pub(super) fn is_index_of_export(raw: &str, source: &SourceFile) -> bool {
    source.stem() == "index" && raw.lines().take(4).any(|line| line.ends_with(" units, exported by nugget."))
}

/// The path in a brain, and the unit, of a file that is where a brain would have it.
pub(super) fn unit_of_brain(raw: &str, source: &SourceFile) -> Option<(String, Unit)> {
    let mut parts = source.path.iter().rev().map(|part| part.to_str());
    let (name, folder, domain) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next()?? != "domains" {
        return None;
    }
    let path = format!("domains/{domain}/{folder}/{name}");
    let unit = Document::parse(cleaned(raw, "")?.content).ok()?.unit(&path).ok()?;
    let is_in_place = unit.id.as_str() == source.stem() && unit.domain.as_str() == domain;
    (is_in_place && unit.kind.folder() == folder).then_some((path, unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use extract::notes::NoteKind;

    #[test]
    fn a_unit_of_any_type_is_taken_as_it_is() {
        let source = |path: &str| SourceFile {
            path: path.into(),
            shown: path.to_owned(),
            kind: NoteKind::Note,
            project: None,
            domain: None,
            modified: None,
        };
        let raw = "---\nid: pools\ntype: decision\ndomain: web\nstatus: superseded\nmine: 1\nlast_modified: 2026-01-02\n---\n\n# Pools\n";
        let place = source("/okf/domains/web/decisions/pools.md");
        let (path, unit) = unit_of_brain(raw, &place).unwrap();
        assert_eq!(
            (path.as_str(), unit.status.as_deref()),
            ("domains/web/decisions/pools.md", Some("superseded"))
        );
        assert!(unit_of_brain(raw, &source("/okf/domains/web/bugs/pools.md")).is_none());
        let (_, held) = unit_of_brain(&raw.replace("mine: 1", "enforce: hold"), &place).unwrap();
        assert_eq!(held.enforce, None);
        assert!(is_older(&unit, raw.replace("2026-01-02", "2026-01-03").as_bytes(), &path));
        assert!(!is_older(&unit, raw.as_bytes(), &path));
    }
}
