//! Extracts knowledge by rules alone: offline, without a key, deterministic.
//!
//! Each family of detectors has its own file. A detector records what it found, and what it rejected with the
//! reason. Duplicates are merged, text that nugget recalled in the session is dropped, and the strongest
//! few are proposed.

mod causes;
mod choices;
mod command;
mod decisions;
mod detection;
mod features;
mod fixes;
mod merge;
mod message;
mod recipes;
mod rules;
mod scorer;
mod session;
mod standalone;
mod statements;
mod vocabulary;
mod wording;

use std::collections::BTreeMap;

use async_trait::async_trait;
use knowledge::text::one_line;
use knowledge::{Candidate, Rejected};
use serde::Serialize;
use transcript::{Conversation, EventKind};

use crate::injection::refusal_reason;
use crate::{Error, Extraction, ExtractionContext, Extractor};
use detection::{Detection, Detections};
use features::{Features, Surroundings};
use session::Session;

const NAME: &str = "heuristic";
/// The most candidates of one session: without a model, the best few are mostly right and the rest are not.
const CANDIDATES_MAX: usize = 5;
/// The most detections of one session that the fine-tuned model reads, about 10 ms each. Most sessions have fewer than 20.
const READ_MAX: usize = 100;

/// Extracts by rules, without a key, a network or a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeuristicExtractor;

#[async_trait]
impl Extractor for HeuristicExtractor {
    fn name(&self) -> &str {
        NAME
    }

    async fn extract(&self, conversation: &Conversation, _: &ExtractionContext) -> Result<Extraction, Error> {
        Ok(extract_by_rules(conversation))
    }
}

/// What a detector found, with the features by which the scorer judges it: for training and measuring.
#[derive(Debug, Serialize)]
pub struct ScoredCandidate {
    /// The unit as it would be proposed.
    pub candidate: Candidate,
    /// What the fine-tuned model reads.
    pub text: String,
    /// The features that are not zero.
    pub features: BTreeMap<&'static str, f64>,
    /// How likely a reviewer merges it, from 0 to 1.
    pub score: f64,
}

/// Everything that the detectors found in a conversation, whatever its score.
pub fn score_candidates(conversation: &Conversation) -> Vec<ScoredCandidate> {
    let session = Session::from_conversation(conversation);
    let surroundings = Surroundings::new(&session);
    let detections = detect(conversation, &session);
    let scored = detections.found.into_iter().map(|detection| {
        let features = with_reading(&detection, surroundings.features(&detection), &session);
        let score = scorer::score(&features);
        ScoredCandidate {
            text: detection.text(&session),
            candidate: detection.into_candidate(&session),
            features: features.into_iter().collect(),
            score,
        }
    });
    scored.collect()
}

/// What people chose among options that the model laid out: the position of the event in which they did, and question
/// and answer in a line. How to go on with the work at hand is left out.
pub fn find_choices(conversation: &Conversation) -> Vec<(usize, String)> {
    let mut detections = Detections::default();
    choices::detect(&Session::from_conversation(conversation), &mut detections);
    drop_bad_titles(&mut detections);
    detections.found.into_iter().map(|found| (found.event, found.title)).collect()
}

fn detect(conversation: &Conversation, session: &Session<'_>) -> Detections {
    let mut detections = Detections::default();
    choices::detect(session, &mut detections);
    rules::detect(session, &mut detections);
    decisions::detect(session, &mut detections);
    causes::detect(session, &mut detections);
    fixes::detect(session, &mut detections);
    recipes::detect(session, &mut detections);
    statements::detect(session, &mut detections);

    drop_untechnical(&mut detections);
    drop_bad_titles(&mut detections);
    merge::drop_recalled(conversation, &mut detections);
    detections
}

