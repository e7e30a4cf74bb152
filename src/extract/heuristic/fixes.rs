//! Detects fixes: a command that failed and passed once it was run with other flags or variables.

use knowledge::UnitType;
use knowledge::text::one_line;

use super::command::{self, is_variable, strip_wrapping};
use super::detection::{Detection, Detections, evidence_at, quote_utterance};
use super::session::Session;
use crate::sentences;

/// Flags that change the output or narrow the run: adding one of them fixes nothing.
const UNINFORMATIVE_FLAGS: [&str; 24] = [
    "-v",
    "-vv",
    "-vvv",
    "--verbose",
    "-x",
    "-s",
    "--help",
    "-h",
    "--nocapture",
    "-k",
    "-run",
    "--test",
    "-p",
    "--lib",
    "-q",
    "--quiet",
    "--debug",
    "-f",
    "-n",
    "-c",
    "--version",
    "--no-capture",
    "-C",
    "--tail",
];
/// How many events may lie between the failure and the run that passed.
const EVENTS_APART_MAX: usize = 14;

/// Detects failures that were fixed by adding flags or variables, without an edit in between.
pub(super) fn detect(session: &Session<'_>, detections: &mut Detections) {
    for failed in session.runs.iter().filter(|run| !run.ok && command::is_informative(run)) {
        let Some(passed) = command::find_passing_run(session, failed, failed.ended) else { continue };
        let edited = session.edits.iter().any(|edit| edit.event > failed.ended && edit.event < passed.event);
        let near = passed.event - failed.ended <= EVENTS_APART_MAX;
        let added = added_flags(failed.command, passed.command);
        let statement = format!("{} → {}", one_line(failed.command, 60), one_line(passed.command, 60));
        if edited || !near || added.is_empty() || added.len() > 3 {
            continue;
        }
        let symptom = command::find_symptom(failed);
        let explanation = session.utterances.iter().find(|utterance| {
            let text = &utterance.sentence.text;
            !utterance.sentence.is_question
                && utterance.event > failed.ended
                && utterance.event <= passed.ended + 3
                && added
                    .iter()
                    .any(|part| text.contains(part.trim_start_matches('-').split('=').next().unwrap_or(part)))
                && sentences::content_words(text).len() >= 4
        });
        let Some(explanation) = explanation else {
            detections.reject(&statement, "nobody explained why the second command works");
            continue;
        };
        let failed_command = strip_wrapping(failed.command);
        let added = added.join(" ");
        detections.found.push(Detection {
            kind: UnitType::Bug,
            title: format!(
                "`{}` needs `{added}` when it fails with \"{}\"",
                command::program_and_subcommand(failed_command),
                one_line(&symptom.message, 60)
            ),
            statement: explanation.sentence.text.clone(),
            by_human: explanation.by_human,
            summary: Some(format!(
                "`{}` failed with \"{}\" until it was run with `{added}`",
                symptom.command,
                one_line(&symptom.message, 120)
            )),
            when: Some(symptom.describe_condition()),
            what_to_do: Some(format!(
                "Run it with `{added}`:\n\n```sh\n{}\n```",
                one_line(passed.command, 300)
            )),
            why: Some(explanation.sentence.text.clone()),
            rejected: None,
            shown_by: Some(format!(
                "`{}` failed without `{added}` and passed with it",
                one_line(failed_command, 100)
            )),
            confidence: 0.6,
            event: failed.event,
            detector: "fixes",
            utterance: None,
            evidence: vec![
                evidence_at(failed.result_line, &symptom.quote()),
                quote_utterance(explanation),
                evidence_at(passed.line, &format!("{} → passed", one_line(passed.command, 100))),
            ],
        });
    }
}

/// The flags and variables that only the second command has; empty if anything else differs.
fn added_flags(failed: &str, passed: &str) -> Vec<String> {
    let before: Vec<&str> = strip_wrapping(failed).split_whitespace().collect();
    let mut words = strip_wrapping(passed).split_whitespace().peekable();
    let mut added = Vec::new();
    while let Some(word) = words.next() {
        if before.contains(&word) || UNINFORMATIVE_FLAGS.contains(&word) {
            continue;
        }
        let value = words.peek().filter(|next| !next.starts_with('-') && !before.contains(next)).copied();
        match value {
            Some(value) if word.starts_with("--") && !word.contains('=') => {
                words.next();
                added.push(format!("{word} {value}"));
            }
            _ if word.starts_with('-') || is_variable(word) => added.push(word.to_owned()),
            // A different target or file makes it a different command.
            _ => return Vec::new(),
        }
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_flags_are_listed_and_another_target_gives_none() {
        assert_eq!(
            added_flags("docker build .", "docker build --platform linux/amd64 ."),
            ["--platform linux/amd64"]
        );
        assert_eq!(added_flags("cargo test", "SQLX_OFFLINE=true cargo test"), ["SQLX_OFFLINE=true"]);
        assert!(added_flags("pytest", "pytest tests/test_a.py").is_empty());
        assert!(added_flags("pytest", "pytest -v").is_empty());
    }
}
