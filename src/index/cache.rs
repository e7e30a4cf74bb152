//! A cache of vectors by model and text, for all brains of a user: rebuilding an index embeds no text twice.
//!
//! The cache is optional: errors are logged and ignored, a damaged file is removed, and any number of processes may use
//! it at once. It contains digests of texts, never a text.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brain::paths::{create_private_file, create_private_folder};
use knowledge::Embedding;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use crate::generation::ModelLabel;
use crate::schema;

/// About 40,000 passages by the built-in model. Beyond it, the least recently used ones are removed.
const BYTES_MAX: u64 = 256 << 20;
/// One in so many vectors is removed at a time, so that removing is rare.
const EVICTED_PART: usize = 8;
/// A cache is not worth a long wait.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);
/// But who gives up while another process creates it has none until its end.
const CREATION_TIMEOUT: Duration = Duration::from_secs(5);
const VERSION: i64 = 2;
/// The resolution of the last use: at a day, reading rarely has to write.
const DAY: Duration = Duration::from_secs(86_400);
const NORM_ERROR_MAX: f64 = 1e-3;

/// Vectors are stored as f32 as the model returned them, not as f16 as in the index, so that an index is the same with
/// and without the cache.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS vectors (
        row INTEGER PRIMARY KEY,
        key BLOB NOT NULL UNIQUE,
        used INTEGER NOT NULL,
        vector BLOB NOT NULL,
        tokens BLOB NOT NULL
    );
    CREATE INDEX IF NOT EXISTS vectors_by_use ON vectors(used);
";

/// A cache of vectors in one file.
pub struct VectorCache {
    path: PathBuf,
    bytes_max: u64,
    /// `None` if the file cannot be used.
    connection: Mutex<Option<Connection>>,
}

impl VectorCache {
    /// Opens the cache, or creates it. A cache that cannot be used stores nothing.
    pub fn open(path: &Path) -> Self {
        Self::with_limit(path, BYTES_MAX)
    }

    fn with_limit(path: &Path, bytes_max: u64) -> Self {
        let connection = match connect(path) {
            Ok(connection) => Some(connection),
            Err(Failure::Sqlite(error)) if schema::is_damage(&error) => {
                tracing::warn!(path = %path.display(), "the cache of vectors is damaged and will be rebuilt");
                remove(path);
                connect(path).ok()
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the cache of vectors cannot be used");
                None
            }
        };
        Self { path: path.to_owned(), bytes_max, connection: Mutex::new(connection) }
    }

    /// The cached vectors of the texts, in the order of the texts.
    pub fn get(&self, model: &ModelLabel, texts: &[String]) -> Vec<Option<Embedding>> {
        let read = |connection: &mut Connection| -> rusqlite::Result<Vec<Option<Embedding>>> {
            let today = today();
            let mut stale = Vec::new();
            let mut vectors = Vec::with_capacity(texts.len());
            {
                let transaction = connection.transaction()?;
                let mut statement = transaction
                    .prepare_cached("SELECT row, used, vector, tokens FROM vectors WHERE key = ?1")?;
                for text in texts {
                    let found = statement
                        .query_row([key(model, text)], |row| {
                            let vector = decode(row.get_ref(2)?.as_blob()?, model.dimensions);
                            let tokens: Vec<u8> = row.get(3)?;
                            Ok((
                                row.get::<_, i64>(0)?,
                                row.get::<_, i64>(1)?,
                                vector.map(|vector| Embedding { vector, tokens }),
                            ))
                        })
                        .optional()?;
                    stale.extend(found.iter().filter(|(_, used, _)| *used != today).map(|(row, ..)| *row));
                    vectors.push(found.and_then(|(_, _, vector)| vector));
                }
            }
            // The vectors are found even if another process is writing.
            if !stale.is_empty()
                && let Err(error) = set_used(connection, &stale, today)
            {
                tracing::debug!(%error, path = %self.path.display(), "the cache's last use was not stored");
            }
            Ok(vectors)
        };
        self.attempt(read).unwrap_or_else(|| vec![None; texts.len()])
    }

