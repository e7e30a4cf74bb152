//! `stress benchmarks`: runs benchmarks and storms, and writes their figures to `docs/benchmarks.md`.
//!
//! The figures are kept in a JSON file next to the document. A row that does not run keeps its figures, with the
//! date, the commit and the machine on which they were measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Common;

#[derive(clap::Args)]
pub(crate) struct BenchmarksArgs {
    /// The document to write; the figures are kept in a .json file of the same name
    #[arg(long, default_value = "docs/benchmarks.md", value_name = "FILE")]
    out: PathBuf,
    /// Run smaller variants, which take seconds; the document marks them
    #[arg(long)]
    quick: bool,
    /// Run only this row; may be repeated [default: all rows that this build can run]
    #[arg(long, value_name = "NAME")]
    row: Vec<String>,
    /// The folder of the retrieval sets that stress/datasets/make.py has made
    #[arg(long, value_name = "DIR")]
    datasets: Option<PathBuf>,
    /// The folder of sessions of entireio/cli that stress/extraction/sessions.py has cut out
    #[arg(long, value_name = "DIR")]
    sessions: Option<PathBuf>,
    /// The program of the Claude Code client
    #[arg(long, value_name = "PATH")]
    client: Option<PathBuf>,
    /// List the rows and exit
    #[arg(long)]
    list: bool,
}

