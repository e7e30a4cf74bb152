//! `nugget note`: writes, links and finds notes.

use std::io::{IsTerminal as _, Read as _};
use std::time::Duration;

use actors::{Roles, Service};
use jiff::Timestamp;
use knowledge::UnitType;
use knowledge::unit::is_retired;
use knowledge::wikilink::wikilinks;
use notes::{Edit, NewNote, NoteFile, Notebook, content};
use retrieve::Query;
use serde_json::json;

use super::completions;
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::index_update::update_before_question;
use crate::note_change::{
    change, find_note, open, print_written, read, read_files, scope_of, tags_without_secrets, to_json,
    without_secrets,
};
use crate::output::{self, counted, safe};
use crate::unit_files::{has_tags, title_with_status};
use crate::{async_runtime, editor, pager, settings};

const AFTER: &str = "\
A note is a unit of your brain: a markdown file that sessions find like any
other. It is committed on your main branch if that is checked out and clean,
else it waits on a branch for `nugget review`. Nothing is pushed.

A link has a reason and goes both ways; [[title]] in a text is a link, too.

Examples:
  nugget note add \"Auth middleware\" --content \"Lives in src/auth.\" --tag auth
  nugget note add \"Release checklist\" < checklist.md
  nugget note link auth-middleware \"JWT token format\" --reason \"checks them\"
  nugget note unlink auth-middleware jwt-token-format
  nugget note search \"who verifies tokens\"
  nugget note list --json | jq -r '.notes[].id'
  nugget note show auth-middleware
  nugget note edit auth-middleware --content \"Lives in src/http/auth.\"
  nugget note archive release-checklist
  nugget note rm release-checklist";

/// How much of a title is shown.
const TITLE_CHARS_SHOWN: usize = 120;
/// How many notes of the same title are named.
const TWINS_SHOWN: usize = 3;
/// How long a search may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// The longest content that is read, in bytes; what exceeds the limit of a note is refused with a reason.
const INPUT_BYTES_MAX: u64 = 1024 * 1024;

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct NoteArgs {
    #[command(subcommand)]
    command: NoteCommand,
}

#[derive(clap::Subcommand)]
enum NoteCommand {
    /// Write a note
    Add(AddArgs),
    /// Link two notes, both ways
    Link(LinkArgs),
    /// Remove the links between two notes
    Unlink(UnlinkArgs),
    /// Change a note: its text, title or tags
    Edit(EditArgs),
    /// List the notes and facts
    List(ListArgs),
    /// Print a note with its links
    Show(OneArgs),
    /// Find notes and facts by meaning and words
    Search(SearchArgs),
    /// Hide a note from sessions, or take it back
    Archive(ArchiveArgs),
    /// Remove notes, and the links to them
    Rm(RmArgs),
}

