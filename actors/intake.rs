//! Reads transcripts: redacted, without what was captured before.

use std::path::Path;
use std::sync::Arc;

use queue::{Claim, Finish, Queue, Stage, TranscriptStamp};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::extraction;
use crate::mailbox::Mailbox;
use crate::pipeline::{self, Failure, Jobs, Step, Worked};

pub struct Intake;

pub enum Message {
    /// There may be transcripts to read.
    Wake,
}

#[derive(Clone)]
pub struct Arguments {
    pub jobs: Jobs,
    pub bell: Mailbox<Message>,
    pub next: Mailbox<extraction::Message>,
}

pub struct State {
    arguments: Arguments,
}

impl Actor for Intake {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        mut arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        arguments.jobs.take_over(Stage::Intake, arguments.bell.health())?;
        Ok(State { arguments })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let health = Arc::clone(state.arguments.bell.health());
        let _busy = health.begin();
        match message {
            Message::Wake => {
                state.arguments.bell.answer();
                if state.read_one().await? != Worked::Idle {
                    state.arguments.bell.ring_again(&myself, Message::Wake);
                }
            }
        }
        Ok(())
    }
}

impl State {
    async fn read_one(&mut self) -> Result<Worked, ActorProcessingErr> {
        let queue = self.arguments.jobs.queue.clone();
        let worked = pipeline::work_once(&self.arguments.jobs, Stage::Intake, |claim| {
            pipeline::blocking(move || read(&queue, &claim))
        })
        .await?;
        if worked == Worked::Passed(Some(Stage::Extraction)) {
            failpoint::here!("intake-after-advance");
            self.arguments.next.ring(extraction::Message::Wake);
        }
        Ok(worked)
    }
}

fn read(queue: &Queue, claim: &Claim) -> Result<Step, Failure> {
    let path = Path::new(&claim.capture.transcript);
    let nothing = |reason: String| Ok(Step::End(Finish::Nothing { reason }));
    let capture = claim.capture.id;
    // A line that cannot be looked up counts as new: taking it is checked once more as it is kept.
    let known = |line: &str| queue.is_taken(capture, line).unwrap_or(false);
    let reading = match transcript::read(path, &known) {
        Ok(reading) => reading,
        // The client announces sessions that never had a transcript, and deletes old ones.
        Err(transcript::Error::Missing { .. }) => return nothing("there is no transcript".to_owned()),
        Err(error @ transcript::Error::NotAFile { .. }) => return Err(Failure::permanent(&error)),
        Err(error) => return Err(Failure::passing(&error)),
    };
    failpoint::here!("intake-after-read");
    let tally = &reading.counts;
    tracing::info!(
        capture,
        lines = tally.lines,
        conversation = tally.conversation,
        known = tally.known,
        own = tally.own,
        malformed = tally.malformed,
        "read a transcript"
    );
    let seen = reading.stamp.map(|stamp| TranscriptStamp {
        transcript: stamp.path,
        size: stamp.size,
        modified_ms: stamp.modified_ms,
    });
    if reading.is_ignored {
        let reason = "the project's .nuggetignore leaves its sessions alone".to_owned();
        return Ok(Step::EndRead(Finish::Nothing { reason }, seen));
    }
    if reading.conversation.events.is_empty() {
        let reason = match tally {
            tally if tally.bytes == 0 => "the transcript is empty".to_owned(),
            tally if tally.known > 0 => format!("nothing new: {} lines were captured before", tally.known),
            tally if tally.lines > 0 && tally.malformed == tally.lines => {
                format!("no line of the transcript can be read ({} are malformed)", tally.malformed)
            }
            tally => format!("no conversation in {} lines", tally.lines),
        };
        return Ok(Step::EndRead(Finish::Nothing { reason }, seen));
    }
    let body = pipeline::encode(&reading.conversation)?;
    failpoint::here!("intake-before-advance");
    Ok(Step::NextWithLines(Stage::Extraction, body, reading.lines, seen))
}
