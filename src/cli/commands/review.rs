//! `nugget review`: shows what waits for review, and carries out what a person decides about it.

mod call;
mod render;
mod screen;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use actors::BrainView;
use actors::review::{Choice, Inbox, Item, Reviewed};
use brain::{Brain, Files as _, StatePaths};
use git::CommitId;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use queue::Queue;
use serde_json::{Value, json};

use self::call::{Review, one_reason, tomorrow_morning};
use self::render::describe_not_merged;
use super::completions;
use crate::context::Context;
use crate::editor;
use crate::error::{CliError, FAILED};
use crate::output::{self, counted};
use crate::unit_files::read_units;
use crate::{pager, settings};

const AFTER: &str = "\
In a terminal it shows the inbox in full screen: each unit as it would read,
with the words of the session that it rests on. In a pipe it prints the list.

A unit is named by its number in the list that was printed last, by its id
(SESSION/UNIT), or by the beginning of either part that names only one. A number
never stands for another unit than the one it was printed for.

merge brings units to your main branch by a commit of nugget's, as you (or as
nugget, if git has no name for you), without an editor and without touching what
you have not committed. With a remote it is pushed; offline, the next
`nugget sync` pushes it. reject keeps a unit from being proposed again. Once
everything on a branch is decided, the branch is deleted and its pull request
merged or closed.

Examples:
  nugget review
  nugget review show 2
  nugget review merge 1 2
  nugget review merge --all
  nugget review edit 3
  nugget review later 4
  nugget review reject 3 --because \"true only on that machine\"
  nugget review --rejected
  nugget review --json | jq -r '.items[].id'";

#[derive(clap::Args)]
#[command(after_help = AFTER, args_conflicts_with_subcommands = true)]
pub(crate) struct ReviewArgs {
    #[command(subcommand)]
    decision: Option<Decision>,
    /// Print the list, also in a terminal
    #[arg(long)]
    list: bool,
    /// List what was put off too
    #[arg(long)]
    all: bool,
    /// List what was rejected instead, the latest first
    #[arg(long, conflicts_with_all = ["list", "all"])]
    rejected: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Decision {
    /// Print units as they would read, with their evidence
    Show(Selection),
    /// Merge units into the main branch
    Merge(Selection),
    /// Edit a unit with $EDITOR, then merge it
    Edit {
        /// Its number or id
        #[arg(value_name = "N", add = clap_complete::ArgValueCompleter::new(completions::review_items))]
        item: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Reject units, so that they are not proposed again
    Reject {
        #[command(flatten)]
        selection: Selection,
        /// Why; kept, and written to the pull request
        #[arg(long, value_name = "WHY")]
        because: Option<String>,
    },
    /// Put units off until tomorrow morning
    Later(Selection),
}

#[derive(clap::Args)]
struct Selection {
    /// Their numbers or ids
    #[arg(
        value_name = "N",
        required_unless_present = "all",
        conflicts_with = "all",
        add = clap_complete::ArgValueCompleter::new(completions::review_items)
    )]
    items: Vec<String>,
    /// All that wait, except what was put off
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ReviewArgs {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        let brain = context.brain(&config)?;
        let places = StatePaths::for_brain(brain.root());
        places.create()?;
        let queue = Queue::open(&places.queue())?;
        let inbox = open_inbox(&brain, &queue, settings::delivery(&config))?;
        let now = Timestamp::now();
        inbox.delete_merged_branches(now)?;
        let review = Review { inbox, queue, now };
        let is_json = match &self.decision {
            None => self.json,
            Some(Decision::Edit { json, .. }) => *json,
            Some(
                Decision::Show(selection)
                | Decision::Merge(selection)
                | Decision::Reject { selection, .. }
                | Decision::Later(selection),
            ) => selection.json,
        };
        // Before the first merge there is nothing to ask for.
        let was_empty = !is_json && BrainView::open(&brain).files().is_ok_and(|files| files.is_empty());
        let code = review.run(self, context)?;
        if was_empty && let Some((_, first)) = read_units(&BrainView::open(&brain))?.units.first() {
            output::print(&first_question(&first.title))?;
        }
        Ok(code)
    }
}