#[derive(clap::Args)]
struct AddArgs {
    /// One line
    title: String,
    /// The text; without it stdin is read, or your editor opens
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    content: Option<String>,
    /// A word to find it by; may be repeated
    #[arg(long = "tag", value_name = "T")]
    tags: Vec<String>,
    /// Its domain
    #[arg(long, value_name = "D", default_value = "general", add = clap_complete::ArgValueCompleter::new(completions::domains))]
    domain: String,
    /// What sort of note it is: preference, project, relationship or another word
    #[arg(long, value_name = "WORD")]
    kind: Option<String>,
    /// Whether it is to last: temporary or durable
    #[arg(long, value_name = "WORD", value_parser = ["temporary", "durable"])]
    stability: Option<String>,
    /// It bears only on this project
    #[arg(long)]
    here: bool,
    /// It bears only on this file or folder of this project
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct LinkArgs {
    /// A note or another unit, by its id or title
    #[arg(value_name = "A", add = clap_complete::ArgValueCompleter::new(completions::units))]
    one: String,
    /// The other one
    #[arg(value_name = "B", add = clap_complete::ArgValueCompleter::new(completions::units))]
    other: String,
    /// Why they are linked
    #[arg(long, value_name = "WHY", default_value = "")]
    reason: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct UnlinkArgs {
    /// A note or another unit, by its id or title
    #[arg(value_name = "A", add = clap_complete::ArgValueCompleter::new(completions::units))]
    one: String,
    /// The other one
    #[arg(value_name = "B", add = clap_complete::ArgValueCompleter::new(completions::units))]
    other: String,
    /// Only the link with this reason
    #[arg(long, value_name = "WHY")]
    reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct EditArgs {
    /// The note, by its id or title
    #[arg(value_name = "NOTE", add = clap_complete::ArgValueCompleter::new(completions::notes))]
    note: String,
    /// The new text; without any change stdin is read, or your editor opens
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    content: Option<String>,
    /// The new title; the id stays
    #[arg(long, value_name = "TITLE")]
    title: Option<String>,
    /// The new tags; may be repeated
    #[arg(long = "tag", value_name = "T")]
    tags: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ListArgs {
    /// Only notes with this tag; repeated, with all of them
    #[arg(long = "tag", value_name = "TAG", add = clap_complete::ArgValueCompleter::new(completions::tags))]
    tags: Vec<String>,
    /// Also what is archived
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct OneArgs {
    /// The note, by its id or title
    #[arg(value_name = "NOTE", add = clap_complete::ArgValueCompleter::new(completions::notes))]
    note: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct SearchArgs {
    /// What the note is about
    #[arg(value_name = "WORDS", required = true)]
    words: Vec<String>,
    /// The most notes
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = super::sessions::number_of_results())]
    limit: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ArchiveArgs {
    /// The note, by its id or title
    #[arg(value_name = "NOTE", add = clap_complete::ArgValueCompleter::new(completions::notes))]
    note: String,
    /// Take it back
    #[arg(long)]
    undo: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct RmArgs {
    /// The notes, by their ids or titles
    #[arg(required = true, value_name = "NOTE", add = clap_complete::ArgValueCompleter::new(completions::notes))]
    notes: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl NoteArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self.command {
            NoteCommand::Add(args) => args.run(context),
            NoteCommand::Link(args) => args.run(context),
            NoteCommand::Unlink(args) => args.run(context),
            NoteCommand::Edit(args) => args.run(context),
            NoteCommand::List(args) => args.run(context),
            NoteCommand::Show(args) => args.run(context),
            NoteCommand::Search(args) => args.run(context),
            NoteCommand::Archive(args) => args.run(context),
            NoteCommand::Rm(args) => args.run(context),
        }
    }
}

impl AddArgs {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let scope = scope_of(self.path.as_deref(), self.here)?;
        let mut is_typed = false;
        let (title, content) = match self.content {
            Some(content) => (self.title, content),
            None if std::io::stdin().is_terminal() => {
                is_typed = true;
                let template = format!("# {}\n\n", knowledge::text::one_line(&self.title, usize::MAX));
                let edited = editor::edit(&template, ".md", "nothing was written", |_| None)?;
                typed(self.title, &edited)
            }
            None => (self.title, read_input()?),
        };
        let new = NewNote {
            tags: tags_without_secrets(self.tags),
            domain: without_secrets(&self.domain, "domain"),
            category: self.kind.map(|kind| without_secrets(&kind, "kind")),
            stability: self.stability,
            scope,
            ..NewNote::note(without_secrets(&title, "title"), without_secrets(&content, "text"))
        };
        let message = format!("Note {}", new.title);
        let text = new.content.clone();
        let created = change(context, &message, |notebook, now| {
            let remarks = remarks(notebook, &new);
            let id = notebook.create(new, now)?;
            let path = notebook.find(id.as_str())?.path.clone();
            Ok((id, path, remarks))
        });
        let ((id, path, remarks), written) = created.map_err(|error| match is_typed {
            true => editor::keep_text(&text, ".md", error, "nothing was written"),
            false => error,
        })?;
        remarks.iter().for_each(|remark| output::note(&format!("note: {}", safe(remark))));
        let title = knowledge::text::one_line(&title, TITLE_CHARS_SHOWN);
        let said = format!("noted: {} ({})", safe(&title), id);
        print_written(&said, &written, json!({ "id": id, "path": path }), self.json)
    }
}

/// The title and the content of a new note as a person has typed them: another heading is another title.
fn typed(title: String, edited: &str) -> (String, String) {
    let edited = edited.trim();
    let (heading, below) = edited.split_once('\n').unwrap_or((edited, ""));
    match heading.strip_prefix("# ").map(str::trim) {
        Some(heading) => (heading.to_owned(), below.trim().to_owned()),
        None => (title, edited.to_owned()),
    }
}

/// What a person may not have meant in a new note: a title that another one has, and links that lead to no note.
fn remarks(notebook: &Notebook, new: &NewNote) -> Vec<String> {
    let title = new.title.trim().to_lowercase();
    let is_twin = |note: &&NoteFile| note.unit.title.to_lowercase() == title;
    let twins: Vec<&str> =
        notebook.files().filter(is_twin).take(TWINS_SHOWN).map(|note| note.unit.id.as_str()).collect();
    let mut remarks = Vec::new();
    if !twins.is_empty() {
        remarks.push(format!("a note of this title exists: {}", twins.join(", ")));
    }
    for link in wikilinks(&new.content) {
        match notebook.find_linked(link.target) {
            Ok(_) => {}
            Err(notes::Error::Ambiguous { ids, .. }) => {
                remarks.push(format!("[[{}]] may be any of {}", link.target, ids.join(", ")));
            }
            Err(_) if link.target.trim().to_lowercase() == title => {}
            Err(_) => remarks.push(format!("[[{}]] leads to no note yet", link.target)),
        }
    }
    remarks
}

/// What stands in standard input.
fn read_input() -> Result<String, CliError> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(INPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    let refused = |what: &str| CliError::new(what).code(USAGE).hint("nothing was written");
    // The limit may cut a letter; a text of this length is refused with a reason of its own.
    let text = match String::from_utf8(bytes) {
        Err(error) if error.as_bytes().len() as u64 == INPUT_BYTES_MAX => {
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        }
        read => read.map_err(|_| refused("the text is not UTF-8"))?,
    };
    match text.contains('\0') {
        true => Err(refused("the text has a NUL character")),
        false => Ok(text),
    }
}

impl LinkArgs {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let reason = without_secrets(&self.reason, "reason");
        let message = format!("Link {} and {}", self.one, self.other);
        let ((one, other), written) = change(context, &message, |notebook, now| {
            let one = notebook.find(&self.one)?.unit.id.clone();
            let other = notebook.find(&self.other)?.unit.id.clone();
            notebook.link(&one, &other, &reason, now)?;
            Ok((one, other))
        })?;
        let said = match written {
            actors::notes::Written::Unchanged => format!("{one} and {other} are linked already"),
            _ => format!("linked: {one} and {other}"),
        };
        print_written(&said, &written, json!({ "one": one, "other": other, "reason": reason }), self.json)
    }
}

impl UnlinkArgs {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let message = format!("Unlink {} and {}", self.one, self.other);
        let ((one, other), written) = change(context, &message, |notebook, now| {
            let one = notebook.find(&self.one)?.unit.id.clone();
            let other = notebook.find(&self.other)?.unit.id.clone();
            notebook.unlink(&one, &other, self.reason.as_deref(), now)?;
            Ok((one, other))
        })?;
        let said = match written {
            actors::notes::Written::Unchanged => format!("no such link between {one} and {other}"),
            _ => format!("unlinked: {one} and {other}"),
        };
        print_written(&said, &written, json!({ "one": one, "other": other }), self.json)
    }
}

impl EditArgs {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let tags = (!self.tags.is_empty()).then(|| tags_without_secrets(self.tags));
        let mut edit = Edit { title: self.title, content: self.content, tags, ..Edit::default() };
        let mut before: Option<String> = None;
        let mut has_change = edit.title.is_some() || edit.content.is_some() || edit.tags.is_some();
        if !has_change && !std::io::stdin().is_terminal() {
            edit.content = Some(read_input()?).filter(|text| !text.trim().is_empty());
            has_change = edit.content.is_some();
        }
        if !has_change {
            let notebook = read(context)?;
            let note = find_note(&notebook, &self.note)?;
            let text = content(&note.unit).to_owned() + "\n";
            edit.content = Some(editor::edit(&text, ".md", "nothing was changed", |_| None)?);
            before = Some(text);
        }
        edit.title = edit.title.map(|title| without_secrets(&title, "title"));
        edit.content = edit.content.map(|text| without_secrets(&text, "text"));
        let message = format!("Edit note {}", self.note);
        let text = edit.content.clone().unwrap_or_default();
        let changed = change(context, &message, |notebook, now| {
            let id = notebook.find_note(&self.note)?.unit.id.clone();
            before.as_ref().map_or(Ok(()), |before| notebook.expect_content(&id, before))?;
            notebook.edit(&id, edit, now)?;
            Ok(id)
        });
        let (id, written) = changed.map_err(|error| match before {
            Some(_) => editor::keep_text(&text, ".md", error, "nothing was changed"),
            None => error,
        })?;
        let said = match written {
            actors::notes::Written::Unchanged => "nothing was changed".to_owned(),
            _ => format!("edited: {id}"),
        };
        print_written(&said, &written, json!({ "id": id }), self.json)
    }
}

impl ListArgs {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let notebook = read_files(context)?;
        let is_archived = |note: &&NoteFile| note.unit.status.as_deref().is_some_and(is_retired);
        let tagged = || notebook.notes().filter(|note| has_tags(&note.unit, &self.tags));
        let listed: Vec<&NoteFile> = tagged().filter(|note| self.all || !is_archived(note)).collect();
        if self.json {
            let listed: Vec<_> = listed.iter().map(|note| to_json(&note.path, &note.unit)).collect();
            return output::print_json(&json!({ "notes": listed }));
        }
        if listed.is_empty() {
            let archived = counted(tagged().count() as u64, "note");
            return output::print(&match (tagged().next(), self.tags.as_slice()) {
                (Some(_), _) => format!("every such note is archived; --all lists {archived}\n"),
                (None, []) => "no notes yet: `nugget note add TITLE` writes one\n".to_owned(),
                (None, [tag]) => format!("no note has the tag {}\n", safe(tag)),
                (None, tags) => format!("no note has the tags {}\n", safe(&tags.join(", "))),
            });
        }
        let rows = listed.iter().map(|note| {
            let links = note.unit.related.len().to_string();
            let title = title_with_status(&note.unit);
            [note.unit.id.as_str(), note.unit.kind.as_str(), &links, &title].map(safe).to_vec()
        });
        pager::print(context, &output::table(&["ID", "TYPE", "LINKS", "TITLE"], rows))
    }
}

