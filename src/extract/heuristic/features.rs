//! Describes a sentence by cues in its words and by what happened around it, for the scorer.
//!
//! Each feature has a name, under which `weights.json` holds its weight. No feature depends on the words of a
//! project, so that weights learned on one repository hold for another.

use std::collections::{BTreeMap, HashMap, HashSet};

use knowledge::UnitType;
use knowledge::text::one_line;

use super::detection::Detection;
use super::message::TASK_CHARS_MAX;
use super::session::{Session, Utterance};
use super::{causes, command, decisions, recipes, rules, vocabulary};
use crate::sentences::{self, regexes};

/// The features of a sentence that are not zero.
pub(super) type Features = Vec<(&'static str, f64)>;

/// The cues that are looked for in the text of a sentence.
macro_rules! cues {
    ($($name:literal = $pattern:expr;)+) => {
        static CUES: std::sync::LazyLock<Vec<(&'static str, regex::Regex)>> = std::sync::LazyLock::new(|| {
            vec![$(($name, regex::Regex::new($pattern).expect("a constant expression"))),+]
        });
    };
}

cues! {
    // The form of the sentence.
    "imperative" = r"(?i)^(?:please )?(?:always|never|don't|do not|avoid|use|prefer|keep|make sure|ensure|stop|run|put|write|store|treat|pass|set|call|return|add|check|read|pin|wrap|leave|let|remember|note)\b";
    "universal" = r"(?i)\b(?:always|never|every|each|any|all|only|whenever|regardless|in general|generally|everywhere)\b";
    "obligation" = r"(?i)\b(?:must|should|shouldn't|have to|has to|need to|needs to|ought|required?|requires|mandatory)\b";
    "impossibility" = r"(?i)\b(?:can't|cannot|can not|won't|doesn't|does not|isn't|is not|aren't|are not|never|no longer|unable|impossible|unsupported|ignores?|ignored|silently|refuses?|rejects?)\b";
    "contrast" = r"(?i)\b(?:instead of|rather than|instead|as opposed to|in favou?r of|whereas|unlike|not just)\b|, not \b|\bnot [^,.;]{2,50}[,;]? but\b";
    "reason" = r"(?i)\b(?:because|since|so that|otherwise|due to|that's why|which is why|the reason|as a result|therefore|thus|hence)\b|, so ";
    "condition" = r"(?i)\b(?:when|whenever|if|unless|until|once|before|after|without)\b";
    "cause stated" = r"(?i)\b(?:root cause|caused by|the cause|culprit|turns? out|turned out|the (?:actual|real|underlying) (?:problem|issue|bug|reason)|the (?:problem|issue|bug) (?:is|was)|fails? because|failed because|broke because|happens because|is because|was because)\b";
    "insight" = r"(?i)\b(?:key (?:insight|point|finding|difference|thing)|insight|lesson|gotcha|caveat|pitfall|trick|important(?:ly)?|crucial(?:ly)?|worth noting|note that|keep in mind|be careful|beware|subtle|the catch|by design|on purpose|intentional(?:ly)?|deliberate(?:ly)?)\b";
    "default" = r"(?i)\b(?:by default|defaults? to|convention|standard|idiomatic|policy|guideline|best practice|invariant|contract|guarantee[sd]?|assum(?:es?|ption))\b";
    "decision" = r"(?i)\b(?:decided|decision|chose|chosen|choose|opted|agreed|settled|go with|going with|went with|stick with|trade-?off|let's (?:use|keep|go|not|do|make|call|stick|leave|just))\b";
    "preference" = r"(?i)\b(?:i(?:'d| would)? (?:prefer|rather|like|want|think|don't want|don't like|do want|hate|expect)|we (?:want|prefer|don't want|like|need|don't need)|better to|nicer|cleaner|simpler|it(?:'s| is| would be) better)\b";
    "durable" = r"(?i)\b(?:from now on|going forward|in (?:the )?future|in general|as a rule|rule of thumb|keep in mind|remember|for future reference|long[- ]term)\b";
    "we" = r"(?i)\b(?:we|we're|we've|we'll|our|us)\b";
    "i" = r"(?i)\b(?:i|i'm|i've|i'll|i'd|me|my)\b";
    "you" = r"(?i)\b(?:you|you're|you've|your)\b";
    "modal guess" = r"(?i)\b(?:would|could|might|may|maybe|perhaps|probably|likely|seems?|looks? like|appears?|i think|i guess|not sure|should be)\b";
    "present fact" = r"(?i)\b(?:is|are|has|have|does|do|returns?|uses?|reads?|writes?|runs?|takes?|expects?|means?|works?|handles?|stores?|creates?|contains?|supports?|needs?|keeps?|makes?|gets?|fails?|breaks?)\b";
    "past" = r"(?i)\b(?:was|were|had|did|didn't|wasn't|found|added|fixed|updated|changed|removed|created|moved|made|used|passed|failed)\b";
    // What a status, a plan or an announcement looks like.
    "announcement" = r"(?i)^(?:let me|now|i'll|i will|i'm going|i need to|i should|i can|next|first|then|let's (?:see|check|look|start|try|run|verify)|looking|checking|running|going to|starting|continuing|time to|here(?:'s| is| are)|below)\b";
    "status" = r"(?i)^(?:done|fixed|added|updated|removed|changed|created|implemented|renamed|moved|refactored|committed|pushed|replaced|extracted|simplified|cleaned|verified|all |everything|both|tests?|build|lint|no |good|great|perfect|excellent|i've|i have|i added|i fixed|i updated|successfully|completed?)\b|✅|✓|✔|❌";
    "passing" = r"(?i)\b(?:tests? (?:all )?pass(?:es|ed|ing)?|passing|all (?:green|good|set|clean)|compiles|builds? (?:cleanly|successfully)|lint(?:s|ing)? (?:passes|clean)|works now|0 issues|no errors|successfully)\b";
    "task noun" = r"(?i)\b(?:the (?:plan|task|todo|diff|pr|pull request|commit|change|changes|fix|file|test|tests|function|method|line|comment|review|user|code)|this (?:plan|task|diff|pr|commit|change|file|test|function|method|line|comment|code|approach|means))\b";
    "thing of now" = r"(?i)\b(?:currently|right now|at the moment|today|this time|for now|just now|already|still|again|so far|remaining|previous(?:ly)?|earlier|above|below|following|latest)\b";
    "deictic start" = r"(?i)^(?:it|it's|this|that|that's|they|these|those|there|he|she|its|here|such|both|either|one|same|the (?:same|latter|former|other|second|first|third))\b";
    "subject first" = r"^(?:The|A|An|Each|Every|All|`[^`]+`|[A-Z][\w-]+) (?:[\w`/-]+ ){0,4}(?:is|are|has|have|does|do|can|can't|cannot|must|should|needs?|uses?|returns?|reads?|writes?|only|never|always)\b";
    "lead-in" = r"^[\w`' /-]{2,40}(?::| —| –| - )\s";
    "code" = r"`[^`]+`";
    "much code" = r"(?:`[^`]+`.*){3,}";
    "path" = r"[\w.-]+/[\w./-]+\.\w+|\b[\w-]+\.(?:go|rs|ts|tsx|js|py|md|json|yaml|yml|toml|sh|sql)\b";
    "line number" = r"(?i)\blines? \d+|:\d+\b|\bL\d+";
    "url" = r"https?://";
    "number" = r"\b\d+\b";
    "capitals" = r"\b[A-Z]{3,}\b";
    "flag" = r"(?:^|[\s`])--?[a-z][\w-]*";
    "arrow" = r"→|->|=>|⇒";
    "parenthesis" = r"\([^)]{10,}\)";
    "quoted" = r#"["“][^"”]{3,}["”]"#;
    "dash clause" = r" [—–-] ";
    "semicolon" = r"; ";
    "correction" = r"(?i)^(?:no|nope|actually|wait|hmm|but|not quite|that's (?:wrong|not)|this is (?:wrong|not)|why (?:did|do|are|is)|you (?:should|shouldn't|didn't|forgot|are|missed))\b";
    "agreement" = r"(?i)^(?:yes|yeah|yep|ok|okay|sure|sounds good|good|great|perfect|agreed|right|correct|exactly|makes sense)\b";
    "request" = r"(?i)^(?:can|could|would|please|pls|help|i want you|i need you|let's|now|also|then|next|implement|create|fix|update|add|remove|change|rename|move|refactor|review|look|check|commit|push|continue|try|show|explain|find|do|go|run)\b";
    "ends open" = r"[:,—–-]$";
    "user" = r"(?i)\b(?:user|users|people|developers?|customers?)\b";
    "compatibility" = r"(?i)\b(?:version|release|backwards?[- ]compat\w*|compatib\w+|deprecated|legacy|migrat\w+|breaking|platform|linux|macos|windows|ci)\b";
    "failure word" = r"(?i)\b(?:error|errors|fails?|failed|failure|crash\w*|panic\w*|hang\w*|bug|bugs|broken|breaks?|race|deadlock|leak\w*|flak\w+|timeout|wrong|corrupt\w*|lost|missing|conflict\w*)\b";
    "remedy word" = r"(?i)\b(?:fix|fixes|fixed|solution|solved|resolve[sd]?|workaround|avoid(?:s|ed)?|prevents?|ensures?|instead)\b";
    "test word" = r"(?i)\b(?:test|tests|testing|mock|mocks|fixture|coverage|e2e|integration|unit)\b";
    "git word" = r"(?i)\b(?:git|commit|commits|branch|merge|rebase|push|checkout|stash|hook|hooks|worktree)\b";
    "review word" = r"(?i)\b(?:nit|suggestion|finding|severity|minor|medium|high|low|reviewer|review|approve|lgtm|consider)\b";
    "before a fix" = r"(?i)\b(?:was|were|wasn't|didn't|previously|currently|before this|used to|is missing|was missing|never set|isn't being|aren't being|is being|are being|no longer|stale|not (?:yet|being)|still)\b";
    "capability" = r"(?i)\b(?:only (?:supports?|works?|allows?|accepts?|loads?|reads?|runs?|applies|exposes?)|(?:doesn't|does not|don't|do not|can't|cannot) (?:support|allow|accept|expose|have|work|handle|detect|persist|see|include|read|run|return|check|propagate|fire|inherit|resolve|know)|requires?|must be|needs? to be|has to be|by default|is limited to|is not supported)\b";
    "tool as subject" = r"^(?:The )?(?:[A-Z][\w.+-]*[a-z][\w.+-]*(?: [A-Z][\w-]*){0,3}|`?(?:git|go|npm|cargo|docker|gh|node|python|bash|sh|curl|make|pnpm|yarn|uv|pip|kubectl|psql|sqlite|jq|sed|claude|gemini|codex)\b[^`]{0,20}`?)(?:'s \w+)? (?:\w+ ){0,2}(?:only|always|never|doesn't|does not|don't|can't|cannot|requires?|needs?|supports?|uses?|has|have|is|are|expects?|returns?|treats?|reads?|writes?|creates?|ignores?|rejects?|loads?|runs?|caches?|stores?|resolves?|keeps?|adds?|sets?|fails?)\b";
    "function of the project" = r"`[A-Za-z_]\w*(?:\.\w+)*\([^`]*\)`|\b[a-z]+[A-Z]\w*\(\)";
    "sample value" = r"-\d|\b\d+(?:s|ms|k|%)\b|\b(?:file|test|foo|abc|example)\d+\b|\bfoo\b";
    "comparison" = r"(?i)\b(?:than|more|less|better|worse|simpler|cleaner|faster|slower|easier)\b";
    "our" = r"(?i)\bour\b";
    "step" = r"(?i)^(?:step|phase|task|option|part|section|test|case|scenario|issue|problem|question|note|summary|result|status|goal|context|example)\s*#?\d*\b";
}

