//! The words of the full-text search, cut by the tokenizer of SQLite's FTS5 itself, so that they are those of the local
//! index by construction.
//!
//! An in-memory FTS5 table with the columns and the tokenizer of the local index takes the texts, and its `fts5vocab`
//! table gives their words back. No text stays in it.

use std::collections::HashMap;

use rusqlite::Connection;

/// The version of the tokenizer, of the texts it is given and of [`crate::shared_index::postings`]. What was published under another
/// one is published again as a whole.
pub(crate) const RULES_VERSION: i32 = 1;

const TABLES: &str = "
    CREATE VIRTUAL TABLE texts USING fts5(
        heading, text, parts,
        content='', tokenize='porter unicode61 remove_diacritics 2'
    );
    CREATE VIRTUAL TABLE words USING fts5vocab(texts, instance);
";
/// As in the local index: a batch is sorted once in memory.
const HASH_BYTES: i64 = 32 << 20;
const COLUMNS: i64 = 3;
/// A longer word is stored as its digest: a key of PostgreSQL's B-tree has at most 2,704 bytes.
const TERM_BYTES_MAX: usize = 64;

/// A word as it is stored: what the tokenizer made of it, or the digest of a long one.
pub(crate) type Term = Vec<u8>;

/// The places of one word in one text, ascending. Two words stand together if their places differ by
/// [`NEXT_PLACE`]; words of different columns never do.
pub(crate) type Places = Vec<u32>;

/// The distance between the places of adjoining words.
pub(crate) const NEXT_PLACE: u32 = COLUMNS as u32;

/// Cuts texts into words. Not shared between threads.
pub(crate) struct Tokenizer {
    connection: Connection,
}

/// The words of some texts.
#[derive(Default)]
pub(crate) struct WordsOfTexts {
    /// Each word with the texts that hold it, by the texts' numbers; both ascending.
    pub(crate) words: Vec<(Term, Vec<(i64, Places)>)>,
    /// The number of words of each text.
    pub(crate) lengths: HashMap<i64, u32>,
}

impl Tokenizer {
    pub(crate) fn new() -> rusqlite::Result<Self> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(TABLES)?;
        connection.execute("INSERT INTO texts(texts, rank) VALUES ('hashsize', ?1)", [HASH_BYTES])?;
        Ok(Self { connection })
    }

    /// The words of numbered texts of the three columns.
    pub(crate) fn words_of<'t>(
        &mut self,
        texts: impl IntoIterator<Item = (i64, &'t [String; 3])>,
    ) -> rusqlite::Result<WordsOfTexts> {
        let transaction = self.connection.transaction()?;
        {
            let sql = "INSERT INTO texts(rowid, heading, text, parts) VALUES (?1, ?2, ?3, ?4)";
            let mut insert = transaction.prepare_cached(sql)?;
            for (number, [heading, text, parts]) in texts {
                insert.execute((number, heading, text, parts))?;
            }
        }
        let words = read(&transaction);
        // The rollback empties the table.
        transaction.rollback()?;
        words
    }

    /// The words of each phrase in their order.
    pub(crate) fn words_of_phrases(&mut self, phrases: &[String]) -> rusqlite::Result<Vec<Vec<Term>>> {
        let columns: Vec<[String; 3]> =
            phrases.iter().map(|phrase| [String::new(), phrase.clone(), String::new()]).collect();
        let texts = columns.iter().enumerate().map(|(number, columns)| (number as i64, columns));
        let found = self.words_of(texts)?;
        let mut placed: Vec<Vec<(u32, Term)>> = vec![Vec::new(); phrases.len()];
        for (term, texts) in found.words {
            for (number, places) in texts {
                placed[number as usize].extend(places.into_iter().map(|place| (place, term.clone())));
            }
        }
        let in_order = |mut words: Vec<(u32, Term)>| {
            words.sort_unstable();
            words.into_iter().map(|(_, term)| term).collect()
        };
        Ok(placed.into_iter().map(in_order).collect())
    }
}