impl OneArgs {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let notebook = read_files(context)?;
        let note = find_note(&notebook, &self.note)?;
        if self.json {
            return output::print_json(&to_json(&note.path, &note.unit));
        }
        let unit = &note.unit;
        let mut text =
            format!("# {}\n{} · {} in {}", safe(&unit.title), unit.id, unit.kind, safe(unit.domain.as_str()));
        for word in [&unit.category, &unit.stability, &unit.status].into_iter().flatten() {
            text.push_str(&format!(" · {}", safe(word)));
        }
        if !unit.tags.is_empty() {
            text.push_str(&format!(" · {}", safe(&unit.tags.join(", "))));
        }
        text.push_str(&format!("\n\n{}\n", content(unit)));
        if !unit.related.is_empty() {
            text.push_str("\nLinks:\n");
        }
        for link in &unit.related {
            let linked = notebook.files().find(|file| file.unit.id == link.id);
            let title = linked.map(|file| file.unit.title.as_str());
            let missing = if title.is_none() { " (there is no such unit)" } else { "" };
            let reason =
                link.reason.as_deref().map(|reason| format!(": {}", safe(reason))).unwrap_or_default();
            text.push_str(&format!("- {}{missing}{reason}\n", safe(title.unwrap_or(link.id.as_str()))));
        }
        pager::print(context, &output::styled_markdown(&text))
    }
}