regexes! {
    IDENTIFIER = r"[A-Za-z_][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)+|[a-z]+[A-Z]\w+|[A-Z][a-z]+[A-Z]\w+|--[a-z][\w-]+";
    ASKS_BACK = r"\?\s*$";
    REVIEWS = r"(?i)\b(?:review|feedback|pr comments?|code quality|audit)\b";
    CARRIES_OUT_A_PLAN = r"(?i)^(?:implement (?:the|this) (?:following )?plan|#+ (?:plan|implementation))";
    RESEARCHES = r"(?i)\b(?:research|investigate|why|debug|figure out|find out|explain|understand|how does|root cause)\b";
    REFUSES = r"(?i)^(?:no|nope|actually|wait|that's (?:wrong|not)|not |still |but |hmm|why|i don't|it (?:still|doesn't|didn't))";
    ACCEPTS = r"(?i)^(?:yes|yeah|ok|okay|great|perfect|good|nice|sounds|commit|push|lgtm|agreed|thanks|exactly|do it|go)";
}

/// How many events around a sentence are looked at.
const NEAR_EVENTS: usize = 8;
/// The share of words in another sentence from which it states the same.
const RESTATED_SHARE: f64 = 0.6;

/// What is looked up for each sentence of a session.
pub(super) struct Surroundings<'s, 'a> {
    session: &'s Session<'a>,
    words: Vec<HashSet<String>>,
    /// The sentences that contain a word, by their indices.
    with_word: HashMap<String, Vec<usize>>,
    /// The identifiers that edits wrote.
    written: HashSet<String>,
    /// The events of people's messages.
    human_events: Vec<usize>,
    first_of_event: BTreeMap<usize, usize>,
    /// How the session began.
    task: String,
}

