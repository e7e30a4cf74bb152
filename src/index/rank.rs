//! BM25 over FTS5's matches, as FTS5's own function computes it, with the passages' lengths in memory.
//!
//! FTS5 looks up the length of each passage that matches in a table, which is more than half of what a question to
//! a large index takes. Its interface for auxiliary functions gives all else that the formula needs:
//! <https://www.sqlite.org/fts5.html#custom_auxiliary_functions>, and for the formula
//! <https://www.sqlite.org/fts5.html#the_bm25_function>.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::ffi::{self, Fts5Context, Fts5ExtensionApi, fts5_api, sqlite3_context, sqlite3_value};

use crate::snapshot::{ChunkRow, Hit};

const K1: f64 = 1.2;
const B: f64 = 0.75;
/// What a phrase that is in more than half of all passages counts, for a reward that is below zero.
const REWARD_MIN: f64 = 1e-6;

/// The tokens of each passage, all columns together, by row, ascending.
pub(crate) type Lengths = Arc<Vec<(i64, u32)>>;

/// Adds the lengths of the passages after the last one known. A row stands for one text for as long as its
/// database lives, so those that are known are right.
pub(crate) fn read_lengths(connection: &Connection, known: &mut Lengths) -> rusqlite::Result<()> {
    let last = known.last().map_or(i64::MIN, |(row, _)| *row);
    let sql = "SELECT id, sz FROM chunks_fts_docsize WHERE id > ?1 ORDER BY id";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([last])?;
    while let Some(row) = rows.next()? {
        let length = sum_of_numbers(row.get_ref(1)?.as_blob()?);
        Arc::make_mut(known).push((row.get(0)?, length));
    }
    Ok(())
}

/// Of SQLite's numbers of variable length: seven bits a byte, the highest first, the last byte below 128.
fn sum_of_numbers(bytes: &[u8]) -> u32 {
    let (mut sum, mut number) = (0_u32, 0_u32);
    for byte in bytes {
        number = number << 7 | u32::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            sum = sum.saturating_add(number);
            number = 0;
        }
    }
    sum
}

/// One search in progress on this thread.
struct Search {
    lengths: Lengths,
    /// Where in `lengths` the last match was: matches come in the order of their rows.
    at: usize,
    /// Inverse document frequency of each phrase of the question; empty before the first match.
    rewards: Vec<f64>,
    mean_length: f64,
    /// How often the present passage holds each phrase.
    counts: Vec<f64>,
    hits: Vec<Hit>,
}

thread_local! {
    static SEARCH: RefCell<Option<Search>> = const { RefCell::new(None) };
}

/// Ends the search of this thread, however that ends.
struct Ended;

impl Drop for Ended {
    fn drop(&mut self) {
        SEARCH.set(None);
    }
}

/// All chunks that match a query of FTS5, in the order of their rows, with their BM25 (k1 = 1.2, b = 0.75),
/// positive. The connection knows the function by [`register`].
pub(crate) fn matches(connection: &Connection, query: &str, lengths: Lengths) -> rusqlite::Result<Vec<Hit>> {
    let search = Search {
        lengths,
        at: 0,
        rewards: Vec::new(),
        mean_length: 0.0,
        counts: Vec::new(),
        hits: Vec::new(),
    };
    SEARCH.set(Some(search));
    let _ended = Ended;
    let sql = "SELECT nugget_bm25(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([query])?;
    while rows.next()?.is_some() {}
    Ok(SEARCH.take().map(|search| search.hits).unwrap_or_default())
}

/// Makes `nugget_bm25` known to a connection.
pub(crate) fn register(connection: &Connection) -> rusqlite::Result<()> {
    let mut api: *mut fts5_api = ptr::null_mut();
    #[expect(
        unsafe_code,
        reason = "the way to FTS5's interface that its documentation gives; all pointers outlive it"
    )]
    let code = unsafe {
        let database = connection.handle();
        let mut statement = ptr::null_mut();
        let sql = c"SELECT fts5(?1)";
        let prepared =
            ffi::sqlite3_prepare_v2(database, sql.as_ptr(), -1, &raw mut statement, ptr::null_mut());
        if prepared == ffi::SQLITE_OK {
            let kind = c"fts5_api_ptr";
            ffi::sqlite3_bind_pointer(statement, 1, (&raw mut api).cast(), kind.as_ptr(), None);
            ffi::sqlite3_step(statement);
        }
        ffi::sqlite3_finalize(statement);
        match api.as_ref().and_then(|found| found.xCreateFunction) {
            Some(create) => create(api, c"nugget_bm25".as_ptr(), ptr::null_mut(), Some(score), None),
            None => ffi::SQLITE_MISUSE,
        }
    };
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    let what = Some("FTS5 takes no function".to_owned());
    Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), what))
}