/// What runs a row.
enum Runner {
    /// A command of this program, with its arguments and those of `--quick`.
    Stress(&'static str, &'static str),
    /// The same, in a build with failpoints: a debug build, or the profile `storm`.
    StressWithFailpoints(&'static str, &'static str),
    /// The command `client`.
    Client,
    /// A benchmark on the texts of all retrieval sets.
    StressWithDatasets(&'static str, &'static str),
    /// A command of this program on real sessions.
    StressWithSessions(&'static str),
    /// `nugget eval` with these arguments on all retrieval sets; with `--quick` on one.
    Eval(&'static str),
    /// `cargo` with these arguments. The figures are the output lines that contain one of the texts.
    Cargo(&'static str, &'static [&'static str]),
}

/// A value of a result.
struct Figure {
    label: &'static str,
    /// A JSON pointer (RFC 6901). Values below `?` may be absent.
    pointer: &'static str,
    unit: &'static str,
}

const fn figure(label: &'static str, pointer: &'static str, unit: &'static str) -> Figure {
    Figure { label, pointer, unit }
}

struct Row {
    name: &'static str,
    title: &'static str,
    runner: Runner,
    figures: &'static [Figure],
}

const STORM: &[Figure] = &[
    figure("sessions, some of which end more than once", "/sessions", ""),
    figure("processes killed", "/killed", ""),
    figure("deaths at failpoints", "/failpoint_deaths", ""),
    figure("captures that made a branch", "/after_failpoints/done", ""),
    figure("captures with nothing to save", "/after_failpoints/nothing", ""),
    figure("all invariants held", "/held", ""),
];

const SEARCH: &[Figure] = &[
    figure("chunks", "/chunks", ""),
    figure("one session, p50", "/get_relevant_context/p50_ms", "ms"),
    figure("one session, p99", "/get_relevant_context/p99_ms", "ms"),
    figure("ratio of p50 to the embedding alone", "/p50_to_embedding", "×"),
    figure("ratio of p50 to FTS5 alone", "/p50_to_fts5", "×"),
    figure("ratio of p50 to a plain scan", "/p50_to_plain_scan", "×"),
    figure("processor time of a question", "/processor_ms_of_a_question", "ms"),
    figure("eight at once, p99", "/at_once/p99_ms", "ms"),
    figure("ratio of p99 of eight to p99 of one", "/at_once_p99_to_single_p99", "×"),
    figure("100 candidates of 150 tokens compared with 12, one thread", "/token_product/p50_ms", "ms"),
];

const IDLE: &[Figure] = &[figure("resident", "/after_one_answer/resident_mb", "MB")];

/// nDCG@10 of the final order: the mean, and of each set in the order of their names.
const SIGNAL_FIGURES: &[Figure] = &[
    figure("mean", "/stages/final/ndcg@10", ""),
    figure("code-qa", "/sets/0/stages/final/ndcg@10", ""),
    figure("code-search", "/sets/1/stages/final/ndcg@10", ""),
    figure("dialogue-chunks", "/sets/2/stages/final/ndcg@10", ""),
    figure("dialogue-turns", "/sets/3/stages/final/ndcg@10", ""),
    figure("docs-qa", "/sets/4/stages/final/ndcg@10", ""),
    figure("passages", "/sets/5/stages/final/ndcg@10", ""),
];

/// Recall@5 of the second halves of each set's projects before learning, and by how much it changes.
macro_rules! learning_figures {
    ($($set:literal)*) => {
        &[$(
            figure(concat!($set, ", by the embedding"), learned!($set, "embedding/orders/honest, checked, 100 %", "before"), ""),
            figure("learned, unchecked", learned!($set, "embedding/orders/honest, listwise, unchecked", "change"), ""),
            figure("what goes live", learned!($set, "embedding/orders/honest, checked, 100 %", "change"), ""),
            figure(concat!($set, ", final order"), learned!($set, "final/orders/honest, checked, 100 %", "before"), ""),
            figure("learned, unchecked", learned!($set, "final/orders/honest, listwise, unchecked", "change"), ""),
            figure("what goes live", learned!($set, "final/orders/honest, checked, 100 %", "change"), ""),
            figure(
                "what goes live with all citations wrong",
                learned!($set, "final/orders/flipped, checked, 100 %", "change"),
                ""
            ),
        )*]
    };
}

macro_rules! learned {
    ($set:literal, $order:literal, $value:literal) => {
        concat!("/", $set, "/", $order, "/recall@5/", $value)
    };
}

const LEARNING_FIGURES: &[Figure] =
    learning_figures!("code-qa" "code-search" "dialogue-chunks" "dialogue-turns" "docs-qa" "passages");

/// Of the two sets that have scopes.
const POOLED_FIGURES: &[Figure] = &[
    figure("dialogue-chunks, hit@1", "/sets/0/stages/final/hit@1", ""),
    figure("dialogue-chunks, hit@5", "/sets/0/stages/final/hit@5", ""),
    figure("dialogue-chunks, hit@50", "/sets/0/stages/final/hit@50", ""),
    figure("dialogue-turns, hit@1", "/sets/1/stages/final/hit@1", ""),
    figure("dialogue-turns, hit@5", "/sets/1/stages/final/hit@5", ""),
    figure("dialogue-turns, hit@50", "/sets/1/stages/final/hit@50", ""),
];

const ROWS: &[Row] = &[
    Row {
        name: "storm",
        title: "A storm of 10,000 SIGKILLs, all failpoints, full disks, read-only folders, wrong clocks; a session that ends \
                again is captured again",
        runner: Runner::StressWithFailpoints(
            "storm --sessions 64 --kills 10000",
            "storm --sessions 16 --kills 20 --point git-before-ref",
        ),
        figures: STORM,
    },
    Row {
        name: "storm-256",
        title: "A storm with 256 sessions at once",
        runner: Runner::StressWithFailpoints(
            "storm --sessions 256 --kills 1000",
            "storm --sessions 64 --kills 20 --point git-before-ref",
        ),
        figures: STORM,
    },
    Row {
        name: "readers",
        title: "New index generations under servers that are asked without a pause",
        runner: Runner::Stress("readers --swaps 1000", "readers --swaps 20"),
        figures: &[
            figure("generations", "/swaps", ""),
            figure("answers", "/answers", ""),
            figure("index folder deleted", "/folder_deleted", "times"),
            figure("builders killed", "/builders_killed", ""),
            figure("answers that mix generations", "/mixed_answers", ""),
            figure("ratio of p99 to the median", "/p99_to_median", "×"),
        ],
    },
    Row {
        name: "delivery-failpoints",
        title: "Delivery to GitHub, ended at every failpoint three times",
        runner: Runner::StressWithFailpoints(
            "delivery --captures 0",
            "delivery --captures 0 --point delivery-before-push",
        ),
        figures: &[
            figure("failpoints", "/failpoints", ""),
            figure("deaths", "/deaths", ""),
            figure("one branch, commit and pull request for each capture", "/held", ""),
        ],
    },
    Row {
        name: "delivery-backlog",
        title: "A backlog from days offline, delivered against a rate limit",
        runner: Runner::StressWithFailpoints(
            "delivery --captures 200 --point sync-before-fetch",
            "delivery --captures 10 --point sync-before-fetch",
        ),
        figures: &[
            figure("captures", "/backlog/captures", ""),
            figure("requests", "/backlog/requests", ""),
            figure("requests per capture", "/backlog/requests_per_capture", ""),
            figure("refused by the rate limit", "/backlog/refused_by_rate_limit", ""),
        ],
    },
    Row {
        name: "hooks",
        title: "The SessionEnd hook, from exec to exit",
        runner: Runner::Stress("hooks", "hooks --rounds 2 --alone 20"),
        figures: &[
            figure("alone, p50", "/alone/p50_ms", "ms"),
            figure("alone, p99", "/alone/p99_ms", "ms"),
            figure("ratio of p50 to an empty process", "/alone_p50_to_true", "×"),
            figure("ratio of p50 to a process that inserts a row", "/alone_p50_to_insert", "×"),
            figure("64 at once, p50", "/at_once/p50_ms", "ms"),
            figure("64 at once, p99", "/at_once/p99_ms", "ms"),
            figure("64 at once, slowest", "/at_once/max_ms", "ms"),
            figure("ratio of p99 to 64 bare inserts at once", "/at_once_p99_to_insert", "×"),
        ],
    },
    Row {
        name: "backlog",
        title: "A backlog of captures for one worker",
        runner: Runner::Stress("backlog --captures 10000", "backlog --captures 200"),
        figures: &[
            figure("captures", "/captures", ""),
            figure("captures per second", "/captures_per_second", ""),
            figure("resident memory at most", "/worker_resident_mib_max", "MiB"),
            figure("write-ahead log at most", "/log_mib_max", "MiB"),
            figure("none lost or doubled", "/held", ""),
        ],
    },
    Row {
        name: "archive-kills",
        title: "The session archive: syncs killed while transcripts grow, shrink, are copied and deleted",
        runner: Runner::Stress("archive --kills 500", "archive --kills 50"),
        figures: &[
            figure("kills", "/kills", ""),
            figure("lines of transcripts", "/lines", ""),
            figure("each message exactly once", "/held", ""),
        ],
    },
    Row {
        name: "archive-find",
        title: "The session archive: 60 questions about 286 real sessions, by people who had read them",
        runner: Runner::StressWithSessions("archive --find"),
        figures: &[
            figure("words, right session first", "/all/words/hit@1", "of 60"),
            figure("meaning", "/all/meaning/hit@1", "of 60"),
            figure("both", "/all/both/hit@1", "of 60"),
            figure("words, right session among five", "/all/words/hit@5", "of 60"),
            figure("meaning", "/all/meaning/hit@5", "of 60"),
            figure("both", "/all/both/hit@5", "of 60"),
            figure("the half that nothing was tuned on: words, first", "/b/words/hit@1", "of 30"),
            figure("meaning", "/b/meaning/hit@1", "of 30"),
            figure("both", "/b/both/hit@1", "of 30"),
            figure("the same half: words, among five", "/b/words/hit@5", "of 30"),
            figure("meaning", "/b/meaning/hit@5", "of 30"),
            figure("both", "/b/both/hit@5", "of 30"),
        ],
    },
    Row {
        name: "archive-scale",
        title: "The session archive at scale: a million made messages in 10,000 sessions",
        runner: Runner::Stress("archive --scale", "archive --scale --sessions 200"),
        figures: &[
            figure("transcripts", "/transcript_mb", "MB"),
            figure("first sync", "/first_sync_mb_per_s", "MB/s"),
            figure("resident memory at most", "/first_sync_mib_max", "MiB"),
            figure("database to transcripts", "/database_to_transcripts", "×"),
            figure("unchanged resync, p50", "/unchanged_resync/p50_ms", "ms"),
            figure("one appended session found among all, p50", "/appended_session/p50_ms", "ms"),
            figure("`nugget search` by words, p50", "/search/p50_ms", "ms"),
            figure("p99", "/search/p99_ms", "ms"),
            figure("p50 to FTS5 alone", "/search_p50_to_fts5", "×"),
            figure("p99 to FTS5 alone", "/search_p99_to_fts5", "×"),
            figure("`grep` or `rg` over the files to it, p50", "/grep_p50_to_search", "×"),
            figure("by words and meaning, p50", "/search_with_meaning/p50_ms", "ms"),
            figure("p99", "/search_with_meaning/p99_ms", "ms"),
            figure("while a sync runs, p50 to without", "/while_syncing/p50_to_without", "×"),
        ],
    },
    Row {
        name: "retrieval",
        title: "Retrieval on six data sets: nDCG@10 of the final order and of the fusion of both searches",
        runner: Runner::Eval(""),
        figures: &[
            figure("nDCG@10, final", "/stages/final/ndcg@10", ""),
            figure("nDCG@10, fusion", "/stages/fusion/ndcg@10", ""),
            figure("nDCG@10, embedding", "/stages/embedding/ndcg@10", ""),
            figure("nDCG@10, BM25", "/stages/bm25/ndcg@10", ""),
            figure("final over fusion", "/final_over_fusion/ndcg@10", "%"),
            figure("95 % interval, low", "/final_over_fusion/ci95/0", "%"),
            figure("95 % interval, high", "/final_over_fusion/ci95/1", "%"),
            figure("code-qa, final", "/sets/0/stages/final/ndcg@10", ""),
            figure("code-search, final", "/sets/1/stages/final/ndcg@10", ""),
            figure("dialogue-chunks, final", "/sets/2/stages/final/ndcg@10", ""),
            figure("dialogue-turns, final", "/sets/3/stages/final/ndcg@10", ""),
            figure("docs-qa, final", "/sets/4/stages/final/ndcg@10", ""),
            figure("passages, final", "/sets/5/stages/final/ndcg@10", ""),
        ],
    },
    Row {
        name: "learning",
        title: "What is learned from citations that are made from the judgements: recall@5",
        runner: Runner::StressWithDatasets("learn", "learn --seeds 1"),
        figures: LEARNING_FIGURES,
    },
    Row {
        name: "retrieval-without-dates",
        title: "The same without the dates of question and passages",
        runner: Runner::Eval("--stage final --without dates"),
        figures: SIGNAL_FIGURES,
    },
    Row {
        name: "retrieval-without-late",
        title: "The same without the comparison token by token",
        runner: Runner::Eval("--stage final --without late"),
        figures: SIGNAL_FIGURES,
    },
    Row {
        name: "retrieval-without-context",
        title: "The same without the scores of the passages around",
        runner: Runner::Eval("--stage final --without context"),
        figures: SIGNAL_FIGURES,
    },
    Row {
        name: "retrieval-without-form",
        title: "The same without the form of an answer: its speaker, a time, no question",
        runner: Runner::Eval("--stage final --without form"),
        figures: SIGNAL_FIGURES,
    },
    Row {
        name: "retrieval-without-all",
        title: "The same without the four",
        runner: Runner::Eval("--stage final --without dates,late,context,form"),
        figures: SIGNAL_FIGURES,
    },
    Row {
        name: "retrieval-pooled",
        title: "All conversations as one corpus: how often an answer is among the first",
        runner: Runner::Eval("--stage final --pooled"),
        figures: POOLED_FIGURES,
    },
    Row {
        name: "retrieval-pooled-without-all",
        title: "The same without the four",
        runner: Runner::Eval("--stage final --pooled --without dates,late,context,form"),
        figures: POOLED_FIGURES,
    },
    Row {
        name: "questions",
        title: "Questions in other words than their units, through relations, and about other subjects",
        runner: Runner::Cargo(
            "test --locked --test tests -- brain_questions --nocapture",
            &["within ", "unrelated questions", "test result"],
        ),
        figures: &[],
    },
    Row {
        name: "precision",
        title: "How much of an answer bears on the question, on three brains with judged questions",
        runner: Runner::Stress("bench precision", "bench precision"),
        figures: &[
            figure("unrelated questions to three brains", "/unrelated/asked", ""),
            figure("of them answered", "/unrelated/percent", "%"),
            figure(
                "15 questions, share of relevant text",
                "/brains/brain/questions/questions.json/share_of_text",
                "",
            ),
            figure(
                "the same, unit found within three",
                "/brains/brain/questions/questions.json/within_three/shown",
                "",
            ),
            figure(
                "14 short questions, share",
                "/brains/brain/questions/questions-short.json/share_of_text",
                "",
            ),
            figure(
                "20 linked questions, share",
                "/brains/brain/questions/questions-linked.json/share_of_text",
                "",
            ),
            figure("unrelated questions, answered", "/brains/brain/unrelated/percent", "%"),
            figure(
                "a second brain, 25 questions, share",
                "/brains/brain-kept/questions/questions-kept.json/share_of_text",
                "",
            ),
            figure(
                "the same, unit found within three",
                "/brains/brain-kept/questions/questions-kept.json/within_three/shown",
                "",
            ),
            figure("unrelated questions, answered", "/brains/brain-kept/unrelated/percent", "%"),
            figure(
                "a third brain, 12 questions, share",
                "/brains/brain-notes/questions/questions-notes.json/share_of_text",
                "",
            ),
            figure(
                "the same, unit found within three",
                "/brains/brain-notes/questions/questions-notes.json/within_three/shown",
                "",
            ),
            figure("unrelated questions, answered", "/brains/brain-notes/unrelated/percent", "%"),
        ],
    },
    Row {
        name: "search",
        title: "One question to a running server over MCP, 10,000 units, with its embedding",
        runner: Runner::Stress(
            // The 99th percentile of 200 questions is the third slowest, which chance decides.
            "bench search --units 10000 --queries 1000",
            "bench search --units 200 --queries 10 --sessions 2 --spaced 1",
        ),
        figures: SEARCH,
    },
    Row {
        name: "search-34000",
        title: "The same with 34,000 units",
        runner: Runner::Stress(
            "bench search --units 34000 --queries 100 --spaced 5",
            "bench search --units 400 --queries 10 --sessions 2 --spaced 1",
        ),
        figures: SEARCH,
    },
    Row {
        name: "graph",
        title: "The vector graph against the exact scan, windows of real text",
        runner: Runner::StressWithDatasets("bench graph", "bench graph --chunks 500 --queries 20"),
        figures: &[
            figure("chunks", "/chunks", ""),
            figure("recall@10", "/recall_at_10", ""),
            figure("recall@50", "/recall_at_50", ""),
            figure("p50 of the graph", "/graph/p50_ms", "ms"),
            figure("ratio of p50 of the exact scan to the graph", "/exact_p50_to_graph", "×"),
        ],
    },
    Row {
        name: "idle",
        title: "Memory of a server 35 seconds after an answer, 1,000 units",
        runner: Runner::Stress("bench idle --quiet 35", "bench idle --units 100 --quiet 1"),
        figures: IDLE,
    },
    Row {
        name: "idle-after-2-seconds",
        title: "Memory of a server two seconds after an answer, 1,000 units",
        runner: Runner::Stress("bench idle --quiet 2", "bench idle --units 100 --quiet 1"),
        figures: IDLE,
    },
    Row {
        name: "guard",
        title: "The hook before an action, 10,000 units",
        runner: Runner::Stress("bench guard", "bench guard --units 200 --rounds 20"),
        figures: &[
            figure("nothing bears on the action, p50", "/nothing/p50_ms", "ms"),
            figure("p50 to a process that does nothing", "/nothing_p50_to_true", "×"),
            figure("p50 to nugget doing nothing", "/nothing_p50_to_own_process", "×"),
            figure("a unit is told, p50", "/told/p50_ms", "ms"),
            figure("eight at once, p50", "/at_once/p50_ms", "ms"),
            figure("eight at once, p99", "/at_once/p99_ms", "ms"),
        ],
    },
    Row {
        name: "session-start",
        title: "The SessionStart and UserPromptSubmit hooks, 10,000 units",
        runner: Runner::Stress("bench session-start", "bench session-start --units 200 --rounds 5"),
        figures: &[
            figure("SessionStart, p50", "/session_start/p50_ms", "ms"),
            figure("SessionStart, ratio of p50 to an empty process", "/session_start_p50_to_true", "×"),
            figure("UserPromptSubmit, p50", "/user_prompt/p50_ms", "ms"),
            figure("UserPromptSubmit, ratio of p50 to an empty process", "/user_prompt_p50_to_true", "×"),
        ],
    },
    Row {
        name: "memories",
        title: "Recall of 10,000 memories of sessions, 1,000 units",
        runner: Runner::Stress("bench memories", "bench memories --memories 500 --units 100 --rounds 10"),
        figures: &[
            figure("added to a question, p50", "/added_p50_ms", "ms"),
            figure("ratio of p50 to a question without", "/with_to_without_p50", "×"),
            figure("processor time added to a question", "/processor_ms_added", "ms"),
            figure("SessionStart with memories, p50", "/session_start_with/p50_ms", "ms"),
            figure("ratio of p50 to SessionStart without", "/session_start_with_to_without", "×"),
        ],
    },
    Row {
        name: "notes",
        title: "The tools for notes in a server, 2,000 notes with 10,000 links, 500 facts",
        runner: Runner::Stress("bench notes", "bench notes --notes 60 --links 100 --facts 10 --rounds 10"),
        figures: &[
            figure("search_notes, p50", "/search/p50_ms", "ms"),
            figure("ratio of p50 to a call that finds nothing", "/search_to_empty_call_p50", "×"),
            figure("recall, p50", "/recall/p50_ms", "ms"),
            figure("create_note, p50", "/create/p50_ms", "ms"),
            figure("ratio of p50 to an empty process", "/create_to_true_p50", "×"),
        ],
    },
    Row {
        name: "notes-storm",
        title: "Eight agents that write and link notes while their servers are killed",
        runner: Runner::StressWithFailpoints("notes --kills 200", "notes --kills 10"),
        figures: &[
            figure("kills", "/kills", ""),
            figure("at failpoints", "/at_failpoints", ""),
            figure("notes acknowledged", "/acknowledged/notes", ""),
            figure("links acknowledged", "/acknowledged/links", ""),
            figure("lost", "/lost", ""),
            figure("doubled", "/doubled", ""),
            figure("links that go one way", "/one_way_links", ""),
        ],
    },
    Row {
        name: "status",
        title: "`nugget status`, 10,000 units",
        runner: Runner::Stress(
            "bench status --units 10000",
            "bench status --units 200 --captures 2 --rounds 10",
        ),
        figures: &[
            figure("p50", "/status/p50_ms", "ms"),
            figure("ratio of p50 to an empty process", "/p50_to_true", "×"),
        ],
    },
    Row {
        name: "index",
        title: "Building an index of 10,000 units",
        runner: Runner::Stress(
            "bench index --embedded 30",
            "bench index --units 200 --embedded 3 --changes 1",
        ),
        figures: &[
            figure("markdown per second without the model", "/pipeline_mb_per_s", "MB/s"),
            figure("ratio to reading and hashing the files", "/pipeline_to_reading_and_hashing", "×"),
            figure("the model's share of a build", "/model_share_of_a_real_build/share", ""),
            figure("growth of the index by a token", "/growth_by_tokens/bytes_per_token", "B"),
            figure("a changed file is found after", "/one_changed_file_searchable_at_a_server/p50_ms", "ms"),
            figure("opening an unchanged brain", "/unchanged_brain_opens/p50_ms", "ms"),
        ],
    },
    Row {
        name: "ask",
        title: "`nugget ask --no-llm` from exec to exit, 1,000 units",
        runner: Runner::Stress("bench ask", "bench ask --units 100 --queries 3"),
        figures: &[
            figure("p50", "/ask/p50_ms", "ms"),
            figure("ratio to an empty process", "/ask/p50_to_true", "×"),
            figure("ratio to `nugget --version`", "/ask/p50_to_version", "×"),
        ],
    },
    Row {
        name: "transcript",
        title: "Reading, redacting and condensing a session of 100 MB",
        runner: Runner::Stress("bench transcript", "bench transcript --megabytes 2 --rounds 1"),
        figures: &[
            figure("read and redacted", "/read_megabytes_per_second", "MB/s"),
            figure("ratio of reading to parsing with serde_json", "/read_to_serde_json", "×"),
            figure("read and condensed", "/read_and_condense/seconds", "s"),
            figure("resident memory at most", "/read_and_condense/resident_mib", "MiB"),
        ],
    },
    Row {
        name: "sweep",
        title: "Looking for sessions that the hook missed among 10,000 transcripts",
        runner: Runner::Stress("bench sweep", "bench sweep --transcripts 100 --rounds 3"),
        figures: &[
            figure("p50", "/sweep/p50_ms", "ms"),
            figure("ratio of p50 to an empty process", "/p50_to_true", "×"),
        ],
    },
    Row {
        name: "secrets",
        title: "Secrets through the binary, and ordinary code",
        runner: Runner::Cargo(
            "test --locked --test tests -- secrets --nocapture",
            &["canaries of", "lines are redacted", "test result"],
        ),
        figures: &[],
    },
    Row {
        name: "install",
        title: "Settings files of Claude Code through install and uninstall",
        runner: Runner::Cargo("test --locked --test tests -- install", &["test result"]),
        figures: &[],
    },
    Row {
        name: "client",
        title: "The real Claude Code client against a scripted API, from install to uninstall",
        runner: Runner::Client,
        figures: &[
            figure("client", "/client", ""),
            figure("units", "/lifecycle/units", ""),
            figure("next session", "/lifecycle/print", ""),
            figure("terminal", "/lifecycle/terminal", ""),
            figure("clients that end together", "/lifecycle/concurrent", ""),
        ],
    },
    Row {
        name: "loom",
        title: "Loom models: hand-over, generations, wake-ups",
        runner: Runner::Cargo(
            "test --locked --release -p loom-models --target-dir target/loom",
            &["test result"],
        ),
        figures: &[],
    },
];

/// What the JSON file keeps of a row.
#[derive(Clone)]
struct Measurement {
    date: String,
    commit: String,
    machine: String,
    command: String,
    /// Why the figures are not those of the complete row, for example `quick`; usually empty.
    note: String,
    seconds: u64,
    /// Label and value.
    figures: Vec<(String, String)>,
}

pub(crate) fn run(args: &BenchmarksArgs, common: &Common, seed: u64) -> Result<Value> {
    if args.list {
        for row in ROWS {
            common.print(&format!("{:<20} {}", row.name, row.title));
        }
        return Ok(Value::Null);
    }
    for name in &args.row {
        ensure!(ROWS.iter().any(|row| row.name == name), "there is no row {name}: see --list");
    }
    let store = args.out.with_extension("json");
    let mut measurements = read_store(&store)?;
    let (commit, machine, profile) = (commit()?, machine()?, profile()?);
    let (mut measured, mut failed) = (Vec::new(), Vec::new());
    for row in ROWS {
        let is_named = args.row.iter().any(|name| name == row.name);
        if !args.row.is_empty() && !is_named {
            continue;
        }
        let command = match command_of(row, args, common, seed, &profile) {
            Ok(command) => command,
            Err(reason) if is_named => return Err(reason.context(format!("row {}", row.name))),
            Err(reason) => {
                common.print(&format!("{:<20} kept: {reason}", row.name));
                continue;
            }
        };
        common.print(&format!("{:<20} {}", row.name, command.text));
        let started = Instant::now();
        match figures_of(row, command.command) {
            Ok(figures) => {
                let measurement = Measurement {
                    date: Timestamp::now().to_string()[..10].to_owned(),
                    commit: commit.clone(),
                    machine: machine.clone(),
                    command: command.text,
                    note: note(row, args.quick, &profile),
                    seconds: started.elapsed().as_secs(),
                    figures,
                };
                measurements.insert(row.name.to_owned(), measurement);
                measured.push(row.name);
                // Written after each row, so that an interrupted run loses only one.
                write_store(&store, &measurements)?;
                fs::write(&args.out, document(&measurements))?;
            }
            Err(error) => {
                common.print(&format!("{:<20} failed, its old figures are kept: {error:#}", row.name));
                failed.push(row.name);
            }
        }
    }
    // Also without a measurement, so that the document follows changes of the rows' texts.
    write_store(&store, &measurements)?;
    fs::write(&args.out, document(&measurements))?;
    ensure!(failed.is_empty(), "these rows failed: {}", failed.join(", "));
    Ok(json!({ "written": args.out, "measured": measured }))
}

/// A command, and how a person repeats it.
struct RowCommand {
    command: Command,
    text: String,
}

/// The command of a row, or why it cannot run in this build or with these arguments.
fn command_of(
    row: &Row,
    args: &BenchmarksArgs,
    common: &Common,
    seed: u64,
    profile: &str,
) -> Result<RowCommand> {
    let choose = |full: &'static str, quick: &'static str| if args.quick { quick } else { full };
    let is_named = args.row.iter().any(|name| name == row.name);
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let stress = |mut list: Vec<String>| -> Result<RowCommand> {
        list.extend(["--seed".to_owned(), seed.to_string()]);
        if let Some(binary) = &common.binary {
            list.extend(["--binary".to_owned(), binary.display().to_string()]);
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--json").args(&list);
        let option = match profile {
            "debug" => String::new(),
            "release" => " --release".to_owned(),
            other => format!(" --profile {other}"),
        };
        let text = format!("cargo test{option} --test stress -- {}", list.join(" "));
        Ok(RowCommand { command, text })
    };
    let datasets = || -> Result<Vec<PathBuf>> {
        let folder = args.datasets.as_ref().context("needs --datasets, see stress/datasets/README.md")?;
        let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        let mut sets = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
        sets.retain(|set| set.join("corpus.jsonl").is_file());
        sets.sort();
        ensure!(!sets.is_empty(), "{} has no sets", folder.display());
        Ok(sets)
    };
    match row.runner {
        Runner::Stress(full, quick) => {
            ensure!(profile != "storm" || is_named, "needs another profile than storm, or --row");
            stress(words(choose(full, quick)))
        }
        Runner::StressWithFailpoints(full, quick) => {
            ensure!(cfg!(debug_assertions), "needs --profile storm");
            stress(words(choose(full, quick)))
        }
        Runner::Client => {
            let client = args.client.as_ref().context("needs --client")?;
            let client = client.display().to_string();
            let row = stress(vec!["client".to_owned(), "--client".to_owned(), client.clone()])?;
            // Where it lies on this machine is nobody's concern.
            Ok(RowCommand { text: row.text.replace(&client, "PATH"), ..row })
        }
        Runner::StressWithDatasets(full, quick) => {
            ensure!(profile != "storm" || is_named, "needs another profile than storm, or --row");
            let mut list = words(choose(full, quick));
            for set in datasets()? {
                list.extend(["--data".to_owned(), set.display().to_string()]);
            }
            stress(list)
        }
        Runner::StressWithSessions(arguments) => {
            ensure!(profile != "storm" || is_named, "needs another profile than storm, or --row");
            let folder =
                args.sessions.as_ref().context("needs --sessions, see stress/extraction/sessions.py")?;
            let mut list = words(arguments);
            list.push(folder.display().to_string());
            stress(list)
        }
        Runner::Eval(arguments) => {
            let mut sets = datasets()?;
            if arguments.contains("--pooled") {
                // The others have no scopes.
                sets.retain(|set| {
                    set.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"dialogue"))
                });
            }
            sets.truncate(if args.quick { 1 } else { sets.len() });
            let mut command = Command::new(common.binary());
            command.arg("eval").args(words(arguments)).args(&sets).arg("--json");
            let sets: Vec<String> = sets.iter().map(|set| set.display().to_string()).collect();
            Ok(RowCommand {
                command,
                text: format!("nugget eval {arguments} {} --json", sets.join(" ")).replace("  ", " "),
            })
        }
        Runner::Cargo(line, _) => {
            let mut command = Command::new("cargo");
            command.args(words(line)).current_dir(env!("CARGO_MANIFEST_DIR"));
            let is_loom = row.name == "loom";
            if is_loom {
                command.env("RUSTFLAGS", "--cfg loom");
            }
            let flags = if is_loom { "RUSTFLAGS=\"--cfg loom\" " } else { "" };
            Ok(RowCommand { command, text: format!("{flags}cargo {line}") })
        }
    }
}

/// Runs a row's command and returns its figures.
fn figures_of(row: &Row, mut command: Command) -> Result<Vec<(String, String)>> {
    let output = command.output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let last_lines: Vec<&str> = stderr.lines().rev().take(5).collect();
    ensure!(output.status.success(), "{}: {}", output.status, last_lines.join(" / "));
    if let Runner::Cargo(_, marks) = row.runner {
        let is_figure = |line: &&str| marks.iter().any(|mark| line.contains(mark));
        // A summary of no tests at all comes from a target that the filter does not match.
        let lines =
            stdout.lines().map(str::trim).filter(is_figure).filter(|line| !line.contains(" 0 passed"));
        let figures: Vec<_> = lines.map(|line| ("output".to_owned(), stable(line).to_owned())).collect();
        ensure!(!figures.is_empty(), "the output has no figures");
        return Ok(figures);
    }
    let result = match stdout.lines().rev().find(|line| line.starts_with('{') && line.ends_with('}')) {
        Some(line) => serde_json::from_str(line)?,
        // `nugget eval` prints its JSON on several lines.
        None => serde_json::from_str::<Value>(&stdout).context("the command printed no JSON")?,
    };
    if let Some(reason) = result["skipped"].as_str() {
        bail!("{reason}");
    }
    let mut figures = Vec::new();
    for Figure { label, pointer, unit } in row.figures {
        let optional = pointer.strip_prefix('?');
        match result.pointer(optional.unwrap_or(pointer)) {
            Some(value) if !value.is_null() => {
                let separator = if unit.is_empty() { "" } else { " " };
                figures.push(((*label).to_owned(), format!("{}{separator}{unit}", render(value))));
            }
            _ => ensure!(optional.is_some(), "the result has no {pointer}"),
        }
    }
    Ok(figures)
}

/// Cuts the time off a test summary.
fn stable(line: &str) -> &str {
    line.split("; finished in").next().unwrap_or(line)
}

/// Thousands are separated by commas; other numbers have three or four significant digits, without zeros at the end.
fn render(value: &Value) -> String {
    match value {
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) => thousands(whole),
            (None, Some(value)) => {
                let decimals = match value.abs() {
                    100.0.. => return format!("{value:.0}"),
                    10.0.. => 1,
                    1.0.. => 2,
                    _ => 3,
                };
                let text = format!("{value:.decimals$}");
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
            (None, None) => number.to_string(),
        },
        other => other.to_string(),
    }
}

fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What makes the figures of this run smaller or slower than those of the complete row.
fn note(row: &Row, is_quick: bool, profile: &str) -> String {
    let is_measured = matches!(
        row.runner,
        Runner::Stress(..) | Runner::StressWithDatasets(..) | Runner::StressWithSessions(..)
    );
    let parts = [
        ("quick", is_quick),
        ("debug build", profile == "debug"),
        ("debug assertions", profile == "storm" && is_measured),
    ];
    parts.iter().filter(|(_, applies)| *applies).map(|(part, _)| *part).collect::<Vec<_>>().join(", ")
}

/// The Cargo profile that this program was built with: what its folder in `target` is called.
fn profile() -> Result<String> {
    let program = std::env::current_exe()?;
    let folder = program.ancestors().nth(2).and_then(|folder| folder.file_name());
    Ok(folder.context("not in a folder of Cargo")?.to_string_lossy().into_owned())
}

/// The short id of HEAD, marked if files outside of docs/ have changed.
fn commit() -> Result<String> {
    let git = |args: &[&str]| -> Result<String> {
        let output = Command::new("git").args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output()?;
        ensure!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let id = git(&["rev-parse", "--short", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"])?;
    Ok(if changes.is_empty() { id } else { format!("{id} with changes") })
}

/// CPU model, cores and memory of this computer.
fn machine() -> Result<String> {
    let cpu = fs::read_to_string("/proc/cpuinfo")?;
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = cpu.map_or("unknown CPU", |(_, model)| model);
    let cores = std::thread::available_parallelism()?;
    let memory = fs::read_to_string("/proc/meminfo")?;
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let kib: f64 = kib.context("/proc/meminfo has no MemTotal")?.parse()?;
    Ok(format!("{cpu}, {cores} cores, {:.0} GiB memory", kib / 1024.0 / 1024.0))
}

fn read_store(path: &Path) -> Result<BTreeMap<String, Measurement>> {
    if !path.is_file() {
        return Ok(BTreeMap::new());
    }
    let store: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let rows = store.as_object().with_context(|| format!("{} is not an object", path.display()))?;
    rows.iter()
        .map(|(name, row)| {
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            let pairs = row["figures"].as_array().map(Vec::as_slice).unwrap_or_default();
            let pair = |pair: &Value| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()));
            let measurement = Measurement {
                date: text("date"),
                commit: text("commit"),
                machine: text("machine"),
                command: text("command"),
                note: text("note"),
                seconds: row["seconds"].as_u64().unwrap_or_default(),
                figures: pairs.iter().filter_map(pair).collect(),
            };
            Ok((name.clone(), measurement))
        })
        .collect()
}

fn write_store(path: &Path, measurements: &BTreeMap<String, Measurement>) -> Result<()> {
    let rows: serde_json::Map<String, Value> = measurements
        .iter()
        .map(|(name, measurement)| {
            let Measurement { date, commit, machine, command, note, seconds, figures } = measurement;
            let row = json!({
                "date": date, "commit": commit, "machine": machine, "command": command, "note": note,
                "seconds": seconds, "figures": figures,
            });
            (name.clone(), row)
        })
        .collect();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(fs::write(path, serde_json::to_string_pretty(&rows)? + "\n")?)
}

/// The document: one section for each row that has been measured, in the order of [`ROWS`].
fn document(measurements: &BTreeMap<String, Measurement>) -> String {
    let mut machines: Vec<&str> = Vec::new();
    for row in ROWS {
        if let Some(measurement) = measurements.get(row.name)
            && !machines.contains(&measurement.machine.as_str())
        {
            machines.push(&measurement.machine);
        }
    }
    let mut text = String::from(
        "# Benchmarks\n\n\
         Written by `cargo test --release --test stress -- benchmarks`; do not edit it by hand. `--row NAME` runs\n\
         one row, `--list` lists all, and rows that do not run keep their figures. Most figures have a baseline\n\
         from the same run, since a figure alone says more about the computer than about nugget.\n\n\
         | machine | |\n|---|---|\n",
    );
    for (at, machine) in machines.iter().enumerate() {
        let _ = writeln!(text, "| {} | {machine} |", at + 1);
    }
    for row in ROWS {
        let Some(measurement) = measurements.get(row.name) else { continue };
        let Measurement { date, commit, machine, command, note, seconds, figures } = measurement;
        let at = machines.iter().position(|known| known == machine).map_or(0, |at| at + 1);
        let _ = writeln!(text, "\n## {}\n\n{}.\n\n| figure | value |\n|---|---|", row.name, row.title);
        for (label, value) in figures {
            let _ = writeln!(text, "| {label} | {} |", value.replace('|', "\\|"));
        }
        let _ = write!(text, "\n{date}, commit {commit}, machine {at}");
        if *seconds > 0 {
            let _ = write!(text, ", {} s", thousands(*seconds));
        }
        if !note.is_empty() {
            let _ = write!(text, " ({note})");
        }
        let _ = writeln!(text, ":\n\n```sh\n{command}\n```");
    }
    text
}
