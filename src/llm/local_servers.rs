//! Finds servers of language models that run on this machine.

use std::time::Duration;

use crate::endpoint::{Auth, Endpoint, is_loopback};
use crate::models::{ListedModel, base, is_passed_on, list_models};

/// The servers that are looked for, by the ports that they use unless told otherwise.
const USUAL: &[(&str, &str)] = &[
    ("Ollama", "http://127.0.0.1:11434"),
    ("LM Studio", "http://127.0.0.1:1234"),
    ("llama.cpp", "http://127.0.0.1:8080"),
    ("vLLM", "http://127.0.0.1:8000"),
];
/// Enough for a server on this machine, which has nothing to compute.
pub const DEADLINE: Duration = Duration::from_millis(300);
/// A list of models is shorter.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A server that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalServer {
    /// What it is: `Ollama`.
    pub name: String,
    /// Its address.
    pub url: String,
    /// The names of its models, without those that only embed and those that it passes on to other machines.
    pub models: Vec<String>,
}

/// The addresses at which to look for servers. `ollama_host` is the value of Ollama's own variable, `OLLAMA_HOST`: a host,
/// a port or both, also as a URL.
pub fn usual(ollama_host: Option<&str>) -> Vec<(&'static str, String)> {
    let mut places: Vec<_> = USUAL.iter().map(|(name, url)| (*name, (*url).to_owned())).collect();
    if let Some(url) = ollama_host.and_then(ollama_url) {
        places[0].1 = url;
    }
    places
}

fn ollama_url(host: &str) -> Option<String> {
    let host = host.trim().trim_start_matches("http://").trim_end_matches('/');
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (host, 11434_u16),
    };
    // A server that listens on all addresses also does on this one.
    let host = if matches!(host, "" | "0.0.0.0" | "[::]") { "127.0.0.1" } else { host };
    Some(format!("http://{host}:{port}"))
}

/// Asks each address for its models, all at once, within the deadline, and returns the servers that answer, in the given
/// order. An address that is not on this machine is not asked.
pub async fn find(places: &[(&str, &str)], deadline: Duration) -> Vec<LocalServer> {
    // One client for all, because making one takes longer than asking.
    let Ok(endpoint) =
        Endpoint::new("http://127.0.0.1".to_owned(), Auth::Bearer(None), &[], deadline, ANSWER_BYTES_MAX)
    else {
        return Vec::new();
    };
    let asked: Vec<_> = places
        .iter()
        .filter(|(_, url)| is_loopback(url))
        .map(|(name, url)| {
            let endpoint = endpoint.at(format!("{}/v1/models", base(url)));
            let listed = async move { tokio::time::timeout(deadline, list_models(&endpoint)).await };
            (name, url, tokio::spawn(listed))
        })
        .collect();
    let mut found = Vec::new();
    for (name, url, listed) in asked {
        // Something else may listen there.
        let Ok(Ok(Ok(models))) = listed.await else { continue };
        let name = owner(&models).unwrap_or(name).to_owned();
        let is_for_text = |model: &String| !model.to_ascii_lowercase().contains("embed");
        let reads_here = |model: &String| is_for_text(model) && !is_passed_on(model);
        let models = models.into_iter().map(|model| model.id).filter(reads_here).collect();
        found.push(LocalServer { name, url: base(url).to_owned(), models });
    }
    found
}

/// The server by what it says of its models, as any may listen at any port.
fn owner(models: &[ListedModel]) -> Option<&'static str> {
    match models.first()?.owned_by.as_deref()? {
        "library" => Some("Ollama"),
        "llamacpp" => Some("llama.cpp"),
        "vllm" => Some("vLLM"),
        "organization_owner" => Some("LM Studio"),
        _ => None,
    }
}

