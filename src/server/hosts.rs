//! The hosts that requests may name, which are those that clients know the server by.

use http::StatusCode;
use http::header::HOST;
use http::request::Parts as Head;
use http::uri::Authority;

use crate::problem::Problem;
use crate::settings::Settings;
use crate::shared::Shared;

/// Refuses a request to an address under which questions are not answered. For what a login and `nugget doctor` ask:
/// captures pass, as they wait for nothing then.
pub(crate) fn check_host(shared: &Shared, head: &Head) -> Result<(), Problem> {
    let named = head.headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    // HTTP/2 has it in the address.
    let Some(named) = named.as_ref().or(head.uri.authority()) else { return Ok(()) };
    let is_it = |allowed: &String| {
        allowed.trim_matches(['[', ']']).eq_ignore_ascii_case(named.host().trim_matches(['[', ']']))
    };
    if allowed_hosts(&shared.settings, &shared.public_url).iter().any(is_it) {
        return Ok(());
    }
    let detail = "the server answers no questions under this address";
    Err(Problem::new(StatusCode::FORBIDDEN, "wrong_host", detail).hint(PUBLIC_URL_HINT))
}

/// The hosts that requests may name: those of this machine cannot be another site's by DNS rebinding.
pub(crate) fn allowed_hosts(settings: &Settings, public_url: &str) -> Vec<String> {
    let public = public_url.parse().ok().and_then(|url: http::Uri| Some(url.host()?.to_owned()));
    let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    public.into_iter().chain(local).chain(settings.allowed_hosts.iter().cloned()).collect()
}

/// What is to be done about a host that is not allowed.
pub(crate) const PUBLIC_URL_HINT: &str =
    "an administrator has to start the server with `--public-url`, the address that clients use";