impl<'s, 'a> Surroundings<'s, 'a> {
    pub(super) fn new(session: &'s Session<'a>) -> Self {
        let words: Vec<HashSet<String>> = session
            .utterances
            .iter()
            .map(|utterance| sentences::content_words(&utterance.sentence.text).into_iter().collect())
            .collect();
        let mut with_word: HashMap<String, Vec<usize>> = HashMap::new();
        let mut first_of_event = BTreeMap::new();
        for (at, utterance) in session.utterances.iter().enumerate() {
            first_of_event.entry(utterance.event).or_insert(at);
            for word in &words[at] {
                with_word.entry(word.clone()).or_default().push(at);
            }
        }
        let written = session.edits.iter().flat_map(|edit| identifiers(edit.new)).collect();
        let mut human_events: Vec<usize> = session
            .utterances
            .iter()
            .filter(|utterance| utterance.by_human)
            .map(|utterance| utterance.event)
            .collect();
        human_events.dedup();
        let task = session
            .conversation
            .human_words()
            .next()
            .map_or(String::new(), |words| one_line(words, TASK_CHARS_MAX));
        Self { session, words, with_word, written, human_events, first_of_event, task }
    }

    /// The features of a detection: those of its title and of the sentence that it was found in.
    pub(super) fn features(&self, detection: &Detection) -> Features {
        let title = detection.title.as_str();
        let words = title.split_whitespace().count();
        let mut features: Features = vec![("bias", 1.0), (detection.detector, 1.0)];
        for (name, is_so) in [
            ("title: up to 9 words", words <= 9),
            ("title: over 20 words", words > 20),
            ("title: part of the sentence", title.len() * 10 < detection.statement.len() * 7),
            ("title: begins with code", title.starts_with('`')),
            ("has a reason", detection.why.is_some()),
            ("has a rejected alternative", detection.rejected.is_some()),
            ("has a remedy", detection.what_to_do.is_some()),
            ("shown by commands", detection.shown_by.is_some()),
            ("bug", detection.kind == UnitType::Bug),
            ("decision unit", detection.kind == UnitType::Decision),
            ("belief", detection.kind == UnitType::Belief),
        ] {
            if is_so {
                features.push((name, 1.0));
            }
        }
        if let Some(at) = detection.utterance {
            features.extend(self.of_sentence(at));
        }
        features
    }

