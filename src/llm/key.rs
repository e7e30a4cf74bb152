//! API keys.

use std::fmt;
use std::path::Path;

use crate::error::Error;

/// An API key. `Debug` does not show it.
#[derive(Clone)]
pub struct Key(pub(crate) String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// Reads the key from the file, or from the named environment variable if no file is named. `None` if it is
    /// empty or unset.
    ///
    /// # Errors
    /// [`Error::KeyFile`] if the file cannot be read.
    pub fn find_in(file: Option<&Path>, variable: &str) -> Result<Option<Self>, Error> {
        let text = match file {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|source| Error::KeyFile { path: path.display().to_string(), source })?,
            None => std::env::var(variable).unwrap_or_default(),
        };
        let key = text.trim();
        Ok((!key.is_empty()).then(|| Self(key.to_owned())))
    }
}
