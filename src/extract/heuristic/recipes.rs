//! Ways of doing that were stated and then seen to work.

use knowledge::UnitType;

use super::finding::{Finding, Findings, evidence, quoted, upper_first};
use super::prose::{self, expression};
use super::rules;
use super::session::Session;

expression! {
    TRICK = r"(?i)^(?:so |and |ok(?:ay)?,? )?the (?:trick|(?:right|reliable|safe|correct|proper|clean|only|simplest|easiest) way|way|key)\b(?P<goal>(?: to| for) [^,.;:]{3,80}?)? (?:is|was|here is|here was)(?: to)?:? (?P<rest>.{15,})$";
    WORKED = r"(?i)\b(?:that (?:did it|worked|works)|works (?:now|great|perfectly)|it works|worked (?:like a charm|perfectly)|perfect|exactly what i (?:wanted|needed)|confirmed)\b";
}
/// How far behind the statement a command may show that it works.
const NEAR_EVENTS: usize = 8;

pub(super) fn find(session: &Session<'_>, findings: &mut Findings) {
    for said in &session.said {
        let Some(found) = TRICK.captures(&said.sentence.text) else { continue };
        let statement = said.sentence.text.as_str();
        if said.sentence.question || prose::is_hedged(statement) || rules::is_untrustworthy(said.message) {
            findings.reject(statement, "supposed, not stated");
            continue;
        }
        // What passed before it was said shows nothing about it.
        let near = said.event..=said.event + NEAR_EVENTS;
        let passed = session.runs.iter().find(|run| run.ok && near.contains(&run.event));
        let confirmed = session.said.iter().find(|other| {
            other.by_human && other.event > said.event && WORKED.is_match(&other.sentence.text)
        });
        let mut quotes = vec![quoted(said)];
        let (confidence, learned) = match (passed, confirmed) {
            (_, Some(words)) => {
                quotes.push(quoted(words));
                (0.65, "It was done in the session, and the user confirmed it".to_owned())
            }
            (Some(run), None) => {
                quotes.push(evidence(run.result_line, &format!("{} → passed", run.command)));
                (0.55, format!("`{}` passed beside it", knowledge::text::one_line(run.command, 100)))
            }
            (None, None) => {
                findings.reject(statement, "nothing shows that it works");
                continue;
            }
        };
        let rest = found.name("rest").map_or("", |rest| rest.as_str());
        let (what, why) = prose::split_reason(rest);
        let goal = found.name("goal").map(|goal| goal.as_str().trim());
        let title = match goal {
            Some(goal) => format!("{}, {}", upper_first(goal), super::finding::lower_first(what)),
            None => upper_first(what),
        };
        findings.found.push(Finding {
            kind: UnitType::Pattern,
            title,
            statement: statement.to_owned(),
            by_human: said.by_human,
            summary: None,
            when: goal.map(|goal| format!("When you want {goal}")),
            what_to_do: Some(upper_first(what)),
            why: why.map(upper_first),
            rejected: None,
            learned,
            confidence,
            event: said.event,
            evidence: quotes,
        });
    }
}