    fn of_sentence(&self, at: usize) -> Features {
        let utterance = &self.session.utterances[at];
        let text = utterance.sentence.text.as_str();
        let mut features = Features::new();
        let mut add = |name: &'static str, is_so: bool| {
            if is_so {
                features.push((name, 1.0));
            }
        };
        let human = utterance.by_human;
        for (name, _) in CUES.iter().filter(|(_, cue)| cue.is_match(text)) {
            add(name, true);
            let of_human = HUMAN_CUES.iter().find(|(_, cue)| cue == name);
            add(of_human.map_or("", |(name, _)| name), human && of_human.is_some());
        }
        let count = text.split_whitespace().count();
        add("very short", count < 6);
        add("short", (6..=10).contains(&count));
        add("long", (26..=40).contains(&count));
        add("very long", count > 40);
        add("question", utterance.sentence.is_question);
        add("hedged", sentences::is_hedged(text));
        add("lower case start", text.starts_with(|c: char| c.is_lowercase()));
        add("technical", vocabulary::is_technical(text));

        add("human", human);
        let bytes = utterance.message.text.len();
        add("human in a few words", human && bytes < 200);
        add("human in a paragraph", human && (200..1_500).contains(&bytes));
        add("human at length", human && bytes >= 1_500);
        add("assistant in a few words", !human && bytes < 200);
        add("assistant at length", !human && bytes >= 1_500);
        let first = self.first_of_event.get(&utterance.event).is_some_and(|&first| first == at);
        add("first sentence", first);
        add("human, first sentence", human && first);
        add("last sentence", self.session.next(at).is_none());
        add("opens the session", self.human_events.first().is_some_and(|&event| event >= utterance.event));
        add("list item", utterance.sentence.is_list_item);

        let form_of_rule = human && rules::has_form(text);
        add("form of a rule", form_of_rule);
        add("form of a decision", decisions::has_form(text));
        add("form of a cause", causes::has_form(text));
        add("form of a recipe", recipes::has_form(text));
        add("form with a reason", sentences::split_reason(text).1.is_some());
        add(
            "reason follows",
            self.session.next(at).is_some_and(|next| sentences::reason_in(&next.sentence).is_some()),
        );
        add("orders to a model or a joke", human && utterance.message.is_untrustworthy());

