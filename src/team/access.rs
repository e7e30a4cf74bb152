//! Brains, the tokens that open them, and the audit of what was done with both.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use jiff::civil::Date;
use postgres::Row;

use crate::store::Transaction;
use crate::{BrainId, Error, Result, TeamStore};

/// What every token begins with, so that scanners for leaked secrets find it.
const PREFIX: &str = "ngt_";

/// A brain to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewBrain<'a> {
    /// Its name in addresses.
    pub slug: &'a str,
    /// The address of its repository.
    pub remote: &'a str,
    /// The repository's default branch; the remote's own where it is not given.
    pub default_branch: Option<&'a str>,
    /// The embedding model of its index.
    pub model: &'a str,
    /// The length of the model's vectors.
    pub dimensions: u32,
}

/// A brain of the team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrainRow {
    /// Its number.
    pub id: BrainId,
    /// Its name in addresses.
    pub slug: String,
    /// The address of its repository.
    pub remote: String,
    /// The repository's default branch; the remote's own where it is not given.
    pub default_branch: Option<String>,
    /// The embedding model of its index.
    pub model: String,
    /// The length of the model's vectors.
    pub dimensions: u32,
    /// The index that is served: grows by one with each publication.
    pub generation: i64,
    /// The commit that the served index was built from.
    pub served_commit: Option<String>,
}

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// To ask questions.
    Read,
    /// To hand over captures.
    Capture,
    /// To manage brains and tokens.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Read, Self::Capture, Self::Admin];

    /// The name that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Capture => "capture",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        known.ok_or_else(|| Error::Invalid { what: format!("there is no scope {text:?}") })
    }
}

/// blake3 of a token's text. Tokens have 256 random bits, so a fast digest without salt is as good as a slow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a token as it was sent.
    pub fn from_token(token: &str) -> Self {
        Self(*blake3::hash(token.as_bytes()).as_bytes())
    }

    /// A digest that was made elsewhere: BLAKE3 of the token.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// A token to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewToken<'a> {
    /// Whose it is.
    pub subject: &'a str,
    /// What it allows.
    pub scopes: &'a [Scope],
    /// The brains that it opens.
    pub brains: &'a [BrainId],
    /// When it ends.
    pub expires: Timestamp,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its number.
    pub id: i32,
    /// Whose it is.
    pub subject: String,
    /// What it allows.
    pub scopes: Vec<Scope>,
    /// The brains that it opens, with their names.
    pub brains: Vec<(BrainId, String)>,
    /// When it was made.
    pub created: Timestamp,
    /// When it ends.
    pub expires: Timestamp,
    /// When it was revoked.
    pub revoked: Option<Timestamp>,
    /// The day on which it was last used.
    pub last_used: Option<Date>,
}

/// What a token's hash stands for, by the database's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundToken {
    /// It can be used.
    Valid(Token),
    /// It was revoked.
    Revoked,
    /// Its time is over.
    Expired,
}

/// One act that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub subject: String,
    /// What, as a word such as `token.create`.
    pub action: String,
    /// In which brain.
    pub brain: Option<BrainId>,
    /// The number of the token or capture that it was about.
    pub object: Option<i64>,
}

const BRAIN: &str =
    "SELECT id, slug, remote, default_branch, model, dimensions, generation, served_commit FROM brains";
/// The tables with rows of brains, apart from those that say which brains there are and what was done with them.
const TABLES_OF_BRAINS: &str = "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE a.attname = 'brain' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND c.relnamespace = 'nugget'::regnamespace AND c.relname NOT IN ('audit', 'projects', 'syncs') ORDER BY 1";
const DELETE: &str = "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL ROLE nugget_access";
const TOKEN: &str = "SELECT id, subject, scopes, created, expires, revoked, b.ids, b.slugs, last_used,
    expires <= clock_timestamp(), last_used IS DISTINCT FROM current_date FROM tokens
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(brains.id ORDER BY slug), '{}') AS ids, coalesce(array_agg(slug ORDER BY slug), '{}') AS slugs
        FROM brains WHERE brains.id = ANY (tokens.brains)) AS b";

impl TeamStore {
    /// Creates a brain. `by` is who asks for it, for the audit.
    ///
    /// # Errors
    /// [`Error::Brain`] when the name is taken or not `a-z`, `0-9` and `-`, at most 63 of them.
    pub fn create_brain(&self, brain: &NewBrain<'_>, by: &str) -> Result<BrainId> {
        check_slug(brain.slug)?;
        let NewBrain { slug, remote, default_branch, model, dimensions } = brain;
        let created = self.access(|transaction| {
            let sql = "INSERT INTO brains (slug, remote, default_branch, model, dimensions)
                VALUES ($1, $2, $3, $4, $5) RETURNING id";
            let row = transaction
                .query_one(sql, &[slug, remote, default_branch, model, &dimensions.cast_signed()])?;
            let id = BrainId(row.get(0));
            transaction.execute("INSERT INTO syncs (brain) VALUES ($1)", &[&id.0])?;
            record(transaction, by, "brain.create", Some(id), None)?;
            Ok(id)
        });
        created.map_err(|error| match error.violates("brains_slug_key") {
            true => Error::Brain { what: format!("there is a brain {slug} already") },
            false => error,
        })
    }

