//! Guesses the domain and the tags of a lesson from short word lists.

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

use crate::sentences::{self, regexes};

regexes! {
    OF_TESTS = r"(?i)\btests?\b|_test\b|\btest_|\bt\.[A-Z]\w+";
    OF_GIT = r"(?i)\b(?:git|go-git|commits?|committed|branch(?:es)?|merges?|rebase[sd]?|worktrees?|(?-i:HEAD)|refs)\b";
    CODE = r"[`_]|\w\.\w+\(|[a-z][A-Z]|\b[A-Z]{2,}(?:s|v?\d+)?\b|--\w|\w/\w";
}

/// The guessed topic of a lesson.
pub(super) struct Topic {
    pub(super) domain: &'static str,
    pub(super) tags: Vec<String>,
}

const TAGS_MAX: usize = 6;
/// How many words must speak for a domain, in the lesson and around it.
const DOMAIN_WORDS_MIN: usize = 2;

/// The words that indicate each domain.
///
/// They are compared as stems by [`sentences::content_words`], so that `migrations` counts as `migration`.
const DOMAINS: [(&str, &str); 11] = [
    (
        "testing",
        "test tests flaky fixture fixtures mock mocks snapshot pytest jest vitest rspec assertion coverage e2e playwright cypress proptest",
    ),
    ("git", "git rebase commit merge branch squash cherry-pick bisect submodule lfs force-push worktree"),
    (
        "databases",
        "database postgres postgresql mysql sqlite sql query queries index migration migrations transaction transactions schema table tables row rows column deadlock vacuum alembic prisma redis keyset pagination cursor replica pgbouncer pragma wal fts fts5 tsquery to_tsquery tsvector",
    ),
    (
        "devops",
        "docker dockerfile container containers kubernetes kubectl pod pods helm terraform deploy deployment deploys ci pipeline nginx ingress registry rollout staging production systemd ansible probe liveness readiness replicas alpine musl",
    ),
    (
        "security",
        "secret secrets password passwords token tokens csrf xss injection tls certificate oauth permission permissions encrypt encryption vulnerability sanitize jwt cookie cookies",
    ),
    (
        "frontend",
        "react css component components browser dom tailwind vite webpack svelte vue hook hooks hydration nextjs useeffect accessibility",
    ),
    ("writing", "readme documentation docs prose wording headline tone spelling changelog"),
    ("data", "pandas dataframe numpy csv parquet etl dataset notebook spark airflow"),
    (
        "messaging",
        "queue queues consumer producer kafka rabbitmq sqs broker outbox lease acknowledge heartbeat idempotent dead-letter visibility",
    ),
    ("networking", "http https dns socket tcp proxy websocket grpc timeout latency retry retries backoff"),
    (
        "coding",
        "function async await thread mutex closure lifetime borrow compiler type types generic trait interface module import goroutine channel iterator api endpoint exception handler loop memory leak cache codebase refactor bundle bundles barrel lint linter server client config flag flags json parser serializer library crate package dependency tabs spaces",
    ),
];

/// Words that give a tag: `word`, or `word=tag` if the tag differs.
const TAGS: &str = "
    rust cargo=rust rustc=rust clippy=rust tokio serde sqlx axum rayon python python3=python pytest
    django flask fastapi pandas numpy pip=python uv poetry mypy ruff celery sqlalchemy alembic
    asyncio pydantic typescript javascript tsc=typescript node npm pnpm yarn react vue svelte nextjs
    vite vitest jest eslint tailwind prisma playwright express zod go golang=go goroutine=go
    goroutines=go java kotlin gradle maven ruby rails php elixir swift postgres postgresql=postgres
    psql=postgres mysql sqlite redis kafka mongodb pgbouncer elasticsearch docker dockerfile=docker
    kubernetes kubectl=kubernetes helm terraform nginx alpine aws github ansible systemd git grpc
    protobuf graphql http jwt oauth bash make webpack
";