impl SearchArgs {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let question = self.words.join(" ");
        let question = knowledge::text::strip_hidden(&question).trim().to_owned();
        if question.is_empty() {
            return Err(CliError::new("there is nothing to search for").code(USAGE));
        }
        let setup = open(context)?;
        let query = Query {
            kinds: vec![UnitType::Note, UnitType::Fact],
            ..Query::listing(question, self.limit, Timestamp::now())
        };
        let answer = async_runtime::multi_thread()?.block_on(async {
            let service = Service::start(&setup, Roles::Read).await?;
            update_before_question(&service, &setup).await;
            let answer = service.ask(query, DEADLINE).await;
            let answer = answer.map_err(|error| settings::model_error(error, &setup.embed))?;
            service.shutdown().await;
            Ok::<_, CliError>(answer)
        })?;
        if self.json {
            return output::print_json(&json!({ "notes": answer.units, "words_only": answer.words_only }));
        }
        if answer.units.is_empty() {
            return output::print("no note matches\n");
        }
        let mut text = String::new();
        for unit in &answer.units {
            let status =
                unit.status.as_deref().map(|status| format!(", {}", safe(status))).unwrap_or_default();
            text.push_str(&format!("{}  ({}{status})\n", safe(&unit.title), safe(unit.id.as_str())));
            if !unit.summary.is_empty() {
                text.push_str(&format!("  {}\n", safe(&unit.summary)));
            }
        }
        output::print(&text)
    }
}

