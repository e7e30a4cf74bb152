//! Whether a text can stand alone as a title: it names what it is about, and is no step, status or chat.

use crate::sentences::{self, regexes};

regexes! {
    // Words before a statement that add nothing to it.
    LEAD_IN = r"(?ix)^(?:
        (?:(?:and|so|but|also|ok(?:ay)?|yes|yeah|right|well|now|actually|basically|essentially|specifically|importantly|crucially|unfortunately|interestingly|ah|oh|i\ see|good\ (?:catch|point|question|news)|got\ it|clear|understood|interesting(?:ly)?|that\ said|in\ fact|of\ course|meanwhile|similarly|likewise|ultimately|overall|finally|first|second|third|great|perfect|confirmed|found\ it|clear|in\ short|in\ other\ words|to\ be\ clear|for\ example|however|additionally|furthermore|therefore|thus|hence|then|again|remember|please\ note|note|notes?\ that|fyi|important|insight|key\ insight|root\ cause(?:\ confirmed)?|the\ (?:bug|problem|issue)|reason|why|because|rationale|context|caveat|gotcha|summary|tl;?dr|bottom\ line|result)\b[\s,:;.!—–-]+)
      | (?:(?:the\ )?(?:key|important|real|main|core|other|only|one)\ (?:insight|point|finding|difference|thing|thing\ to\ know|caveat|catch|takeaway|lesson|thing\ to\ note)\ (?:here\ )?(?:is|was)(?:\ that)?:?\s+)
      | (?:it\ (?:turns|turned)\ out|turns\ out|it\ (?:seems|appears|looks\ like)|it(?:'s|\ is)\ (?:important|worth\ noting|critical|crucial|clear|also\ worth\ noting|worth\ knowing))(?:\ to\ (?:note|know|remember))?(?:,|\ that)?\s+
      | (?:i\ (?:see|found|noticed|learned|realised|realized|discovered|confirmed)(?:\ out)?|this\ (?:means|shows|confirms|tells\ us)|that\ means|note|remember|keep\ in\ mind|be\ aware|the\ (?:root\ cause|actual\ (?:issue|problem|cause)|real\ (?:issue|problem|cause)|problem|issue|bug|cause|reason|culprit|catch|trick|point|fact)\ (?:is|was|here\ is))(?:\ that|:)\s+
    )";
    LABEL = r"^(?:[A-Z][\w /-]{1,30}|`[^`]+`|\d+[.)]):\s+";
    UNCLEAR_START = r"(?i)^(?:it|it's|its|this|that|that's|these|those|they|they're|their|them|there|there's|he|she|his|her|here|here's|such|both|either|neither|one|ones|same|some|other|others|another|another one|another thing|the (?:same|latter|former|other|others|second|first|third|last|next|above|following|below|rest|old|new|current|existing|existing|original|plan|fix|task|change|changes|diff|pr|pull request|commit|comment|review|reviewer|user|human|code|test|tests|file|function|method|line|lines|branch|issue|problem|bug|error|failure|command|script|approach|solution|idea|question|answer|output|result|reason|cause|agent|option|options|refactor|refactoring|implementation|feature|request)\b(?: [a-z]+)? (?:is|are|was|were|has|had|does|did|can|should|will|would|looks?|seems?)|i|i'm|i've|i'll|i'd|im|me|my|you|you're|you've|your|let|let's|lets|so|then|and|but|or|also|which|because|since|otherwise|instead|plus|only|just|still|already|not|no|nope|yes|yeah|what|why|how|who|where|when you|as you|as i|like|looks?|looking|seems?|maybe|perhaps|probably|hmm|ah|oh|ok|okay|sure|thanks|sorry|wait|see|given (?:this|that)|with (?:our|my|your) |as a bonus|strong signal|worth a|the (?:first|second|third|last|four|three|two|only remaining) |in (?:every|each|both) cases?|any ideas?|more what|in (?:this|that|these) |for (?:this|that|these|now) |with (?:this|that|these) |from (?:this|that) |after (?:this|that) |before (?:this|that) )(?:\b|')";
    // A step of the work at hand, or what became of it.
    OF_THE_TASK = r"(?ix)^(?:can|could|would|will|please|pls|do|does|did|is|are|was|were|has|have|had|
          (?:re)?(?:add|remove|delete|rename|move|create|implement|update|change|replace|extract|refactor|fix|rewrite|simplify|merge|split|convert|modify|adjust|introduce|insert|append|drop|bump|commit|push|verify|check|look|review|investigate|explore|examine|analy[sz]e|continue|proceed|start|begin|finish|complete|apply|revert|rebase|migrate|wire|expose|define|declare|write|print|show|display|make|build|install|open|list|search|find|test|include|inline|clean|mark|document|set|get|run|read|parse|validate|handle|ensure)(?:s|d|ed|ing)?\b
        | [a-z]+ed\ (?:the|an?|all|both|each|every|two|three|to|up|out|in)\b | [a-z]+ed\ `
        | (?:verifies|states|ensures|confirms|describes|explains|demonstrates|covers)\b
        | added|removed|created|made|found|built|ran|wrote|done|all\ (?:tests|checks|\d+|done|good|changes|the)|both\ |tests?\ |step\ |phase\ |task\ |part\ |option\ |test\ \d|case\ |scenario|before:|after:|before\ →|\d+\b|\#|\[)";
    BOUND = r"(?ix)\b(?:this\ (?:pr|commit|branch|change|diff|file|test|function|method|line|code|plan|task|session|fix|approach|case|one|point|time|comment|review|ticket|issue|bug|failure|error|step|refactor|implementation|means|way|would|will|is|was)|
          (?:the|your|my)\ (?:pr|pull\ request|diff|plan|task|fix|comment|reviewer|review|previous|above|below|following|other\ (?:one|test|file|function)|current\ (?:state|branch|code|approach|implementation|pr|change))|
          (?:pr|issue|ticket|option|step|phase|task|item|point|finding|comment)\ \#?\d+|\#\d{2,}|[A-Z]{2,6}-\d+|lines?\ ~?\d+|[\w/-]+\.\w{1,5}:\d+|\d+\ (?:tests?|files?|lines?|commits?|issues?|errors?|changes)\b|
          you\ (?:just|mentioned|said|asked|want|wanted|need|see|can\ see|pointed)|(?:as|like)\ (?:you|i)\ (?:said|mentioned|asked)|
          your\ list|i\ wrote|this\ feature|find\ a\ way|figure\ out|(?:have|take)\ a\ look|look\ into|\(recommended\)|i(?:'ve|'ll|'m|\ am|\ have|\ will|\ think|\ can|\ see|\ need|\ want|\ just|\ would|\ could|\ should|\ don't|\ didn't|\ was|\ guess|\ mean|\ added|\ fixed|\ found)|let\ me|we(?:'re|\ are)\ (?:getting|going|now|discovering|about)|
          right\ now|just\ now|for\ now|at\ the\ moment|so\ far|earlier|yesterday|today|tomorrow|next\ step|pre-existing|preexisting|unrelated\ to)\b";
    STATUS = r"(?i)✅|✓|✔|❌|⚠|🎉|🤔|\b(?:successfully|all tests|tests pass(?:ed)?|is now|are now|now (?:uses?|works?|passes|returns?|has|have|correctly|properly|shows?|handles?)|has been|have been|was (?:added|removed|fixed|updated|changed|renamed|moved|created|replaced)|were (?:added|removed|fixed|updated|changed)|looks good|lgtm)\b|→ *passed|\bTODO\b";
    CHAT = r"(?i)[╭╮╰╯│─┌└├•]|[\u{1F300}-\u{1FAFF}]|\b(?:lol|haha|soo+|hmm+|btw|pls|plz|gonna|wanna|dunno|kinda|sort of|thinking aloud|pop quiz|not sure|no idea|stuff|thingy?|yeah|yep|huh)\b|\.\.\.|…|!!|\?";
    STATES = r"(?i)\b(?:is|are|isn't|aren't|has|have|hasn't|does|do|doesn't|don't|can|can't|cannot|must|mustn't|should|shouldn't|may|needs?|requires?|returns?|uses?|reads?|writes?|runs?|takes?|expects?|means?|works?|handles?|stores?|creates?|contains?|supports?|keeps?|makes?|gets?|gives?|fails?|breaks?|causes?|goes|lives?|belongs?|happens?|comes?|starts?|stops?|ignores?|rejects?|accepts?|sends?|drops?|loses?|overwrites?|deletes?|removes?|adds?|sets?|prints?|exits?|hangs?|blocks?|waits?|skips?|resolves?|matches|depends?|refers?|points?|prevents?|allows?|lets|becomes?|remains?|leaves?|holds?|shares?|provides?|includes?|checks?|calls?|triggers?|emits?|produces?|counts?|treats?|wins?|never|always|only|was|were)\b";
    // A condition without what follows from it, an entry of a glossary, a line of a log.
    UNFINISHED = r"(?i)^(?:always|never|also) \w*[^s\W]s\b|^(?:if|when|whenever|once|while|after|before|since|for|on|in|with|without|where|until|as|because|during|given|by|to|from|at)\b[^,→:]*$|^[\w`'./ -]{2,50} [-–—] [A-Z]|\d\d:\d\d:\d\d|^[*(|]|^(?:uses?|returns?|calls?|outputs?|allows?|supports?|stores?|skips?|emits?|detect\w*|consider\w*|stops?|go|get|pass(?:es)?|takes?|keeps?|gives?|tracks?|sends?|loads?|saves?|starts?|ends?|prevents?|provides?|requires?|contains?|includes?|see|expects?|points?|works?|triggers?|runs?|based on|according to|looking|using)\b";
    CONDITIONAL = r"(?i)^(?:if|when|whenever|once|while|after|before|since|until|unless|as soon as)\b";
    CONTINUED = r"(?i)^(?:and|or|but|if|when|unless|while)\b";
    SUPPOSED = r"(?i)\b(?:could|would|wouldn't|we'd|we'll|they'd|it'd|i'd|might|suppose|imagine|hypothetical\w*)\b";
    OPEN_END = r"(?i)(?:[,:;(—–-]|\b(?:and|or|but|especially|particularly|which|that|vs|with|to|of|an?|the|for|as|so|if|e\.g|i\.e|because|since|when|where|whether|than|from|by|at|like|such|including|does|did|do|was|were|will|should|must|can|could|has|have|containing|following|called|named))$";
    // A question without its answer.
    ASKS = r"(?i)^(?:(?:do|does|did|should|shall|would|could|can|is|are) (?:you|we|i|it|they|the|this|that)|which|what|how|whether)\b[^?]*$";
    // Praise, agreement, and how the work goes on.
    IDLE = r"(?i)\b(?:good (?:catch|point|idea|question|call)|great|perfect|makes sense|you're right|(?:is|are|was) (?:correct|right|valid|fine|expected|confirmed|done)\b|good to know|exactly|found it|got it|let me|let's|now i|i'll|i've|i'm going|my)\b";
    FAILURE = r"(?i)\b(?:fail(?:s|ed|ing|ure)?|error|errors|crash\w*|panic\w*|hang\w*|bug|broke|breaks?|broken|race|deadlock\w*|leak\w*|lost|loses|overwrites?|wiped?|corrupt\w*|wrong(?:ly)?|missing|silently|ignored|mistook|can't|cannot|isn't|doesn't)\b";
    CAUSE = r"(?i)\b(?:because|since|due to|root cause|caused|as a result|, so\b|which (?:means|causes|makes|breaks))";
}

/// The fewest and the most words of a statement.
pub(super) const WORDS: std::ops::RangeInclusive<usize> = 7..=45;

/// Whether a text says something by itself, and not only of the work at hand.
pub(super) fn stands_alone(text: &str) -> bool {
    // A verb within code is no verb of the sentence; an arrow stands for one that is missing.
    let words: String = text.split('`').step_by(2).collect();
    is_clear(text) && !words.contains(['→', '⇒']) && (STATES.is_match(&words) || explains_a_failure(text))
}

/// Whether a sentence says something beside a statement: no praise, no step of the work and no status.
pub(super) fn informs(sentence: &str) -> bool {
    ![&*IDLE, &*OF_THE_TASK, &*BOUND, &*STATUS, &*CHAT].iter().any(|form| form.is_match(sentence))
}

/// Whether a sentence begins with what the one before it names, or points elsewhere.
pub(super) fn refers_back(sentence: &str) -> bool {
    UNCLEAR_START.is_match(sentence) || points_elsewhere(sentence)
}

/// Whether a text says that something fails, and why.
pub(super) fn explains_a_failure(text: &str) -> bool {
    FAILURE.is_match(text) && CAUSE.is_match(text)
}

/// Whether a text names what it is about, and is no step, status or chat.
pub(super) fn is_clear(text: &str) -> bool {
    let words = text.split_whitespace().count();
    let code = text.matches('`').count();
    WORDS.contains(&words)
        && code.is_multiple_of(2)
        && is_balanced(text)
        && !UNCLEAR_START.is_match(text)
        && !OF_THE_TASK.is_match(text)
        && !BOUND.is_match(text)
        && !STATUS.is_match(text)
        && !CHAT.is_match(text)
        && !UNFINISHED.is_match(text)
        && !lacks_main_clause(text)
        && !SUPPOSED.is_match(text)
        && !points_elsewhere(text)
        && !text.ends_with([':', ',', '—', '-', '('])
        && sentences::content_words(text).len() >= 4
}

/// Whether a text names only a condition: "If the file is locked, or if it is gone".
fn lacks_main_clause(text: &str) -> bool {
    CONDITIONAL.is_match(text)
        && text.split_once(',').is_none_or(|(_, rest)| {
            let rest = rest.trim_start();
            CONTINUED.is_match(rest) && !rest.contains(", ") || rest.split_whitespace().count() < 3
        })
}

/// Whether a text points at something that only its surroundings name: "these", "this flag", "the four above".
fn points_elsewhere(text: &str) -> bool {
    const STAYS: [&str; 6] = ["repo", "repository", "project", "codebase", "team", "workspace"];
    // "that" before another word may begin a clause.
    const THINGS: [&str; 14] = [
        "flag",
        "option",
        "file",
        "function",
        "field",
        "command",
        "test",
        "case",
        "error",
        "value",
        "directory",
        "hook",
        "setting",
        "variable",
    ];
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '\'').to_lowercase())
        .collect();
    words.iter().enumerate().any(|(at, word)| match word.as_str() {
        "these" | "those" | "here" | "above" | "below" | "etc" => true,
        "this" => words.get(at + 1).is_none_or(|next| !STAYS.contains(&next.as_str())),
        "that" => words.get(at + 1).is_some_and(|next| THINGS.contains(&next.as_str())),
        _ => false,
    })
}

/// A statement without the words before it that add nothing.
pub(super) fn without_lead_in(text: &str) -> &str {
    let mut rest = text;
    for _ in 0..3 {
        let cut = LEAD_IN.find(rest).or_else(|| LABEL.find(rest)).map_or(0, |found| found.end());
        if cut == 0 || cut >= rest.len() {
            break;
        }
        rest = &rest[cut..];
    }
    rest
}

/// Whether a title is whole: its brackets are closed, it ends where a sentence can end, and it is more than code.
pub(super) fn is_whole(title: &str) -> bool {
    let code: usize = title.split('`').skip(1).step_by(2).map(str::len).sum();
    is_balanced(title)
        && title.matches('`').count().is_multiple_of(2)
        && code * 5 < title.len() * 4
        && !OPEN_END.is_match(title)
        && !ASKS.is_match(title)
        && !lacks_main_clause(title)
        && !title.starts_with(['+', '<', '>', '/', '|', '&', '=', ')'])
}

/// Whether each bracket and quotation mark has its partner.
fn is_balanced(text: &str) -> bool {
    let count = |c: char| text.matches(c).count();
    count('(') == count(')')
        && count('[') == count(']')
        && count('{') == count('}')
        && count('"').is_multiple_of(2)
}
