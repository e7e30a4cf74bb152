//! The list of a server's models: `GET /v1/models`, the same for all servers.

use serde::Deserialize;

use crate::endpoint::Endpoint;
use crate::error::Error;

/// A model that a server has.
#[derive(Debug, Deserialize)]
pub(crate) struct ListedModel {
    pub(crate) id: String,
    /// Most servers put their own name here.
    #[serde(default)]
    pub(crate) owned_by: Option<String>,
}

#[derive(Deserialize)]
struct Listing {
    /// Ollama sends `null` when it has none.
    data: Option<Vec<ListedModel>>,
}

/// The models of a server.
///
/// # Errors
/// As for [`Endpoint::post`]; [`Error::Answer`] if it is not such a list.
pub(crate) async fn list_models(endpoint: &Endpoint) -> Result<Vec<ListedModel>, Error> {
    let text = endpoint.get().await?;
    let listing: Listing = serde_json::from_str(&text).map_err(|error| Error::Answer(error.to_string()))?;
    Ok(listing.data.unwrap_or_default())
}

/// Whether the name is that of a model that Ollama passes on to its own servers.
pub(crate) fn is_passed_on(model: &str) -> bool {
    model.ends_with("-cloud") || model.ends_with(":cloud")
}

/// The base address of a server, written with or without `/v1`, the path of a call after it, and a slash at its end.
pub(crate) fn base(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    let url = ["/messages", "/chat/completions", "/models"]
        .iter()
        .find_map(|call| url.strip_suffix(call).filter(|before| before.ends_with("/v1")))
        .unwrap_or(url);
    url.strip_suffix("/v1").unwrap_or(url).trim_end_matches('/')
}