/// Called by FTS5 for each match; the score goes to [`SEARCH`].
#[expect(unsafe_code, reason = "FTS5 calls it with an interface and a context that hold until it returns")]
unsafe extern "C" fn score(
    api: *const Fts5ExtensionApi,
    fts: *mut Fts5Context,
    context: *mut sqlite3_context,
    _: c_int,
    _: *mut *mut sqlite3_value,
) {
    let scored = SEARCH.with_borrow_mut(|search| match (search, unsafe { api.as_ref() }) {
        (Some(search), Some(api)) => unsafe { search.score(api, fts) },
        _ => Err(ffi::SQLITE_MISUSE),
    });
    if let Err(code) = scored {
        unsafe { ffi::sqlite3_result_error_code(context, code) };
    }
}

/// Called by FTS5 for each passage that holds a phrase.
#[expect(unsafe_code, reason = "FTS5 hands on the number that `count` has given it")]
unsafe extern "C" fn count_one(_: *const Fts5ExtensionApi, _: *mut Fts5Context, count: *mut c_void) -> c_int {
    if let Some(count) = unsafe { count.cast::<i64>().as_mut() } {
        *count += 1;
    }
    ffi::SQLITE_OK
}

/// What a function of FTS5's interface says, or its code when it failed.
fn given(code: c_int) -> Result<(), c_int> {
    if code == ffi::SQLITE_OK { Ok(()) } else { Err(code) }
}

impl Search {
    /// Scores the match that FTS5 is at.
    #[expect(unsafe_code, reason = "FTS5's functions, with the context that it gave for this call")]
    unsafe fn score(&mut self, api: &Fts5ExtensionApi, fts: *mut Fts5Context) -> Result<(), c_int> {
        let missing = ffi::SQLITE_MISUSE;
        if self.rewards.is_empty() {
            unsafe { self.begin(api, fts)? };
        }
        self.counts.fill(0.0);
        let mut instances = 0;
        given(unsafe { api.xInstCount.ok_or(missing)?(fts, &raw mut instances) })?;
        for instance in 0..instances {
            let (mut phrase, mut column, mut place) = (0, 0, 0);
            let whereabouts = (&raw mut phrase, &raw mut column, &raw mut place);
            let (phrase_of, column_of, place_of) = whereabouts;
            given(unsafe { api.xInst.ok_or(missing)?(fts, instance, phrase_of, column_of, place_of) })?;
            let count = usize::try_from(phrase).ok().and_then(|phrase| self.counts.get_mut(phrase));
            *count.ok_or(missing)? += 1.0;
        }
        let row = unsafe { api.xRowid.ok_or(missing)?(fts) };
        let length = match self.length(row) {
            Some(length) => f64::from(length),
            None => {
                let mut length = 0;
                given(unsafe { api.xColumnSize.ok_or(missing)?(fts, -1, &raw mut length) })?;
                f64::from(length)
            }
        };
        let slack = K1 * (1.0 - B + B * length / self.mean_length);
        let gained = self
            .rewards
            .iter()
            .zip(&self.counts)
            .map(|(reward, count)| reward * (count * (K1 + 1.0) / (count + slack)));
        self.hits.push(Hit { chunk: ChunkRow(row), score: gained.sum() });
        Ok(())
    }

    /// Asks for what holds of all matches.
    #[expect(unsafe_code, reason = "FTS5's functions, with the context that it gave for this call")]
    unsafe fn begin(&mut self, api: &Fts5ExtensionApi, fts: *mut Fts5Context) -> Result<(), c_int> {
        let missing = ffi::SQLITE_MISUSE;
        let (mut passages, mut tokens) = (0_i64, 0_i64);
        given(unsafe { api.xRowCount.ok_or(missing)?(fts, &raw mut passages) })?;
        given(unsafe { api.xColumnTotalSize.ok_or(missing)?(fts, -1, &raw mut tokens) })?;
        self.mean_length = tokens as f64 / passages as f64;
        let phrases = unsafe { api.xPhraseCount.ok_or(missing)?(fts) };
        for phrase in 0..phrases {
            let mut holding = 0_i64;
            let count = (&raw mut holding).cast();
            given(unsafe { api.xQueryPhrase.ok_or(missing)?(fts, phrase, count, Some(count_one)) })?;
            let reward = (((passages - holding) as f64 + 0.5) / (holding as f64 + 0.5)).ln();
            self.rewards.push(if reward > 0.0 { reward } else { REWARD_MIN });
        }
        self.counts.resize(self.rewards.len(), 0.0);
        Ok(())
    }

    fn length(&mut self, row: i64) -> Option<u32> {
        if self.lengths.get(self.at).is_none_or(|(present, _)| *present > row) {
            self.at = 0;
        }
        self.at += self.lengths.get(self.at..)?.iter().take_while(|(before, _)| *before < row).count();
        self.lengths.get(self.at).filter(|(found, _)| *found == row).map(|(_, length)| *length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_variable_length_are_added_up() {
        assert_eq!(sum_of_numbers(&[]), 0);
        assert_eq!(sum_of_numbers(&[3, 0, 127]), 130);
        assert_eq!(sum_of_numbers(&[0x81, 0, 5]), 133);
        assert_eq!(sum_of_numbers(&[0x83, 0xff, 0x7f, 1]), 65_536);
    }
}