/// The next step after the first merge. The title is a question that finds its unit; what a shell would read in it is
/// left out.
fn first_question(title: &str) -> String {
    let is_plain = |c: &char| c.is_alphanumeric() || " ,.:;-_/%()".contains(*c);
    let title: String = title.chars().filter(is_plain).collect();
    format!(
        "next: `nugget ask \"{}\"` shows what your sessions are told from now on\n",
        title.trim_matches([' ', '-'])
    )
}

/// The inbox of a brain.
pub(crate) fn open_inbox(
    brain: &Brain,
    queue: &Queue,
    delivery: actors::DeliverySettings,
) -> Result<Inbox, CliError> {
    let branch = brain.manifest()?.default_branch;
    Ok(Inbox::open(brain.root(), branch.as_deref(), queue.clone(), delivery)?)
}

fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

impl Review {
    fn run(&self, args: ReviewArgs, context: &Context) -> Result<ExitCode, CliError> {
        match args.decision {
            None if args.rejected => self.print_rejected(context, args.json),
            None if args.json => self.print_json(args.all),
            None if args.list || args.all || !is_interactive() => self.print_list(context, args.all),
            None => match self.items(false)?.as_slice() {
                [] => self.print_list(context, false),
                _ => screen::run(self),
            },
            Some(Decision::Show(selection)) => self.show(context, &selection),
            Some(Decision::Merge(selection)) => {
                let choices = self.select(&selection.items, selection.all)?;
                let choices = choices.into_iter().map(|item| Choice { item, edited: None }).collect();
                let reviewed = self.waiting_for("merging", || self.inbox.merge(choices, self.now))?;
                self.finish(render::MERGED, reviewed, selection.json)
            }
            Some(Decision::Edit { item, json }) => self.edit(&item, json),
            Some(Decision::Reject { selection, because }) => {
                let items = self.select(&selection.items, selection.all)?;
                let because = because.as_deref().map(one_reason);
                let reviewed =
                    self.waiting_for("rejecting", || self.inbox.reject(items, because.as_deref(), self.now))?;
                self.finish("rejected", reviewed, selection.json)
            }
            Some(Decision::Later(selection)) => {
                let items = self.select(&selection.items, selection.all)?;
                let until = tomorrow_morning(&self.now.to_zoned(TimeZone::system()))?;
                self.inbox.put_off(&items, until, self.now)?;
                let reviewed = Reviewed { decided: items, ..Reviewed::default() };
                self.finish("put off until tomorrow", reviewed, selection.json)
            }
        }
    }

    fn print_list(&self, context: &Context, all: bool) -> Result<ExitCode, CliError> {
        let every = self.inbox.items(self.now)?;
        let items: Vec<Item> = every.iter().filter(|item| all || item.later.is_none()).cloned().collect();
        self.remember_list(&items)?;
        pager::print(context, &render::list(&items, every.len() - items.len(), self.now))?;
        Ok(ExitCode::SUCCESS)
    }