    /// The brain with this name.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn brain_by_slug(&self, slug: &str) -> Result<Option<BrainRow>> {
        let sql = format!("{BRAIN} WHERE slug = $1");
        let row = self.access(|transaction| transaction.query_opt(&sql, &[&slug]))?;
        Ok(row.as_ref().map(read_brain))
    }

    /// The brain with this number.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn brain_by_id(&self, id: BrainId) -> Result<Option<BrainRow>> {
        let sql = format!("{BRAIN} WHERE id = $1");
        let row = self.access(|transaction| transaction.query_opt(&sql, &[&id.0]))?;
        Ok(row.as_ref().map(read_brain))
    }

    /// All brains, by name.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn brains(&self) -> Result<Vec<BrainRow>> {
        let sql = format!("{BRAIN} ORDER BY slug");
        let rows = self.access(|transaction| transaction.query(&sql, &[]))?;
        Ok(rows.iter().map(read_brain).collect())
    }

    /// Gives a brain another address. Returns `false` if there is no brain with this number.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn set_brain_remote(
        &self,
        id: BrainId,
        remote: &str,
        default_branch: &str,
        by: &str,
    ) -> Result<bool> {
        let sql = "UPDATE brains SET remote = $2, default_branch = $3 WHERE id = $1";
        self.access(|transaction| {
            let is_set = transaction.execute(sql, &[&id.0, &remote, &default_branch])? > 0;
            if is_set {
                record(transaction, by, "brain.set_remote", Some(id), None)?;
            }
            Ok(is_set)
        })
    }

    /// Removes a brain with its captures and its index; what was done with it stays in the audit. Its repository is not
    /// touched. Returns `false` if there is no brain with this number.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn delete_brain(&self, id: BrainId, by: &str) -> Result<bool> {
        // The brain's row first: a server that publishes its index holds it, and then finds it gone.
        self.run(DELETE, |transaction| {
            transaction.execute("DELETE FROM projects WHERE brain = $1", &[&id.0])?;
            if transaction.execute("DELETE FROM brains WHERE id = $1", &[&id.0])? == 0 {
                return Ok(false);
            }
            record(transaction, by, "brain.delete", Some(id), None)?;
            delete_rows(transaction, id)?;
            Ok(true)
        })
    }

    /// Deletes what was stored for a brain at the moment of its removal, if it was removed.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn delete_leftovers(&self, id: BrainId) -> Result<()> {
        self.run(DELETE, |transaction| {
            match transaction.query_opt("SELECT FROM brains WHERE id = $1", &[&id.0])? {
                Some(_) => Ok(()),
                None => delete_rows(transaction, id),
            }
        })
    }

    /// Creates a token, and returns its number and its text, which is stored nowhere and cannot be read again.
    ///
    /// # Errors
    /// When a brain does not exist or the database cannot be written.
    pub fn create_token(&self, token: &NewToken<'_>, by: &str) -> Result<(i32, String)> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(Error::Random)?;
        let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
        let hash = TokenHash::from_token(&text);
        let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
        let brains: Vec<i32> = token.brains.iter().map(|brain| brain.0).collect();
        let id = self.access(|transaction| {
            check_brains(transaction, &brains)?;
            let sql = "INSERT INTO tokens (hash, subject, scopes, brains, expires) VALUES ($1, $2, $3, $4, $5) RETURNING id";
            let params: crate::store::Params<'_> =
                &[&hash.0.as_slice(), &token.subject, &scopes, &brains, &token.expires];
            let id: i32 = transaction.query_one(sql, params)?.get(0);
            record(transaction, by, "token.create", None, Some(id.into()))?;
            Ok(id)
        })?;
        Ok((id, text))
    }

    /// All tokens, without their secrets.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn tokens(&self) -> Result<Vec<Token>> {
        let sql = format!("{TOKEN} ORDER BY id");
        let rows = self.access(|transaction| transaction.query(&sql, &[]))?;
        rows.iter().map(read_token).collect()
    }

    /// Ends a token now. Returns `false` if there is none with this number, or it has been revoked before.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn revoke_token(&self, id: i32, by: &str) -> Result<bool> {
        self.access(|transaction| {
            let sql = "UPDATE tokens SET revoked = now() WHERE id = $1 AND revoked IS NULL";
            let is_revoked = transaction.execute(sql, &[&id])? > 0;
            if is_revoked {
                record(transaction, by, "token.revoke", None, Some(id.into()))?;
            }
            Ok(is_revoked)
        })
    }

    /// The token with this hash. Only who has its text hears that it was revoked, or has expired.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn find_token(&self, hash: &TokenHash) -> Result<Option<FoundToken>> {
        let sql = format!("{TOKEN} WHERE hash = $1");
        self.access(|transaction| {
            let Some(row) = transaction.query_opt(&sql, &[&hash.0.as_slice()])? else { return Ok(None) };
            let token = read_token(&row)?;
            if token.revoked.is_some() {
                return Ok(Some(FoundToken::Revoked));
            }
            if row.get(9) {
                return Ok(Some(FoundToken::Expired));
            }
            if row.get(10) {
                transaction
                    .execute("UPDATE tokens SET last_used = current_date WHERE id = $1", &[&token.id])?;
            }
            Ok(Some(FoundToken::Valid(token)))
        })
    }

    /// Records an act: who did what, in which brain, to which object. The act is a word and no content.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn record(&self, by: &str, action: &str, brain: Option<BrainId>, object: Option<i64>) -> Result<()> {
        self.access(|transaction| record(transaction, by, action, brain, object))
    }

    /// The latest recorded acts, newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn audit(&self, limit: usize) -> Result<Vec<AuditEntry>> {
        let sql = "SELECT at, subject, action, brain, object FROM audit ORDER BY id DESC LIMIT $1";
        let rows = self.access(|transaction| transaction.query(sql, &[&(limit as i64)]))?;
        let read = |row: Row| AuditEntry {
            at: row.get(0),
            subject: row.get(1),
            action: row.get(2),
            brain: row.get::<_, Option<i32>>(3).map(BrainId),
            object: row.get(4),
        };
        Ok(rows.into_iter().map(read).collect())
    }
}