    /// Stores vectors with their texts.
    pub fn put<'t>(
        &self,
        model: &ModelLabel,
        embeddings: impl IntoIterator<Item = (&'t str, &'t Embedding)>,
    ) {
        let _ = self.attempt(|connection| {
            let today = today();
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for (text, Embedding { vector, tokens }) in embeddings {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                transaction
                    .prepare_cached(
                        "INSERT OR REPLACE INTO vectors(key, used, vector, tokens) VALUES (?1, ?2, ?3, ?4)",
                    )?
                    .execute(params![key(model, text), today, bytes, tokens])?;
            }
            let number = |sql| transaction.query_row(sql, [], |row| row.get::<_, u64>(0));
            let pages = number("PRAGMA page_count")?.saturating_sub(number("PRAGMA freelist_count")?);
            if pages * number("PRAGMA page_size")? > self.bytes_max {
                transaction.execute(
                    "DELETE FROM vectors WHERE row IN (SELECT row FROM vectors ORDER BY used, row
                     LIMIT (SELECT count(*) / ?1 + 1 FROM vectors))",
                    [EVICTED_PART],
                )?;
            }
            transaction.commit()
        });
    }

    /// Runs an action on the database; `None` if it fails.
    fn attempt<T>(&self, action: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Option<T> {
        let mut held = self.lock();
        match action(held.as_mut()?) {
            Ok(value) => Some(value),
            Err(error) => {
                tracing::debug!(%error, path = %self.path.display(), "the cache of vectors failed");
                if schema::is_damage(&error) {
                    *held = None;
                    remove(&self.path);
                }
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

fn connect(path: &Path) -> Result<Connection, Failure> {
    if let Some(folder) = path.parent() {
        create_private_folder(folder)?;
    }
    // Created here and not by SQLite, for the owner only: a vector reveals something about its text.
    create_private_file(path)?;
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(CREATION_TIMEOUT)?;
    schema::use_wal(&connection, CREATION_TIMEOUT)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    let version =
        |connection: &Connection| connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    if version(&connection)? != VERSION {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if version(&transaction)? != VERSION {
            transaction.execute_batch("DROP TABLE IF EXISTS vectors")?;
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        transaction.commit()?;
    }
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

fn set_used(connection: &mut Connection, rows: &[i64], day: i64) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for row in rows {
        transaction.prepare_cached("UPDATE vectors SET used = ?1 WHERE row = ?2")?.execute([day, *row])?;
    }
    transaction.commit()
}

fn remove(path: &Path) {
    for suffix in ["-wal", "-shm", ""] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let _ = fs::remove_file(name);
    }
}

fn key(model: &ModelLabel, text: &str) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(model.name.as_bytes()).update(&[0]).update(&model.dimensions.to_le_bytes());
    hasher.update(text.as_bytes());
    let mut key = [0; 16];
    key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    key
}

/// Decodes a stored vector; `None` if it is damaged.
fn decode(bytes: &[u8], dimensions: usize) -> Option<Vec<f32>> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    let vector: Vec<f32> = numbers.iter().map(|four| f32::from_le_bytes(*four)).collect();
    let norm = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let sound = rest.is_empty() && vector.len() == dimensions && (norm - 1.0).abs() < NORM_ERROR_MAX;
    sound.then_some(vector)
}

fn today() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs() / DAY.as_secs()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(name: &str) -> ModelLabel {
        ModelLabel { name: name.to_owned(), dimensions: 3 }
    }

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_vector_is_found_by_its_model_and_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nugget/vectors.db");
        let embedding = Embedding { vector: vec![0.6, 0.8, 0.0], tokens: vec![1, 2, 3] };
        VectorCache::open(&path).put(&label("a"), [("text", &embedding)]);
        let cache = VectorCache::open(&path);
        assert_eq!(cache.get(&label("a"), &texts(&["text", "other"])), [Some(embedding), None]);
        assert_eq!(cache.get(&label("b"), &texts(&["text"])), [None]);
        assert_eq!(
            cache.get(&ModelLabel { dimensions: 2, ..label("a") }, &texts(&["text"])),
            [None],
            "the dimensions are another model's"
        );
    }

    #[test]
    fn an_unusable_cache_stores_nothing_without_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.db");
        fs::write(&path, "this is not a database at all, only some text".repeat(100)).unwrap();
        let cache = VectorCache::open(&path);
        assert_eq!(cache.get(&label("a"), &texts(&["text"])), [None]);
        cache.put(&label("a"), [("text", &vec![1.0, 0.0, 0.0].into())]);
        assert_eq!(
            cache.get(&label("a"), &texts(&["text"])),
            [Some(vec![1.0, 0.0, 0.0].into())],
            "it was rebuilt"
        );
        let below_a_file = VectorCache::open(&path.join("vectors.db"));
        below_a_file.put(&label("a"), [("text", &vec![1.0, 0.0, 0.0].into())]);
        assert_eq!(below_a_file.get(&label("a"), &texts(&["text"])), [None]);
    }

    #[test]
    fn a_damaged_vector_is_not_returned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.db");
        let cache = VectorCache::open(&path);
        cache.put(
            &label("a"),
            [("text", &vec![f32::NAN, 0.0, 0.0].into()), ("long", &vec![9.0, 0.0, 0.0].into())],
        );
        assert_eq!(cache.get(&label("a"), &texts(&["text", "long"])), [None, None]);
    }

    #[test]
    fn a_vector_is_found_while_another_process_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.db");
        let cache = VectorCache::open(&path);
        let embedding: Embedding = vec![1.0, 0.0, 0.0].into();
        cache.put(&label("a"), [("text", &embedding)]);
        let mut other = connect(&path).unwrap();
        // Last used long ago, so that reading wants to write.
        other.execute("UPDATE vectors SET used = 1", []).unwrap();
        let writing = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        assert_eq!(cache.get(&label("a"), &texts(&["text"])), [Some(embedding)]);
        writing.commit().unwrap();
    }

    #[test]
    fn the_least_recently_used_vectors_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.db");
        let cache = VectorCache::with_limit(&path, 200_000);
        let names: Vec<String> = (0..4_000).map(|i| format!("text {i}")).collect();
        let embedding = vec![1.0, 0.0, 0.0].into();
        for batch in names.chunks(100) {
            cache.put(&label("a"), batch.iter().map(|name| (name.as_str(), &embedding)));
        }
        let kept = cache.get(&label("a"), &names);
        assert!(kept[0].is_none() && kept[3_999].is_some());
        let size = fs::metadata(&path).unwrap().len();
        assert!(size < 400_000, "{size}");
    }

    #[test]
    fn writers_that_create_the_cache_together_all_use_it() {
        for round in 0..40 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("vectors.db");
            let writers = 6;
            let together = std::sync::Barrier::new(writers);
            std::thread::scope(|scope| {
                for writer in 0..writers {
                    let (path, together) = (&path, &together);
                    scope.spawn(move || {
                        together.wait();
                        let cache = VectorCache::open(path);
                        let patient = cache.lock().as_ref().map(|c| c.busy_timeout(CREATION_TIMEOUT));
                        assert_eq!(patient, Some(Ok(())), "writer {writer} of round {round} has no cache");
                        let name = format!("text {writer}");
                        cache.put(&label("a"), [(name.as_str(), &vec![0.0, 1.0, 0.0].into())]);
                    });
                }
            });
            let names: Vec<String> = (0..writers).map(|writer| format!("text {writer}")).collect();
            let kept = VectorCache::open(&path).get(&label("a"), &names);
            assert!(kept.iter().all(Option::is_some), "round {round}: {kept:?}");
        }
    }
}