/// The command that starts the server which usually listens at an address.
pub fn start_command(url: &str) -> Option<&'static str> {
    let is_usual =
        |name: &str| USUAL.iter().any(|(known, address)| *known == name && port(address) == port(url));
    [("Ollama", "ollama serve"), ("LM Studio", "lms server start")]
        .into_iter()
        .find(|(name, _)| is_usual(name))
        .map(|(_, command)| command)
}

/// The command by which the server that usually listens at an address gets a model.
pub fn pull_command(url: &str, model: &str) -> Option<String> {
    (start_command(url) == Some("ollama serve")).then(|| format!("ollama pull {model}"))
}

fn port(url: &str) -> Option<u16> {
    reqwest::Url::parse(url).ok()?.port()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::tests::server;

    #[tokio::test]
    async fn running_servers_are_found_in_parallel_and_within_the_bound() {
        let listing = |owner: &str| {
            format!(
                r#"{{"object":"list","data":[{{"id":"nomic-embed-text","owned_by":"{owner}"}},{{"id":"gpt-oss:120b-cloud","owned_by":"{owner}"}},{{"id":"qwen3:8b","owned_by":"{owner}"}}]}}"#
            )
        };
        let (ollama, seen) = server(vec![("200 OK", "", listing("library"))]).await;
        let (other, _) = server(vec![("200 OK", "", listing("me"))]).await;
        let (site, _) = server(vec![("200 OK", "", "<html>".to_owned())]).await;
        let (empty, _) = server(vec![("200 OK", "", r#"{"object":"list","data":null}"#.to_owned())]).await;
        // Accepts a connection and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = format!("http://{}", silent.local_addr().unwrap());
        let (away, not_asked) = server(Vec::new()).await;
        let away = away.replace("127.0.0.1", "models.example.com");
        let begun = std::time::Instant::now();
        let found = find(
            &[
                ("silent", &silent),
                ("silent", &silent),
                ("a", &ollama),
                ("b", &other),
                ("site", &site),
                ("away", &away),
                ("off", "http://127.0.0.1:1"),
                ("empty", &empty),
            ],
            Duration::from_secs(2),
        )
        .await;
        assert!(begun.elapsed() < Duration::from_secs(4), "one after the other would take longer");
        let models = vec!["qwen3:8b".to_owned()];
        assert_eq!(
            found,
            [
                LocalServer { name: "Ollama".into(), url: ollama, models: models.clone() },
                LocalServer { name: "b".into(), url: other, models },
                LocalServer { name: "empty".into(), url: empty, models: Vec::new() },
            ]
        );
        assert!(seen.lock().unwrap()[0].starts_with("GET /v1/models HTTP/1.1\r\n"));
        assert!(not_asked.lock().unwrap().is_empty());
    }

    #[test]
    fn the_address_of_ollama_is_as_its_variable_says() {
        let url = |host: &str| usual(Some(host))[0].1.clone();
        assert_eq!(usual(None)[0].1, "http://127.0.0.1:11434");
        for (host, expected) in [
            ("0.0.0.0", "http://127.0.0.1:11434"),
            (":8000", "http://127.0.0.1:8000"),
            ("http://127.0.0.1:9/", "http://127.0.0.1:9"),
            ("localhost:12", "http://localhost:12"),
            ("[::1]", "http://[::1]:11434"),
            ("gpu.example.com:11434", "http://gpu.example.com:11434"),
            ("127.0.0.1:x", "http://127.0.0.1:11434"),
        ] {
            assert_eq!(url(host), expected, "{host}");
        }
    }

    #[test]
    fn commands_fit_the_server() {
        assert_eq!(start_command("http://localhost:11434/v1"), Some("ollama serve"));
        assert_eq!(start_command("http://127.0.0.1:8080"), None);
        assert_eq!(
            pull_command("http://127.0.0.1:11434", "qwen3:8b").as_deref(),
            Some("ollama pull qwen3:8b")
        );
        assert_eq!(pull_command("http://127.0.0.1:1234", "qwen3:8b"), None);
    }
}
