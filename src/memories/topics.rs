//! Where the subject of a conversation changes.
//!
//! As in TextTiling (Hearst 1997), with embeddings for words: the mean vectors of the messages before and after a gap are
//! compared. A prompt begins a topic if it is less similar to what was said before than most prompts; an answer only if it
//! is hardly similar at all.
//!
//! The thresholds were chosen on 143 real sessions of one project, by telling the seam of two sessions from the prompts
//! within one: with blocks of four messages the cosine tells them apart with an area under the curve of .86 (.83 with
//! two or three, .86 with eight). At .50, four of five seams are cut and one of three prompts within a session.

use std::ops::Range;

use archive::Said;

/// How many messages before and after a gap are compared.
const BLOCK: usize = 4;
/// A prompt below this cosine begins a topic.
const PROMPT_COSINE: f32 = 0.50;
/// An answer below this cosine does.
const ANSWER_COSINE: f32 = 0.28;
/// A shorter prompt goes on with what was said: `commit this`, `yes, do that`.
const PROMPT_WORDS_MIN: usize = 6;
/// Of so many messages a topic that an answer begins or ends at least consists.
const ANSWERS_MIN: usize = 8;

/// The topics of a conversation in order; together they hold every message. Without vectors every prompt that says
/// something begins one.
pub fn topics(said: &[Said]) -> Vec<Range<usize>> {
    let embedded: Vec<(usize, &[f32])> =
        said.iter().enumerate().filter_map(|(at, said)| Some((at, said.vector.as_deref()?))).collect();
    let mut starts = vec![0];
    if embedded.is_empty() {
        starts.extend((1..said.len()).filter(|&at| opens(&said[at])));
    }
    for place in 1..embedded.len() {
        let at = embedded[place].0;
        let before = mean(&embedded[place.saturating_sub(BLOCK)..place]);
        let after = mean(&embedded[place..(place + BLOCK).min(embedded.len())]);
        let cosine: f32 = before.iter().zip(&after).map(|(a, b)| a * b).sum();
        let last = starts[starts.len() - 1];
        let is_start = if said[at].is_prompt {
            cosine < PROMPT_COSINE && opens(&said[at])
        } else {
            cosine < ANSWER_COSINE && at - last >= ANSWERS_MIN && embedded.len() - place >= ANSWERS_MIN / 2
        };
        if is_start && at > last {
            starts.push(at);
        }
    }
    let ends = starts.iter().skip(1).copied().chain([said.len()]);
    starts
        .iter()
        .copied()
        .zip(ends)
        .filter(|(start, end)| end > start)
        .map(|(start, end)| start..end)
        .collect()
}

fn opens(said: &Said) -> bool {
    said.is_prompt && said.text.split_whitespace().nth(PROMPT_WORDS_MIN - 1).is_some()
}

/// The mean of vectors, L2-normalised.
fn mean(vectors: &[(usize, &[f32])]) -> Vec<f32> {
    let mut sum = vec![0.0; vectors.first().map_or(0, |(_, vector)| vector.len())];
    for (_, vector) in vectors {
        sum.iter_mut().zip(*vector).for_each(|(sum, number)| *sum += number);
    }
    let norm = sum.iter().map(|number| number * number).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    sum.iter_mut().for_each(|number| *number /= norm);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "a prompt that says what is wanted";

    fn said(is_prompt: bool, text: &str, vector: Option<[f32; 2]>) -> Said {
        Said { message: 0, is_prompt, text: text.to_owned(), at: None, vector: vector.map(Vec::from) }
    }

    #[test]
    fn a_prompt_about_something_else_begins_a_topic() {
        let (one, other) = (Some([1.0, 0.0]), Some([0.0, 1.0]));
        let session = [
            said(true, LONG, one),
            said(false, "done", one),
            said(true, LONG, one),
            said(false, "done", one),
            said(true, LONG, other),
            said(false, "ok", None),
            said(false, "done", other),
        ];
        assert_eq!(topics(&session), [0..4, 4..7]);
    }

    #[test]
    fn a_short_prompt_goes_on_with_the_topic() {
        let session = [
            said(true, LONG, Some([1.0, 0.0])),
            said(false, "done", Some([1.0, 0.0])),
            said(true, "commit this", Some([0.0, 1.0])),
        ];
        assert_eq!(topics(&session).len(), 1);
    }

    #[test]
    fn an_answer_begins_a_topic_only_after_many() {
        let mut session = vec![said(true, LONG, Some([1.0, 0.0]))];
        session.extend((0..3).map(|_| said(false, "a", Some([1.0, 0.0]))));
        session.extend((0..8).map(|_| said(false, "b", Some([0.0, 1.0]))));
        assert_eq!(topics(&session).len(), 1, "after four messages");
        session.splice(1..1, (0..6).map(|_| said(false, "a", Some([1.0, 0.0]))));
        assert_eq!(topics(&session), [0..10, 10..18]);
    }

    #[test]
    fn without_vectors_each_prompt_is_a_topic() {
        let session = [said(true, LONG, None), said(false, "x", None), said(true, LONG, None)];
        assert_eq!(topics(&session), [0..2, 2..3]);
        assert!(topics(&[]).is_empty());
    }
}
