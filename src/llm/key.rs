//! API keys.

use std::fmt;
use std::path::Path;

use reqwest::header::HeaderValue;

use crate::error::Error;

/// An API key. `Debug` does not show it.
#[derive(Clone)]
pub struct Key {
    pub(crate) text: String,
    /// Where it was found, for a person: `ANTHROPIC_API_KEY`, or the path of a file.
    pub(crate) place: String,
}

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
        let (text, place) = match file {
            Some(path) => {
                let place = path.display().to_string();
                match std::fs::read_to_string(path) {
                    Ok(text) => (text, place),
                    Err(source) => return Err(Error::KeyFile { path: place, source }),
                }
            }
            None => (std::env::var(variable).unwrap_or_default(), variable.to_owned()),
        };
        let text = text.trim().to_owned();
        Ok((!text.is_empty()).then_some(Self { text, place }))
    }

    /// Whether it can be sent: it is one line without control characters. Each call with another one fails.
    pub fn is_valid(&self) -> bool {
        HeaderValue::from_str(&self.text).is_ok()
    }

    /// Where it was found, for a person: `ANTHROPIC_API_KEY`, or the path of a file.
    pub fn place(&self) -> &str {
        &self.place
    }
}