/// Everyday words that are tool names only in commands.
const ONLY_IN_COMMANDS: [&str; 6] = ["go", "node", "make", "express", "swift", "http"];

/// Guesses the topic of a lesson. `nearby` holds the commands and files around it, one to a line.
pub(super) fn classify(lesson: &str, nearby: &str) -> Topic {
    let stems = sentences::content_words(lesson);
    let stems_nearby = sentences::content_words(nearby);
    // Every session runs tests and git, so nearby commands say nothing about these domains.
    let everyday = |domain: &str| matches!(domain, "testing" | "git");
    // A single word may be there by chance: "cursor" is a place in a text as well.
    let score = |domain: &str, words: &str| -> usize {
        let (mut sum, mut distinct) = (0, 0);
        // `hook` and `hooks` are one word.
        let domain_stems: BTreeSet<String> =
            words.split(' ').filter_map(|word| sentences::content_words(word).into_iter().next()).collect();
        for stem in domain_stems {
            let count = |stems: &[String]| stems.iter().filter(|other| **other == stem).count();
            let near = if everyday(domain) { 0 } else { count(&stems_nearby).min(2) };
            let here = 3 * count(&stems).min(3);
            sum += here + near;
            distinct += usize::from(here + near > 0);
        }
        if distinct >= DOMAIN_WORDS_MIN { sum } else { 0 }
    };
    // The first wins a tie, so narrower domains come before `coding`.
    let best = DOMAINS
        .iter()
        .rev()
        .map(|(domain, words)| (score(domain, words), *domain))
        .max_by_key(|(score, _)| *score);
    let domain = best.filter(|(score, _)| *score > 0).map(|(_, domain)| domain);

    let mut tags: Vec<String> = Vec::new();
    let words = |text: &str| -> Vec<String> {
        text.to_lowercase().split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect()
    };
    let in_lesson = words(lesson);
    for entry in TAGS.split_whitespace() {
        let (word, tag) = entry.split_once('=').unwrap_or((entry, entry));
        let everyday = ONLY_IN_COMMANDS.contains(&word);
        let seen = in_lesson.iter().any(|other| other == word) && !everyday
            || everyday && lesson.contains(&format!("`{word} "))
            || is_program(nearby, word) && !matches!(word, "git" | "make" | "bash");
        if seen && !tags.iter().any(|known| known == tag) {
            tags.push(tag.to_owned());
        }
    }
    for (ending, tag) in [
        ("rs", "rust"),
        ("py", "python"),
        ("ts", "typescript"),
        ("tsx", "typescript"),
        ("go", "go"),
        ("sql", "sql"),
    ] {
        let seen = nearby.lines().any(|line| line.ends_with(&format!(".{ending}")));
        if seen && !tags.iter().any(|known| known == tag) {
            tags.push(tag.to_owned());
        }
    }
    tags.truncate(TAGS_MAX);
    // Where no list speaks for a domain, but the lesson is about code, a single word of tests or of git decides.
    let of_code = if OF_TESTS.is_match(lesson) {
        "testing"
    } else if OF_GIT.is_match(lesson) {
        "git"
    } else {
        "coding"
    };
    let is_of_code = !tags.is_empty() || of_code != "coding" || CODE.is_match(lesson);
    Topic { domain: domain.unwrap_or(if is_of_code { of_code } else { "general" }), tags }
}

/// Whether a text is about technical work: it contains a listed word, or code.
pub(super) fn is_technical(text: &str) -> bool {
    static WORDS: LazyLock<HashSet<String>> =
        LazyLock::new(|| DOMAINS.iter().flat_map(|(_, words)| sentences::content_words(words)).collect());
    CODE.is_match(text)
        || sentences::content_words(text).iter().any(|word| WORDS.contains(word))
        || !classify(text, "").tags.is_empty()
}

/// Whether one of the commands runs this program.
fn is_program(commands: &str, word: &str) -> bool {
    commands.lines().any(|command| {
        command.split("&&").any(|part| part.split_whitespace().find(|part| !part.contains('=')) == Some(word))
    })
}