    fn print_rejected(&self, context: &Context, as_json: bool) -> Result<ExitCode, CliError> {
        let rejected = self.inbox.rejected()?;
        if as_json {
            let rejected: Vec<Value> = rejected
                .iter()
                .map(|one| {
                    json!({
                        "title": one.title, "path": one.path, "because": one.because, "rejected": one.at,
                        "branch": one.branch, "commit": one.commit.as_ref().map(CommitId::to_string),
                    })
                })
                .collect();
            output::print_json(&json!({ "rejected": rejected }))?;
        } else {
            pager::print(context, &render::rejected(&rejected, self.now))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// JSON has ids and no numbers: a number would no longer stand for what a person was shown under it.
    fn print_json(&self, all: bool) -> Result<ExitCode, CliError> {
        let items = self.items(all)?;
        let items = items.iter().map(|item| self.to_json(item)).collect::<Result<Vec<_>, _>>()?;
        output::print_json(&json!({ "items": items }))?;
        Ok(ExitCode::SUCCESS)
    }

    fn to_json(&self, item: &Item) -> Result<Value, CliError> {
        let evidence: Vec<Value> = self
            .inbox
            .evidence(item)?
            .into_iter()
            .map(|line| json!({ "line": line.line, "excerpt": line.excerpt }))
            .collect();
        let unit = item.unit.as_ref();
        Ok(json!({
            "id": item.id,
            "title": item.title(),
            "type": item.kind(),
            "domain": unit.map(|unit| &unit.domain),
            "action": render::action_word(item.action),
            "replaces": item.replaces,
            "removes": item.removes().collect::<Vec<_>>(),
            "before": item.before(),
            "reasons": item.reasons,
            "confidence": unit.map(|unit| unit.confidence),
            "description": unit.and_then(|unit| unit.description.as_deref()),
            "path": item.path,
            "text": item.text,
            "evidence": evidence,
            "changed_on_main": item.has_conflict,
            "removed_on_main": item.is_gone,
            "renamed_on_main": item.moved_to,
            "session": item.session,
            "project": render::project(item),
            "ended": item.time,
            "branch": item.branch,
            "pull_request": item.pull_url(),
            "later": item.later,
        }))
    }

    fn show(&self, context: &Context, selection: &Selection) -> Result<ExitCode, CliError> {
        let items = self.select(&selection.items, selection.all)?;
        if selection.json {
            let items = items.iter().map(|item| self.to_json(item)).collect::<Result<Vec<_>, _>>()?;
            output::print_json(&json!({ "items": items }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut texts = Vec::new();
        for item in &items {
            let lines = render::unit(item, &self.inbox.evidence(item)?, output::terminal_width(), self.now);
            texts.push(output::styled(&lines));
        }
        pager::print(context, &texts.join("\n"))?;
        Ok(ExitCode::SUCCESS)
    }

    fn edit(&self, name: &str, as_json: bool) -> Result<ExitCode, CliError> {
        let item = self.find(name, &self.items(true)?)?;
        let Some(edited) = self.edited(&item)? else {
            if as_json {
                return self.finish(render::MERGED, Reviewed::default(), true);
            }
            output::print(&format!(
                "nothing was changed, so nothing was merged; as it is: nugget review merge {}\n",
                item.id
            ))?;
            return Ok(ExitCode::SUCCESS);
        };
        let reviewed = self.waiting_for("merging", || self.merge_edited(item, edited, self.now))?;
        self.finish(render::MERGED, reviewed, as_json)
    }

    /// The item's text after the person has edited it, if it has changed. To leave the editor without a change is no consent
    /// to a merge; of a conflict it ends in an error, as it is still there.
    fn edited(&self, item: &Item) -> Result<Option<String>, CliError> {
        let text = self.inbox.text_to_edit(item)?;
        let edited = editor::edit_unit(&text, &item.path, "nothing was merged", |edited| {
            editor::conflict_problem(&item.text, &text, edited)
        })?;
        match edited == text {
            true if item.has_conflict => {
                Err(CliError::new("the text was not changed, so nothing was merged")
                    .hint(format!("nugget review reject {} leaves your main branch as it is", item.id)))
            }
            true => Ok(None),
            false => Ok(Some(edited)),
        }
    }

    fn waiting_for<T, E>(&self, what: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let spinner = output::spinner(what.to_owned());
        let result = work();
        spinner.finish_and_clear();
        result
    }

    /// Prints what was done.
    fn finish(&self, verb: &str, reviewed: Reviewed, as_json: bool) -> Result<ExitCode, CliError> {
        let every = self.items(true)?;
        let left = every.iter().filter(|item| item.later.is_none()).count();
        let Reviewed { decided, left: not_merged, finished, notes, merged_into } = &reviewed;
        if as_json {
            output::print_json(&json!({
                "decision": verb,
                "decided": decided.iter().map(|item| &item.id).collect::<Vec<_>>(),
                "left": not_merged.iter().map(|(item, why)| {
                    let (why, hint) = describe_not_merged(item, why);
                    json!({ "id": item.id, "why": why, "hint": hint })
                }).collect::<Vec<_>>(),
                "branches": finished.iter().map(|finished| json!({
                    "branch": finished.branch, "pull_request": finished.pull, "left": finished.left,
                })).collect::<Vec<_>>(),
                "notes": notes,
                "merged_into": merged_into,
                "waiting": left,
            }))?;
        } else {
            output::print(&render::reviewed(verb, &reviewed, left, every.len() - left))?;
        }
        let Some((item, why)) = not_merged.first() else { return Ok(ExitCode::SUCCESS) };
        if as_json {
            return Ok(ExitCode::from(FAILED));
        }
        let (_, hint) = describe_not_merged(item, why);
        Err(CliError::new(format!("{} not {verb}", counted_were(not_merged.len()))).hint(hint))
    }
}

fn counted_were(count: usize) -> String {
    let was = if count == 1 { "was" } else { "were" };
    format!("{} {was}", counted(count as u64, "unit"))
}
