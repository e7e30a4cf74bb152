//! Where calls of models are paid from.

/// A failure of the ledger itself.
pub type LedgerError = Box<dyn std::error::Error + Send + Sync>;

/// What one call took, or may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    pub model: String,
    /// `claude-api`, `claude-p`.
    pub backend: String,
    pub usage: llm::Usage,
    /// By the list of prices, also where a subscription pays.
    pub microdollars: u64,
}

/// Whether a call may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// Its cost is set aside under this number.
    Granted(i64),
    /// The budget is spent, in the words that a person reads.
    OverBudget(String),
}

/// The purse of one capture. Its methods may block for as long as a database does.
pub trait Ledger: Send + Sync {
    /// Sets aside the most that a call may cost, before it is made. What is neither settled nor
    /// released counts as spent: whoever made the call may have died after it.
    fn reserve(&self, estimate: &Spending) -> Result<Reserved, LedgerError>;

    /// Puts what a call has cost in the place of the estimate.
    fn settle(&self, reservation: i64, spent: &Spending) -> Result<(), LedgerError>;

    /// Gives back what was set aside for a call that cost nothing.
    fn release(&self, reservation: i64) -> Result<(), LedgerError>;

    /// What was made of the answer to the same question, when this capture was tried before.
    fn saved_answer(&self, question: &str) -> Result<Option<Vec<u8>>, LedgerError>;

    /// Keeps what was made of an answer, so that the next attempt need not pay for it again.
    fn save_answer(&self, question: &str, answer: &[u8]) -> Result<(), LedgerError>;
}

/// Pays for everything and remembers nothing; for trials.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLedger;

impl Ledger for NoLedger {
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
