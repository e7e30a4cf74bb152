//! Notes and facts of another brain, or of an export of one: their files are proposed as they are, byte for byte.

use extract::text_index::text_digest;
use git::{CommitId, Repository};
use knowledge::{Document, Unit, UnitType, text};

use super::comparison::KnownTexts;
use super::proposal::ProposedUnit;
use super::sources::SourceFile;
use crate::error::CliError;

/// What becomes of a file that is a note or a fact of a brain: a unit, or why it is none. `None` for any other file, and
/// for one that cannot be kept as it is.
pub(super) fn exported_note(
    raw: &str,
    source: &SourceFile,
    known: &mut KnownTexts,
    repository: &Repository,
    base: CommitId,
) -> Result<Option<Result<ProposedUnit, String>>, CliError> {
    let Some((path, unit)) = note_of_brain(raw, source) else { return Ok(None) };
    let id = unit.id.as_str();
    let updates = match repository.read_at(base, &path)? {
        Some(content) if content == raw.as_bytes() => {
            return Ok(Some(Err(format!("known already: {id} in the brain"))));
        }
        Some(_) => true,
        // Another unit has the id.
        None if known.unique_id(&unit.id, "0000") != unit.id => return Ok(None),
        None => false,
    };
    Ok(Some(Ok(ProposedUnit::verbatim(path, &unit, source, raw, updates, text_digest(raw)))))
}

/// Whether a file is the list of units that `nugget export` writes beside them.
pub(super) fn is_index_of_export(raw: &str, source: &SourceFile) -> bool {
    source.stem() == "index" && raw.lines().take(4).any(|line| line.ends_with(" units, exported by nugget."))
}

/// The path in a brain, and the unit, of a file that is where a brain would have it.
fn note_of_brain(raw: &str, source: &SourceFile) -> Option<(String, Unit)> {
    let mut parts = source.path.iter().rev().map(|part| part.to_str());
    let (name, folder, domain) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next()?? != "domains" {
        return None;
    }
    let path = format!("domains/{domain}/{folder}/{name}");
    let unit = Document::parse(raw).ok()?.unit(&path).ok()?;
    let is_note = matches!(unit.kind, UnitType::Note | UnitType::Fact) && unit.kind.folder() == folder;
    let is_in_place = unit.id.as_str() == source.stem() && unit.domain.as_str() == domain;
    // What is hidden or secret is taken out on the usual way.
    let is_clean = transcript::clean(raw) == raw.trim() && text::strip_hidden(raw) == raw;
    (is_note && is_in_place && is_clean && unit.enforce.is_none()).then_some((path, unit))
}
