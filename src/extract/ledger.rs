//! The budget for model calls, and the answers that are already paid for.

/// A failure of the ledger itself.
pub type LedgerError = Box<dyn std::error::Error + Send + Sync>;

/// What one call used, or may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    /// The name of the model.
    pub model: String,
    /// The backend that was asked: `claude-api`, `openai-compatible`, `claude-p`.
    pub backend: String,
    /// The tokens.
    pub usage: llm::Usage,
    /// The list price, also where a subscription pays; nothing where the model runs on this machine.
    pub microdollars: u64,
}

/// Whether a call may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The estimated cost is reserved under this number.
    Granted(i64),
    /// The budget is spent; the text explains it to a person.
    OverBudget(String),
}

/// Accounts for the model calls of one capture.
///
/// The methods may block for as long as a database does.
pub trait ModelBudget: Send + Sync {
    /// Reserves the most that a call may cost, before it is made.
    ///
    /// A reservation that is neither settled nor released counts as spent, because the process may have died after
    /// the call.
    ///
    /// # Errors
    /// When the ledger cannot be used.
    fn reserve(&self, estimate: &Spending) -> Result<Reserved, LedgerError>;

    /// Replaces a reservation by the actual cost.
    ///
    /// # Errors
    /// When the ledger cannot be used.
    fn settle(&self, reservation: i64, spent: &Spending) -> Result<(), LedgerError>;

    /// Releases the reservation of a call that cost nothing.
    ///
    /// # Errors
    /// When the ledger cannot be used.
    fn release(&self, reservation: i64) -> Result<(), LedgerError>;

    /// What came of the same question, if an earlier attempt of this capture saved it.
    ///
    /// # Errors
    /// When the ledger cannot be used.
    fn saved_answer(&self, question: &str) -> Result<Option<Vec<u8>>, LedgerError>;

    /// Saves what came of a question, so that the next attempt does not pay for it again.
    ///
    /// # Errors
    /// When the ledger cannot be used.
    fn save_answer(&self, question: &str, answer: &[u8]) -> Result<(), LedgerError>;
}

/// Grants every call and saves no answer; for dry runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl ModelBudget for Unlimited {
    fn reserve(&self, _: &Spending) -> Result<Reserved, LedgerError> {
        Ok(Reserved::Granted(0))
    }

    fn settle(&self, _: i64, _: &Spending) -> Result<(), LedgerError> {
        Ok(())
    }

    fn release(&self, _: i64) -> Result<(), LedgerError> {
        Ok(())
    }

    fn saved_answer(&self, _: &str) -> Result<Option<Vec<u8>>, LedgerError> {
        Ok(None)
    }

    fn save_answer(&self, _: &str, _: &[u8]) -> Result<(), LedgerError> {
        Ok(())
    }
}