fn delete_rows(transaction: &mut Transaction, id: BrainId) -> Result<()> {
    transaction.batch_execute(&format!("SET LOCAL ROLE nugget_server; SET LOCAL nugget.brains = '{id}'"))?;
    for row in transaction.query(TABLES_OF_BRAINS, &[])? {
        let table: String = row.get(0);
        transaction.execute(&format!("DELETE FROM {table} WHERE brain = $1"), &[&id.0])?;
    }
    Ok(())
}

fn check_slug(slug: &str) -> Result<()> {
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=63).contains(&slug.len()) && slug.bytes().all(is_valid) && !slug.starts_with('-') {
        return Ok(());
    }
    Err(Error::Brain { what: format!("{slug:?} is no name for a brain: use a-z, 0-9 and -, up to 63") })
}

fn check_brains(transaction: &mut Transaction, brains: &[i32]) -> Result<()> {
    let sql =
        "SELECT id FROM unnest($1::int[]) AS wanted(id) WHERE id NOT IN (SELECT id FROM brains) LIMIT 1";
    match transaction.query_opt(sql, &[&brains])? {
        Some(row) => Err(Error::Brain { what: format!("there is no brain {}", row.get::<_, i32>(0)) }),
        None => Ok(()),
    }
}

fn record(
    transaction: &mut Transaction,
    by: &str,
    action: &str,
    brain: Option<BrainId>,
    object: Option<i64>,
) -> Result<()> {
    let sql = "INSERT INTO audit (subject, action, brain, object) VALUES ($1, $2, $3, $4)";
    transaction.execute(sql, &[&by, &action, &brain.map(|brain| brain.0), &object])?;
    Ok(())
}

fn read_brain(row: &Row) -> BrainRow {
    BrainRow {
        id: BrainId(row.get(0)),
        slug: row.get(1),
        remote: row.get(2),
        default_branch: row.get(3),
        model: row.get(4),
        dimensions: row.get::<_, i32>(5).cast_unsigned(),
        generation: row.get(6),
        served_commit: row.get(7),
    }
}

fn read_token(row: &Row) -> Result<Token> {
    let scopes: Vec<&str> = row.get(2);
    let (ids, slugs): (Vec<i32>, Vec<String>) = (row.get(6), row.get(7));
    Ok(Token {
        id: row.get(0),
        subject: row.get(1),
        scopes: scopes.into_iter().map(str::parse).collect::<Result<_>>()?,
        brains: ids.into_iter().map(BrainId).zip(slugs).collect(),
        created: row.get(3),
        expires: row.get(4),
        revoked: row.get(5),
        last_used: row.get(8),
    })
}