fn read(connection: &Connection) -> rusqlite::Result<WordsOfTexts> {
    let mut found = WordsOfTexts::default();
    let sql =
        "SELECT term, doc, CASE col WHEN 'heading' THEN 0 WHEN 'text' THEN 1 ELSE 2 END, offset FROM words";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut last: Vec<u8> = Vec::new();
    while let Some(row) = rows.next()? {
        // The stemmer works on bytes and may cut a character.
        let word = row.get_ref(0)?.as_bytes()?;
        let (number, column, offset): (i64, i64, i64) = (row.get(1)?, row.get(2)?, row.get(3)?);
        if found.words.is_empty() || last != word {
            word.clone_into(&mut last);
            found.words.push((stored(word), Vec::new()));
        }
        let place = u32::try_from(offset * COLUMNS + column).unwrap_or(u32::MAX);
        *found.lengths.entry(number).or_default() += 1;
        let Some((_, texts)) = found.words.last_mut() else { continue };
        match texts.last_mut() {
            Some((of, places)) if *of == number => places.push(place),
            _ => texts.push((number, vec![place])),
        }
    }
    for (_, texts) in &mut found.words {
        texts.iter_mut().for_each(|(_, places)| places.sort_unstable());
    }
    Ok(found)
}

/// A digest begins with a byte that no UTF-8 text begins with.
fn stored(word: &[u8]) -> Term {
    if word.len() <= TERM_BYTES_MAX {
        return word.to_owned();
    }
    let mut term = vec![0xff];
    term.extend_from_slice(blake3::hash(word).as_bytes());
    term
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phrases(texts: &[&str]) -> Vec<Vec<String>> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let words = Tokenizer::new().unwrap().words_of_phrases(&texts).unwrap();
        let text = |words: Vec<Term>| words.iter().map(|word| String::from_utf8_lossy(word).into()).collect();
        words.into_iter().map(text).collect()
    }

    #[test]
    fn phrases_are_cut_and_stemmed_in_their_order() {
        assert_eq!(
            phrases(&["read_file", "Pools running", "größe naïve", "", "a b a", "日本語"]),
            [
                vec!["read", "file"],
                vec!["pool", "run"],
                vec!["groß", "naiv"],
                vec![],
                vec!["a", "b", "a"],
                vec!["日本語"]
            ]
        );
    }

    #[test]
    fn words_of_different_columns_are_not_adjoining() {
        let columns = ["read me".to_owned(), "file read file".to_owned(), String::new()];
        let found = Tokenizer::new().unwrap().words_of([(7, &columns)]).unwrap();
        let of = |word: &str| found.words.iter().find(|(term, _)| term == word.as_bytes()).unwrap().1.clone();
        assert_eq!(of("read"), [(7, vec![0, 4])]);
        assert_eq!(of("file"), [(7, vec![1, 7])]);
        assert_eq!(found.lengths[&7], 5);
    }

    #[test]
    fn a_text_leaves_nothing_behind() {
        let mut tokenizer = Tokenizer::new().unwrap();
        let one = |word: &str| [word.to_owned(), String::new(), String::new()];
        tokenizer.words_of([(1, &one("alpha"))]).unwrap();
        let found = tokenizer.words_of([(1, &one("beta"))]).unwrap();
        assert_eq!(found.words, [(b"beta".to_vec(), vec![(1, vec![0])])]);
    }

    #[test]
    fn a_long_word_is_stored_as_its_digest() {
        let long = "x".repeat(100_000);
        let words = Tokenizer::new().unwrap().words_of_phrases(&[long]).unwrap();
        assert!(words[0][0].len() == 33 && words[0][0][0] == 0xff);
    }

    #[test]
    fn a_stem_that_ends_inside_a_character_is_read() {
        assert_eq!(phrases(&["a䀀ed"])[0].len(), 1);
    }
}
