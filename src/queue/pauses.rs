//! Pauses of a whole stage, for failures that would hit every capture at it: no network, a refused token.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::Error;
use crate::capture::{Claim, Stage};
use crate::rows::check_claim;
use crate::store::{Queue, timestamp};

/// The first pause of a stage; each further one in a row is twice as long.
pub const PAUSE_FIRST: Duration = Duration::from_secs(5);
/// The longest pause that nobody asked for.
pub const PAUSE_MAX: Duration = Duration::from_secs(15 * 60);
/// The longest pause that another side may ask for: GitHub counts requests by the hour.
pub const REQUESTED_PAUSE_MAX: Duration = Duration::from_secs(65 * 60);
/// After so many pauses in a row it may be this one capture that fails: another one is tried.
pub const PAUSES_OF_ONE: u32 = 4;
/// So long do those that have failed wait, once another one has not.
pub const OTHERS_FIRST: Duration = Duration::from_secs(60);
/// A pause that ends further ahead than this was set by a clock that jumped, and is ignored.
pub(crate) const PAUSE_SPAN_MS: i64 = 2 * REQUESTED_PAUSE_MAX.as_millis() as i64;

/// Condition on a row of `captures`: `?1` is now, `?3` is [`PAUSE_SPAN_MS`] from now.
pub(crate) const NOT_PAUSED: &str = "NOT EXISTS (SELECT 1 FROM pauses WHERE pauses.stage = captures.stage
    AND pauses.until_ms > ?1 AND pauses.until_ms <= ?3)";

/// A time during which no capture is claimed at a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The paused stage.
    pub stage: Stage,
    /// When the first pause of the row began.
    pub since: Timestamp,
    /// When it ends.
    pub until: Timestamp,
    /// How many pauses there were in a row.
    pub times: u32,
    /// The cause, for people.
    pub why: String,
}

impl Queue {
    /// Releases a capture and pauses its whole stage, for a failure that every capture at it would meet.
    ///
    /// After the pause the oldest capture is claimed again; if that fails too, the others have not been
    /// touched. After [`PAUSES_OF_ONE`] pauses in a row it is the one that was not tried for the longest time:
    /// where one capture fails alone, the others go on. None of this counts as an attempt. `wait` is what the
    /// other side asked for; without it the first pause is 5 s, and each one in a row twice as long, up to 15
    /// minutes. Returns when the pause ends.
    ///
    /// # Errors
    /// [`Error::Stale`], or when the queue cannot be written.
    pub fn pause(
        &self,
        claim: &Claim,
        why: &str,
        wait: Option<Duration>,
        now: Timestamp,
    ) -> Result<Timestamp, Error> {
        let (id, stage) = (claim.capture.id, claim.capture.stage.as_str());
        self.write(|transaction| {
            check_claim(transaction, claim)?;
            let before: Option<(i64, u32)> = transaction
                .query_row("SELECT since_ms, times FROM pauses WHERE stage = ?1", [stage], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            let (since, times) = before.unwrap_or((now.as_millisecond(), 0));
            let wait = match wait {
                Some(wait) => wait.min(REQUESTED_PAUSE_MAX),
                None => PAUSE_FIRST.saturating_mul(1 << times.min(16)).min(PAUSE_MAX),
            };
            let until = now.as_millisecond() + wait.as_millis() as i64;
            transaction.execute(
                "INSERT OR REPLACE INTO pauses VALUES (?1, ?2, ?3, ?4, ?5)",
                params![stage, since.min(now.as_millisecond()), until, times + 1, why],
            )?;
            // Attempts stay at one: the capture was attempted, and no number of pauses makes it dead.
            transaction.execute(
                "UPDATE captures SET claim = NULL, attempts = min(attempts, 1), reason = ?2, not_before_ms = ?3
                 WHERE id = ?1",
                params![id, why, until],
            )?;
            timestamp(until)
        })
    }

    /// Ends the pause of a stage, because the other side answered. After [`PAUSES_OF_ONE`] pauses or more those that
    /// have failed wait for a minute, and the others go first.
    ///
    /// # Errors
    /// When the queue cannot be read or written.
    pub fn resume(&self, stage: Stage) -> Result<(), Error> {
        if self.pauses()?.iter().all(|pause| pause.stage != stage) {
            return Ok(());
        }
        self.write(|transaction| {
            transaction.execute(
                "UPDATE captures SET not_before_ms = coalesce(
                     (SELECT until_ms + ?3 FROM pauses WHERE pauses.stage = ?1 AND times >= ?2), 0)
                 WHERE stage = ?1 AND outcome IS NULL AND claim IS NULL AND attempts <= 1 AND not_before_ms > 0",
                params![stage.as_str(), PAUSES_OF_ONE, OTHERS_FIRST.as_millis() as i64],
            )?;
            transaction.execute("DELETE FROM pauses WHERE stage = ?1", [stage.as_str()])?;
            Ok(())
        })
    }

    /// The paused stages, including those whose pause is over but that nobody has attempted since.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn pauses(&self) -> Result<Vec<Pause>, Error> {
        let sql = "SELECT stage, since_ms, until_ms, times, why FROM pauses ORDER BY stage";
        self.query(sql, [], |row| {
            Ok(Pause {
                stage: row.get::<_, String>(0)?.parse()?,
                since: timestamp(row.get(1)?)?,
                until: timestamp(row.get(2)?)?,
                times: row.get(3)?,
                why: row.get(4)?,
            })
        })
    }
}

/// In which order captures of a stage are claimed; `None` during its pause.
pub(crate) fn order_of_claims(
    connection: &Connection,
    stage: Stage,
    now_ms: i64,
) -> Result<Option<&'static str>, Error> {
    let pause: Option<(i64, u32)> = connection
        .prepare_cached("SELECT until_ms, times FROM pauses WHERE stage = ?1")?
        .query_row([stage.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(match pause {
        Some((until_ms, _)) if until_ms > now_ms && until_ms <= now_ms + PAUSE_SPAN_MS => None,
        // A pause makes the capture that has failed due at its end, and the others are due from earlier on.
        Some((_, times)) if times >= PAUSES_OF_ONE => Some("not_before_ms, id"),
        _ => Some("id"),
    })
}
