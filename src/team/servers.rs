//! The servers that work on the database, and which of them syncs a brain with git.

use std::time::Duration;

use jiff::Timestamp;

use crate::{BrainId, Result, TeamStore};

/// A start of a server's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(pub i64);

/// A server that was seen lately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveServer {
    /// Its number.
    pub id: ServerId,
    /// The name of its host.
    pub host: String,
    /// Its version of nugget.
    pub version: String,
    /// When it started.
    pub since: Timestamp,
    /// Its last heartbeat.
    pub seen: Timestamp,
    /// Whether it ends and takes no more work.
    pub draining: bool,
}

impl TeamStore {
    /// Registers this process as a server. Those not seen for a week are removed.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn register_server(&self, host: &str, version: &str) -> Result<ServerId> {
        self.dispatch(|transaction| {
            transaction.execute("DELETE FROM servers WHERE seen < now() - interval '7 days'", &[])?;
            let sql = "INSERT INTO servers (host, version) VALUES ($1, $2) RETURNING id";
            Ok(ServerId(transaction.query_one(sql, &[&host, &version])?.get(0)))
        })
    }

    /// Records that a server is alive, and whether it is about to end.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn heartbeat(&self, server: ServerId, draining: bool) -> Result<()> {
        let sql = "UPDATE servers SET seen = clock_timestamp(), draining = $2 WHERE id = $1";
        self.dispatch(|transaction| transaction.execute(sql, &[&server.0, &draining]).map(drop))
    }

    /// Removes a server that has ended, so that it does not count as alive until it was not seen for long, and gives back
    /// the syncs that it has claimed.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn retire_server(&self, server: ServerId) -> Result<()> {
        self.dispatch(|transaction| {
            let sql = "UPDATE syncs SET server = NULL, lease_until = NULL WHERE server = $1";
            transaction.execute(sql, &[&server.0])?;
            transaction.execute("DELETE FROM servers WHERE id = $1", &[&server.0]).map(drop)
        })
    }

    /// The servers that were seen within this time, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn live_servers(&self, within: Duration) -> Result<Vec<LiveServer>> {
        let sql = "SELECT id, host, version, since, seen, draining FROM servers
            WHERE seen > clock_timestamp() - make_interval(secs => $1) ORDER BY id";
        let rows = self.dispatch(|transaction| transaction.query(sql, &[&within.as_secs_f64()]))?;
        let read = |row: postgres::Row| LiveServer {
            id: ServerId(row.get(0)),
            host: row.get(1),
            version: row.get(2),
            since: row.get(3),
            seen: row.get(4),
            draining: row.get(5),
        };
        Ok(rows.into_iter().map(read).collect())
    }

    /// Hands one brain to this server for its sync with git: the one that has waited longest since its last sync, if
    /// that is at least `every` ago. No other server gets it until [`finish_sync`](Self::finish_sync) or the end of the
    /// lease, which [`renew_sync`](Self::renew_sync) extends.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn claim_sync(&self, server: ServerId, every: Duration, lease: Duration) -> Result<Option<BrainId>> {
        let sql = "UPDATE syncs SET server = $1, lease_until = clock_timestamp() + make_interval(secs => $3)
            WHERE brain = (
                SELECT brain FROM syncs
                WHERE synced <= clock_timestamp() - make_interval(secs => $2)
                  AND (lease_until IS NULL OR lease_until < clock_timestamp())
                ORDER BY synced, brain LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING brain";
        let params: crate::store::Params<'_> = &[&server.0, &every.as_secs_f64(), &lease.as_secs_f64()];
        let claimed = self.dispatch(|transaction| transaction.query_opt(sql, params))?;
        Ok(claimed.map(|row| BrainId(row.get(0))))
    }

    /// Extends the claim of a sync, if it is still this server's: it lasts for a lease from now.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn renew_sync(&self, server: ServerId, brain: BrainId, lease: Duration) -> Result<()> {
        let sql = "UPDATE syncs SET lease_until = clock_timestamp() + make_interval(secs => $3)
            WHERE brain = $2 AND server = $1";
        let params: crate::store::Params<'_> = &[&server.0, &brain.0, &lease.as_secs_f64()];
        self.dispatch(|transaction| transaction.execute(sql, params).map(drop))
    }

    /// Records that this server has synced a brain now. Returns `false` if another server has taken over since.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn finish_sync(&self, server: ServerId, brain: BrainId) -> Result<bool> {
        let sql = "UPDATE syncs SET synced = clock_timestamp(), server = NULL, lease_until = NULL
            WHERE brain = $2 AND server = $1";
        let finished = self.dispatch(|transaction| transaction.execute(sql, &[&server.0, &brain.0]))?;
        Ok(finished > 0)
    }
}