/// What the fine-tuned model reads: of the many detections of a huge session those with the best cues.
fn worth_reading(
    surroundings: &Surroundings<'_, '_>,
    detections: &mut Detections,
) -> Vec<(Detection, Features)> {
    let found = std::mem::take(&mut detections.found).into_iter();
    let with_cues = |detection| {
        let features = surroundings.features(&detection);
        (detection, features)
    };
    let mut found: Vec<_> = found.map(with_cues).collect();
    if found.len() > READ_MAX {
        found.sort_by(|a, b| {
            let (a_first, b_first) = (a.0.is_set_phrase(), b.0.is_set_phrase());
            b_first.cmp(&a_first).then(scorer::score(&b.1).total_cmp(&scorer::score(&a.1)))
        });
        for (weak, _) in found.split_off(READ_MAX) {
            detections.reject(&weak.title, "the session has stronger candidates");
        }
    }
    found
}

fn with_reading(detection: &Detection, mut features: Features, session: &Session<'_>) -> Features {
    features.push(scorer::read(&detection.text(session)));
    features
}

/// Extracts by rules. Never fails: without a lesson the extraction says why.
pub(crate) fn extract_by_rules(conversation: &Conversation) -> Extraction {
    let session = Session::from_conversation(conversation);
    let surroundings = Surroundings::new(&session);
    let mut detections = detect(conversation, &session);
    drop_denied(&session, &mut detections);
    for (mut detection, features) in worth_reading(&surroundings, &mut detections) {
        let score = scorer::score(&with_reading(&detection, features, &session));
        // A set phrase is rare and nearly always meant.
        let threshold = scorer::threshold(detection.detector);
        if score < threshold && !detection.is_set_phrase() {
            detections.reject(&detection.title, "too little shows that it is a lesson");
            continue;
        }
        detection.confidence = confidence_from(score);
        detections.found.push(detection);
    }
    merge::merge_duplicates(&session, &mut detections);
    // What a person says outright was mergeable in 23 of 28 judged cases, more often than what is scored.
    let is_outright = |detection: &Detection| detection.by_human && detection.is_set_phrase();
    detections.found.sort_by(|a, b| {
        is_outright(b)
            .cmp(&is_outright(a))
            .then(b.confidence.total_cmp(&a.confidence))
            .then(a.event.cmp(&b.event))
    });
    for weak in detections.found.split_off(detections.found.len().min(CANDIDATES_MAX)) {
        detections.reject(&weak.title, "the session has stronger candidates");
    }
    let mut candidates = Vec::new();
    for detection in std::mem::take(&mut detections.found) {
        let candidate = detection.into_candidate(&session);
        // A session repeats what it has read, from pages and files as well.
        match refusal_reason([&candidate.title, &candidate.description, &candidate.body]) {
            Some(reason) => detections.reject(&candidate.title, &reason),
            None => candidates.push(candidate),
        }
    }
    let rejected = detections.rejected;
    let empty_reason = candidates.is_empty().then(|| describe_why_empty(conversation, &rejected));
    Extraction { candidates, rejected, empty_reason, extractor: NAME.to_owned(), ..Extraction::default() }
}

/// The confidence of a unit: how likely it is merged. Without a language model it stays at most 0.7, the confidence of a
/// model's units.
fn confidence_from(score: f64) -> f64 {
    (score.clamp(0.5, 0.7) * 100.0).round() / 100.0
}

/// Drops detections that do not show that they are about technical work.
///
/// "Let's keep spreading kindness" has the form of a decision. An instruction stays regardless of its topic: "always
/// answer in German" is worth remembering. So do the cause of a command's failure, and a choice that a person calls a
/// decision and weighs against another.
fn drop_untechnical(detections: &mut Detections) {
    for detection in std::mem::take(&mut detections.found) {
        let is_decision =
            detection.by_human && detection.detector == "labelled decisions" && detection.rejected.is_some();
        if rules::is_order(&detection)
            || is_decision
            || detection.when.is_some()
            || vocabulary::is_technical(&detection.statement)
        {
            detections.found.push(detection);
        } else {
            detections.reject(&detection.title, "no technical term was recognised in it");
        }
    }
}