        self.add_structure(utterance, at, &mut features);
        features
    }

    fn add_structure(&self, utterance: &Utterance<'_>, at: usize, features: &mut Features) {
        let session = self.session;
        let mut add = |name: &'static str, is_so: bool| {
            if is_so {
                features.push((name, 1.0));
            }
        };
        let human = utterance.by_human;
        let failed =
            session.runs.iter().rev().find(|run| {
                !run.ok && run.ended < utterance.event && utterance.event - run.ended <= NEAR_EVENTS
            });
        add("after a failure", failed.is_some());
        let passes = failed.is_some_and(|failed| {
            session.runs.iter().any(|run| {
                run.ok
                    && run.event > utterance.event
                    && run.event <= utterance.event + 3 * NEAR_EVENTS
                    && command::is_same_command(run.command, failed.command)
            })
        });
        add("between failure and success", passes);
        let edited = |range: std::ops::RangeInclusive<usize>| {
            session.edits.iter().any(|edit| range.contains(&edit.event))
        };
        add("edits follow", edited(utterance.event..=utterance.event + NEAR_EVENTS));
        add("after edits", edited(utterance.event.saturating_sub(NEAR_EVENTS)..=utterance.event));

        let next_human = self.human_events.iter().find(|&&event| event > utterance.event);
        let next_words =
            next_human.and_then(|event| self.first_of_event.get(event)).map(|&at| &session.utterances[at]);
        let between = next_human.map_or(usize::MAX, |next| next - utterance.event);
        add("assistant, end of turn", !human && (between == 1 || next_human.is_none()));
        add(
            "assistant, refused next",
            !human && next_words.is_some_and(|next| REFUSES.is_match(next.message.text)),
        );
        add(
            "assistant, accepted next",
            !human && next_words.is_some_and(|next| ACCEPTS.is_match(next.message.text)),
        );
        let before =
            session.conversation.events[..utterance.event].iter().rev().find_map(|event| match &event.kind {
                transcript::EventKind::Assistant { text } => Some(text.as_str()),
                _ => None,
            });
        add(
            "human, answers a question",
            human && before.is_some_and(|before| ASKS_BACK.is_match(before.trim_end())),
        );

        let mut others: HashMap<usize, usize> = HashMap::new();
        let words = &self.words[at];
        for word in words {
            for &other in self.with_word.get(word).into_iter().flatten() {
                if session.utterances[other].event != utterance.event {
                    *others.entry(other).or_default() += 1;
                }
            }
        }
        let same = |by_human: bool| {
            words.len() >= 4
                && others.iter().any(|(&other, &shared)| {
                    session.utterances[other].by_human == by_human
                        && shared as f64 >= RESTATED_SHARE * words.len() as f64
                })
        };
        let by_human = same(true);
        add("restated by a person", by_human);
        add("human, taken up by the assistant", human && same(false));
        add("restated by the assistant", !human && same(false));
        let named: Vec<String> = identifiers(&utterance.sentence.text).collect();
        add("names what was written", named.iter().any(|name| self.written.contains(name)));
        add(
            "names nothing written",
            !named.is_empty() && !named.iter().any(|name| self.written.contains(name)),
        );

        add("in a review", REVIEWS.is_match(&self.task));
        add("in a plan's execution", CARRIES_OUT_A_PLAN.is_match(&self.task));
        add("in research", RESEARCHES.is_match(&self.task));
        let review_asked = self
            .human_events
            .iter()
            .rev()
            .find(|&&event| event <= utterance.event)
            .and_then(|event| self.first_of_event.get(event))
            .is_some_and(|&at| REVIEWS.is_match(session.utterances[at].message.task()));
        add("in a turn about a review", review_asked);
        let events = session.conversation.events.len().max(1) as f64;
        features.push(("late in the session", utterance.event as f64 / events));
        features.push(("words", (words.len() as f64).ln_1p()));
        features.push(("sentences of the message", (utterance.message.text.len() as f64 / 100.0).ln_1p()));
    }
}

/// Cues that mean something else in a person's words.
const HUMAN_CUES: [(&str, &str); 14] = [
    ("human: imperative", "imperative"),
    ("human: universal", "universal"),
    ("human: obligation", "obligation"),
    ("human: impossibility", "impossibility"),
    ("human: contrast", "contrast"),
    ("human: reason", "reason"),
    ("human: insight", "insight"),
    ("human: decision", "decision"),
    ("human: preference", "preference"),
    ("human: we", "we"),
    ("human: correction", "correction"),
    ("human: request", "request"),
    ("human: cause stated", "cause stated"),
    ("human: present fact", "present fact"),
];

fn identifiers(text: &str) -> impl Iterator<Item = String> + '_ {
    IDENTIFIER.find_iter(text).map(|found| found.as_str().to_owned())
}