impl ArchiveArgs {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let verb = if self.undo { "Take back" } else { "Archive" };
        let (id, written) = change(context, &format!("{verb} note {}", self.note), |notebook, now| {
            let id = notebook.find_note(&self.note)?.unit.id.clone();
            notebook.set_archived(&id, !self.undo, now)?;
            Ok(id)
        })?;
        let said = match (&written, self.undo) {
            (actors::notes::Written::Unchanged, false) => format!("{id} is archived already"),
            (actors::notes::Written::Unchanged, true) => format!("{id} is not archived"),
            (_, false) => format!("archived: {id} (`nugget note archive {id} --undo` takes it back)"),
            (_, true) => format!("taken back: {id}"),
        };
        print_written(&said, &written, json!({ "id": id, "archived": !self.undo }), self.json)
    }
}

impl RmArgs {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let message = format!("Remove note {}", self.notes.join(", "));
        let ((removed, unlinked), written) = change(context, &message, |notebook, now| {
            let (mut removed, mut unlinked) = (Vec::new(), 0);
            for name in &self.notes {
                let id = notebook.find_note_to_change(name)?.unit.id.clone();
                // One may be named twice.
                if !removed.contains(&id) {
                    removed.push(id);
                }
            }
            for id in &removed {
                unlinked += notebook.remove(id, now)?;
            }
            Ok((removed, unlinked))
        })?;
        let ids: Vec<&str> = removed.iter().map(|id| id.as_str()).collect();
        let mut said = format!("removed: {}", ids.join(", "));
        if unlinked > 0 {
            said.push_str(&format!("\nlinks to it removed from {}", counted(unlinked as u64, "unit")));
        }
        print_written(&said, &written, json!({ "removed": removed, "unlinked": unlinked }), self.json)
    }
}
