//! Tokens and their brains.

use std::error::Error as StdError;
use std::time::Duration;

use server::{Action, AuditEvent, Brain, BrainRepository, Claims, FoundToken, Identity, Scope, Unavailable};
use team::{BrainId, TeamStore, Token};

/// When a client is to try again while the database cannot be used.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// The claims of a JWT that name its brains and scopes.
const BRAINS_CLAIM: &str = "nugget_brains";
const SCOPE_CLAIM: &str = "scope";

pub(crate) struct TeamAccess {
    pub(crate) store: TeamStore,
}

/// The database's side cannot answer now.
pub(crate) fn unavailable(error: impl StdError + Send + Sync + 'static) -> Unavailable {
    Unavailable {
        what: knowledge::text::error_chain(&error),
        retry_after: RETRY_AFTER,
        source: Some(Box::new(error)),
    }
}

impl server::Access for TeamAccess {
    fn find_token(&self, hash: &server::TokenHash) -> Result<Option<FoundToken>, Unavailable> {
        let found = self.store.find_token(&team::TokenHash::from_bytes(hash.0)).map_err(unavailable)?;
        Ok(found.map(|found| match found {
            team::FoundToken::Valid(token) => FoundToken::Valid(identity(token)),
            team::FoundToken::Revoked => FoundToken::Revoked,
            team::FoundToken::Expired => FoundToken::Expired,
        }))
    }

    fn find_claims(&self, claims: &Claims) -> Result<Option<Identity>, Unavailable> {
        let texts = |name: &str| -> Vec<String> {
            match claims.all.get(name) {
                Some(serde_json::Value::String(text)) => text.split_whitespace().map(str::to_owned).collect(),
                Some(serde_json::Value::Array(items)) => {
                    items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
                }
                _ => Vec::new(),
            }
        };
        let mut brains = Vec::new();
        for slug in texts(BRAINS_CLAIM) {
            if let Some(row) = self.store.brain_by_slug(&slug).map_err(unavailable)? {
                brains.push(Brain { id: server::BrainId(row.id.0), slug: row.slug });
            }
        }
        let granted = texts(SCOPE_CLAIM);
        let scopes: Vec<Scope> = Scope::ALL
            .into_iter()
            .filter(|scope| granted.iter().any(|name| name == scope.as_str()))
            .collect();
        if brains.is_empty() || scopes.is_empty() {
            return Ok(None);
        }
        // The issuer is part of who it is: two issuers may give one name to two people.
        let subject = format!("{} ({})", claims.subject, claims.issuer);
        Ok(Some(Identity { subject, brains, scopes, expires: Some(claims.expires) }))
    }

    fn repositories(&self, brains: &[Brain]) -> Result<Vec<BrainRepository>, Unavailable> {
        let mut repositories = Vec::new();
        for brain in brains {
            let row = self.store.brain_by_id(BrainId(brain.id.0)).map_err(unavailable)?;
            repositories.extend(row.map(|row| BrainRepository {
                brain: row.slug,
                remote: git::display_url(&row.remote),
                commit: row.served_commit,
            }));
        }
        Ok(repositories)
    }

    fn audit(&self, event: &AuditEvent) {
        // Reads are counted and not recorded; a hand-over is recorded as it is stored.
        if event.action == Action::Ask {
            return;
        }
        let brain = event.brain.map(|brain| BrainId(brain.0));
        if let Err(error) = self.store.record(&event.subject, "refused", brain, None) {
            tracing::error!(error = knowledge::text::error_chain(&error), "failed to write the audit log");
        }
    }
}

fn identity(token: Token) -> Identity {
    let brain = |(id, slug): (BrainId, String)| Brain { id: server::BrainId(id.0), slug };
    let scope = |scope: team::Scope| match scope {
        team::Scope::Read => Scope::Read,
        team::Scope::Capture => Scope::Capture,
        team::Scope::Admin => Scope::Admin,
    };
    Identity {
        subject: token.subject,

        brains: token.brains.into_iter().map(brain).collect(),
        scopes: token.scopes.into_iter().map(scope).collect(),
        expires: Some(token.expires),
    }
}