/// Drops what the person took back, and what the assistant stated and the person denied at once. Of the better candidates
/// (.5 or more) of three repositories a reader would merge 47 % of 45 of the latter, and 72 % of 781 others.
fn drop_denied(session: &Session<'_>, detections: &mut Detections) {
    for detection in std::mem::take(&mut detections.found) {
        if !detection.by_human && session.is_denied(detection.event) {
            detections.reject(&detection.title, "the person did not agree");
        } else if detection.by_human && session.is_taken_back(detection.event, &detection.statement) {
            detections.reject(&detection.title, "the person took it back");
        } else {
            detections.found.push(detection);
        }
    }
}

/// Drops detections whose statement makes no title: it is too long, or only a part of a sentence.
fn drop_bad_titles(detections: &mut Detections) {
    for detection in std::mem::take(&mut detections.found) {
        let title = detection::make_title(&detection.title);
        if !detection::fits_title(&title) {
            detections.reject(&detection.title, "too long to be one lesson");
        } else if !standalone::is_whole(&title) {
            detections.reject(&detection.title, "unclear without its context");
        } else {
            detections.found.push(detection);
        }
    }
}

fn describe_why_empty(conversation: &Conversation, rejected: &[Rejected]) -> String {
    let turns = conversation.human_words().count();
    let turns = if turns == 1 { "1 turn".to_owned() } else { format!("{turns} turns") };
    match rejected {
        [] if conversation.events.is_empty() => "nothing was said".to_owned(),
        [] if !conversation.events.iter().any(|event| matches!(event.kind, EventKind::Human { .. })) => {
            "no person said anything in it".to_owned()
        }
        [] if conversation.human_words().fold(Language::default(), Language::with).is_other() => {
            format!(
                "the rules read English, and found nothing in {turns}; with a model, nugget reads any language"
            )
        }
        [] => format!("no decision, fix or rule was stated in {turns}"),
        [one, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!("; and {} more", rest.len()) };
            format!(
                "nothing in {turns} was worth a review: \"{}\" was left out ({}){more}",
                one_line(&one.title, 80),
                one.reason
            )
        }
    }
}

/// What tells English from other languages.
#[derive(Default)]
struct Language {
    /// Letters, and those that no English word has.
    letters: usize,
    letters_foreign: usize,
    /// The commonest words of English, and of some other languages.
    words_english: usize,
    words_foreign: usize,
}

impl Language {
    /// Words of one language that hardly occur in the other.
    const ENGLISH: [&str; 12] =
        ["the", "and", "is", "to", "of", "we", "that", "it", "for", "not", "with", "please"];
    const FOREIGN: [&str; 28] = [
        "und", "nicht", "ist", "das", "der", "wir", "ein", "eine", "mit", "auch", "bitte", "que", "para",
        "uma", "não", "por", "una", "pero", "est", "les", "une", "nous", "pour", "avec", "dans", "il", "che",
        "sono",
    ];

    fn with(mut self, text: &str) -> Self {
        let is_foreign = |c: &char| matches!(c, '\u{370}'..='\u{1fff}' | '\u{2c00}'..='\u{d7ff}');
        self.letters += text.chars().filter(|c| c.is_alphabetic()).count();
        self.letters_foreign += text.chars().filter(is_foreign).count();
        for word in text.split(|c: char| !c.is_alphabetic()).map(str::to_lowercase) {
            self.words_english += usize::from(Self::ENGLISH.contains(&word.as_str()));
            self.words_foreign += usize::from(Self::FOREIGN.contains(&word.as_str()));
        }
        self
    }

    /// Whether it is surely another language: a few words quoted from one make no such session.
    fn is_other(&self) -> bool {
        let has_foreign_letters = self.letters_foreign * 3 > self.letters;
        has_foreign_letters || (self.words_foreign >= 3 && self.words_foreign > 2 * self.words_english)
    }
}

#[cfg(test)]
mod tests;
